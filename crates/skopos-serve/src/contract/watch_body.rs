//! Stream of a WATCH.
//!
//! A stream buffers no events: it has a cursor into the window of its resource and reads on from there whenever the client takes
//! more. A burst is sent as one chunk, a single event as the frame that all watchers share.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::json;
use skopos_wire::{INITIAL_EVENTS_END, Status};
use tokio::time::{Instant, Sleep, sleep_until};

use super::watch::Start;
use super::{Form, ItemFilter, Selection, ServeOptions};
use crate::event_type::EventType;
use crate::item::Item;
use crate::respond::BodyError;
use crate::source::Source;
use crate::window::{Cursor, Event, Subscription};

/// Stream of a WATCH.
#[derive(Debug)]
pub(super) struct WatchBody<S: Source> {
    source: S,
    subscription: Subscription<S::Item>,
    scope: WatchScope<S::Item>,
    phase: WatchPhase<S::Item>,
    cursor: Cursor,
    /// True if an event was sent before; tables define their columns in the first.
    has_sent: bool,
    /// True if the last event sent lies in a gap, where no watch can start.
    in_gap: bool,
    bookmarks: Option<Bookmarks>,
    revision_pause: RevisionPause,
    deadline: Instant,
    /// Wakes the stream when the next of all these is due.
    timer: Pin<Box<Sleep>>,
}

/// Selection, permission and form of a watch.
#[derive(Debug)]
pub(super) struct WatchScope<I> {
    pub(super) selection: Selection,
    pub(super) permit: ItemFilter<I>,
    pub(super) form: Form,
}

#[derive(Debug)]
enum WatchPhase<I> {
    Error(Box<Status>),
    /// The state, in key order.
    State {
        objects: std::vec::IntoIter<I>,
        end_bookmark: bool,
    },
    Live,
    End,
}

/// Delays between two events of one revision.
#[derive(Debug)]
struct RevisionPause {
    length: Duration,
    /// Revision of the last event, and the earliest time for the next of the same.
    after: Option<(u64, Instant)>,
}

#[derive(Debug)]
struct Bookmarks {
    interval: Duration,
    /// Time of the last bookmark before the deadline.
    last: Instant,
    due: Instant,
}

/// Approximate size of a chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Number of events read in one batch.
const BATCH_SIZE: usize = 256;
/// Interval at which a stream that lags behind the source checks for events that became visible.
const HORIZON_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl<S: Source> WatchBody<S> {
    pub(super) fn new(
        source: S,
        subscription: Subscription<S::Item>,
        scope: WatchScope<S::Item>,
        start: Start<S::Item>,
        pause_within_revision: Duration,
        deadline: Instant,
    ) -> Self {
        let (phase, cursor) = match start {
            Start::Error(status) => (WatchPhase::Error(status), Cursor::after(0)),
            Start::After(cursor) => (WatchPhase::Live, cursor),
            Start::State { objects, end_bookmark, cursor } => {
                (WatchPhase::State { objects: objects.into_iter(), end_bookmark }, cursor)
            }
        };
        Self {
            source,
            subscription,
            scope,
            phase,
            cursor,
            has_sent: false,
            in_gap: false,
            bookmarks: None,
            revision_pause: RevisionPause { length: pause_within_revision, after: None },
            deadline,
            timer: Box::pin(sleep_until(deadline)),
        }
    }

    pub(super) fn send_bookmarks(&mut self, options: &ServeOptions) {
        self.bookmarks = Some(Bookmarks::new(options, self.deadline));
    }

    /// Polls for the next chunk to send; `Ready(None)` is the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            // Registered before anything is read, so that every later change wakes the task.
            self.subscription.register(cx.waker());
            if self.subscription.is_closed() || Instant::now() >= self.deadline {
                self.phase = self.last_phase();
            }
            match &mut self.phase {
                WatchPhase::End => return Poll::Ready(None),
                WatchPhase::Error(status) => {
                    let event = self.scope.form.error_frame(status);
                    self.phase = WatchPhase::End;
                    return Poll::Ready(Some(event));
                }
                WatchPhase::State { .. } => {
                    let chunk = self.state_chunk();
                    if !chunk.is_empty() {
                        return Poll::Ready(Some(chunk));
                    }
                }
                WatchPhase::Live => match self.live_chunk() {
                    // W10: too far behind for the window.
                    None => self.phase = WatchPhase::End,
                    Some(chunk) if !chunk.is_empty() => return Poll::Ready(Some(chunk)),
                    Some(_) if self.has_ended() => {}
                    Some(_) if self.is_at_end() => self.phase = WatchPhase::End,
                    Some(_) if self.is_bookmark_due() => return Poll::Ready(Some(self.bookmark(false))),
                    Some(_) => {
                        self.set_timer();
                        if self.timer.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                },
            }
        }
    }

    fn has_ended(&self) -> bool {
        !matches!(self.phase, WatchPhase::Live)
    }

    fn is_at_end(&self) -> bool {
        self.subscription.is_finished() && self.subscription.window().behind(&self.cursor) == 0
    }

    /// Returns the final phase. A client of a discarded history gets a 410, because it must not continue from its version.
    fn last_phase(&self) -> WatchPhase<S::Item> {
        match self.phase {
            WatchPhase::End => WatchPhase::End,
            _ if self.subscription.is_expired() => {
                let oldest = self.subscription.window().oldest_start();
                WatchPhase::Error(Box::new(Status::too_old_resource_version(self.cursor.revision(), oldest)))
            }
            _ => WatchPhase::End,
        }
    }

    /// Returns a chunk of the state; empty when there is no more.
    fn state_chunk(&mut self) -> Bytes {
        let WatchPhase::State { objects, end_bookmark } = &mut self.phase else { return Bytes::new() };
        let now = self.source.now();
        let mut chunk = Chunk::default();
        let ended = loop {
            if chunk.is_full() {
                break None;
            }
            let Some(object) = objects.next() else { break Some(*end_bookmark) };
            if self.scope.selects(&object) {
                let first = !std::mem::replace(&mut self.has_sent, true);
                let revision = object.revision();
                let Some(frame) = self.scope.form.frame(EventType::Added, &object, revision, now, first)
                else {
                    self.refuse_protobuf();
                    return chunk.into_bytes();
                };
                chunk.push(frame);
            }
        };
        if let Some(end_bookmark) = ended {
            self.phase = WatchPhase::Live;
            if end_bookmark {
                chunk.push(self.bookmark(true));
            }
        }
        chunk.into_bytes()
    }

    /// Returns the next events; empty if there are none to send, `None` if some are lost.
    fn live_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() {
            // Read before the events: no event up to it is still to come.
            let progress = self.source.progress();
            let window = self.subscription.window();
            let events = window.read(&self.cursor, self.source.horizon(), BATCH_SIZE)?;
            let mut unread = events.iter().peekable();
            while !chunk.is_full()
                && let Some(event) = unread.next_if(|event| !self.revision_pause.must_wait(event.revision()))
            {
                self.cursor.take(event);
                if let Some(frame) = self.frame(event) {
                    self.revision_pause.start(event.revision());
                    chunk.push(frame);
                }
                if self.has_ended() {
                    return Some(chunk.into_bytes());
                }
            }
            if unread.len() > 0 {
                break;
            }
            if events.len() < BATCH_SIZE {
                self.subscription.window().reach(&mut self.cursor, progress);
                break;
            }
        }
        match chunk.is_empty() {
            true => self.subscription.waiting(),
            false => self.subscription.sending(self.subscription.window().behind(&self.cursor)),
        }
        Some(chunk.into_bytes())
    }

    /// Returns the frame of an event for this watcher, if it is to see one (W9).
    fn frame(&mut self, event: &Event<S::Item>) -> Option<Bytes> {
        let was = event.previous().filter(|previous| self.scope.matches(previous));
        let is = match event.kind() {
            EventType::Deleted => None,
            _ => Some(event.object()).filter(|object| self.scope.matches(object)),
        };
        let (kind, object) = match (was, is) {
            (Some(_), Some(object)) => (EventType::Modified, object),
            (None, Some(object)) => (EventType::Added, object),
            // The state before it stopped matching, with the revision at which it did.
            (Some(previous), None) => (EventType::Deleted, previous),
            (None, None) => return None,
        };
        self.in_gap = event.is_from_gap();
        let (form, revision) = (&self.scope.form, event.revision());
        let first = !std::mem::replace(&mut self.has_sent, true);
        if let Some(frame) = form.ready_frame(kind, object, revision) {
            return Some(frame);
        }
        let make = |definitions| form.frame(kind, object, revision, self.source.now(), definitions);
        if first && form.is_table() {
            return make(true);
        }
        let window = self.subscription.window();
        let frame = window.frame(event, kind, form.shape(), || make(false).unwrap_or_default());
        if frame.is_empty() {
            self.refuse_protobuf();
            return None;
        }
        Some(frame)
    }

    /// Ends the stream because an object does not fit the protobuf of its kind. The client has to list again, and gets JSON.
    fn refuse_protobuf(&mut self) {
        self.source.window().refuse_protobuf();
        let status = Status::too_old_resource_version(self.cursor.revision(), self.cursor.revision());
        self.phase = WatchPhase::Error(Box::new(status));
    }

    /// Returns whether a bookmark is to be sent now.
    fn is_bookmark_due(&mut self) -> bool {
        let Some(bookmarks) = &mut self.bookmarks else { return false };
        let now = Instant::now();
        let leaves_gap = std::mem::take(&mut self.in_gap);
        if now < bookmarks.due && !leaves_gap {
            return false;
        }
        bookmarks.schedule(now);
        // W4: a stream from a future version gets none until then, and no bookmark goes back.
        self.cursor.revision() <= self.source.progress()
    }

    /// Encodes a bookmark. W7: it has only kind, apiVersion and the revision.
    fn bookmark(&mut self, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.cursor.revision().to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let frame = self.scope.form.bookmark_frame(metadata, self.source.now(), !self.has_sent);
        self.has_sent |= self.scope.form.is_table();
        frame
    }

    /// Sets the timer to the next time at which there may be something to do.
    fn set_timer(&mut self) {
        let bookmark = self.bookmarks.as_ref().map_or(self.deadline, |bookmarks| bookmarks.due);
        let mut next = self.deadline.min(bookmark);
        if self.source.horizon().is_some() {
            next = next.min(Instant::now() + HORIZON_POLL_INTERVAL);
        }
        if let Some(ends_at) = self.revision_pause.ends_at() {
            next = next.min(ends_at);
        }
        if self.timer.deadline() != next || self.timer.is_elapsed() {
            self.timer.as_mut().reset(next);
        }
    }
}

// No field is pinned but the timer, which is boxed.
impl<S: Source> Unpin for WatchBody<S> {}

impl<S: Source> Body for WatchBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_chunk(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

impl<I: Item> WatchScope<I> {
    /// Returns whether an object of the namespace is selected and visible.
    fn selects(&self, object: &I) -> bool {
        self.permit.allows(object) && self.selection.selects(object)
    }

    /// Returns whether the object is in scope, selected and visible.
    fn matches(&self, object: &I) -> bool {
        self.permit.allows(object) && self.selection.matches(object)
    }
}

/// Frames sent as one chunk. A single frame is not copied.
#[derive(Default)]
struct Chunk {
    first: Bytes,
    all: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, frame: Bytes) {
        if self.is_empty() {
            self.first = frame;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&frame);
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn is_full(&self) -> bool {
        self.first.len().max(self.all.len()) >= CHUNK_BYTES
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.into() }
    }
}

impl RevisionPause {
    /// Starts the pause after an event of this revision.
    fn start(&mut self, revision: u64) {
        if !self.length.is_zero() {
            self.after = Some((revision, Instant::now() + self.length));
        }
    }

    /// Returns whether an event of this revision must wait.
    fn must_wait(&self, revision: u64) -> bool {
        self.after.is_some_and(|(last, ends_at)| last == revision && Instant::now() < ends_at)
    }

    /// Returns the end of the current pause.
    fn ends_at(&self) -> Option<Instant> {
        self.after.map(|(_, ends_at)| ends_at).filter(|ends_at| *ends_at > Instant::now())
    }
}

impl Bookmarks {
    fn new(options: &ServeOptions, deadline: Instant) -> Self {
        let now = Instant::now();
        let last = deadline.checked_sub(options.bookmark_before_end).unwrap_or(now);
        let mut bookmarks = Self { interval: options.bookmark_interval, last, due: deadline };
        bookmarks.schedule(now);
        bookmarks
    }

    /// Schedules the next bookmark: after the interval, or shortly before the deadline if that is earlier.
    fn schedule(&mut self, now: Instant) {
        let next = now + self.interval;
        let before_end = if self.last > now { self.last } else { next };
        self.due = next.min(before_end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemorySource;
    use crate::window::SLOT_BYTES;

    /// Checks that the size of a watcher is constant, whatever it watches and however far behind it is.
    #[test]
    fn a_watcher_is_small() {
        let body = size_of::<WatchBody<MemorySource>>() - size_of::<MemorySource>();
        let whole = body + size_of::<Sleep>() + SLOT_BYTES;
        println!(
            "{whole} bytes for each watcher: stream {body}, timer {}, place {SLOT_BYTES}",
            size_of::<Sleep>()
        );
        assert!(whole < 800, "{whole}");
    }
}
