//! Freshness: an upper bound on the age of an answer.
//!
//! Only a quorum read proves an age: if a consistent read that was *sent* at `t` returned revision `r`, then content that
//! has reached `r` holds every change committed before `t`. So
//!
//! ```text
//! age = now − (the latest t at which a consistent read was sent whose revision the content has reached)
//! ```
//!
//! is never below the true age. No PING, open socket or bookmark proves that. The writer of a store publishes [`Evidence`]
//! (what is proven, and what is wrong with the reflector); a reader computes the [`Freshness`] from it when it asks, which
//! costs a few atomic loads and three clock reads.
//!
//! A monotonic clock stops while a machine is suspended, so the proof also records the wall clock's lead over the monotonic
//! one. The lead's growth since then is added to the age.

mod evidence;
pub(crate) mod prober;
pub(crate) mod sleep;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use evidence::{
    Evidence, FreshnessCell, FreshnessContext, MIN_REPORTED_SUSPEND, PartEvidence, Proof,
};
use skopos_reflect::ReflectorState;
use skopos_wire::ObjectKey;
use tokio::time::Instant;

/// The freshness of a store, a snapshot or a read.
///
/// # Example
/// ```no_run
/// # fn example(pods: &skopos::Informer<k8s_openapi::api::core::v1::Pod>) {
/// use std::time::Duration;
///
/// let snapshot = pods.snapshot();
/// let freshness = snapshot.freshness();
/// if freshness.is_within(Duration::from_secs(60)) {
///     println!("{} pods", snapshot.len());
/// } else {
///     // Such as "stale for 20.0s, at most 35.0s old: ...".
///     println!("the view is {freshness}");
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Freshness {
    /// The reflector is healthy, and the content was the server's newest state at most `age` ago.
    Live {
        /// Upper bound on how long ago the content was the newest state.
        age: Duration,
    },
    /// Something is wrong, or no proof is recent enough. The content is the last that was known.
    Stale {
        /// The time since when it is stale.
        since: Instant,
        /// Upper bound on the age; `None` if nothing was ever proven in this stretch of history.
        age: Option<Duration>,
        /// The reason.
        reason: StaleReason,
    },
    /// There was never a complete first list: the content is empty and means nothing.
    NeverSynced {
        /// The time at which the informer's attempts began.
        since: Instant,
        /// The reason why it has not succeeded yet.
        reason: StaleReason,
    },
    /// The informer was stopped: nothing updates the content any more.
    Stopped {
        /// Upper bound on the age, if one was ever proven.
        age: Option<Duration>,
    },
}

impl Freshness {
    /// Returns true for [`Freshness::Live`].
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Returns the upper bound on the age, if there is one.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Live { age } => Some(*age),
            Self::Stale { age, .. } | Self::Stopped { age } => *age,
            Self::NeverSynced { .. } => None,
        }
    }

    /// Returns whether the content is live and at most `max_age` old.
    pub fn is_within(&self, max_age: Duration) -> bool {
        matches!(self, Self::Live { age } if *age <= max_age)
    }

    /// Returns what is wrong, if anything.
    pub fn reason(&self) -> Option<&StaleReason> {
        match self {
            Self::Stale { reason, .. } | Self::NeverSynced { reason, .. } => Some(reason),
            Self::Live { .. } | Self::Stopped { .. } => None,
        }
    }

    /// Returns the worse of two: what a reader of both may rely on. Its age is the greater of the two ages, whichever is
    /// the worse.
    #[must_use]
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

/// The reason why content may not be taken for the server's newest state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StaleReason {
    /// The list or watch does not run; the state says why, since when and after how many attempts.
    Reflector(Arc<ReflectorState>),
    /// Objects arrived in an unreadable form: the store has older versions of them.
    Undecodable {
        /// The first of them, if its name could be read.
        key: Option<ObjectKey>,
        /// The number of such objects.
        count: usize,
    },
    /// An audit found content that differs from the server's; a relist is in progress.
    AuditMismatch {
        /// The number of objects that differ.
        differences: usize,
    },
    /// The reflector looks healthy, but the last proof of the age is older than the bound
    /// ([`FactoryOptions::stale_after`](crate::FactoryOptions)).
    AgeBound,
    /// The content is from a checkpoint, and the server has not confirmed it yet.
    Restored {
        /// The time at which the checkpoint was taken, by the clock of that machine.
        written_at: SystemTime,
    },
    /// The machine was suspended: until the next probe nothing is known about what happened meanwhile.
    ClockSuspended {
        /// The approximate length of the suspend.
        slept: Duration,
    },
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reflector(state) => write!(f, "{state}"),
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
