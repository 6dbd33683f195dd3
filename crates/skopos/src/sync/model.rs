//! The model: the same interface on shuttle's threads, which run one at a time, in any order that its scheduler chooses.
//!
//! Tokio's own primitives (`Notify`, `watch`, cancellation tokens) are used as they are: each call of one is a single step here.
//! Time is tokio's paused clock. A task that sleeps lets others run, and may then wake at once, with the clock moved to its
//! deadline: every delay may be over at any moment. Delays of more than a day never end, so that a task that hangs is
//! found.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The guard of `ArcSwap::load`, with the same use as the real one.
pub(crate) type Guard<T> = T;

/// An atomic pointer; each call is one step.
#[derive(Debug)]
pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.load_full()
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.lock().clone()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock() = value;
    }

    /// Computes again if another thread was quicker, like the real one.
    pub(crate) fn rcu<R: Into<Arc<T>>>(&self, mut update: impl FnMut(&Arc<T>) -> R) -> Arc<T> {
        loop {
            let before = self.load_full();
            let after = update(&before).into();
            let mut now = self.0.lock();
            if Arc::ptr_eq(&now, &before) {
                *now = after;
                return before;
            }
        }
    }
}

pub(crate) fn spawn(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    drop(shuttle::future::spawn(tasks.track_future(task)));
}

pub(crate) async fn sleep(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

pub(crate) async fn sleep_until(at: Instant) {
    if at.saturating_duration_since(Instant::now()) > MAX_SLEEP {
        return std::future::pending().await;
    }
    shuttle::future::yield_now().await;
    tokio::time::advance(at.saturating_duration_since(Instant::now())).await;
}

const MAX_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// An error: the time was over.
#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + time, future).await
}

pub(crate) async fn timeout_at<F: Future>(at: Instant, future: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = sleep_until(at) => Err(Elapsed),
    }
}
