//! Something slow that cannot be stopped, done once for everybody who wants it.

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;

/// Runs at most once at a time: whoever comes while it runs joins it. It goes on when nobody waits any more, and what it
/// brings then is for the next who asks, so that what takes longer than anybody waits is had all the same.
pub(crate) struct Errand<T: Clone>(Mutex<Option<Shared<BoxFuture<'static, T>>>>);

impl<T: Clone> Errand<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The result of the run under way, else of a new one. `begin` has to do the work in a thread or task: here nothing
    /// polls it while nobody waits.
    pub(crate) async fn run(&self, begin: impl FnOnce() -> BoxFuture<'static, T>) -> T {
        let run = {
            let mut slot = self.0.lock();
            match &*slot {
                Some(running) if running.peek().is_none() => running.clone(),
                _ => slot.insert(begin().shared()).clone(),
            }
        };
        run.await
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waited_for_is_there_for_the_next() {
        let (errand, runs, tasks) = (Errand::new(), Cell::new(0), TaskTracker::new());
        let ask = || {
            errand.run(|| {
                runs.set(runs.get() + 1);
                let slow = tasks.spawn(tokio::time::sleep(Duration::from_secs(12)));
                slow.map(|done| done.is_ok()).boxed()
            })
        };
        for _ in 0..5 {
            let asked = tokio::time::timeout(Duration::from_secs(2), ask()).await;
            assert!(asked.is_err());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((ask().now_or_never(), runs.get()), (Some(true), 1));
        assert_eq!((ask().now_or_never(), runs.get()), (None, 2), "not kept once it was had");
    }
}
