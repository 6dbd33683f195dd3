//! The watchers of a resource: who is woken by an event, and who reads too slowly.
//!
//! Watchers share the window of events; each has only a cursor. So a watcher costs the same however far behind it is,
//! and "its buffer is full" means that it does not read and more events than its buffer holds wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::HistoryLimits;

/// The watchers of one resource.
#[derive(Debug, Default)]
pub(super) struct Hub {
    slots: RwLock<Vec<Arc<Slot>>>,
    /// How many events there were so far.
    events: AtomicU64,
    evicted: AtomicU64,
}

/// A watcher's place among the watchers of its resource; dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    slot: Arc<Slot>,
}

/// What is known of the watchers of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatcherStats {
    /// How many there are.
    pub(crate) open: usize,
    /// How many were closed because they did not read.
    pub(crate) evicted: u64,
}

#[derive(Debug)]
struct Slot {
    waker: AtomicWaker,
    /// How many of the hub's events it has taken or passed.
    taken: AtomicU64,
    /// Milliseconds since the storage's start at which it handed out data that it was not asked beyond since;
    /// [`IDLE`] if it waits for events.
    sending_since: AtomicU64,
    closed: AtomicBool,
    started: Instant,
}

const IDLE: u64 = u64::MAX;

// === impl Hub ===

impl Hub {
    /// Counts an event, wakes all, and closes those that do not read.
    pub(super) fn event(&self, now: Instant, limits: &HistoryLimits) {
        let count = self.events.fetch_add(1, Ordering::AcqRel) + 1;
        for slot in self.slots.read().iter() {
            let behind = count.saturating_sub(slot.taken.load(Ordering::Acquire));
            let slow = behind > limits.watch_buffer && slot.stuck_for(now) > limits.watch_patience;
            if slow && !slot.closed.swap(true, Ordering::AcqRel) {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            slot.waker.wake();
        }
    }

    pub(super) fn close_all(&self) {
        for slot in self.slots.read().iter() {
            slot.closed.store(true, Ordering::Release);
            slot.waker.wake();
        }
    }

    pub(super) fn stats(&self) -> WatcherStats {
        WatcherStats { open: self.slots.read().len(), evicted: self.evicted.load(Ordering::Relaxed) }
    }
}

// === impl Subscription ===

impl Subscription {
    pub(super) fn new(hub: Arc<Hub>, started: Instant) -> Self {
        let slot = Arc::new(Slot {
            waker: AtomicWaker::new(),
            taken: AtomicU64::new(hub.events.load(Ordering::Acquire)),
            sending_since: AtomicU64::new(IDLE),
            closed: AtomicBool::new(false),
            started,
        });
        hub.slots.write().push(slot.clone());
        Self { hub, slot }
    }

    /// Has `waker` woken by the next event. Look for events again after this.
    pub(crate) fn register(&self, waker: &Waker) {
        self.slot.waker.register(waker);
    }

    /// The watcher has `behind` events still to take and waits for none: data of it is on its way to the client.
    pub(crate) fn sending(&self, behind: usize) {
        self.took(behind);
        let since = Instant::now().saturating_duration_since(self.slot.started);
        self.slot.sending_since.store(since.as_millis() as u64, Ordering::Release);
    }

    /// The watcher waits for events.
    pub(crate) fn waiting(&self) {
        self.slot.sending_since.store(IDLE, Ordering::Release);
    }

    /// Whether the watch must end: it did not read, or the server ends all watches.
    pub(crate) fn is_closed(&self) -> bool {
        self.slot.closed.load(Ordering::Acquire)
    }

    fn took(&self, behind: usize) {
        let taken = self.hub.events.load(Ordering::Acquire).saturating_sub(behind as u64);
        self.slot.taken.store(taken, Ordering::Release);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.slots.write().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

// === impl Slot ===

impl Slot {
    fn stuck_for(&self, now: Instant) -> Duration {
        match self.sending_since.load(Ordering::Acquire) {
            IDLE => Duration::ZERO,
            since => now.saturating_duration_since(self.started).saturating_sub(Duration::from_millis(since)),
        }
    }
}
