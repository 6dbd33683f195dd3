//! Persistence of a fleet over restarts: the interface to checkpoints.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture};
use skopos::{InformerOptions, ResourceId};

use super::documents::{Document, DocumentRequest};
use crate::id::ClusterId;

/// Persistence of cluster content. The fleet bounds every call (20 s; `delete` 10 s) and proceeds without the result if it takes
/// longer.
///
/// The content of a cluster is valid for that cluster alone: resource versions mean nothing in another. So each cluster
/// has an identity, which changes when the cluster is recreated under its name. Restored content is served at once.
/// Before any of its lists or watches resumes, the server's identity is checked; if it differs, the content is
/// discarded.
pub trait Persistence: Send + Sync + 'static {
    /// Returns the identity to which all stored content of the cluster belongs. `None`: nothing is stored.
    fn identity<'a>(&'a self, _cluster: &'a ClusterId) -> BoxFuture<'a, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// Returns the stored state of a cluster that joins. Its resources are started at once.
    fn load<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, RestoredState>;

    /// Completes the options of a restored resource's informer, for example with content to start from. That content
    /// must belong to the cluster with this identity (as [`FactoryOptions::cluster`](skopos::FactoryOptions) names it).
    /// It is not called while no identity is known, nor for resources that are started later: readers may have seen
    /// newer content.
    fn prepare<'a>(
        &'a self,
        cluster: &'a ClusterId,
        identity: &'a str,
        resource: &'a ResourceId,
        options: InformerOptions,
    ) -> BoxFuture<'a, InformerOptions>;

    /// Records the identity of the server; `None`: it does not reveal one, so nothing of it may be stored. Content of
    /// another identity has to be deleted before this returns, and must not be returned any more, however long that
    /// takes.
    fn set_identity<'a>(&'a self, _cluster: &'a ClusterId, _identity: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(future::ready(()))
    }

    /// Deletes the content of a cluster that was removed for good.
    fn delete<'a>(&'a self, _cluster: &'a ClusterId) -> BoxFuture<'a, ()> {
        Box::pin(future::ready(()))
    }

    /// Returns the checkpoint statistics of a cluster. Does not block.
    fn stats(&self, _cluster: &ClusterId) -> Option<CheckpointStats> {
        None
    }
}

/// Timeout of one call to a [`Persistence`]. After a restart it has many calls to answer.
pub(crate) const PERSISTENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Stored state of a cluster.
#[derive(Clone, Debug, Default)]
pub struct RestoredState {
    /// The cached resources.
    pub kinds: Vec<ResourceId>,
    /// Discovery and OpenAPI documents.
    pub documents: Vec<(DocumentRequest, Document)>,
}

/// Checkpoint statistics of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// The time since all stored content matched the memory: the age of the oldest part. `None`: nothing is stored yet.
    pub age: Option<Duration>,
    /// The number of files.
    pub files: usize,
    /// The bytes of these files.
    pub bytes: u64,
    /// The number of files refused since the process started: damaged, or belonging to something else.
    pub refused: u64,
    /// The latest problem with storing, or the reason why a file was refused, for users.
    pub problem: Option<Arc<str>>,
}
