//! Once a second: whether the machine slept, how late everything is, and which connections are old.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Connection, Hub};
use crate::{error::Death, pool::Member};

/// A jump of the wall clock against the monotonic one that means sleep.
const SUSPEND: Duration = Duration::from_secs(5);

/// How often clocks are compared and connections looked over.
const PULSE: Duration = Duration::from_secs(1);

impl Hub {
    /// Starts the pulse, once. Needs a runtime, so the first request does it.
    pub(crate) fn ensure_pulse(self: &Arc<Self>) {
        let runs = std::mem::replace(&mut self.state.lock().pulse_runs, true);
        if !runs {
            self.tasks.spawn(self.clone().pulse());
        }
    }

    async fn pulse(self: Arc<Self>) {
        let mut last = (Instant::now(), self.options.wall_clock.now());
        loop {
            let due = last.0 + PULSE;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
            }
            let now = (Instant::now(), self.options.wall_clock.now());
            self.patience.lag(now.0.duration_since(due));
            if let (Some(before), Some(after)) = (last.1, now.1) {
                let wall = after.duration_since(before).unwrap_or_default();
                let jump = wall.saturating_sub(now.0.duration_since(last.0));
                if jump > SUSPEND {
                    self.suspended(jump);
                }
            }
            self.look_over(now.0);
            last = now;
        }
    }

    /// The machine slept. Whether a connection lives is unknown, and finding out takes longer than a new one.
    fn suspended(&self, by: Duration) {
        tracing::info!(?by, "suspend or VM pause: all connections are given up");
        let mut state = self.state.lock();
        state.counters.suspends += 1;
        for member in state.pool.members() {
            member.connection.vitals.kill(Death::Suspended { by });
        }
    }

    pub(super) fn look_over(&self, now: Instant) {
        let mut state = self.state.lock();
        let mut outdated = state.pool.outdated(now);
        let superseded = |m: &&Member<Connection>| m.connection.superseded.is_cancelled();
        outdated.extend(state.pool.members().iter().filter(superseded).map(|m| m.id));
        for id in &outdated {
            self.retire_locked(&mut state, *id, Arc::new(Death::Outdated));
        }
        drop(state);
        if !outdated.is_empty() {
            self.changed.notify_waiters();
        }
    }
}
