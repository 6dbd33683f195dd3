//! Controllers of a cluster. Deleted pods and namespaces are removed in time. Optionally, workloads get their pods, pods get a
//! node and become ready, and dependents are deleted with their owners.
//!
//! ```text
//!  Deployment ─▶ ReplicaSet ─┐
//!  StatefulSet ──────────────┼─▶ Pod ─▶ on a node ─▶ Running, Ready (or Succeeded)
//!  Job ──────────────────────┘                │
//!  Service ───────────────────────────────────▶ EndpointSlice
//! ```

mod client;
mod controllers;
mod deployment;
mod endpoint_slice;
mod garbage;
mod job;
mod node;
mod pod;
mod removals;
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
        ((), ()) = async { tokio::join!(removals::run(&state), controllers) } => {}
    }
}

#[cfg(test)]
mod tests;
