use std::time::Duration;

use skopos_reflect::{Time, exponential_delay};

use super::options::OutboxOptions;

/// Circuit breaker for a receiver. After a failure of the receiver nothing is sent for a while, and then one message as a probe.
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

/// Number of consecutive failed messages that count as a failure of the receiver, rather than of the messages.
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

    /// Returns the number of messages, up to `most`, that may be sent.
    pub(super) fn allows(&self, now: Time, most: usize, in_flight: usize) -> usize {
        match self.until {
            None => most,
            Some(until) if until > now || in_flight > 0 => 0,
            Some(_) => most.min(1),
        }
    }

    /// Returns the time at which a message that is due at this time may be sent.
    pub(super) fn opens_at(&self, due: Time) -> Time {
        self.until.map_or(due, |until| until.max(due))
    }

    /// Notes a failed message. Several consecutive failures trip the breaker.
    pub(super) fn failed(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_OF_RECEIVER {
            self.trip(now, None);
        }
    }

    /// Notes that the receiver accepts messages. Returns whether it did not before.
    pub(super) fn succeeded(&mut self) -> bool {
        (self.failures, self.openings) = (0, 0);
        self.until.take().is_some()
    }

    /// Opens the breaker for a while. Messages that were in flight with the failed one do not prolong this.
    pub(super) fn trip(&mut self, now: Time, asked: Option<Duration>) {
        let is_open = self.until.is_some_and(|until| until > now);
        let until = match asked {
            Some(asked) => now + asked.min(self.most_asked),
            None if is_open => return,
            None => now + exponential_delay(self.first_pause, self.last_pause, self.openings),
        };
        self.openings = self.openings.saturating_add(u32::from(!is_open));
        self.until = Some(self.until.map_or(until, |known| known.max(until)));
    }
}
