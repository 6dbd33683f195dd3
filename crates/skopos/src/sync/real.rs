//! The real primitives.

pub(crate) use arc_swap::{ArcSwap, Guard};
pub(crate) use parking_lot::Mutex;
pub(crate) use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;

/// Spawns a future as a task that `tasks` tracks.
pub(crate) fn spawn(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(task);
}
