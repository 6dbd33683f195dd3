//! What happens by itself in a cluster: deleted pods and namespaces go in time, and (if wanted) workloads get their pods.

mod lifecycle;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub(crate) use self::lifecycle::Lifecycle;
use crate::state::ServerState;

/// Runs until `stop` is cancelled.
pub(crate) async fn run(state: Arc<ServerState>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = lifecycle::run(&state) => {}
    }
}
