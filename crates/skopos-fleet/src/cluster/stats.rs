//! Statistics of one cluster, as plain values.

use std::sync::Arc;

use skopos::{InformerStats, TransportStats};
use tokio::time::Instant;

use super::persistence::CheckpointStats;
use super::state::ClusterState;
use crate::id::ClusterId;

/// Statistics of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterStats {
    /// The cluster's name.
    pub id: ClusterId,
    /// The time at which the cluster joined, in this process.
    pub joined: Instant,
    /// The state.
    pub state: Arc<ClusterState>,
    /// The cached resources, in order.
    pub kinds: Vec<KindStats>,
    /// The connections, after first use.
    pub transport: Option<TransportStats>,
    /// Bytes of JSON in memory.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub memory_budget: Option<u64>,
    /// Informers started so far.
    pub starts: u64,
    /// Cached resources evicted because they did not fit.
    pub evictions: u64,
    /// Documents in memory.
    pub documents: usize,
    /// Bytes of these documents.
    pub document_bytes: usize,
    /// Requests passed through so far.
    pub requests: u64,
    /// Requests that were not answered.
    pub request_failures: u64,
    /// The checkpoint statistics, if checkpoints are enabled.
    pub kept: Option<CheckpointStats>,
}

/// Statistics of one cached resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindStats {
    /// The informer.
    pub informer: InformerStats,
    /// Set while a caller uses it.
    pub in_use: bool,
    /// The time of the last use.
    pub last_used: Instant,
    /// Set for one of the configured resources.
    pub pinned: bool,
}
