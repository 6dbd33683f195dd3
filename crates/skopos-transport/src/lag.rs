//! Deadlines that do not blame the peer for this process's own lag.
//!
//! Under CPU starvation timers and socket events become ready together, and code that checks the timer first ends a healthy
//! connection (fault 52). So a deadline that is reached late, or during which the process lagged, is extended once by that
//! lag. Every deadline also leaves a grace period for a socket that became readable at the same time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Extension of every deadline, so that received bytes are read before the deadline counts.
pub(crate) const READ_GRACE: Duration = Duration::from_millis(20);

/// Longer than any wait: 30 years. `Duration::MAX` means the same, but no clock goes that far.
pub(crate) const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Lag below this is normal.
const TOLERATED_LAG: Duration = Duration::from_secs(1);

/// A factory of deadlines that tracks the process's lag.
#[derive(Clone, Debug, Default)]
pub(crate) struct LagMonitor {
    lagged_millis: Arc<AtomicU64>,
}

impl LagMonitor {
    pub(crate) fn sleep(&self, duration: Duration) -> LagTolerantSleep {
        self.sleep_until(after(duration))
    }

    pub(crate) fn sleep_until(&self, deadline: Instant) -> LagTolerantSleep {
        LagTolerantSleep {
            inner: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            lag_monitor: self.clone(),
            lag_before: self.total_lag(),
            extended: false,
        }
    }

    /// Returns a deadline that keeps running while nothing polls it.
    pub(crate) fn deadline(&self, duration: Duration) -> LagTolerantDeadline {
        let deadline = after(duration);
        LagTolerantDeadline {
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            lag_monitor: self.clone(),
            lag_before: self.total_lag(),
            found: None,
        }
    }

    /// Runs `future` for at most `limit`.
    pub(crate) async fn timeout<F: Future>(
        &self,
        limit: Option<Duration>,
        future: F,
    ) -> Result<F::Output, Expired> {
        let Some(limit) = limit else { return Ok(future.await) };
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep(limit) => Err(Expired),
        }
    }

    /// Records that the one-second ticker was late by `by`.
    pub(crate) fn record(&self, by: Duration) {
        if by > TOLERATED_LAG {
            self.lagged_millis.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Returns the total lag so far.
    pub(crate) fn total_lag(&self) -> Duration {
        Duration::from_millis(self.lagged_millis.load(Ordering::Relaxed))
    }
}

fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + NEVER)
}

/// The error of a deadline that has passed.
#[derive(Debug)]
pub(crate) struct Expired;

/// A sleep that is extended once by this process's lag.
pub(crate) struct LagTolerantSleep {
    inner: Pin<Box<Sleep>>,
    deadline: Instant,
    lag_monitor: LagMonitor,
    lag_before: Duration,
    extended: bool,
}

impl LagTolerantSleep {
    /// Restarts the sleep with a new deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.inner.as_mut().reset(deadline);
        self.deadline = deadline;
        self.lag_before = self.lag_monitor.total_lag();
        self.extended = false;
    }
}

impl Future for LagTolerantSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.inner.as_mut().poll(cx));
        if self.extended {
            return Poll::Ready(());
        }
        self.extended = true;
        let now = Instant::now();
        let late = now.saturating_duration_since(self.deadline);
        let lag = late.max(self.lag_monitor.total_lag() - self.lag_before);
        let more = if lag > TOLERATED_LAG { lag } else { READ_GRACE };
        self.inner.as_mut().reset(now + more);
        self.inner.as_mut().poll(cx)
    }
}

/// A deadline that keeps running while nothing polls it. A late poll is no sign of lag, so the deadline is extended only by
/// the lag that the ticker measured.
pub(crate) struct LagTolerantDeadline {
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
    lag_monitor: LagMonitor,
    lag_before: Duration,
    /// The time of the first poll after the deadline.
    found: Option<Instant>,
}

impl LagTolerantDeadline {
    pub(crate) fn has_passed(&mut self) -> bool {
        self.end() <= Instant::now()
    }

    /// Returns the end as far as known: the ticker may run just after us and report more lag.
    fn end(&mut self) -> Instant {
        let now = Instant::now();
        if now < self.deadline {
            return self.deadline;
        }
        let found = *self.found.get_or_insert(now);
        (self.deadline + (self.lag_monitor.total_lag() - self.lag_before)).max(found + READ_GRACE)
    }
}

impl Future for LagTolerantDeadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let end = self.end();
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            if self.timer.deadline() != end {
                self.timer.as_mut().reset(end);
            }
            ready!(self.timer.as_mut().poll(cx));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_kept_when_nothing_lags() {
        let begin = Instant::now();
        LagMonitor::default().sleep(Duration::from_secs(5)).await;
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(5) && took <= Duration::from_millis(5_030), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_timer_is_extended_by_its_lateness() {
        let begin = Instant::now();
        let mut sleep = LagMonitor::default().sleep(Duration::from_secs(5));
        assert!(futures::poll!(&mut sleep).is_pending());
        // The process gets no CPU for 20 seconds.
        tokio::time::advance(Duration::from_secs(20)).await;
        sleep.await;
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(34), "15 s late, so 15 s more, but woke after {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn recorded_lag_extends_sleep() {
        let lag_monitor = LagMonitor::default();
        let begin = Instant::now();
        let sleep = lag_monitor.sleep(Duration::from_secs(5));
        lag_monitor.record(Duration::from_secs(4));
        lag_monitor.record(Duration::from_millis(900));
        sleep.await;
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(9) && took < Duration::from_millis(9_500), "{took:?}");
    }
}
