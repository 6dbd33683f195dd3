//! Ticker, once a second: detects suspends, process lag and old connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Connection, Hub};
use crate::error::TransportErrorKind;
use crate::pool::Member;
use crate::wall_clock::WallClock;

/// A jump of the wall clock against the monotonic one that means a suspend.
const SUSPEND_THRESHOLD: Duration = Duration::from_secs(5);

/// The interval of comparing clocks and checking connections.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

impl Hub {
    /// Starts the ticker, once. It needs a runtime, so the first request starts it.
    pub(crate) fn ensure_ticker(self: &Arc<Self>) {
        let runs = std::mem::replace(&mut self.state.lock().ticker_runs, true);
        if !runs {
            self.tasks.spawn(self.clone().run_ticker());
        }
    }

    async fn run_ticker(self: Arc<Self>) {
        let wall = || self.options.wall_clock.as_ref().map(WallClock::now);
        let mut last = (Instant::now(), wall());
        loop {
            let due = last.0 + TICK_INTERVAL;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
            }
            let now = (Instant::now(), wall());
            self.lag_monitor.record(now.0.duration_since(due));
            if let (Some(before), Some(after)) = (last.1, now.1) {
                let wall = after.duration_since(before).unwrap_or_default();
                let jump = wall.saturating_sub(now.0.duration_since(last.0));
                if jump > SUSPEND_THRESHOLD {
                    self.handle_suspend(jump);
                }
            }
            self.retire_outdated(now.0);
            last = now;
        }
    }

    /// Ends all connections after a suspend. Their state is unknown, and testing it takes longer than a new connection.
    fn handle_suspend(&self, by: Duration) {
        tracing::info!(?by, "suspend or VM pause: all connections are given up");
        let mut state = self.state.lock();
        state.counters.suspends += 1;
        for member in state.pool.members() {
            member.connection.conn_state.kill(TransportErrorKind::Suspended { by });
        }
    }

    pub(super) fn retire_outdated(&self, now: Instant) {
        let mut state = self.state.lock();
        let mut outdated = state.pool.outdated(now);
        let superseded = |m: &&Member<Connection>| m.connection.superseded.is_cancelled();
        outdated.extend(state.pool.members().iter().filter(superseded).map(|m| m.id));
        for id in &outdated {
            self.retire_locked(&mut state, *id, Arc::new(TransportErrorKind::Outdated));
        }
        drop(state);
        if !outdated.is_empty() {
            self.changed.notify_waiters();
        }
    }
}
