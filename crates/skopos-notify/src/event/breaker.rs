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
    /// True if the last failure was the receiver's, whatever the message.
    is_down: bool,
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
            is_down: false,
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

    /// Returns whether the next message is a probe of a receiver that is down. It does not wait for the end of its own pause.
    pub(super) fn is_probe(&self) -> bool {
        self.is_down && self.until.is_some()
    }

    /// Returns the time at which a message that is due at this time may be sent; `None` while the answer to a probe is awaited.
    pub(super) fn opens_at(&self, due: Time, in_flight: usize) -> Option<Time> {
        match self.until {
            None => Some(due),
            Some(_) if in_flight > 0 => None,
            Some(until) if self.is_down => Some(until),
            Some(until) => Some(until.max(due)),
        }
    }

    /// Notes a failed message. Several consecutive failures trip the breaker.
    pub(super) fn failed(&mut self, now: Time) {
        (self.failures, self.is_down) = (self.failures.saturating_add(1), false);
        if self.failures >= FAILURES_OF_RECEIVER {
            self.open(now, None);
        }
    }

    /// Notes that the receiver accepts messages. Returns whether it did not before.
    pub(super) fn succeeded(&mut self) -> bool {
        (self.failures, self.openings, self.is_down) = (0, 0, false);
        self.until.take().is_some()
    }

    /// Notes that the receiver is down or overloaded, and asks for this pause.
    pub(super) fn trip(&mut self, now: Time, asked: Option<Duration>) {
        self.is_down = true;
        self.open(now, asked);
    }

    /// Opens the breaker for a while. Messages that were in flight with the failed one do not prolong this.
    fn open(&mut self, now: Time, asked: Option<Duration>) {
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
