use std::time::Duration;

use skopos_reflect::Time;

use super::options::OutboxOptions;

/// One breaker for a whole receiver: after a failure of the receiver nothing is sent for a while, and then one message as a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Breaker {
    first_pause: Duration,
    last_pause: Duration,
    /// The longest pause that a receiver may ask for.
    most_asked: Duration,
    /// Failures since the last success.
    failures: u32,
    /// Pauses since the last success.
    openings: u32,
    until: Option<Time>,
}

/// So many messages that fail one after the other are the receiver's failure, and not theirs.
const FAILURES_OF_RECEIVER: u32 = 5;

impl Breaker {
    pub(super) fn new(options: &OutboxOptions) -> Self {
        Self {
            first_pause: options.first_pause,
            last_pause: options.probe,
            most_asked: options.most_asked,
            failures: 0,
            openings: 0,
            until: None,
        }
    }

    /// Returns how many of `most` may be sent.
    pub(super) fn allows(&self, now: Time, most: usize, in_flight: usize) -> usize {
        match self.until {
            None => most,
            Some(until) if until > now || in_flight > 0 => 0,
            Some(_) => most.min(1),
        }
    }

    /// Returns when something that is due at this time may be sent.
    pub(super) fn opens_at(&self, due: Time) -> Time {
        self.until.map_or(due, |until| until.max(due))
    }

    /// Notes that a message failed. Many of them one after the other trip the breaker.
    pub(super) fn failed(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_OF_RECEIVER {
            self.trip(now, None);
        }
    }

    /// Notes that the receiver takes messages. Returns whether it did not before.
    pub(super) fn succeeded(&mut self) -> bool {
        (self.failures, self.openings) = (0, 0);
        self.until.take().is_some()
    }

    /// Sends nothing for a while. What was in flight with the message that failed does not make it longer.
    pub(super) fn trip(&mut self, now: Time, asked: Option<Duration>) {
        let is_open = self.until.is_some_and(|until| until > now);
        let until = match asked {
            Some(asked) => now + asked.min(self.most_asked),
            None if is_open => return,
            None => now + doubled(self.first_pause, self.openings + 1).min(self.last_pause),
        };
        self.openings = self.openings.saturating_add(u32::from(!is_open));
        self.until = Some(self.until.map_or(until, |known| known.max(until)));
    }
}

/// Returns the pause after some failures: the first, doubled with each further one.
pub(super) fn doubled(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << (failures.max(1) - 1).min(20))
}
