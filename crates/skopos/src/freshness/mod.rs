//! How old an answer can be at most.
//!
//! Only a quorum read proves an age: if a consistent read that was *sent* at `t` returned revision `r`, then content that
//! has reached `r` holds every change committed before `t`. So
//!
//! ```text
//! age = now − (the latest t at which a consistent read was sent whose revision the content has reached)
//! ```
//!
//! is never below the true age. No PING, open socket or bookmark proves that. The writer of a store publishes a [`Basis`]
//! (what is proven, and what is wrong with the link); a reader computes the [`Freshness`] from it when it asks, which
//! costs a few atomic loads and three clock reads.
//!
//! A monotonic clock stands still while a machine sleeps, so the proof also remembers by how much the wall clock was
//! ahead of the monotonic one; what that lead has grown since is added to the age.

mod basis;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use skopos_reflect::LinkState;
use skopos_wire::ObjectKey;
use tokio::time::Instant;

pub(crate) use basis::{Basis, Common, FreshnessCell, PartBasis, Proof, SLEEP_WORTH_TELLING};

/// What a store, a snapshot or a read knows about its own age.
#[derive(Clone, Debug)]
pub enum Freshness {
    /// The link is healthy, and the content was the server's newest state at most `age` ago.
    Live {
        /// Upper bound on how long ago the content was the newest state.
        age: Duration,
    },
    /// Something is wrong, or no proof is recent enough. The content is the last that was known.
    Stale {
        /// Since when.
        since: Instant,
        /// Upper bound on the age; `None` when nothing was ever proven in this stretch of history.
        age: Option<Duration>,
        /// What is wrong.
        reason: StaleReason,
    },
    /// There was never a complete first list: the content is empty and means nothing.
    NeverSynced {
        /// Since when the informer has been trying.
        since: Instant,
        /// Why it has not succeeded yet.
        reason: StaleReason,
    },
    /// The informer was stopped: nothing updates the content any more.
    Stopped {
        /// Upper bound on the age, if one was ever proven.
        age: Option<Duration>,
    },
}

impl Freshness {
    /// True for [`Freshness::Live`].
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Upper bound on the age, where there is one.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Live { age } => Some(*age),
            Self::Stale { age, .. } | Self::Stopped { age } => *age,
            Self::NeverSynced { .. } => None,
        }
    }

    /// True if the content is live and at most `max_age` old.
    pub fn is_within(&self, max_age: Duration) -> bool {
        matches!(self, Self::Live { age } if *age <= max_age)
    }

    /// What is wrong, if something is.
    pub fn reason(&self) -> Option<&StaleReason> {
        match self {
            Self::Stale { reason, .. } | Self::NeverSynced { reason, .. } => Some(reason),
            Self::Live { .. } | Self::Stopped { .. } => None,
        }
    }

    /// The worse of two: what a reader of both may rely on. Its age is the greater of both, whichever of them is the worse.
    pub fn worst(self, other: Self) -> Self {
        let oldest = match (self.age(), other.age()) {
            (Some(one), Some(another)) => Some(one.max(another)),
            _ => None,
        };
        let is_mine = (self.rank(), self.age().is_none(), self.age())
            >= (other.rank(), other.age().is_none(), other.age());
        match (if is_mine { self } else { other }, oldest) {
            (Self::Live { .. }, Some(age)) => Self::Live { age },
            (Self::Stale { since, reason, .. }, age) => Self::Stale { since, age, reason },
            (Self::Stopped { .. }, age) => Self::Stopped { age },
            (worse, _) => worse,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Live { .. } => 0,
            Self::Stale { .. } => 1,
            Self::NeverSynced { .. } => 2,
            Self::Stopped { .. } => 3,
        }
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = |age: &Option<Duration>| match age {
            Some(age) => format!("at most {age:.1?} old"),
            None => "of unknown age".to_owned(),
        };
        match self {
            Self::Live { age } => write!(f, "live, at most {age:.1?} old"),
            Self::Stale { since, age: known, reason } => {
                write!(f, "stale for {:.1?}, {}: {reason}", since.elapsed(), age(known))
            }
            Self::NeverSynced { since, reason } => {
                write!(f, "not synced after {:.1?}: {reason}", since.elapsed())
            }
            Self::Stopped { age: known } => write!(f, "stopped, {}", age(known)),
        }
    }
}

/// Why content may not be taken for the server's newest state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StaleReason {
    /// The list or watch does not run; the state says why, since when and after how many attempts.
    Link(Arc<LinkState>),
    /// Objects arrived in a form that cannot be read: what the store has of them is older.
    Undecodable {
        /// The first of them, if its name could be read.
        key: Option<ObjectKey>,
        /// How many.
        count: usize,
    },
    /// An audit found content that differs from the server's; a relist is under way.
    AuditMismatch {
        /// How many objects differ.
        differences: usize,
    },
    /// The link looks healthy, but nothing has proven the age for longer than the bound
    /// ([`FactoryOptions::stale_after`](crate::FactoryOptions)).
    AgeBound,
    /// The content is from a checkpoint, and the server has not confirmed it yet.
    Restored {
        /// When the checkpoint was taken, by the clock of that machine.
        written_at: SystemTime,
    },
    /// The machine slept: until the next probe nothing is known about what happened meanwhile.
    ClockSuspended {
        /// For about how long.
        slept: Duration,
    },
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(state) => write!(f, "{state}"),
            Self::Undecodable { key: Some(key), count: 1 } => {
                write!(f, "the server sent {key} in a form that cannot be read")
            }
            Self::Undecodable { count, .. } => {
                write!(f, "the server sent {count} objects in a form that cannot be read")
            }
            Self::AuditMismatch { differences } => {
                write!(f, "an audit found {differences} objects that differ from the server's; listing again")
            }
            Self::Restored { .. } => write!(f, "from a checkpoint, and not confirmed by the server yet"),
            Self::AgeBound => write!(f, "nothing has proven the age of the content lately"),
            Self::ClockSuspended { slept } => write!(f, "the machine slept for about {slept:.0?}"),
        }
    }
}
