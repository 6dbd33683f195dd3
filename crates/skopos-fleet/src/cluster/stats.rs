//! Figures of one cluster, as plain values.

use std::sync::Arc;

use skopos::{InformerStats, TransportStats};
use tokio::time::Instant;

use super::machine::ClusterState;
use super::unit::Unit;
use crate::id::ClusterId;
use crate::keeper::KeptStats;

/// A look at a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterStats {
    /// Its name.
    pub id: ClusterId,
    /// When it joined, in this process.
    pub joined: Instant,
    /// How it stands.
    pub state: Arc<ClusterState>,
    /// The kinds that are kept, in order.
    pub kinds: Vec<KindStats>,
    /// The connections, once somebody needed them.
    pub transport: Option<TransportStats>,
    /// Bytes of JSON in memory.
    pub bytes: u64,
    /// What they may be.
    pub memory_budget: Option<u64>,
    /// Kinds started so far.
    pub starts: u64,
    /// Kinds that were let go because they did not fit.
    pub evictions: u64,
    /// Documents that are kept.
    pub documents: usize,
    /// Their bytes.
    pub document_bytes: usize,
    /// Requests passed through so far.
    pub requests: u64,
    /// Those of them that were not answered.
    pub request_failures: u64,
    /// How it stands with what is kept of it over restarts, if anything is.
    pub kept: Option<KeptStats>,
}

/// A look at one kind of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindStats {
    /// The informer.
    pub informer: InformerStats,
    /// Whether somebody uses it now.
    pub in_use: bool,
    /// When it was last used.
    pub last_used: Instant,
    /// Wanted by configuration.
    pub pinned: bool,
}

impl Unit {
    pub(crate) fn stats(&self) -> ClusterStats {
        let kinds: Vec<KindStats> = self.kinds.all().iter().map(|entry| entry.stats()).collect();
        let (starts, evictions) = self.kinds.counts();
        let (documents, document_bytes) = self.documents.counts();
        let (requests, request_failures) = self.request_counts();
        ClusterStats {
            id: self.id.clone(),
            joined: self.began,
            state: self.state(),
            bytes: kinds.iter().map(|kind| kind.informer.bytes).sum(),
            kinds,
            transport: self.link().made().map(|session| session.transport.stats()),
            memory_budget: self.options.memory_budget,
            starts,
            evictions,
            documents,
            document_bytes,
            requests,
            request_failures,
            kept: self.keeper.as_ref().and_then(|keeper| keeper.stats(&self.id)),
        }
    }
}
