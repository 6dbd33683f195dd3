//! Timeline: the newest revision at a time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Pairs of times and revisions, at most one every [`RESOLUTION`].
#[derive(Debug)]
pub(super) struct Timeline {
    entries: VecDeque<(Instant, u64)>,
}

const RESOLUTION: Duration = Duration::from_millis(10);

impl Timeline {
    pub(super) fn new(now: Instant, revision: u64) -> Self {
        Self { entries: VecDeque::from([(now, revision)]) }
    }

    /// Records that the revision became `revision` at `now`.
    pub(super) fn record(&mut self, now: Instant, revision: u64) {
        match self.entries.back_mut() {
            // The note keeps its time, so that a later revision seems at most a step older than it is.
            Some((at, last)) if now.saturating_duration_since(*at) < RESOLUTION => *last = revision,
            _ => self.entries.push_back((now, revision)),
        }
    }

    /// Returns the newest revision at `instant`; before all notes, the oldest known.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        let after = self.entries.partition_point(|(at, _)| *at <= instant);
        self.entries.get(after.saturating_sub(1)).map_or(0, |(_, revision)| *revision)
    }

    pub(super) fn forget_before(&mut self, revision: u64) {
        while self.entries.len() > 1 && self.entries[1].1 <= revision {
            self.entries.pop_front();
        }
    }

    pub(super) fn roll_back(&mut self, revision: u64) {
        while self.entries.len() > 1 && self.entries.back().is_some_and(|(_, r)| *r > revision) {
            self.entries.pop_back();
        }
        if let Some(last) = self.entries.back_mut() {
            last.1 = last.1.min(revision);
        }
    }
}
