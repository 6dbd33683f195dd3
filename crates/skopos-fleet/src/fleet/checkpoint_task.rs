//! Interface of a fleet's checkpoint task.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::Fleet;
use crate::cluster::Persistence;

/// Persistence of a fleet over restarts: the content of its clusters, and the task that stores it.
pub trait Keeper: Persistence {
    /// Runs beside the fleet until `stop` is cancelled, then finishes its work within 10 s. The clusters have ended by
    /// then, but their content stays readable: it is the last state that any watcher has seen.
    fn run(self: Arc<Self>, _fleet: Fleet, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { stop.cancelled().await })
    }
}
