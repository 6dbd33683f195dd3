//! Errors of a fleet.

use std::sync::Arc;
use std::time::Duration;

use skopos::{ResourceId, TransportError};
use tokio::time::Instant;

use crate::id::ClusterId;
use crate::pause::{Paused, PausedBy};

/// Error of a fleet.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// There is no cluster of this name.
    #[error("there is no cluster {name:?} in the fleet")]
    UnknownCluster {
        /// The name.
        name: String,
    },
    /// The cluster is switched off.
    #[error("cluster {cluster} is paused ({paused}){}", resume(.cluster, .paused))]
    Paused {
        /// The cluster.
        cluster: ClusterId,
        /// The evidence and start of the pause.
        paused: Paused,
    },
    /// The cluster does not answer.
    #[error("cluster {cluster} has been unreachable for {:.0?}: {reason}", .since.elapsed())]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// Start of the outage.
        since: Instant,
        /// The reason.
        reason: Arc<str>,
    },
    /// The cluster left the fleet, and the requested data was not cached.
    #[error("cluster {cluster} left the fleet {:.0?} ago", .since.elapsed())]
    Removed {
        /// The cluster.
        cluster: ClusterId,
        /// The time at which it left.
        since: Instant,
    },
    /// The deadline expired before there was a result.
    #[error("cluster {cluster} had no answer within {waited:.1?}: {reason}")]
    Deadline {
        /// The cluster.
        cluster: ClusterId,
        /// The time waited.
        waited: Duration,
        /// The obstacle.
        reason: Arc<str>,
    },
    /// The server refuses access to the resource, or does not serve it.
    #[error("cluster {cluster} answers {code} for {resource}: {reason}")]
    Refused {
        /// The cluster.
        cluster: ClusterId,
        /// The resource.
        resource: Box<ResourceId>,
        /// 401, 403, 404, or another 4xx.
        code: u16,
        /// The server's reason.
        reason: Arc<str>,
    },
    /// The server answers, but has failed to list the resource several times in a row. Retries continue.
    #[error("cluster {cluster} fails to list {resource}, {attempts} times so far: {reason}")]
    Failing {
        /// The cluster.
        cluster: ClusterId,
        /// The resource.
        resource: Box<ResourceId>,
        /// The number of failures.
        attempts: u32,
        /// The server's last reason.
        reason: Arc<str>,
    },
    /// The resource does not fit into the cluster's limits.
    #[error("cluster {cluster} keeps no copy of {resource}: {reason}")]
    Budget {
        /// The cluster.
        cluster: ClusterId,
        /// The resource.
        resource: Box<ResourceId>,
        /// The limit and its current use.
        reason: Arc<str>,
    },
    /// The cluster's configuration is unusable.
    #[error("the configuration of cluster {cluster} cannot be used: {reason}")]
    Config {
        /// The cluster.
        cluster: ClusterId,
        /// The reason.
        reason: Arc<str>,
    },
    /// The request to the server failed.
    #[error("cluster {cluster}: {error}")]
    Transport {
        /// The cluster.
        cluster: ClusterId,
        /// The cause.
        error: TransportError,
    },
    /// The server's response could not be parsed.
    #[error("cluster {cluster} answers what cannot be read: {reason}")]
    Malformed {
        /// The cluster.
        cluster: ClusterId,
        /// The problem of the response.
        reason: Arc<str>,
    },
    /// The fleet was shut down.
    #[error("the fleet was shut down")]
    Closed,
}

/// Returns how to resume a paused cluster, if that is known.
fn resume(cluster: &ClusterId, paused: &Paused) -> String {
    match (paused.by, cluster.as_str().split_once('.')) {
        (PausedBy::Annotation | PausedBy::ScaledDown, Some((name, namespace))) => {
            format!(": resume it with `skopos vc resume {name} -n {namespace}`")
        }
        (PausedBy::Sleep, _) => ": its platform wakes it".to_owned(),
        _ => String::new(),
    }
}

impl FleetError {
    /// Returns the cluster concerned.
    pub fn cluster(&self) -> Option<&ClusterId> {
        match self {
            Self::UnknownCluster { .. } | Self::Closed => None,
            Self::Paused { cluster, .. }
            | Self::Unreachable { cluster, .. }
            | Self::Removed { cluster, .. }
            | Self::Deadline { cluster, .. }
            | Self::Refused { cluster, .. }
            | Self::Failing { cluster, .. }
            | Self::Budget { cluster, .. }
            | Self::Config { cluster, .. }
            | Self::Transport { cluster, .. }
            | Self::Malformed { cluster, .. } => Some(cluster),
        }
    }

    /// Returns one word in kebab case, for metrics and programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownCluster { .. } => "unknown-cluster",
            Self::Paused { .. } => "paused",
            Self::Unreachable { .. } => "unreachable",
            Self::Removed { .. } => "removed",
            Self::Deadline { .. } => "deadline",
            Self::Refused { .. } => "refused",
            Self::Failing { .. } => "failing",
            Self::Budget { .. } => "budget",
            Self::Config { .. } => "config",
            Self::Transport { .. } => "transport",
            Self::Malformed { .. } => "malformed",
            Self::Closed => "closed",
        }
    }
}
