//! The stream of a WATCH.
//!
//! A stream holds no events: it has a cursor into the window of its resource and reads on from there whenever the client
//! takes more. A burst goes out in one piece, a single event as the shared frame that all watchers send.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::json;
use skopos_wire::{INITIAL_EVENTS_END, Status};
use tokio::time::{Instant, Sleep, sleep_until};

use super::watch::Start;
use super::{ContractOptions, Form, Selection, View};
use crate::request::RequestTarget;
use crate::serve::respond::BodyError;
use crate::storage::{Event, EventType, FRAME_TAIL, ResourceKey, Scope, Storage, Stored, Subscription, Tail};

/// The stream of a WATCH.
#[derive(Debug)]
pub(super) struct WatchBody {
    storage: Storage,
    resource: ResourceKey,
    kind: String,
    api_version: String,
    subscription: Subscription,
    selection: Selection,
    form: Form,
    view: View,
    phase: Phase,
    /// All events up to this revision were sent or not meant.
    cursor: u64,
    /// Whether an event was sent before; tables define their columns in the first.
    any_sent: bool,
    bookmarks: Option<Bookmarks>,
    deadline: Pin<Box<Sleep>>,
    /// Looks again soon while the view lags behind by a time.
    recheck: Pin<Box<Sleep>>,
}

/// How a stream begins and ends.
pub(super) struct WatchStart {
    pub(super) subscription: Subscription,
    pub(super) start: Start,
    pub(super) deadline: Instant,
    pub(super) bookmarks: bool,
}

#[derive(Debug)]
enum Phase {
    Error(Box<Status>),
    /// The state, in key order.
    State {
        objects: VecDeque<Arc<Stored>>,
        end_bookmark: bool,
    },
    Live,
    End,
}

#[derive(Debug)]
struct Bookmarks {
    interval: Duration,
    /// When the last one before the deadline is due.
    last: Instant,
    due: Pin<Box<Sleep>>,
}

/// About how much is sent in one piece.
const CHUNK: usize = 64 * 1024;
/// How many events are looked at in one go.
const BATCH: usize = 256;
/// How often a stream with a lagging view looks for events that come into view.
const RECHECK: Duration = Duration::from_millis(50);

// === impl WatchBody ===

impl WatchBody {
    pub(super) fn new(
        storage: &Storage,
        options: &ContractOptions,
        target: &RequestTarget,
        start: WatchStart,
        selection: Selection,
        form: Form,
        view: View,
    ) -> Self {
        let (phase, cursor) = match start.start {
            Start::Error(status) => (Phase::Error(status), 0),
            Start::After(revision) => (Phase::Live, revision),
            Start::State { revision, end_bookmark } => {
                match storage.scan(
                    &target.storage,
                    Scope::of(selection.namespace()),
                    None,
                    revision,
                    usize::MAX,
                ) {
                    Ok(objects) => (Phase::State { objects: objects.into(), end_bookmark }, revision),
                    Err(compacted) => {
                        let status = Status::too_old_resource_version(revision, compacted.oldest);
                        (Phase::Error(Box::new(status)), 0)
                    }
                }
            }
        };
        Self {
            storage: storage.clone(),
            resource: target.storage.clone(),
            kind: target.resource.kind.clone(),
            api_version: target.resource.api_version(),
            subscription: start.subscription,
            selection,
            form,
            view,
            phase,
            cursor,
            any_sent: false,
            bookmarks: start.bookmarks.then(|| Bookmarks::new(options, start.deadline)),
            deadline: Box::pin(sleep_until(start.deadline)),
            recheck: Box::pin(sleep_until(Instant::now() + RECHECK)),
        }
    }

    /// The next piece to send; `Ready(None)` is the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.subscription.is_closed() || self.deadline.as_mut().poll(cx).is_ready() {
                self.phase = Phase::End;
            }
            match &mut self.phase {
                Phase::End => return Poll::Ready(None),
                Phase::Error(status) => {
                    let event = Bytes::from(json!({"type": "ERROR", "object": status}).to_string() + "\n");
                    self.phase = Phase::End;
                    return Poll::Ready(Some(event));
                }
                Phase::State { .. } => {
                    let chunk = self.state_chunk();
                    if !chunk.is_empty() {
                        return Poll::Ready(Some(chunk.into()));
                    }
                }
                Phase::Live => {
                    // First, so that an event in between wakes.
                    self.subscription.register(cx.waker());
                    match self.live_chunk() {
                        Some(chunk) if chunk.is_empty() => {}
                        Some(chunk) => return Poll::Ready(Some(chunk)),
                        None => continue,
                    }
                    if self.bookmark_due(cx) {
                        return Poll::Ready(Some(self.bookmark(false).into()));
                    }
                    if self.view.limit().is_some() {
                        self.recheck.as_mut().reset(Instant::now() + RECHECK);
                        if self.recheck.as_mut().poll(cx).is_ready() {
                            continue;
                        }
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// A piece of the state; empty when there is no more.
    fn state_chunk(&mut self) -> Vec<u8> {
        let Phase::State { objects, end_bookmark } = &mut self.phase else { return Vec::new() };
        let end_bookmark = *end_bookmark;
        let mut ended = false;
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            let Some(object) = objects.pop_front() else {
                ended = true;
                break;
            };
            if self.selection.selects(&object) {
                let json = self.form.event_object(&object, !self.any_sent);
                self.any_sent = true;
                push_frame(&mut chunk, EventType::Added, &json);
            }
        }
        if ended {
            self.phase = Phase::Live;
            if end_bookmark {
                chunk.extend_from_slice(&self.bookmark(true));
            }
        }
        chunk
    }

    /// The next events; empty when there are none to send, `None` when the stream ended.
    fn live_chunk(&mut self) -> Option<Bytes> {
        let mut single: Option<Bytes> = None;
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            let (events, through) =
                match self.storage.events(&self.resource, self.cursor, self.view.limit(), BATCH) {
                    Tail::Events { events, through } => (events, through),
                    // W10: too far behind for the window.
                    Tail::Lost => {
                        self.phase = Phase::End;
                        return None;
                    }
                };
            let more = events.len() == BATCH;
            let mut taken = through;
            for event in &events {
                if let Some(frame) = self.frame(event) {
                    match single.take() {
                        None if chunk.is_empty() => single = Some(frame),
                        first => {
                            first.inspect(|first| chunk.extend_from_slice(first));
                            chunk.extend_from_slice(&frame);
                        }
                    }
                }
                if chunk.len() >= CHUNK {
                    taken = event.revision;
                    break;
                }
            }
            self.cursor = self.cursor.max(taken);
            if !more {
                break;
            }
        }
        let behind = self.storage.events_behind(&self.resource, self.cursor);
        let out = single.unwrap_or_else(|| chunk.into());
        match out.is_empty() {
            true => self.subscription.waiting(),
            false => self.subscription.sending(behind),
        }
        Some(out)
    }

    /// What this watcher is sent of an event, if anything (W9).
    fn frame(&mut self, event: &Event) -> Option<Bytes> {
        let (kind, object) = match event.kind {
            EventType::Added => self.selection.matches(&event.object).then(|| (EventType::Added, None))?,
            EventType::Deleted => {
                let previous = event.previous.as_ref().unwrap_or(&event.object);
                self.selection.matches(previous).then(|| (EventType::Deleted, None))?
            }
            EventType::Modified => {
                let was = event.previous.as_ref().is_some_and(|previous| self.selection.matches(previous));
                match (was, self.selection.matches(&event.object)) {
                    (true, true) => (EventType::Modified, None),
                    (false, true) => (EventType::Added, None),
                    // The state before it left, with the revision at which it did.
                    (true, false) => {
                        (EventType::Deleted, event.previous.as_ref().map(|p| p.deleted_at(event.revision)))
                    }
                    (false, false) => return None,
                }
            }
        };
        let first = !std::mem::replace(&mut self.any_sent, true);
        let object = object.as_ref().unwrap_or(&event.object);
        if self.form.is_stored_form() && object.frame().starts_with(kind.frame_head()) {
            return Some(object.frame().clone());
        }
        let mut frame = Vec::new();
        push_frame(&mut frame, kind, &self.form.event_object(object, first));
        Some(frame.into())
    }

    /// Whether a bookmark is to be sent now; otherwise the task is woken when one is.
    fn bookmark_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(bookmarks) = &mut self.bookmarks else { return false };
        while bookmarks.due.as_mut().poll(cx).is_ready() {
            bookmarks.plan();
            // W4: a stream from a version to come gets none until then, and none goes back.
            if self.cursor <= self.view.revision() {
                return true;
            }
        }
        false
    }

    /// W7: nothing but kind, apiVersion and the revision. In a table it is a row like any other.
    fn bookmark(&mut self, initial_events_end: bool) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let (kind, api_version) = match &self.form {
            Form::Full { .. } => (self.kind.as_str(), self.api_version.as_str()),
            Form::Partial => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            Form::Table(_) => (self.kind.as_str(), self.api_version.as_str()),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if let Form::Table(writer) = &self.form {
            let metadata = json!({"resourceVersion": self.cursor.to_string()});
            object = writer.table(metadata, vec![writer.row(&object)], !self.any_sent);
            self.any_sent = true;
        }
        (json!({"type": "BOOKMARK", "object": object}).to_string() + "\n").into_bytes()
    }
}

impl Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_chunk(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

fn push_frame(out: &mut Vec<u8>, kind: EventType, object: &[u8]) {
    for part in [kind.frame_head(), object, FRAME_TAIL] {
        out.extend_from_slice(part);
    }
}

// === impl Bookmarks ===

impl Bookmarks {
    fn new(options: &ContractOptions, deadline: Instant) -> Self {
        let last = deadline - options.bookmark_before_end;
        let mut bookmarks =
            Self { interval: options.bookmark_interval, last, due: Box::pin(sleep_until(deadline)) };
        bookmarks.plan();
        bookmarks
    }

    /// The next is due after the interval, or shortly before the deadline if that is earlier.
    fn plan(&mut self) {
        let now = Instant::now();
        let next = now + self.interval;
        let before_end = if self.last > now { self.last } else { next };
        self.due.as_mut().reset(next.min(before_end));
    }
}
