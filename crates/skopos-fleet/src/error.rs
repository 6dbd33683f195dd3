//! What a fleet answers instead of data, and why.

use std::sync::Arc;
use std::time::Duration;

use skopos::{ResourceId, TransportError};
use tokio::time::Instant;

use crate::cluster::{Paused, PausedBy};
use crate::id::ClusterId;

/// Why a fleet has no answer.
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
        /// How that is known, and since when.
        paused: Paused,
    },
    /// The cluster does not answer.
    #[error("cluster {cluster} has been unreachable for {:.0?}: {reason}", .since.elapsed())]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// Since when.
        since: Instant,
        /// Why.
        reason: Arc<str>,
    },
    /// The cluster left the fleet, and had nothing of what was asked for.
    #[error("cluster {cluster} left the fleet {:.0?} ago", .since.elapsed())]
    Removed {
        /// The cluster.
        cluster: ClusterId,
        /// Since when.
        since: Instant,
    },
    /// The deadline came first.
    #[error("cluster {cluster} had no answer within {waited:.1?}: {reason}")]
    Deadline {
        /// The cluster.
        cluster: ClusterId,
        /// How long it was waited.
        waited: Duration,
        /// What stood in the way.
        reason: Arc<str>,
    },
    /// The server does not let us have the kind, or does not know it.
    #[error("cluster {cluster} answers {code} for {resource}: {reason}")]
    Refused {
        /// The cluster.
        cluster: ClusterId,
        /// The kind.
        resource: Box<ResourceId>,
        /// 401, 403, 404, or another 4xx.
        code: u16,
        /// What it said.
        reason: Arc<str>,
    },
    /// The server answers, and has failed to list the kind several times in a row. It is tried on.
    #[error("cluster {cluster} fails to list {resource}, {attempts} times so far: {reason}")]
    Failing {
        /// The cluster.
        cluster: ClusterId,
        /// The kind.
        resource: Box<ResourceId>,
        /// How often it has failed.
        attempts: u32,
        /// What it said last.
        reason: Arc<str>,
    },
    /// The kind does not fit into what the cluster may use.
    #[error("cluster {cluster} keeps no copy of {resource}: {reason}")]
    Budget {
        /// The cluster.
        cluster: ClusterId,
        /// The kind.
        resource: Box<ResourceId>,
        /// Which limit, and how it stands.
        reason: Arc<str>,
    },
    /// The cluster's configuration cannot be used.
    #[error("the configuration of cluster {cluster} cannot be used: {reason}")]
    Config {
        /// The cluster.
        cluster: ClusterId,
        /// Why.
        reason: Arc<str>,
    },
    /// The request to the server failed.
    #[error("cluster {cluster}: {error}")]
    Transport {
        /// The cluster.
        cluster: ClusterId,
        /// Why.
        error: TransportError,
    },
    /// The server's answer is none.
    #[error("cluster {cluster} answers what cannot be read: {reason}")]
    Malformed {
        /// The cluster.
        cluster: ClusterId,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// The fleet was shut down.
    #[error("the fleet was shut down")]
    Closed,
}

/// Says how a paused cluster comes back, where that is known.
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
    /// The cluster that it is about.
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

    /// One word in kebab case, for metrics and for programs.
    pub fn word(&self) -> &'static str {
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
