//! Waits between steps: after a failure, until a request is affordable, and until an unreachable server is back.

use std::time::Duration;

use super::backoff::scaled;
use super::classify::{Meaning, Verdict};
use super::{Condition, Machine, Next, State};
use crate::{Sink, Time};

impl Machine {
    /// Reports a failed request, and waits before the next step.
    pub(super) fn fail(&mut self, verdict: Verdict, next: Next, sink: &mut dyn Sink) {
        self.fail_within(verdict, next, self.options.backoff_max.saturating_mul(2), sink);
    }

    /// Fails as [`fail`](Machine::fail) does, with a maximum for the delay (the server's own `Retry-After` takes precedence).
    pub(super) fn fail_within(
        &mut self,
        verdict: Verdict,
        mut next: Next,
        longest: Duration,
        sink: &mut dyn Sink,
    ) {
        self.stats.failures += 1;
        if verdict.meaning == Meaning::Closed {
            // The next step needs state that is lost here: a list must not stay half staged.
            if let Next::Page(listing) = &next
                && listing.begun
            {
                sink.abort_replace();
            }
            return self.stop(Some(verdict.reason), sink);
        }
        let until = match verdict.meaning {
            Meaning::CannotConnect { retry_at } => {
                self.outage = true;
                if !matches!(next, Next::Page(_)) {
                    self.requests.refund();
                }
                // The transport dials on a schedule of its own, shared by all users of the cluster, and sends nothing before a
                // connection is open. Waiting there costs the server nothing, and the request is sent as soon as it is back.
                retry_at.unwrap_or(self.now).max(self.now) + self.jitter(Duration::from_millis(250))
            }
            _ => {
                // Earlier failures must not delay the retry of a page.
                let backoff = match &mut next {
                    Next::Page(listing) => &mut listing.backoff,
                    _ => &mut self.backoff,
                };
                let delay = backoff.fail(&self.options, &mut self.rng).min(longest);
                let wait = verdict.retry_after.map(|wait| wait.min(self.options.retry_after_max));
                let wait = wait.map(|wait| scaled(wait, 1.0 + 0.1 * self.rng.f64()));
                self.now + delay.max(wait.unwrap_or_default())
            }
        };
        self.set_condition(verdict.condition());
        self.reflector.attempts = self.reflector.attempts.saturating_add(1);
        self.reflector.reason = Some(verdict.reason);
        self.wait(until, next);
    }

    /// Returns the time at which `count` requests may be sent: now, or later.
    pub(super) fn affordable_at(&self, count: usize) -> Time {
        // A request that waits for a connection costs the server nothing, and the dials set its rate.
        if self.outage { self.now } else { self.requests.available_at(self.now, count) }
    }

    /// Waits until a request is affordable.
    pub(super) fn wait_for_budget(&mut self, until: Time, next: Next) {
        if !self.reflector.condition.is_failing() {
            self.set_condition(Condition::Retrying);
        }
        self.wait(until, next);
    }

    /// Handles a success response. Returns whether the server was unreachable before.
    pub(super) fn on_success(&mut self) -> bool {
        let returned = std::mem::take(&mut self.outage);
        if returned {
            self.stall.record_recovery(self.now);
        }
        if returned && self.recoveries.try_spend(self.now) {
            self.requests.renew();
            self.requests.spend(self.now);
            self.lists.renew();
            if matches!(self.state, State::Listing(_) | State::Streaming(_)) {
                self.lists.spend(self.now);
            }
            self.backoff.reset();
        }
        returned
    }

    pub(super) fn wait(&mut self, until: Time, next: Next) {
        self.reflector.retry_at = (until > self.now).then_some(until);
        self.link_changed = true;
        self.state = State::Waiting { until, next };
    }

    /// Shortens a wait after a failure, since the server may be back, except if the server itself set its length.
    pub(super) fn retry_early(&mut self) {
        let ample = self.requests.is_ample(self.now);
        let helps = self.reflector.condition.is_failing() && self.reflector.condition != Condition::Throttled;
        let early = self.now + self.jitter(Duration::from_millis(500));
        if let State::Waiting { until, .. } = &mut self.state
            && helps
            && ample
            && early < *until
        {
            *until = early;
            self.reflector.retry_at = Some(early);
            self.link_changed = true;
        }
    }
}
