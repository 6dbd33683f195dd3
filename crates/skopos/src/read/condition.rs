//! Waiting for a condition on the content.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::WaitError;
use crate::informer::Informer;
use crate::store::{Closed, Snapshot};
use crate::sync::timeout;

impl<K> Informer<K> {
    /// Waits until `condition` holds for the content, for at most `limit`, and returns that content.
    ///
    /// The condition is evaluated once everything was listed, or at once if it was, and then after each change; of changes
    /// that come together, only on the last state. It should be quick, as it runs in the caller's task.
    ///
    /// # Errors
    /// When `limit` is over, or at once when the factory is shut down.
    pub async fn wait_until(
        &self,
        mut condition: impl FnMut(&Snapshot<K>) -> bool,
        limit: Duration,
    ) -> Result<Snapshot<K>, WaitError> {
        let begun = Instant::now();
        let mut progress = self.shared.store.progress();
        let met = async {
            loop {
                if progress.borrow_and_update().closed {
                    return Err(Closed);
                }
                let snapshot = self.snapshot();
                if snapshot.is_synced() && condition(&snapshot) {
                    return Ok(snapshot);
                }
                // The sender lives as long as the store.
                progress.changed().await.map_err(|_| Closed)?;
            }
        };
        match timeout(limit, met).await {
            Ok(met) => Ok(met?),
            Err(_) => Err(WaitError::NotMet { waited: begun.elapsed(), freshness: self.freshness() }),
        }
    }
}
