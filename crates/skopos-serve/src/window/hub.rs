//! The watchers of a window: who is woken by an event, and who reads too slowly.
//!
//! Watchers share the window; each has only a cursor. So a watcher costs the same however far behind it is, and "its buffer
//! is full" means that it does not read and more events than its buffer holds wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::{Window, WindowOptions};
use crate::source::Item;

/// The watchers of one window.
#[derive(Debug)]
pub(super) struct Hub {
    places: RwLock<Places>,
    evicted: AtomicU64,
    /// Nothing will come behind what there is.
    finished: AtomicBool,
    started: Instant,
}

/// A watcher's place among those of its window; dropping it gives the place up.
#[derive(Debug)]
pub struct Subscription<I: Item> {
    window: Arc<Window<I>>,
    slot: Arc<Slot>,
    place: usize,
}

/// Places that are given up are used again.
#[derive(Debug, Default)]
struct Places {
    slots: Vec<Option<Arc<Slot>>>,
    free: Vec<usize>,
    /// Nothing will be told any more: whoever comes now is ended at once.
    ended: bool,
}

#[derive(Debug)]
struct Slot {
    waker: AtomicWaker,
    /// How many of the window's events it has taken or passed.
    taken: AtomicU64,
    /// Milliseconds since the hub's start at which it handed out data that it was not asked beyond since; [`IDLE`] if it
    /// waits for events.
    sending_since: AtomicU64,
    closed: AtomicBool,
    /// Whether that is because its history is no more. Set before it is closed.
    expired: AtomicBool,
}

const IDLE: u64 = u64::MAX;

/// What a place costs: the slot, its counts, and two pointers to it.
#[cfg(test)]
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>() + 4 * size_of::<usize>();

// === impl Hub ===

impl Hub {
    pub(super) fn new(started: Instant) -> Self {
        let (evicted, finished) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { places: RwLock::default(), evicted, finished, started }
    }

    /// There are `count` events now: wakes all, and ends those that do not read.
    pub(super) fn told(&self, count: u64, now: Instant, options: &WindowOptions) {
        for slot in self.places.read().slots.iter().flatten() {
            let behind = count.saturating_sub(slot.taken.load(Ordering::Acquire));
            let slow = behind > options.watch_buffer && self.stuck_for(slot, now) > options.watch_patience;
            if slow && !slot.closed.swap(true, Ordering::AcqRel) {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            slot.waker.wake();
        }
    }

    pub(super) fn close_all(&self) {
        for slot in self.places.read().slots.iter().flatten() {
            slot.closed.store(true, Ordering::Release);
            slot.waker.wake();
        }
    }

    pub(super) fn expire_all(&self) {
        for slot in self.places.read().slots.iter().flatten() {
            slot.expired.store(true, Ordering::Release);
        }
        self.close_all();
    }

    pub(super) fn end(&self) {
        self.places.write().ended = true;
        self.close_all();
    }

    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        for slot in self.places.read().slots.iter().flatten() {
            slot.waker.wake();
        }
    }

    pub(super) fn len(&self) -> usize {
        let places = self.places.read();
        places.slots.len() - places.free.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn stuck_for(&self, slot: &Slot, now: Instant) -> Duration {
        match slot.sending_since.load(Ordering::Acquire) {
            IDLE => Duration::ZERO,
            since => now.saturating_duration_since(self.started).saturating_sub(Duration::from_millis(since)),
        }
    }
}

// === impl Subscription ===

impl<I: Item> Subscription<I> {
    pub(super) fn new(window: Arc<Window<I>>, count: u64) -> Self {
        let slot = Arc::new(Slot {
            waker: AtomicWaker::new(),
            taken: AtomicU64::new(count),
            sending_since: AtomicU64::new(IDLE),
            closed: AtomicBool::new(false),
            expired: AtomicBool::new(false),
        });
        let place = window.hub().places.write().enter(slot.clone());
        Self { window, slot, place }
    }

    /// The window that is watched.
    #[must_use]
    pub fn window(&self) -> &Arc<Window<I>> {
        &self.window
    }

    /// Has `waker` woken by the next event. Look for events again after this.
    pub fn register(&self, waker: &Waker) {
        self.slot.waker.register(waker);
    }

    /// The watcher has `behind` events still to take and waits for none: data of it is on its way to the client.
    pub fn sending(&self, behind: usize) {
        let taken = self.window.count().saturating_sub(behind as u64);
        self.slot.taken.store(taken, Ordering::Release);
        let since = Instant::now().saturating_duration_since(self.window.hub().started);
        self.slot.sending_since.store(since.as_millis() as u64, Ordering::Release);
    }

    /// The watcher waits for events.
    pub fn waiting(&self) {
        self.slot.sending_since.store(IDLE, Ordering::Release);
    }

    /// Whether the watch must end: it did not read, or all watches end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.slot.closed.load(Ordering::Acquire)
    }

    /// Whether nothing will come behind what there is: the watch must end once it has read that.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.window.hub().finished.load(Ordering::Acquire)
    }

    /// Whether a watch that is closed ends because what it was told is of a history that is no more.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.slot.expired.load(Ordering::Acquire)
    }
}

impl<I: Item> Drop for Subscription<I> {
    fn drop(&mut self) {
        self.window.hub().places.write().leave(self.place);
    }
}

// === impl Places ===

impl Places {
    fn enter(&mut self, slot: Arc<Slot>) -> usize {
        if self.ended {
            slot.closed.store(true, Ordering::Release);
        }
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    fn leave(&mut self, place: usize) {
        self.slots[place] = None;
        self.free.push(place);
        if self.free.len() == self.slots.len() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }
}
