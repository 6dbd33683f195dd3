//! Ring of the latest events in order, and the revisions at which watches may start.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::{Cursor, Event, WindowOptions};
use crate::item::Item;
use crate::memory_budget::{Evictable, Reservation};

/// Events of a window.
#[derive(Debug)]
pub(super) struct Ring<I> {
    pub(super) events: VecDeque<Arc<Event<I>>>,
    pub(super) bytes: Reservation,
    /// Number of events so far, which is the number of the next.
    pub(super) count: u64,
    /// Number of the first event that was not dropped.
    first_kept: u64,
    /// Rollbacks: the number of the next event at that time, and the target revision; without those followed by one further back.
    rollbacks: Vec<(u64, u64)>,
    /// Oldest revision at which a watch may start.
    pub(super) oldest_start: u64,
    pub(super) reached: u64,
    /// Last revision of a broken history: the revisions after `reached` up to this one belong to that history.
    pub(super) discarded_up_to: u64,
    /// Spans of history with a known outcome only: a watch may start at their ends, not inside.
    gaps: VecDeque<(u64, u64)>,
}

impl<I: Item> Ring<I> {
    /// Creates an empty ring; watches may start at revision `start` or later.
    pub(super) fn new(bytes: Reservation, start: u64) -> Self {
        Self {
            events: VecDeque::new(),
            bytes,
            // What came before the window is none of its events.
            count: 1,
            first_kept: 1,
            rollbacks: Vec::new(),
            oldest_start: start,
            reached: start,
            discarded_up_to: 0,
            gaps: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, mut event: Event<I>, now: Instant, from_gap: bool) {
        event.set_position(self.count, now, from_gap);
        self.count += 1;
        self.reached = self.reached.max(event.revision());
        self.bytes.set(self.bytes.bytes() + event.cost());
        self.events.push_back(Arc::new(event));
    }

    /// Removes the events that need not be kept, for the caller to drop, as there may be many.
    pub(super) fn trim(&mut self, options: &WindowOptions, now: Instant) -> Vec<Arc<Event<I>>> {
        let mut evicted = Vec::new();
        while let Some(oldest) = self.events.front() {
            let many = self.events.len() > options.min_events;
            let old = now.saturating_duration_since(oldest.at()) > options.keep;
            let large = self.bytes.bytes() > options.max_bytes;
            let full = self.events.len() > options.max_events || large;
            // Clients with the newest content start there.
            let needed = oldest.is_further_at(self.reached);
            if needed || !(many && (old || full)) {
                break;
            }
            evicted.extend(self.evict_oldest());
        }
        evicted
    }

    pub(super) fn restart(&mut self, start: u64) {
        self.events.clear();
        self.gaps.clear();
        self.bytes.set(0);
        // The missing events between then and now count as one.
        self.count += 1;
        self.first_kept = self.count;
        (self.oldest_start, self.reached) = (start, start);
    }

    /// Takes back the events after this revision.
    pub(super) fn roll_back(&mut self, revision: u64) {
        while self.events.back().is_some_and(|event| event.revision() > revision) {
            if let Some(event) = self.events.pop_back() {
                self.release(&event);
            }
        }
        self.rollbacks.retain(|(_, further)| *further < revision);
        self.rollbacks.push((self.count, revision));
        // A cursor that reaches this revision again is after this number.
        self.count += 1;
        self.oldest_start = self.oldest_start.min(revision);
        self.reached = self.reached.min(revision);
        self.gaps.retain(|(begun, _)| *begun < revision);
    }

    /// Returns the gap around a revision, if any.
    pub(super) fn gap_around(&self, revision: u64) -> Option<(u64, u64)> {
        self.gaps.iter().find(|(begun, ended)| *begun < revision && revision < *ended).copied()
    }

    /// Records that the history between the two is a gap.
    pub(super) fn end_gap(&mut self, begun: u64, ended: u64) {
        self.reached = self.reached.max(ended);
        let start = self.oldest_start;
        self.gaps.retain(|(_, ended)| *ended > start);
        if begun < ended {
            self.gaps.push_back((begun, ended));
        }
        if self.gaps.len() > MAX_GAPS
            && let Some((_, ended)) = self.gaps.pop_front()
        {
            self.forget(ended);
        }
    }

    pub(super) fn forget(&mut self, revision: u64) {
        while self.events.front().is_some_and(|event| event.revision() <= revision) {
            self.pop_oldest();
        }
        self.oldest_start = self.oldest_start.max(revision);
    }

    /// Removes the oldest event for good: no watcher can read it any more.
    fn evict_oldest(&mut self) -> Option<Arc<Event<I>>> {
        let event = self.pop_oldest()?;
        // Clients at its revision may lack it.
        let lacking = u64::from(event.is_further_at(event.revision()));
        self.oldest_start = event.revision().saturating_add(lacking);
        Some(event)
    }

    fn pop_oldest(&mut self) -> Option<Arc<Event<I>>> {
        let event = self.events.pop_front()?;
        self.first_kept = event.number() + 1;
        self.release(&event);
        Some(event)
    }

    fn release(&mut self, event: &Event<I>) {
        self.bytes.set(self.bytes.bytes().saturating_sub(event.cost()));
    }

    pub(super) fn index_of(&self, cursor: &Cursor) -> usize {
        let from = self.first_revision_for(cursor);
        let revision_index = self.events.partition_point(|event| event.revision() < from);
        let index = revision_index.max(self.events.partition_point(|event| event.number() < cursor.next));
        if !cursor.is_fresh() {
            return index;
        }
        let lacking = self.events.range(..index).rev().take_while(|event| event.is_further_at(cursor.at));
        index - lacking.count()
    }

    /// Returns whether events that the cursor has not read were dropped.
    pub(super) fn has_missed(&self, cursor: &Cursor) -> bool {
        self.first_revision_for(cursor) <= self.oldest_start && cursor.next < self.first_kept
    }

    /// Returns the first revision that may have events for the cursor. A cursor of a history that was taken back waits until the
    /// new one has passed its position.
    fn first_revision_for(&self, cursor: &Cursor) -> u64 {
        let furthest = self.rollbacks.iter().find(|(at, _)| cursor.next <= *at);
        match furthest {
            Some((_, to)) if cursor.at > *to => cursor.at.saturating_add(1),
            _ => cursor.from,
        }
    }
}

impl<I: Item> Evictable for RwLock<Ring<I>> {
    fn usage(&self) -> Option<(usize, Instant)> {
        let ring = self.read();
        Some((ring.bytes.bytes(), ring.events.front()?.at()))
    }

    fn evict(&self, bytes: usize, youngest: Instant) -> Box<dyn Any> {
        let mut ring = self.write();
        let enough = ring.bytes.bytes().saturating_sub(bytes);
        let mut evicted = Vec::new();
        while ring.bytes.bytes() > enough && ring.events.front().is_some_and(|event| event.at() <= youngest) {
            evicted.extend(ring.evict_oldest());
        }
        Box::new(evicted)
    }
}

/// Maximum number of gaps that are distinguished: what lies before them is forgotten.
const MAX_GAPS: usize = 64;
