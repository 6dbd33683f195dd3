//! Read position of a watcher.

use super::Event;
use crate::item::Item;

/// Read position of a watcher.
///
/// Several events can have one revision (the keys of an expired lease, the differences that a store finds after a gap), and may
/// reach the window one by one. So a revision alone is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Events of earlier revisions are read or irrelevant...
    pub(super) from: u64,
    /// ... and so are events that entered the window before this number.
    pub(super) next: u64,
    /// Revision of the last event, or the one up to which there are none.
    pub(super) at: u64,
    /// Revision after which the cursor started.
    pub(super) began: u64,
}

impl Cursor {
    /// Creates a cursor after all events up to this revision, except those that the content at this revision may lack
    /// ([`Event::further`]).
    pub fn after(revision: u64) -> Self {
        Self { from: revision.saturating_add(1), next: 0, at: revision, began: revision }
    }

    /// Returns whether the cursor has passed no event yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.from > self.at
    }

    /// Moves the cursor past its next event, which was handled.
    pub fn take<I: Item>(&mut self, event: &Event<I>) {
        (self.from, self.at, self.next) = (event.revision(), event.revision(), event.number() + 1);
    }

    /// Returns the revision of the last event, or the one up to which there are none.
    pub fn revision(&self) -> u64 {
        self.at
    }
}
