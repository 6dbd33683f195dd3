//! One change of one object.

use tokio::time::Instant;

use crate::source::Item;

/// What happened to an object, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It came into being, or into the selection.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or out of the selection.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event<I> {
    kind: EventType,
    revision: u64,
    object: I,
    previous: Option<I>,
    number: u64,
    at: Instant,
    /// Whether it is a difference found after a gap.
    of_gap: bool,
    further: bool,
}

/// What stands behind the object in a watch frame.
pub(crate) const FRAME_TAIL: &[u8] = b"}\n";

// === impl EventType ===

impl EventType {
    /// What stands before the object in a watch frame; behind it stand `}` and a newline.
    #[must_use]
    pub fn frame_head(self) -> &'static [u8] {
        match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        }
    }
}

// === impl Event ===

impl<I: Item> Event<I> {
    /// An object that came (without `previous`) or changed.
    pub fn put(revision: u64, previous: Option<I>, object: I) -> Self {
        let kind = if previous.is_some() { EventType::Modified } else { EventType::Added };
        Self::new(kind, revision, object, previous)
    }

    /// An object that went; `last` is its last state, with whatever resourceVersion: the event shows it with its own.
    pub fn deleted(revision: u64, last: I) -> Self {
        Self::new(EventType::Deleted, revision, last, None)
    }

    fn new(kind: EventType, revision: u64, object: I, previous: Option<I>) -> Self {
        let at = Instant::now();
        Self { kind, revision, object, previous, number: 0, at, of_gap: false, further: false }
    }

    /// Others that share its revision came before it, or a bookmark did. Who has read the content at the revision, or stopped watching
    /// at it, may lack this event: watches that start there are told of it, if they have it or not.
    #[must_use]
    pub fn further(self) -> Self {
        Self { further: true, ..self }
    }

    /// What happened to the object, for whom it is always selected.
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// The revision that the event made.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The object after it; of a deletion, the last state.
    pub fn object(&self) -> &I {
        &self.object
    }

    /// The object before it.
    pub fn previous(&self) -> Option<&I> {
        match self.kind {
            EventType::Deleted => Some(&self.object),
            _ => self.previous.as_ref(),
        }
    }

    /// Whether it is one of the differences that were found after a gap, whose own course is not known.
    pub fn is_of_gap(&self) -> bool {
        self.of_gap
    }

    /// Whether who stands at this revision may lack it.
    pub(super) fn is_further_at(&self, revision: u64) -> bool {
        self.further && self.revision == revision
    }

    /// Takes its place in a window.
    pub(super) fn enter(&mut self, number: u64, now: Instant, of_gap: bool) {
        (self.number, self.at, self.of_gap) = (number, now, of_gap);
    }

    /// The how manieth event of its window it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// How many bytes it holds, at most: others may hold them, too.
    pub(super) fn cost(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.origin().len());
        self.object.origin().len() + previous + OVERHEAD
    }
}

/// What an object and its event cost beside the object's JSON.
const OVERHEAD: usize = 200;
