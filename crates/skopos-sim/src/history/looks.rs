//! Observations: an object, or a store with its freshness.

use std::time::Duration;

use super::cast::{InformerId, KeyId, UidId};
use super::facts::CallId;
use super::mix;

/// An observed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Namespace and name.
    pub key: KeyId,
    /// Uid, which distinguishes objects of the same name.
    pub uid: UidId,
    /// Its resource version.
    pub rv: u64,
    /// The number of the write that made it: [`STAMP_LABEL`](super::STAMP_LABEL). 0: it has none.
    pub stamp: u32,
}

/// An observation of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// The informer.
    pub informer: InformerId,
    /// The origin of the observation.
    pub walk: Walk,
    /// `Snapshot::epoch`.
    pub epoch: u32,
    /// `Snapshot::is_synced`.
    pub synced: bool,
    /// `Snapshot::freshness` at this moment.
    pub freshness: Freshness,
    /// The state of the link.
    pub standing: Standing,
    /// The content: one view, or one for each of the selection's namespaces, in their order.
    pub views: Box<[View]>,
}

/// Origin of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// `Informer::snapshot`, as one of the regular looks.
    Regular,
    /// `Informer::snapshot`, by a user.
    Snapshot,
    /// Result of a call: `wait_for`, or `read` from the cache.
    Answer(CallId),
    /// Result of a call that had to ask the server: `read`.
    Live(CallId),
    /// The last look of the run.
    Last,
}

/// One part of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The RV of the content.
    pub rv: u64,
    /// The content.
    pub content: Content,
}

/// A set of objects as a digest: their number, and the sum of their [`Seen::fingerprint`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// Number of objects.
    pub objects: u32,
    /// The sum of fingerprints.
    pub sum: u64,
}

/// Freshness of content according to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// `Freshness::Live`.
    Live {
        /// The maximum age.
        age: Duration,
    },
    /// `Freshness::Stale`.
    Stale {
        /// The maximum age, if known.
        age: Option<Duration>,
        /// The reason.
        reason: Reason,
    },
    /// `Freshness::NeverSynced`.
    NeverSynced,
    /// `Freshness::Stopped`.
    Stopped {
        /// The maximum age, if known.
        age: Option<Duration>,
    },
}

/// `StaleReason`, without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// `StaleReason::Reflector`.
    Link,
    /// `StaleReason::Undecodable`.
    Undecodable,
    /// `StaleReason::AuditMismatch`.
    AuditMismatch,
    /// `StaleReason::AgeBound`.
    AgeBound,
    /// `StaleReason::ClockSuspended`.
    Slept,
    /// A reason that this crate does not know.
    Other,
}

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// `Condition::word` of the link in the worst state.
    pub condition: &'static str,
    /// Number of consecutive failed requests.
    pub attempts: u32,
    /// `InformerStats::failures`: total number of failed requests.
    pub failures: u32,
    /// `InformerStats::relists`.
    pub relists: u32,
}

impl Seen {
    /// Returns a hash of all fields.
    pub fn fingerprint(&self) -> u64 {
        let name = u64::from(self.key.0) << 32 | u64::from(self.uid.0);
        mix(mix(mix(name).wrapping_add(self.rv)).wrapping_add(u64::from(self.stamp)))
    }
}

impl Content {
    /// No objects.
    pub const EMPTY: Content = Content { objects: 0, sum: 0 };

    /// Adds an object.
    pub fn add(&mut self, object: &Seen) {
        self.objects = self.objects.wrapping_add(1);
        self.sum = self.sum.wrapping_add(object.fingerprint());
    }

    /// Removes an object.
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

impl Freshness {
    /// Returns whether the client reports it as live.
    pub fn is_live(&self) -> bool {
        matches!(self, Freshness::Live { .. })
    }

    /// Returns the maximum age according to the client.
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
            skopos::StaleReason::Reflector(_) => Self::Link,
            skopos::StaleReason::Undecodable { .. } => Self::Undecodable,
            skopos::StaleReason::AuditMismatch { .. } => Self::AuditMismatch,
            skopos::StaleReason::AgeBound => Self::AgeBound,
            skopos::StaleReason::ClockSuspended { .. } => Self::Slept,
            _ => Self::Other,
        }
    }
}
