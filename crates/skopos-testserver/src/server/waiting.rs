//! Waiting for what happens in the server, without sleeping.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::TestServer;

/// It did not happen in time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "what was waited for did not happen within {within:?}; the server has {connections} connections, {watches} open watches and resourceVersion {resource_version}"
)]
pub struct WaitTimeout {
    /// How long it was waited for.
    pub within: Duration,
    /// How many connections are open.
    pub connections: usize,
    /// How many watches are open.
    pub watches: usize,
    /// The newest resourceVersion.
    pub resource_version: u64,
}

/// How long [`TestServer::wait_for`] waits.
const PATIENCE: Duration = Duration::from_secs(30);

impl TestServer {
    /// Waits until `reached` says yes. It is asked after every write, every change of a request and every connection
    /// that opens or closes; at most for 30 s.
    ///
    /// ```no_run
    /// # async fn f(server: skopos_testserver::TestServer) -> Result<(), Box<dyn std::error::Error>> {
    /// server.wait_for(|server| server.open_watches() == 3).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When it did not happen in time.
    pub async fn wait_for(&self, reached: impl FnMut(&Self) -> bool) -> Result<(), WaitTimeout> {
        self.wait_for_within(PATIENCE, reached).await
    }

    /// The same with another limit, on tokio's clock.
    ///
    /// # Errors
    /// When it did not happen in time.
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
