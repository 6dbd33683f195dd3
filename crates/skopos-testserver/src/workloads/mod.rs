//! What happens by itself in a cluster: deleted pods and namespaces go in time, and (if wanted) workloads get their
//! pods, pods get a node and turn ready, and dependents go with their owners.
//!
//! ```text
//!  Deployment ─▶ ReplicaSet ─┐
//!  StatefulSet ──────────────┼─▶ Pod ─▶ on a node ─▶ Running, Ready (or Succeeded)
//!  Job ──────────────────────┘                │
//!  Service ───────────────────────────────────▶ EndpointSlice
//! ```

mod cluster;
mod controllers;
mod departures;
mod deployment;
mod endpoint_slice;
mod garbage;
mod job;
mod node;
mod pod;
mod replica_set;
mod stateful_set;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::state::ServerState;

/// Runs until `stop` is cancelled.
pub(crate) async fn run(state: Arc<ServerState>, stop: CancellationToken) {
    let controllers = async {
        if state.lifecycle.runs_workloads() {
            controllers::run(&state).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ((), ()) = async { tokio::join!(departures::run(&state), controllers) } => {}
    }
}

#[cfg(test)]
mod tests;
