//! The contract of a sink: a system outside the cluster that is kept equal to it. A sink knows nothing of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::entry::{EntryName, EntryOwner, EntryValue, Readiness};

pub mod dns;
pub mod haproxy;
pub mod ipvs;
pub mod memory;
pub mod rest;

/// A system outside the cluster.
///
/// The sink itself bounds the time of each call, and a call that is dropped may have been done or not.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Returns the sink's abilities.
    fn traits(&self) -> SinkTraits;

    /// Parses a name as this sink spells it. Text from the cluster's objects is untrusted until it is parsed.
    ///
    /// # Errors
    /// When the sink cannot serve it, with the reason for people.
    fn name(&self, text: &str) -> Result<EntryName, String>;

    /// Parses a value as this sink spells it.
    ///
    /// # Errors
    /// When the sink cannot serve it, with the reason for people.
    fn value(&self, text: &str) -> Result<EntryValue, String>;

    /// Leaves out values that cannot coexist with the others.
    fn select(&self, _members: &mut BTreeMap<EntryValue, Readiness>) {}

    /// Reads everything back: the complete content, or an error, never a part.
    ///
    /// # Errors
    /// When the sink cannot be reached or refuses, or the answer is not complete.
    async fn observe(&self) -> Result<Observed, SinkError>;

    /// Reads some names back. A name that does not exist has no entry in the answer.
    ///
    /// # Errors
    /// As [`observe`](Sink::observe).
    async fn read(&self, names: &BTreeSet<EntryName>) -> Result<Observed, SinkError> {
        let mut all = self.observe().await?;
        all.entries.retain(|name, _| names.contains(name));
        Ok(all)
    }

    /// Returns true if everything is proven to be as the last [`observe`](Sink::observe) returned it. `false` proves nothing.
    ///
    /// # Errors
    /// As [`observe`](Sink::observe).
    async fn is_unchanged(&self) -> Result<bool, SinkError> {
        Ok(false)
    }

    /// Waits until the sink reports that its content has changed. Cancel safe.
    async fn changed(&self) {
        std::future::pending().await
    }

    /// Changes one name. It adds before it removes, and writes only if the outside is still as the step expects it.
    ///
    /// With a fence, a sink that can compare it writes nothing once a later term has written. Without one, it writes nothing once
    /// the fence differs from that at its first write.
    async fn apply(&self, step: &SinkStep, fence: Option<&Fence>) -> StepOutcome;

    /// Removes what the sink keeps beside its entries. None of our entries is left then.
    ///
    /// # Errors
    /// When it remains, with the reason for people.
    async fn release(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the problem of a sink that works nevertheless, for people.
    fn problem(&self) -> Option<String> {
        None
    }
}

/// The term of a leader, in a form that a sink can compare with the last one that has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The UID of the Lease. Numbers of another Lease are not comparable.
    pub lease: Arc<str>,
    /// The number of the term.
    pub term: u64,
}

/// Abilities of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkTraits {
    /// True if a value can keep its connections without getting new ones.
    pub drains: bool,
    /// Maximum number of values of one name; the rest is left out, with a warning.
    pub most_values: Option<usize>,
}

/// Content of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All entries, by name.
    pub entries: BTreeMap<EntryName, ObservedEntry>,
}

/// Values of a name outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEntry {
    /// The owner.
    pub mark: EntryMark,
    /// The values.
    pub members: BTreeMap<EntryValue, ObservedMember>,
    /// True if everything else about it, such as a TTL, is as the sink writes it.
    pub tidy: bool,
}

/// Ownership of an entry outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryMark {
    /// We wrote it, for this owner. A sink that cannot keep an owner has none.
    Ours(Option<Arc<EntryOwner>>),
    /// It has no mark of ours, and is never touched.
    Foreign,
}

/// One value outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedMember {
    /// It gets no new connections.
    pub draining: bool,
    /// Number of its connections, as far as the sink knows.
    pub connections: u32,
}

/// A change of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStep {
    /// The name.
    pub name: EntryName,
    /// The entry when the step was planned. The sink writes only if the mark is still the same.
    pub before: Option<ObservedEntry>,
    /// The change.
    pub action: StepAction,
}

/// The content that a step requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// The name, with these values.
    Put {
        /// The new owner.
        owner: Arc<EntryOwner>,
        /// All values that the name should have.
        members: BTreeMap<EntryValue, Serving>,
    },
    /// Removal of our entry.
    Delete,
}

/// Traffic of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// It gets new connections.
    Active,
    /// It keeps its existing connections.
    Draining,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The sink acknowledged it.
    Done,
    /// No answer came in time, so it may have been done or not.
    Unknown(String),
    /// The outside was not as the step expected it; nothing was written.
    Conflict(String),
    /// The sink will refuse this until its configuration changes: a key, a right, a missing backend.
    Refused(String),
    /// Nothing was sent.
    Unreachable(String),
    /// Nothing was written, and nothing will be: another process writes the sink.
    Fenced(String),
}

/// An error of reading a sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// It is down, or too slow.
    #[error("{0}")]
    Unreachable(String),
    /// It answered, and will answer the same until its configuration changes.
    #[error("{0}")]
    Refused(String),
    /// It answered incompletely or unintelligibly. Nothing is concluded from it.
    #[error("{0}")]
    Incomplete(String),
}

impl ObservedEntry {
    /// Returns our values that get traffic.
    pub fn serving(&self) -> impl Iterator<Item = &EntryValue> {
        let members = (self.mark != EntryMark::Foreign).then_some(&self.members).into_iter().flatten();
        members.filter(|(_, member)| !member.draining).map(|(value, _)| value)
    }
}

impl SinkStep {
    /// Returns the values that lose traffic by this step.
    pub fn losses(&self) -> Vec<&EntryValue> {
        let before = self.before.iter().flat_map(ObservedEntry::serving);
        let stays = |value: &EntryValue| match &self.action {
            StepAction::Put { members, .. } => members.get(value) == Some(&Serving::Active),
            StepAction::Delete => false,
        };
        before.filter(|value| !stays(value)).collect()
    }
}

impl fmt::Display for SinkStep {
    /// Writes one line for people: `+ 10.0.0.1, - 10.0.0.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = BTreeMap::new();
        let before = self.before.as_ref().map_or(&none, |entry| &entry.members);
        write!(f, "{}:", self.name)?;
        let StepAction::Put { members, owner } = &self.action else {
            return f.write_str(" delete");
        };
        for (value, serving) in members {
            match (before.get(value), serving) {
                (None, _) => write!(f, " +{value}")?,
                (Some(known), Serving::Active) if known.draining => write!(f, " undrain {value}")?,
                (Some(known), Serving::Draining) if !known.draining => write!(f, " drain {value}")?,
                _ => {}
            }
        }
        before
            .keys()
            .filter(|value| !members.contains_key(*value))
            .try_for_each(|value| write!(f, " -{value}"))?;
        write!(f, " ({owner})")
    }
}
