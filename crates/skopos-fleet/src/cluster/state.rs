//! State of a cluster, as its users see it.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use skopos::ResourceId;
use tokio::time::Instant;

use crate::pause::Paused;

/// State of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The condition.
    pub condition: Condition,
    /// Start of the condition, without interruption, as far as this process has observed.
    pub since: Instant,
    /// The reason, as a sentence for users; `None` while the cluster is healthy.
    pub reason: Option<Arc<str>>,
    /// The resource whose list/watch fails, if it alone is the reason. The state says nothing about other resources.
    pub kind: Option<ResourceId>,
    /// The origin of the pause, while [`Condition::Paused`].
    pub paused: Option<Paused>,
    /// The time of the server's last response.
    pub answered_at: Option<Instant>,
}

/// Condition of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// No response yet: there was no request, or a connection is being made.
    Connecting,
    /// The server answers.
    Live,
    /// The server answers with problems, or has been failing for a moment only.
    Degraded,
    /// The server does not answer.
    Unreachable,
    /// The cluster is known to be switched off: no requests are sent to it.
    Paused,
    /// The cluster left the fleet. Its data can be read for a while.
    Removed,
}

impl ClusterState {
    /// Returns whether condition, reason and pause are the same.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.condition == other.condition && self.reason == other.reason && self.paused == other.paused
    }

    /// Returns the start of the condition by the current wall clock. For a recorded pause, returns the recorded time.
    pub fn since_wall(&self) -> SystemTime {
        let written = self.paused.as_ref().and_then(|paused| paused.since);
        written.unwrap_or_else(|| {
            let now = SystemTime::now();
            now.checked_sub(self.since.elapsed()).unwrap_or(now)
        })
    }
}

impl Condition {
    /// All conditions.
    pub const ALL: [Condition; 6] =
        [Self::Connecting, Self::Live, Self::Degraded, Self::Unreachable, Self::Paused, Self::Removed];

    /// Returns whether a cluster in this condition may answer, so that it is worth waiting for.
    pub fn is_asked(self) -> bool {
        matches!(self, Self::Connecting | Self::Live | Self::Degraded)
    }

    /// Returns one word in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:.0?}", self.condition, self.since.elapsed())?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
