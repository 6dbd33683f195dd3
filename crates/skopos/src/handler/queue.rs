//! The queue between a store's writer and one handler: bounded, and the writer never waits for it.
//!
//! ```text
//!   writer ──▶ [ event event event … ] ──▶ runner            the handler keeps up
//!   writer ──▶ [ event event … | difference(from, to) ]      it falls behind: `to` moves on, nothing grows
//! ```
//!
//! While the handler keeps up, it gets every single change. When the waiting events reach the queue's capacity, all later
//! changes become one *difference*: the snapshot that the handler will have seen after the events in front of it, and the
//! newest snapshot. The writer then only replaces a pointer. When the difference comes to the front, the runner walks over
//! the two snapshots and delivers, key by key, the changes between them. Meanwhile new events queue behind it, one by one
//! again.
//!
//! So the last state of a key is never lost, `old` is what was delivered last, an object that came and went is never
//! delivered, and two uids never merge. The cost: up to `capacity` events (or one batch from the network, if that alone is
//! more), and at most three differences (one that is being walked, one of a relist, one of an overflow). A difference has
//! no memory of its own; its older snapshot keeps alive the objects that have changed since. However slow a handler is, and
//! however many keys change, the size of the store bounds that.
//!
//! A relist and the initial content are differences too, so that 50,000 of them need no 50,000 events.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use skopos_wire::ObjectKey;
use tokio::sync::Notify;

use super::event::{Event, EventFlags};
use crate::store::StoreContent;
use crate::store::object::StoredObject;
use crate::store::tree::{self, TreeItem};
use crate::sync::Mutex;

/// The queue: the writer feeds it, one runner takes from it.
pub(crate) struct EventQueue {
    capacity: usize,
    waiting: Mutex<QueueInner>,
    fed: Notify,
}

#[derive(Default)]
struct QueueInner {
    segments: VecDeque<Segment>,
    /// The number of segments that are events, and of those that are differences.
    events: usize,
    differences: usize,
    /// True once the initial content was queued.
    has_initial: bool,
    overflows: u64,
    deepest: usize,
}

enum Segment {
    Event(Event),
    Difference(ContentDifference),
}

/// Changes that a handler has yet to receive, as the states before and after.
pub(crate) struct ContentDifference {
    from: Arc<StoreContent>,
    to: Arc<StoreContent>,
    gap: bool,
    coalesced: bool,
    /// True if every object of `to` is delivered as an unchanged update.
    resync: bool,
    /// True if the added objects belong to a first list: they existed before the handler.
    initial: bool,
    /// True if the handler has seen the whole first list after this difference.
    completes: bool,
}

/// An item that a runner takes from a queue.
pub(crate) enum QueueItem {
    /// One event.
    Event(Event),
    /// A difference, to be walked.
    Walk(DifferenceWalk),
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) events: usize,
    pub(crate) differences: usize,
    pub(crate) overflows: u64,
    pub(crate) deepest: usize,
}

impl EventQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), waiting: Mutex::default(), fed: Notify::new() }
    }

    /// Queues the initial content: all of `now`. If nothing was listed yet, the first list will do it.
    pub(crate) fn start(&self, now: &Arc<StoreContent>) {
        // A set of namespaces has content before all of them are synced.
        if now.synced || now.objects.len() > 0 {
            self.replaced(&Arc::new(StoreContent::unsynced()), now, false);
        }
    }

    /// Queues the changes that led from one state to the next.
    pub(crate) fn changed(&self, changes: &[Event], before: &Arc<StoreContent>, after: &Arc<StoreContent>) {
        if changes.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let room = waiting.events == 0 || waiting.events + changes.len() <= self.capacity;
        if let Some(overflow) = waiting.overflow() {
            overflow.to = after.clone();
            overflow.gap |= changes.iter().any(|event| event.flags().gap);
        } else if room {
            waiting.events += changes.len();
            waiting.deepest = waiting.deepest.max(waiting.events);
            waiting.segments.extend(changes.iter().cloned().map(Segment::Event));
        } else {
            waiting.overflows += 1;
            let gap = changes.iter().any(|event| event.flags().gap);
            waiting.push(ContentDifference {
                gap,
                coalesced: true,
                ..ContentDifference::between(before, after)
            });
        }
        drop(waiting);
        self.fed.notify_one();
    }

    /// Queues the replacement of one state by the next, by a list.
    pub(crate) fn replaced(&self, before: &Arc<StoreContent>, after: &Arc<StoreContent>, gap: bool) {
        let mut waiting = self.waiting.lock();
        let initial = !waiting.has_initial;
        let completes = initial && after.is_confirmed();
        waiting.has_initial |= after.is_confirmed();
        if waiting.differences > 0 {
            // A second relist before the handler has begun with the first: they become one difference.
            waiting.merge_into_last_difference(after, gap, initial, completes);
        } else {
            waiting.push(ContentDifference {
                gap,
                initial,
                completes,
                ..ContentDifference::between(before, after)
            });
        }
        drop(waiting);
        self.fed.notify_one();
    }

    /// Queues a delivery of every object, unless something waits. `now` must be the state to which the changes queued so
    /// far have led. Returns whether it was queued.
    pub(crate) fn resync(&self, now: &Arc<StoreContent>) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.segments.is_empty() {
            return false;
        }
        waiting.push(ContentDifference { resync: true, ..ContentDifference::between(now, now) });
        true
    }

    /// Returns the next item; waits for one.
    pub(crate) async fn take(&self) -> QueueItem {
        loop {
            if let Some(taken) = self.waiting.lock().take() {
                return taken;
            }
            self.fed.notified().await;
        }
    }

    /// Drops all waiting items.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        (waiting.events, waiting.differences) = (0, 0);
        let forgotten = std::mem::take(&mut waiting.segments);
        drop(waiting);
        drop(forgotten);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().segments.is_empty()
    }

    pub(crate) fn state(&self) -> QueueState {
        let waiting = self.waiting.lock();
        QueueState {
            events: waiting.events,
            differences: waiting.differences,
            overflows: waiting.overflows,
            deepest: waiting.deepest,
        }
    }
}

impl QueueInner {
    /// Returns the difference at the end that takes in every further change, if the queue has overflowed.
    fn overflow(&mut self) -> Option<&mut ContentDifference> {
        match self.segments.back_mut() {
            Some(Segment::Difference(difference)) if difference.coalesced => Some(difference),
            _ => None,
        }
    }

    fn push(&mut self, difference: ContentDifference) {
        self.differences += 1;
        self.segments.push_back(Segment::Difference(difference));
    }

    fn merge_into_last_difference(
        &mut self,
        after: &Arc<StoreContent>,
        gap: bool,
        initial: bool,
        completes: bool,
    ) {
        while let Some(segment) = self.segments.back_mut() {
            match segment {
                Segment::Event(_) => {
                    self.segments.pop_back();
                    self.events -= 1;
                }
                Segment::Difference(last) => {
                    last.to = after.clone();
                    last.gap |= gap;
                    last.initial |= initial;
                    last.completes |= completes;
                    last.coalesced = true;
                    last.resync = false;
                    return;
                }
            }
        }
    }

    fn take(&mut self) -> Option<QueueItem> {
        Some(match self.segments.pop_front()? {
            Segment::Event(event) => {
                self.events -= 1;
                QueueItem::Event(event)
            }
            Segment::Difference(difference) => {
                self.differences -= 1;
                QueueItem::Walk(DifferenceWalk {
                    difference,
                    after: None,
                    ready: VecDeque::new(),
                    at_end: false,
                })
            }
        })
    }
}

impl ContentDifference {
    fn between(from: &Arc<StoreContent>, to: &Arc<StoreContent>) -> Self {
        Self {
            from: from.clone(),
            to: to.clone(),
            gap: false,
            coalesced: false,
            resync: false,
            initial: false,
            completes: false,
        }
    }
}

/// A walk over a difference, in portions, so that no iterator is held while the handler works.
pub(crate) struct DifferenceWalk {
    difference: ContentDifference,
    after: Option<ObjectKey>,
    ready: VecDeque<Event>,
    at_end: bool,
}

impl DifferenceWalk {
    /// Returns the next event, or `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Event> {
        if self.ready.is_empty() && !self.at_end {
            self.fill();
        }
        self.ready.pop_front()
    }

    /// Returns whether the handler has seen the whole first list after this walk.
    pub(crate) fn completes_first_list(&self) -> bool {
        self.difference.completes
    }

    fn fill(&mut self) {
        let Self { difference, after, ready, at_end } = self;
        let flags =
            EventFlags { gap: difference.gap, coalesced: difference.coalesced, resync: difference.resync };
        if difference.resync {
            let objects = difference.to.objects.seek(|key| after.as_ref().is_some_and(|after| key <= after));
            ready.extend(objects.take(WALK_BATCH).map(|entry| updated(entry, entry, flags)));
            *at_end = ready.len() < WALK_BATCH;
        } else {
            let behind = after.clone();
            let walk =
                tree::diff(&difference.from.objects, &difference.to.objects, behind.as_ref(), |old, new| {
                    if ready.len() >= WALK_BATCH {
                        return ControlFlow::Break(());
                    }
                    push_change(ready, old, new, difference.initial, flags);
                    *after = old.or(new).map(|entry| entry.key().clone());
                    ControlFlow::Continue(())
                });
            *at_end = walk.is_continue();
        }
        if difference.resync {
            *after = ready.back().map(|event| event.key().clone());
        }
    }
}

/// The number of events that a walk prepares at once.
const WALK_BATCH: usize = 128;

/// Appends the events of a key whose object was `old` and is now `new`.
fn push_change(
    events: &mut VecDeque<Event>,
    old: Option<&StoredObject>,
    new: Option<&StoredObject>,
    initial: bool,
    flags: EventFlags,
) {
    match (old, new) {
        (Some(old), Some(new)) if old.uid() == new.uid() => events.push_back(updated(old, new, flags)),
        _ => {
            // The final state is not stored: a handler that falls behind learns only that the object is gone.
            let deleted = old.map(|old| Event::deleted(old.clone(), flags));
            // An object that replaced another one is known to be new.
            let initial = initial && old.is_none();
            let added = new.map(|new| Event::Added { object: new.clone().into(), initial, flags });
            events.extend([deleted, added].into_iter().flatten());
        }
    }
}

fn updated(old: &StoredObject, new: &StoredObject, flags: EventFlags) -> Event {
    Event::Updated { old: old.clone().into(), new: new.clone().into(), flags }
}
