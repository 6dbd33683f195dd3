//! How far a watcher has read.

use super::Event;
use crate::source::Item;

/// How far a watcher has read.
///
/// Several events can have one revision (the keys of an expired lease, what a store finds changed after a gap), and may come
/// to the window one by one. So a revision alone would not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// What is of an earlier revision is read, or does not concern it...
    pub(super) from: u64,
    /// ... as does what came to the window before the event of this number.
    pub(super) next: u64,
    /// The revision of the last event, or the one up to which there are none.
    pub(super) at: u64,
    /// The revision that it began behind.
    pub(super) began: u64,
}

// === impl Cursor ===

impl Cursor {
    /// Behind all events of this revision and those before it, save those that may be lacking at it
    /// ([`Event::further`]).
    #[must_use]
    pub fn after(revision: u64) -> Self {
        Self { from: revision.saturating_add(1), next: 0, at: revision, began: revision }
    }

    /// Whether it was told of nothing yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.from > self.at
    }

    /// The event that comes next was dealt with.
    pub fn take<I: Item>(&mut self, event: &Event<I>) {
        (self.from, self.at, self.next) = (event.revision(), event.revision(), event.number() + 1);
    }

    /// The revision of the last event, or the one up to which there are none.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.at
    }
}
