//! What is kept of a fleet over restarts: the seam to checkpoints.

use std::sync::Arc;

use futures::future::{self, BoxFuture};
use skopos::{InformerOptions, ResourceId};
use tokio_util::sync::CancellationToken;

use crate::cluster::{CachedKind, Document, DocumentRequest};
use crate::fleet::Fleet;
use crate::id::ClusterId;

/// Remembers what clusters held. Every call is bounded by the fleet (5 s): what takes longer is done without.
pub trait Keeper: Send + Sync + 'static {
    /// What is remembered of a cluster that joins: its kinds are started at once.
    fn remembered<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, Remembered>;

    /// The informer of a kind starts: completes its options, for example with content to begin with.
    fn prepare<'a>(
        &'a self,
        cluster: &'a ClusterId,
        resource: &'a ResourceId,
        options: InformerOptions,
    ) -> BoxFuture<'a, InformerOptions>;

    /// The informer of a kind has started. Not to keep `kind`: whoever holds it keeps the informer running.
    fn started(&self, cluster: &ClusterId, kind: &CachedKind);

    /// A cluster was removed for good.
    fn forgotten<'a>(&'a self, _cluster: &'a ClusterId) -> BoxFuture<'a, ()> {
        Box::pin(future::ready(()))
    }

    /// Runs beside the fleet until it is told to stop, and does then what is left to do; the clusters are shut down when it
    /// has returned, or after 10 s.
    fn run(self: Arc<Self>, _fleet: Fleet, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { stop.cancelled().await })
    }
}

/// What is remembered of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// The kinds that it had.
    pub kinds: Vec<ResourceId>,
    /// Discovery and OpenAPI documents.
    pub documents: Vec<(DocumentRequest, Document)>,
}
