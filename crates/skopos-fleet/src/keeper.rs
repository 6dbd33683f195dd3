//! What is kept of a fleet over restarts: the seam to checkpoints.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture};
use skopos::{InformerOptions, ResourceId};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Document, DocumentRequest};
use crate::fleet::Fleet;
use crate::id::ClusterId;

/// Remembers what clusters held. Every call is bounded by the fleet (20 s): what takes longer is done without.
///
/// What was remembered of a cluster is good for that cluster alone: resource versions mean nothing in another. So it has an
/// identity, which changes when the cluster is made anew under its name. Remembered content is served at once; the server is
/// asked who it is before any list or watch of it is gone on with; and if it is another, the content is let go of.
pub trait Keeper: Send + Sync + 'static {
    /// The identity of which everything that is remembered of the cluster is. `None`: nothing is remembered.
    fn identity<'a>(&'a self, _cluster: &'a ClusterId) -> BoxFuture<'a, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// What is remembered of a cluster that joins: its kinds are started at once.
    fn remembered<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, Remembered>;

    /// The informer of a kind that was remembered starts: completes its options, for example with content to begin with, which
    /// has to be of the cluster with this identity (as [`FactoryOptions::cluster`](skopos::FactoryOptions) names it). Not
    /// called while none is known, nor for kinds that are started later: readers may have seen what is newer.
    fn prepare<'a>(
        &'a self,
        cluster: &'a ClusterId,
        identity: &'a str,
        resource: &'a ResourceId,
        options: InformerOptions,
    ) -> BoxFuture<'a, InformerOptions>;

    /// The server has said who it is; `None`: it does not tell, so that nothing of it may be kept. What is remembered of
    /// another identity is to be forgotten before this returns, and is not given any more, however long that takes.
    fn identified<'a>(&'a self, _cluster: &'a ClusterId, _identity: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(future::ready(()))
    }

    /// A cluster was removed for good.
    fn forgotten<'a>(&'a self, _cluster: &'a ClusterId) -> BoxFuture<'a, ()> {
        Box::pin(future::ready(()))
    }

    /// Runs beside the fleet until it is told to stop, and does then what is left to do, within 10 s. The clusters have ended
    /// by then, and what they had can still be read: it is the last that anybody was told.
    fn run(self: Arc<Self>, _fleet: Fleet, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { stop.cancelled().await })
    }

    /// How it stands with what is kept of a cluster. Takes no time.
    fn stats(&self, _cluster: &ClusterId) -> Option<KeptStats> {
        None
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

/// How it stands with what is kept of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptStats {
    /// How long ago all that is kept was as the memory: the age of the oldest part. `None`: nothing is kept yet.
    pub age: Option<Duration>,
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were refused since the process started: damaged, or of something else.
    pub refused: u64,
    /// What stands in the way of keeping, or why a file was refused: the latest, for people.
    pub problem: Option<Arc<str>>,
}
