//! Waiting until the content is as somebody wants it.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::WaitError;
use crate::informer::Informer;
use crate::store::{Closed, Snapshot};
use crate::sync::timeout;

impl<K> Informer<K> {
    /// Waits until `condition` is true of the content, for at most `limit`, and returns the content of which it is.
    ///
    /// It is asked first of what is there when everything was listed, or at once if it was, and then of what there is after
    /// each change; of changes that come together, only of the last state. It should be quick, as it runs in the caller's task.
    ///
    /// # Errors
    /// When the time is over, or at once when the factory is shut down.
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
