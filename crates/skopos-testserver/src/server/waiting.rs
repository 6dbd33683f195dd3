//! Waiting for events of the server, without sleeping.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::TestServer;

/// Timeout of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "what was waited for did not happen within {within:?}; the server has {connections} connections, {watches} open watches and resourceVersion {resource_version}"
)]
pub struct WaitTimeout {
    /// Time limit.
    pub within: Duration,
    /// Number of open connections.
    pub connections: usize,
    /// Number of open watches.
    pub watches: usize,
    /// Newest resourceVersion.
    pub resource_version: u64,
}

/// Timeout of [`TestServer::wait_for`].
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

impl TestServer {
    /// Waits until `reached` returns true, at most for 30 s. It is called after every write, every change of a request and every
    /// connection that opens or closes.
    ///
    /// ```no_run
    /// # async fn f(server: skopos_testserver::TestServer) -> Result<(), Box<dyn std::error::Error>> {
    /// server.wait_for(|server| server.open_watches() == 3).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the time is over.
    pub async fn wait_for(&self, reached: impl FnMut(&Self) -> bool) -> Result<(), WaitTimeout> {
        self.wait_for_within(WAIT_TIMEOUT, reached).await
    }

    /// Waits like [`TestServer::wait_for`], with another timeout on tokio's clock.
    ///
    /// # Errors
    /// When the time is over.
    pub async fn wait_for_within(
        &self,
        within: Duration,
        reached: impl FnMut(&Self) -> bool,
    ) -> Result<(), WaitTimeout> {
        timeout_at(Instant::now() + within, self.wait_until(reached)).await.map_err(|_| WaitTimeout {
            within,
            connections: self.connections(),
            watches: self.open_watches(),
            resource_version: self.resource_version(),
        })
    }

    pub(super) async fn wait_until(&self, mut reached: impl FnMut(&Self) -> bool) {
        loop {
            let changed = self.state().activity.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if reached(self) {
                return;
            }
            changed.await;
        }
    }
}
