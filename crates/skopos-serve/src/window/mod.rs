//! Window of a resource: its latest events, its watchers, and the encoded frames.
//!
//! ```text
//!  source ──▶ push ──▶ ring of events ◀── cursor ── watcher      a watcher holds no events: it reads on from its cursor
//!                │         └─▶ frames, each made once ──▶ all     whenever its client takes more
//!                └──▶ watchers: wakes all, ends those that do not read
//! ```

mod cursor;
mod event;
mod frames;
mod ring;
mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub use self::cursor::Cursor;
pub use self::event::Event;
use self::frames::Frames;
pub(crate) use self::frames::{FrameShape, Layout};
use self::ring::Ring;
#[cfg(test)]
pub(crate) use self::watchers::SLOT_BYTES;
pub use self::watchers::Subscription;
use self::watchers::Watchers;
use crate::event_type::EventType;
use crate::item::Item;
use crate::memory_budget::MemoryBudget;

/// Limits of a window and of its watchers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WindowOptions {
    /// Minimum number of events kept, whatever their age, while the budget lasts (kube-apiserver: 100).
    pub min_events: usize,
    /// Maximum number of events (kube-apiserver: 102400).
    pub max_events: usize,
    /// Maximum bytes of objects that the events hold beyond the minimum number.
    pub max_bytes: usize,
    /// Budget for the events of all windows that share it, including their minimum numbers. Over the limit, the oldest events of
    /// the largest window are evicted. Events younger than a second, which watchers that keep up may not have read, are evicted
    /// only if nothing else is left.
    pub budget: MemoryBudget,
    /// Retention time of an event beyond the minimum number (kube-apiserver: 75 s).
    pub keep: Duration,
    /// Maximum bytes of frames kept for later watchers.
    pub frame_bytes: usize,
    /// Budget for the frames of all windows that share it, as with the events. An evicted frame is encoded again on demand.
    pub frame_budget: MemoryBudget,
    /// Maximum number of events that a watcher that does not read may lag behind (kube-apiserver: 10 to 1000).
    pub watch_buffer: u64,
    /// Time for which such a watcher is tolerated.
    pub slow_watcher_timeout: Duration,
}

/// Latest events of a resource, and its watchers.
///
/// The owner of the content pushes its changes in the order of revisions. Pushing wakes every watcher, so do it where nothing
/// waits for it.
#[derive(Debug)]
pub struct Window<I> {
    options: WindowOptions,
    ring: Arc<RwLock<Ring<I>>>,
    watchers: Watchers,
    frames: Arc<Mutex<Frames>>,
    has_protobuf: AtomicBool,
}

/// Statistics of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats {
    /// Number of events kept.
    pub events: usize,
    /// Upper bound of the bytes of their objects: before and after each event.
    pub bytes: usize,
    /// Bytes of the frames kept.
    pub frame_bytes: usize,
    /// Number of watchers.
    pub watchers: usize,
    /// Number of watchers evicted so far because they did not read.
    pub evicted: u64,
    /// Number of frames encoded so far.
    pub encoded: u64,
}

impl<I: Item> Window<I> {
    /// Creates an empty window. Watches may start at revision `start` or later: the window misses no event since then.
    pub fn new(options: WindowOptions, start: u64) -> Self {
        let ring = Ring::new(options.budget.share(), start);
        let ring = Arc::new(RwLock::new(ring));
        let weak_ring = Arc::downgrade(&ring);
        options.budget.register(weak_ring);
        let frames = Frames::new(options.frame_bytes, options.frame_budget.share());
        let frames = Arc::new(Mutex::new(frames));
        let weak_frames = Arc::downgrade(&frames);
        options.frame_budget.register(weak_frames);
        Self {
            options,
            ring,
            watchers: Watchers::new(Instant::now()),
            frames,
            has_protobuf: AtomicBool::new(true),
        }
    }

    /// Returns whether the objects may be sent in protobuf.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.has_protobuf.load(Ordering::Relaxed)
    }

    /// Records that an object does not fit the protobuf of its kind, because a newer server sent it in JSON. From then on
    /// clients get JSON, in which nothing is lost.
    pub(crate) fn refuse_protobuf(&self) {
        self.has_protobuf.store(false, Ordering::Relaxed);
    }

    /// Adds an event and wakes the watchers.
    pub fn push(&self, event: Event<I>) {
        self.extend([event]);
    }

    /// Adds events, in the order of their revisions, and wakes the watchers once.
    pub fn extend(&self, events: impl IntoIterator<Item = Event<I>>) {
        self.append(events);
        self.wake();
    }

    /// Adds events, in the order of their revisions, and wakes no watcher: call [`wake`](Window::wake) when possible. Until then
    /// the budget may be exceeded.
    pub fn append(&self, events: impl IntoIterator<Item = Event<I>>) {
        let now = Instant::now();
        // Declared before the lock, so dropped after it is released.
        let _evicted;
        let mut ring = self.ring.write();
        for event in events {
            ring.push(event, now, false);
        }
        _evicted = ring.trim(&self.options, now);
    }

    /// Wakes the watchers, ends those that do not read, and evicts events if there are too many.
    pub fn wake(&self) {
        self.options.budget.reclaim();
        self.watchers.notify(self.count(), Instant::now(), &self.options);
    }

    /// Adds the differences found after a gap in history that reaches up to revision `reached`.
    ///
    /// Open watches see them as events. No watch may start inside the gap: only its own client knows of objects that existed
    /// there and were deleted in it. Watches that began there, ahead of what was reached, are lost for that reason. Bookmarks
    /// bring the others to the end of the gap.
    pub fn extend_gap(&self, differences: impl IntoIterator<Item = Event<I>>, reached: u64) {
        let now = Instant::now();
        let evicted = {
            let mut ring = self.ring.write();
            let begun = ring.reached;
            for event in differences {
                ring.push(event, now, true);
            }
            ring.end_gap(begun, reached);
            ring.trim(&self.options, now)
        };
        drop(evicted);
        self.wake();
    }

    /// Records that no event up to this revision is missing; bookmarks carry it.
    pub fn advance(&self, revision: u64) {
        let mut ring = self.ring.write();
        ring.reached = ring.reached.max(revision);
    }

    /// Discards a broken history, as after a restore of etcd. Forgets all events and ends all watches as expired, so that their
    /// clients relist. From now on, watches may start at revision `start`, which may be older than the last one. They may not
    /// start at a revision that only the broken history reached.
    pub fn restart(&self, start: u64) {
        {
            let mut ring = self.ring.write();
            ring.discarded_up_to = ring.discarded_up_to.max(ring.reached);
            ring.restart(start);
        }
        self.watchers.expire_all();
    }

    /// Forgets the events up to this revision; open watches that have read them continue.
    pub fn forget(&self, revision: u64) {
        let mut ring = self.ring.write();
        ring.forget(revision);
    }

    /// Takes back the events after this revision, as a restored etcd does. Open watches get no event.
    pub fn roll_back(&self, revision: u64) {
        self.ring.write().roll_back(revision);
    }

    /// Ends all watches in order, without an event (W6).
    pub fn close_watches(&self) {
        self.watchers.close_all();
    }

    /// Ends the window: all watches end in order, also those that begin later. Their clients start again at another window.
    pub fn end(&self) {
        self.watchers.end();
    }

    /// Marks the content as final: watches end in order once they have read the rest, also those that begin later.
    pub fn finish(&self) {
        self.watchers.finish();
    }

    /// Returns the oldest revision at which a watch may start.
    pub fn oldest_start(&self) -> u64 {
        self.ring.read().oldest_start
    }

    /// Returns a cursor after the events up to `revision`.
    ///
    /// # Errors
    /// The oldest valid start revision, if this one is older; the end of the gap, if it lies in one; or the first revision that
    /// the broken history did not reach.
    pub fn start(&self, revision: u64) -> Result<Cursor, u64> {
        let ring = self.ring.read();
        let oldest = match ring.gap_around(revision) {
            Some((_, ended)) => ended,
            None if revision > ring.reached && revision <= ring.discarded_up_to => ring.discarded_up_to + 1,
            None => ring.oldest_start,
        };
        if revision < oldest { Err(oldest) } else { Ok(Cursor::after(revision)) }
    }

    /// Returns the revision up to which no event is missing.
    pub fn reached(&self) -> u64 {
        self.ring.read().reached
    }

    /// Returns up to `max` events after the cursor, and not after `until` if given. Returns `None` if the window no longer
    /// reaches back to the cursor, or if the cursor began in a gap. The cursor stays: [`take`](Cursor::take) each event that was
    /// handled.
    pub fn read(&self, cursor: &Cursor, until: Option<u64>, max: usize) -> Option<Vec<Arc<Event<I>>>> {
        let ring = self.ring.read();
        if ring.has_missed(cursor) || ring.gap_around(cursor.began).is_some() {
            return None;
        }
        let events = ring.events.range(ring.index_of(cursor)..);
        let seen = events.take_while(|event| until.is_none_or(|until| event.revision() <= until));
        Some(seen.take(max).cloned().collect())
    }

    /// Moves a cursor that has read all events to `revision`. No event before it is still to come; some of the revision itself
    /// may be.
    pub fn reach(&self, cursor: &mut Cursor, revision: u64) {
        if revision > cursor.at {
            let ring = self.ring.read();
            (cursor.from, cursor.at) = (revision, revision);
            cursor.next = ring.events.get(ring.index_of(cursor)).map_or(ring.count, |event| event.number());
        }
    }

    /// Returns the number of events after the cursor.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        let ring = self.ring.read();
        ring.events.len() - ring.index_of(cursor)
    }

    /// Subscribes a watcher: from now on every event wakes it.
    pub fn subscribe(self: &Arc<Self>) -> Subscription<I> {
        Subscription::new(self.clone(), self.ring.read().count)
    }

    /// Drops what need not be kept any more. Each new event does so for the events; call this at intervals, because none may come
    /// for long.
    pub fn tidy(&self) {
        let (evicted, oldest) = {
            let mut ring = self.ring.write();
            let evicted = ring.trim(&self.options, Instant::now());
            let room = 2 * ring.events.len();
            ring.events.shrink_to(room);
            (evicted, ring.events.front().map_or(ring.count, |event| event.number()))
        };
        drop(evicted);
        self.frames.lock().forget_before(oldest);
    }

    /// Returns the statistics.
    pub fn stats(&self) -> WindowStats {
        let (events, bytes) = {
            let ring = self.ring.read();
            (ring.events.len(), ring.bytes.bytes())
        };
        let (encoded, frame_bytes) = {
            let frames = self.frames.lock();
            (frames.encoded(), frames.bytes())
        };
        WindowStats {
            events,
            bytes,
            frame_bytes,
            watchers: self.watchers.len(),
            evicted: self.watchers.evicted(),
            encoded,
        }
    }

    /// Returns the frame of an event in one form: encoded for the first caller, kept for the others.
    pub(crate) fn frame(
        &self,
        event: &Event<I>,
        kind: EventType,
        shape: FrameShape<'_>,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let frame = self.frames.lock().get_or_encode(event.number(), kind, shape, encode);
        self.options.frame_budget.reclaim();
        frame
    }

    fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    fn count(&self) -> u64 {
        self.ring.read().count
    }
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            max_bytes: 1 << 30,
            budget: MemoryBudget::unbounded(),
            keep: Duration::from_secs(75),
            frame_bytes: 16 << 20,
            frame_budget: MemoryBudget::unbounded(),
            watch_buffer: 1000,
            slow_watcher_timeout: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests;
