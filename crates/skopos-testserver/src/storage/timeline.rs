//! Timeline: the newest revision at a time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Pairs of times and revisions, at most one every [`STEP`].
#[derive(Debug)]
pub(super) struct Timeline {
    notes: VecDeque<(Instant, u64)>,
}

const STEP: Duration = Duration::from_millis(10);

impl Timeline {
    pub(super) fn new(now: Instant, revision: u64) -> Self {
        Self { notes: VecDeque::from([(now, revision)]) }
    }

    /// Records that the revision became `revision` at `now`.
    pub(super) fn note(&mut self, now: Instant, revision: u64) {
        match self.notes.back_mut() {
            // The note keeps its time, so that a later revision seems at most a step older than it is.
            Some((at, last)) if now.saturating_duration_since(*at) < STEP => *last = revision,
            _ => self.notes.push_back((now, revision)),
        }
    }

    /// Returns the newest revision at `instant`; before all notes, the oldest known.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        let after = self.notes.partition_point(|(at, _)| *at <= instant);
        self.notes.get(after.saturating_sub(1)).map_or(0, |(_, revision)| *revision)
    }

    pub(super) fn forget_before(&mut self, revision: u64) {
        while self.notes.len() > 1 && self.notes[1].1 <= revision {
            self.notes.pop_front();
        }
    }

    pub(super) fn roll_back(&mut self, revision: u64) {
        while self.notes.len() > 1 && self.notes.back().is_some_and(|(_, r)| *r > revision) {
            self.notes.pop_back();
        }
        if let Some(last) = self.notes.back_mut() {
            last.1 = last.1.min(revision);
        }
    }
}
