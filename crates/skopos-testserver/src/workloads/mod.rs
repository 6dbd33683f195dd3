//! A small loop that gives workloads their pods.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::state::ServerState;

/// Runs until `stop` is cancelled.
pub(crate) async fn run(_: Arc<ServerState>, stop: CancellationToken) {
    stop.cancelled().await;
}

/// What is to go in time.
#[derive(Debug)]
pub(crate) struct Lifecycle;

impl Lifecycle {
    pub(crate) fn new(_workloads: bool) -> Self {
        Self
    }
}
