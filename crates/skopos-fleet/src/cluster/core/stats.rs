//! Collection of a cluster's statistics.

use super::ClusterInner;
use crate::cluster::stats::{ClusterStats, KindStats};

impl ClusterInner {
    /// Returns the statistics of the cluster.
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
            transport: self.connection().existing().map(|session| session.transport.stats()),
            memory_budget: self.options.memory_budget,
            starts,
            evictions,
            documents,
            document_bytes,
            requests,
            request_failures,
            kept: self.persistence.as_ref().and_then(|persistence| persistence.stats(&self.id)),
        }
    }
}
