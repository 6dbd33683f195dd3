//! The latest events of a resource, who watches them, and the frames that were made of them.
//!
//! ```text
//!  source ──▶ push ──▶ ring of events ◀── cursor ── watcher      a watcher holds no events: it reads on from its cursor
//!                │         └─▶ frames, each made once ──▶ all     whenever its client takes more
//!                └──▶ hub ──▶ wakes watchers, ends those that do not read
//! ```

mod cursor;
mod event;
mod frames;
mod hub;
mod ring;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::allowance::Allowance;
use crate::source::Item;

pub use self::cursor::Cursor;
pub(crate) use self::event::FRAME_TAIL;
pub use self::event::{Event, EventType};
pub(crate) use self::frames::{Layout, Shape};
#[cfg(test)]
pub(crate) use self::hub::SLOT_BYTES;
pub use self::hub::Subscription;

use self::frames::Frames;
use self::hub::Hub;
use self::ring::Ring;

/// How much a window keeps, and how slow a watcher may be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WindowOptions {
    /// The fewest events that are kept, however old, where the allowance is not used up (kube-apiserver: 100).
    pub min_events: usize,
    /// The most (kube-apiserver: 102400).
    pub max_events: usize,
    /// The most bytes of objects that the events hold beyond the fewest.
    pub max_bytes: usize,
    /// The most that the events of all windows that share it hold together, the fewest of each among them. Where it is more, the
    /// oldest of the window that holds most go; what is younger than a second, and so may not have been read by those who
    /// keep up, only where nothing else is left.
    pub allowance: Allowance,
    /// For how long an event beyond the fewest is kept (kube-apiserver: 75 s).
    pub keep: Duration,
    /// The most bytes of frames that are kept for watchers to come.
    pub frame_bytes: usize,
    /// The most that the frames of all windows that share it hold together, as with the events. A frame that is gone is made
    /// anew for whoever needs it.
    pub frame_allowance: Allowance,
    /// How many events a watcher that does not read may be behind (kube-apiserver: 10 to 1000).
    pub watch_buffer: u64,
    /// How long such a watcher is waited for.
    pub watch_patience: Duration,
}

/// The latest events of a resource and its watchers.
///
/// Whoever changes the content pushes what happened, in the order of revisions. Pushing wakes every watcher, so do it where
/// nothing waits for it.
#[derive(Debug)]
pub struct Window<I> {
    options: WindowOptions,
    ring: Arc<RwLock<Ring<I>>>,
    hub: Hub,
    frames: Arc<Mutex<Frames>>,
}

/// What is known of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats {
    /// How many events are kept.
    pub events: usize,
    /// How many bytes of objects they hold, at most: before and after each event.
    pub bytes: usize,
    /// How many bytes of frames are kept.
    pub frame_bytes: usize,
    /// How many watchers there are.
    pub watchers: usize,
    /// How many were ended so far because they did not read.
    pub evicted: u64,
    /// How many frames were made so far.
    pub encoded: u64,
}

// === impl Window ===

impl<I: Item> Window<I> {
    /// An empty window. Watches may start at revision `start` or later: nothing that happened since is missing.
    #[must_use]
    pub fn new(options: WindowOptions, start: u64) -> Self {
        let ring = Ring::new(options.allowance.share(), start);
        let ring = Arc::new(RwLock::new(ring));
        let of_ring = Arc::downgrade(&ring);
        options.allowance.enlist(of_ring);
        let frames = Frames::new(options.frame_bytes, options.frame_allowance.share());
        let frames = Arc::new(Mutex::new(frames));
        let of_frames = Arc::downgrade(&frames);
        options.frame_allowance.enlist(of_frames);
        Self { options, ring, hub: Hub::new(Instant::now()), frames }
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

    /// Adds events, in the order of their revisions, and wakes nobody: [`wake`](Window::wake) when you can. Until then there may be
    /// more than the allowance has.
    pub fn append(&self, events: impl IntoIterator<Item = Event<I>>) {
        let now = Instant::now();
        // Dropped behind the lock.
        let _gone;
        let mut ring = self.ring.write();
        for event in events {
            ring.push(event, now, false);
        }
        _gone = ring.trim(&self.options, now);
    }

    /// Wakes the watchers, ends those that do not read, and has events let go of where there are too many.
    pub fn wake(&self) {
        self.options.allowance.relieve();
        self.hub.told(self.count(), Instant::now(), &self.options);
    }

    /// Adds the differences that were found after a gap in history, which reaches up to revision `reached`.
    ///
    /// Watches that are open see them as events. None may start inside the gap: what was there and went within it is known
    /// to such a client and to nobody else. Those that began there, ahead of what was reached, are lost for that. Bookmarks
    /// bring the others to the end of the gap.
    pub fn extend_gap(&self, differences: impl IntoIterator<Item = Event<I>>, reached: u64) {
        let now = Instant::now();
        let gone = {
            let mut ring = self.ring.write();
            let begun = ring.reached;
            for event in differences {
                ring.push(event, now, true);
            }
            ring.end_gap(begun, reached);
            ring.trim(&self.options, now)
        };
        drop(gone);
        self.wake();
    }

    /// No event up to this revision is missing: what a bookmark says.
    pub fn advance(&self, revision: u64) {
        let mut ring = self.ring.write();
        ring.reached = ring.reached.max(revision);
    }

    /// History is broken, as by a restored etcd: forgets all events, and ends all watches as expired, so that their clients list
    /// anew. From now on, watches may start at revision `start`, which may lie before what was reached, but at none that only the
    /// broken history has come to.
    pub fn begin_anew(&self, start: u64) {
        {
            let mut ring = self.ring.write();
            ring.broken_off = ring.broken_off.max(ring.reached);
            ring.restart(start);
        }
        self.hub.expire_all();
    }

    /// Forgets the events up to this revision; watches that are open and have read them go on.
    pub fn forget(&self, revision: u64) {
        let mut ring = self.ring.write();
        ring.forget(revision);
    }

    /// Takes back the events after this revision, as a restored etcd does. Open watches are told nothing.
    pub fn roll_back(&self, revision: u64) {
        self.ring.write().roll_back(revision);
    }

    /// Ends all watches in order, without an event (W6).
    pub fn close_watches(&self) {
        self.hub.close_all();
    }

    /// Nothing will be told any more: ends all watches in order, also those that begin later. Their clients begin anew, where
    /// there is another window.
    pub fn end(&self) {
        self.hub.end();
    }

    /// Nothing will come behind what there is: watches end in order once they have read that, also those that begin later.
    pub fn finish(&self) {
        self.hub.finish();
    }

    /// The oldest revision at which a watch may start.
    #[must_use]
    pub fn oldest_start(&self) -> u64 {
        self.ring.read().oldest_start
    }

    /// Behind the events of `revision` and those before it.
    ///
    /// # Errors
    /// The oldest revision at which a watch may start, if this one is older, the end of the gap that it lies in, or the first
    /// revision that is not of a broken history.
    pub fn start(&self, revision: u64) -> Result<Cursor, u64> {
        let ring = self.ring.read();
        let oldest = match ring.gap_around(revision) {
            Some((_, ended)) => ended,
            None if revision > ring.reached && revision <= ring.broken_off => ring.broken_off + 1,
            None => ring.oldest_start,
        };
        if revision < oldest { Err(oldest) } else { Ok(Cursor::after(revision)) }
    }

    /// No event up to this revision is missing.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.ring.read().reached
    }

    /// Up to `max` events behind the cursor, and not after `until` if it is given. `None` if the window no longer reaches
    /// back to the cursor, or where that began is in a gap. The cursor stays: [`take`](Cursor::take) each event that was dealt
    /// with.
    #[must_use]
    pub fn read(&self, cursor: &Cursor, until: Option<u64>, max: usize) -> Option<Vec<Arc<Event<I>>>> {
        let ring = self.ring.read();
        if ring.has_lost(cursor) || ring.gap_around(cursor.began).is_some() {
            return None;
        }
        let events = ring.events.range(ring.index_of(cursor)..);
        let seen = events.take_while(|event| until.is_none_or(|until| event.revision() <= until));
        Some(seen.take(max).cloned().collect())
    }

    /// Whoever stands there has read all that there was, and none before this revision is still to come; of the revision itself
    /// there may be some.
    pub fn reach(&self, cursor: &mut Cursor, revision: u64) {
        if revision > cursor.at {
            let ring = self.ring.read();
            (cursor.from, cursor.at) = (revision, revision);
            cursor.next = ring.events.get(ring.index_of(cursor)).map_or(ring.count, |event| event.number());
        }
    }

    /// How many events are behind the cursor.
    #[must_use]
    pub fn behind(&self, cursor: &Cursor) -> usize {
        let ring = self.ring.read();
        ring.events.len() - ring.index_of(cursor)
    }

    /// Joins the watchers: from now on every event wakes.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>) -> Subscription<I> {
        Subscription::new(self.clone(), self.ring.read().count)
    }

    /// Lets go of what need not be kept any more. Each new event does so for the events; call this now and then where none may
    /// come for long.
    pub fn tidy(&self) {
        let (gone, oldest) = {
            let mut ring = self.ring.write();
            let gone = ring.trim(&self.options, Instant::now());
            let room = 2 * ring.events.len();
            ring.events.shrink_to(room);
            (gone, ring.events.front().map_or(ring.count, |event| event.number()))
        };
        drop(gone);
        self.frames.lock().forget_before(oldest);
    }

    /// How many there are of what.
    #[must_use]
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
            watchers: self.hub.len(),
            evicted: self.hub.evicted(),
            encoded,
        }
    }

    /// The frame of an event in one form: made by the first who asks, kept for the others.
    pub(crate) fn frame(
        &self,
        event: &Event<I>,
        kind: EventType,
        shape: Shape<'_>,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let frame = self.frames.lock().get_or_make(event.number(), kind, shape, encode);
        self.options.frame_allowance.relieve();
        frame
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn count(&self) -> u64 {
        self.ring.read().count
    }
}

// === impl WindowOptions ===

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            max_bytes: 1 << 30,
            allowance: Allowance::unbounded(),
            keep: Duration::from_secs(75),
            frame_bytes: 16 << 20,
            frame_allowance: Allowance::unbounded(),
            watch_buffer: 1000,
            watch_patience: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests;
