//! Watchers of a window: wake-ups, and eviction of slow watchers.
//!
//! Watchers share the window; each has only a cursor. So the cost of a watcher is independent of its lag. "Its buffer is full"
//! means that it does not read and that more events than its buffer holds are pending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::{Window, WindowOptions};
use crate::item::Item;

/// Watchers of one window.
#[derive(Debug)]
pub(super) struct Watchers {
    table: RwLock<SlotTable>,
    evicted: AtomicU64,
    /// True if the content is final: no further events will come.
    finished: AtomicBool,
    started: Instant,
}

/// A watcher's registration with its window, removed on drop.
#[derive(Debug)]
pub struct Subscription<I: Item> {
    window: Arc<Window<I>>,
    slot: Arc<WatcherSlot>,
    slot_index: usize,
}

/// Slots of the watchers. Free slots are reused.
#[derive(Debug, Default)]
struct SlotTable {
    slots: Vec<Option<Arc<WatcherSlot>>>,
    free: Vec<usize>,
    /// True if the window has ended: a new watcher is closed at once.
    ended: bool,
}

#[derive(Debug)]
struct WatcherSlot {
    waker: AtomicWaker,
    /// Number of the window's events that it has taken or passed.
    taken: AtomicU64,
    /// Milliseconds from the start of the window to the last chunk, if the client has polled no further since; [`IDLE`] if it
    /// waits for events.
    sending_since: AtomicU64,
    closed: AtomicBool,
    /// True if it was closed because its history was discarded. Set before it is closed.
    expired: AtomicBool,
}

const IDLE: u64 = u64::MAX;

/// Size of a registration: the slot, its counts, and two pointers to it.
#[cfg(test)]
pub(crate) const SLOT_BYTES: usize = size_of::<WatcherSlot>() + 4 * size_of::<usize>();

impl Watchers {
    pub(super) fn new(started: Instant) -> Self {
        let (evicted, finished) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { table: RwLock::default(), evicted, finished, started }
    }

    /// Wakes all watchers, now that there are `count` events, and evicts those that do not read.
    pub(super) fn notify(&self, count: u64, now: Instant, options: &WindowOptions) {
        for slot in self.table.read().slots.iter().flatten() {
            let behind = count.saturating_sub(slot.taken.load(Ordering::Acquire));
            let slow =
                behind > options.watch_buffer && self.blocked_for(slot, now) > options.slow_watcher_timeout;
            if slow && !slot.closed.swap(true, Ordering::AcqRel) {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            slot.waker.wake();
        }
    }

    pub(super) fn close_all(&self) {
        for slot in self.table.read().slots.iter().flatten() {
            slot.closed.store(true, Ordering::Release);
            slot.waker.wake();
        }
    }

    pub(super) fn expire_all(&self) {
        for slot in self.table.read().slots.iter().flatten() {
            slot.expired.store(true, Ordering::Release);
        }
        self.close_all();
    }

    pub(super) fn end(&self) {
        self.table.write().ended = true;
        self.close_all();
    }

    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        for slot in self.table.read().slots.iter().flatten() {
            slot.waker.wake();
        }
    }

    pub(super) fn len(&self) -> usize {
        let table = self.table.read();
        table.slots.len() - table.free.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn blocked_for(&self, slot: &WatcherSlot, now: Instant) -> Duration {
        match slot.sending_since.load(Ordering::Acquire) {
            IDLE => Duration::ZERO,
            since => now.saturating_duration_since(self.started).saturating_sub(Duration::from_millis(since)),
        }
    }
}

impl<I: Item> Subscription<I> {
    pub(super) fn new(window: Arc<Window<I>>, count: u64) -> Self {
        let slot = Arc::new(WatcherSlot {
            waker: AtomicWaker::new(),
            taken: AtomicU64::new(count),
            sending_since: AtomicU64::new(IDLE),
            closed: AtomicBool::new(false),
            expired: AtomicBool::new(false),
        });
        let slot_index = window.watchers().table.write().insert(slot.clone());
        Self { window, slot, slot_index }
    }

    /// Returns the window.
    pub fn window(&self) -> &Arc<Window<I>> {
        &self.window
    }

    /// Registers `waker` for the next event. Check for events again after this call.
    pub fn register(&self, waker: &Waker) {
        self.slot.waker.register(waker);
    }

    /// Records that the watcher still has `behind` events to take and is sending data to the client.
    pub fn sending(&self, behind: usize) {
        let taken = self.window.count().saturating_sub(behind as u64);
        self.slot.taken.store(taken, Ordering::Release);
        let since = Instant::now().saturating_duration_since(self.window.watchers().started);
        self.slot.sending_since.store(since.as_millis() as u64, Ordering::Release);
    }

    /// Records that the watcher waits for events.
    pub fn waiting(&self) {
        self.slot.sending_since.store(IDLE, Ordering::Release);
    }

    /// Returns whether the watch must end: it did not read, or all watches end.
    pub fn is_closed(&self) -> bool {
        self.slot.closed.load(Ordering::Acquire)
    }

    /// Returns whether no further events will come: the watch must end once it has read the rest.
    pub fn is_finished(&self) -> bool {
        self.window.watchers().finished.load(Ordering::Acquire)
    }

    /// Returns whether a closed watch ends because the history of its events was discarded.
    pub fn is_expired(&self) -> bool {
        self.slot.expired.load(Ordering::Acquire)
    }
}

impl<I: Item> Drop for Subscription<I> {
    fn drop(&mut self) {
        self.window.watchers().table.write().remove(self.slot_index);
    }
}

impl SlotTable {
    fn insert(&mut self, slot: Arc<WatcherSlot>) -> usize {
        if self.ended {
            slot.closed.store(true, Ordering::Release);
        }
        match self.free.pop() {
            Some(slot_index) => {
                self.slots[slot_index] = Some(slot);
                slot_index
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    fn remove(&mut self, slot_index: usize) {
        self.slots[slot_index] = None;
        self.free.push(slot_index);
        if self.free.len() == self.slots.len() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }
}
