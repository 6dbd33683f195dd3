//! Change of one object.

use tokio::time::Instant;

use crate::event_type::EventType;
use crate::item::Item;

/// Change of one object.
#[derive(Debug)]
pub struct Event<I> {
    kind: EventType,
    revision: u64,
    object: I,
    previous: Option<I>,
    number: u64,
    at: Instant,
    /// True if this is a difference found after a gap.
    from_gap: bool,
    further: bool,
}

impl<I: Item> Event<I> {
    /// Creates the event of an object that was created (without `previous`) or changed.
    pub fn put(revision: u64, previous: Option<I>, object: I) -> Self {
        let kind = if previous.is_some() { EventType::Modified } else { EventType::Added };
        Self::new(kind, revision, object, previous)
    }

    /// Creates the event of a deletion. `last` is the object's last state, with any resourceVersion: the event shows it with its
    /// own.
    pub fn deleted(revision: u64, last: I) -> Self {
        Self::new(EventType::Deleted, revision, last, None)
    }

    fn new(kind: EventType, revision: u64, object: I, previous: Option<I>) -> Self {
        let at = Instant::now();
        Self { kind, revision, object, previous, number: 0, at, from_gap: false, further: false }
    }

    /// Marks an event that follows others of its revision, or a bookmark at it. A client that read the content at the revision,
    /// or stopped watching at it, may lack this event. So watches that start there receive it in any case.
    #[must_use]
    pub fn further(self) -> Self {
        Self { further: true, ..self }
    }

    /// Returns the type for a watcher that always selects the object.
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// Returns the revision of the event.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the object after the event; for a deletion, the last state.
    pub fn object(&self) -> &I {
        &self.object
    }

    /// Returns the object before the event.
    pub fn previous(&self) -> Option<&I> {
        match self.kind {
            EventType::Deleted => Some(&self.object),
            _ => self.previous.as_ref(),
        }
    }

    /// Returns whether the event is a difference found after a gap, where the single changes are unknown.
    pub fn is_from_gap(&self) -> bool {
        self.from_gap
    }

    /// Returns whether a client at this revision may lack the event.
    pub(super) fn is_further_at(&self, revision: u64) -> bool {
        self.further && self.revision == revision
    }

    /// Sets number and time on entry into a window.
    pub(super) fn set_position(&mut self, number: u64, now: Instant, from_gap: bool) {
        (self.number, self.at, self.from_gap) = (number, now, from_gap);
    }

    /// Returns the event's sequence number in its window.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// Returns an upper bound of the bytes that the event holds: others may hold them, too.
    pub(super) fn cost(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.origin().len());
        self.object.origin().len() + previous + OVERHEAD
    }
}

/// Overhead of an object and its event besides the object's JSON, in bytes.
const OVERHEAD: usize = 200;
