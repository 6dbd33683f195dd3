//! Counter of events within a sliding time window.

use std::collections::VecDeque;
use std::time::Duration;

use crate::history::At;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The moments within the window.
pub(super) struct Window {
    length: Duration,
    moments: VecDeque<At>,
}

impl Window {
    pub(super) fn of(length: Duration) -> Self {
        Self { length, moments: VecDeque::new() }
    }

    /// Adds a moment, not before the last; returns the number within the window that ends with it.
    pub(super) fn count(&mut self, at: At) -> usize {
        self.moments.push_back(at);
        self.there(at)
    }

    /// Returns the number within the window that ends with this moment.
    pub(super) fn there(&mut self, at: At) -> usize {
        while self.moments.front().is_some_and(|first| first.plus(self.length) <= at) {
            self.moments.pop_front();
        }
        self.moments.len()
    }
}
