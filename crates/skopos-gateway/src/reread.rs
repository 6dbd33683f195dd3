//! Files that are read again and again, because file notifications report the symbolic links of mounted Secrets and
//! ConfigMaps poorly.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Calls `read` in a blocking thread at this interval and passes its results to `take`, until cancelled. A file system that
/// hangs holds up no other task.
pub(crate) async fn reread<T: Send + 'static>(
    period: Duration,
    stop: &CancellationToken,
    read: impl Fn() -> T + Clone + Send + 'static,
    mut take: impl FnMut(T),
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let reading = tokio::task::spawn_blocking(read.clone());
        if let Some(Ok(found)) = stop.run_until_cancelled(reading).await {
            take(found);
        }
    }
}
