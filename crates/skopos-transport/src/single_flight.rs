//! Single flight: slow work that cannot be stopped runs once for all callers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Single-flight execution: a caller that comes during a run joins it. The run continues after every caller has given up.
/// Its result is kept for [`RESULT_TTL`] and given to the next caller, so work slower than any caller's timeout still
/// completes.
pub(crate) struct SingleFlight<T: Clone>(Mutex<Option<Flight<T>>>);

struct Flight<T: Clone> {
    result: Shared<BoxFuture<'static, T>>,
    finished: Arc<OnceLock<Instant>>,
}

/// A guard that the work drops when it has finished.
pub(crate) struct DoneGuard(Arc<OnceLock<Instant>>);

/// Validity of a result for a caller that did not wait for it.
pub(crate) const RESULT_TTL: Duration = Duration::from_secs(10);

impl<T: Clone> SingleFlight<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the result of the current run, or else of a new one. `start` must do the work in a thread or task that drops
    /// the guard when the work is done: without a waiting caller this future is not polled.
    pub(crate) async fn run(&self, start: impl FnOnce(DoneGuard) -> BoxFuture<'static, T>) -> T {
        let result = {
            let mut slot = self.0.lock();
            match &*slot {
                Some(run) if run.is_joinable() => run.result.clone(),
                _ => slot.insert(Flight::start(start)).result.clone(),
            }
        };
        result.await
    }
}

impl<T: Clone> Flight<T> {
    fn start(start: impl FnOnce(DoneGuard) -> BoxFuture<'static, T>) -> Self {
        let finished = Arc::<OnceLock<Instant>>::default();
        Self { result: start(DoneGuard(finished.clone())).shared(), finished }
    }

    /// Returns whether it still runs, or has a fresh result that no caller has received.
    fn is_joinable(&self) -> bool {
        self.result.peek().is_none() && self.finished.get().is_none_or(|at| at.elapsed() < RESULT_TTL)
    }
}

impl Drop for DoneGuard {
    fn drop(&mut self) {
        let _ = self.0.set(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn abandoned_result_goes_to_next_caller() {
        let (single_flight, runs, tasks) = (SingleFlight::new(), Cell::new(0), TaskTracker::new());
        let ask = || {
            single_flight.run(|done| {
                runs.set(runs.get() + 1);
                let slow = tasks.spawn(async move {
                    let _done = done;
                    tokio::time::sleep(Duration::from_secs(12)).await;
                });
                slow.map(|result| result.is_ok()).boxed()
            })
        };
        for _ in 0..5 {
            let asked = tokio::time::timeout(Duration::from_secs(2), ask()).await;
            assert!(asked.is_err());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((ask().now_or_never(), runs.get()), (Some(true), 1));
        assert_eq!((ask().now_or_never(), runs.get()), (None, 2), "not kept once it was had");
        tokio::time::sleep(Duration::from_secs(12) + RESULT_TTL).await;
        assert_eq!((ask().now_or_never(), runs.get()), (None, 3), "of the past by now");
    }
}
