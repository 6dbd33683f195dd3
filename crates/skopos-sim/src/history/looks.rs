//! What somebody saw: an object, or a store with its freshness.

use std::time::Duration;

use super::cast::{InformerId, KeyId, UidId};
use super::facts::CallId;
use super::mix;

/// An object as somebody saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Namespace and name.
    pub key: KeyId,
    /// Which of those that bore this name.
    pub uid: UidId,
    /// Its resource version.
    pub rv: u64,
    /// The number of the write that made it: [`STAMP_LABEL`](super::STAMP_LABEL). 0: it has none.
    pub stamp: u32,
}

/// A store as somebody saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Which.
    pub informer: InformerId,
    /// How.
    pub walk: Walk,
    /// `Snapshot::epoch`.
    pub epoch: u32,
    /// `Snapshot::is_synced`.
    pub synced: bool,
    /// `Snapshot::freshness` at this moment.
    pub freshness: Freshness,
    /// How the link stands.
    pub standing: Standing,
    /// What there was: one view, or one for each of the selection's namespaces, in their order.
    pub views: Box<[View]>,
}

/// How somebody came by what he saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// `Informer::snapshot`, as part of the regular looks.
    Regular,
    /// `Informer::snapshot`, by a user.
    Snapshot,
    /// What a call returned: `wait_for`, or `read` from the cache.
    Answer(CallId),
    /// What a call returned that had to ask the server: `read`.
    Live(CallId),
    /// The last look of the run.
    Last,
}

/// One part of what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The RV that it belongs to.
    pub rv: u64,
    /// What was there.
    pub content: Content,
}

/// A set of objects as a number: of how many, and the sum of what [`Seen::fingerprint`] makes of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// How many.
    pub objects: u32,
    /// The sum.
    pub sum: u64,
}

/// How fresh the client says that the content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// `Freshness::Live`.
    Live {
        /// At most so old.
        age: Duration,
    },
    /// `Freshness::Stale`.
    Stale {
        /// At most so old, if that is known.
        age: Option<Duration>,
        /// What is wrong.
        reason: Reason,
    },
    /// `Freshness::NeverSynced`.
    NeverSynced,
    /// `Freshness::Stopped`.
    Stopped {
        /// At most so old, if that is known.
        age: Option<Duration>,
    },
}

/// `StaleReason`, without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// `StaleReason::Link`.
    Link,
    /// `StaleReason::Undecodable`.
    Undecodable,
    /// `StaleReason::AuditMismatch`.
    AuditMismatch,
    /// `StaleReason::AgeBound`.
    AgeBound,
    /// `StaleReason::ClockSuspended`.
    Slept,
    /// One that this crate does not know.
    Other,
}

/// How a link stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// `Condition::word`, of the link that is worst off.
    pub condition: &'static str,
    /// Requests that failed one after the other.
    pub attempts: u32,
    /// `InformerStats::failures`: requests that have failed in all.
    pub failures: u32,
    /// `InformerStats::relists`.
    pub relists: u32,
}

// === impl Seen, Content ===

impl Seen {
    /// A number that stands for all of it.
    pub fn fingerprint(&self) -> u64 {
        let name = u64::from(self.key.0) << 32 | u64::from(self.uid.0);
        mix(mix(mix(name).wrapping_add(self.rv)).wrapping_add(u64::from(self.stamp)))
    }
}

impl Content {
    /// No objects.
    pub const EMPTY: Content = Content { objects: 0, sum: 0 };

    /// Takes an object in.
    pub fn add(&mut self, object: &Seen) {
        self.objects = self.objects.wrapping_add(1);
        self.sum = self.sum.wrapping_add(object.fingerprint());
    }

    /// Takes an object out.
    pub fn remove(&mut self, object: &Seen) {
        self.objects = self.objects.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(object.fingerprint());
    }
}

impl FromIterator<Seen> for Content {
    fn from_iter<I: IntoIterator<Item = Seen>>(objects: I) -> Self {
        let mut content = Content::EMPTY;
        objects.into_iter().for_each(|object| content.add(&object));
        content
    }
}

// === impl Freshness ===

impl Freshness {
    /// Whether the client says that all is well.
    pub fn is_live(&self) -> bool {
        matches!(self, Freshness::Live { .. })
    }

    /// The greatest age that the client says it may have.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Freshness::Live { age } => Some(*age),
            Freshness::Stale { age, .. } | Freshness::Stopped { age } => *age,
            Freshness::NeverSynced => None,
        }
    }
}

impl From<&skopos::Freshness> for Freshness {
    fn from(freshness: &skopos::Freshness) -> Self {
        match freshness {
            skopos::Freshness::Live { age } => Self::Live { age: *age },
            skopos::Freshness::Stale { age, reason, .. } => Self::Stale { age: *age, reason: reason.into() },
            skopos::Freshness::NeverSynced { .. } => Self::NeverSynced,
            skopos::Freshness::Stopped { age } => Self::Stopped { age: *age },
        }
    }
}

impl From<&skopos::StaleReason> for Reason {
    fn from(reason: &skopos::StaleReason) -> Self {
        match reason {
            skopos::StaleReason::Link(_) => Self::Link,
            skopos::StaleReason::Undecodable { .. } => Self::Undecodable,
            skopos::StaleReason::AuditMismatch { .. } => Self::AuditMismatch,
            skopos::StaleReason::AgeBound => Self::AgeBound,
            skopos::StaleReason::ClockSuspended { .. } => Self::Slept,
            _ => Self::Other,
        }
    }
}
