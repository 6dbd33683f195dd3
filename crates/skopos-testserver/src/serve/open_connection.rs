//! An open connection, as its requests and tunnels share it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::faults::ConnectionControl;
use crate::state::ServerState;

/// An open connection. It is in the list of open ones until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) state: Arc<ServerState>,
    pub(super) control: Arc<ConnectionControl>,
    /// Cancelled when the server closes its connections.
    pub(super) open: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl OpenConnection {
    /// Spawns a task that ends with the connection, and keeps it in the list: it speaks another protocol now.
    pub(super) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let connection = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = connection.open.cancelled() => {}
                () = connection.control.killed() => {}
                () = task => {}
            }
        });
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.state.faults.disconnected(self.control.id());
        self.state.activity.notify_waiters();
    }
}
