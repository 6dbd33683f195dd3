//! Wrapper of every response body: it records the end in the request log, and applies the body faults.

use std::collections::{HashSet, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use skopos_serve::RequestVerb;
use skopos_serve::respond::{BodyError, ResponseBody};
use skopos_wire::{Status, protobuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::damage::{damaged_json, damaged_protobuf};
use super::{Fault, FaultRule, Faults, RequestAttributes};
use crate::log::LogEntry;

/// Response body with its faults.
#[derive(Debug)]
pub(crate) struct FaultyBody {
    inner: ResponseBody,
    is_protobuf: bool,
    faults: Faults,
    attributes: Arc<RequestAttributes>,
    changes: Arc<AtomicWaker>,
    opened: Instant,
    log: LogEntry,
    /// IDs of rules that count bodies and have counted this one, by whether they apply to it.
    hit_rules: HashSet<u64>,
    missed_rules: HashSet<u64>,
    /// Chunks ready to be sent.
    ready: VecDeque<Bytes>,
    /// Previous frame, to be repeated after the next.
    repeat: Option<Bytes>,
    timer: Pin<Box<Sleep>>,
    /// True if `timer` is the pause between two chunks of a slow body.
    pausing: bool,
    ended: bool,
}

/// Current effect of the active faults on the body.
enum BodyAction {
    Flow(Vec<Arc<FaultRule>>),
    Stall,
    End,
    Fail,
    Error(Bytes),
}

impl FaultyBody {
    /// Wraps the body of a response whose content type may be protobuf.
    pub(crate) fn new(
        inner: ResponseBody,
        is_protobuf: bool,
        faults: &Faults,
        attributes: Arc<RequestAttributes>,
        log: LogEntry,
    ) -> Self {
        let now = Instant::now();
        Self {
            inner,
            is_protobuf,
            faults: faults.clone(),
            attributes,
            changes: faults.watch_changes(),
            opened: now,
            log,
            hit_rules: HashSet::new(),
            missed_rules: HashSet::new(),
            ready: VecDeque::new(),
            repeat: None,
            timer: Box::pin(sleep_until(now)),
            pausing: false,
            ended: false,
        }
    }

    /// Waits for the first chunk and keeps it ready.
    pub(crate) async fn preload(&mut self) {
        match std::future::poll_fn(|cx| self.poll_chunk(cx)).await {
            Some(Ok(chunk)) => self.ready.push_front(chunk),
            Some(Err(_)) | None => self.ended = true,
        }
    }

    fn next_action(&mut self, cx: &mut Context<'_>) -> BodyAction {
        if self.faults.active() == 0 {
            return BodyAction::Flow(Vec::new());
        }
        let mut flow = Vec::new();
        for rule in self.faults.body_rules(&self.attributes, self.opened) {
            match rule.fault() {
                Fault::Stall if self.applies(&rule) => return BodyAction::Stall,
                Fault::Close if self.applies(&rule) => return BodyAction::End,
                Fault::Reset if self.applies(&rule) => return BodyAction::Fail,
                Fault::ErrorEvent(status) if self.applies(&rule) => {
                    return BodyAction::Error(self.error_event(status));
                }
                Fault::CloseAfter(time) => {
                    let end = self.opened + *time;
                    if end <= Instant::now() && self.applies(&rule) {
                        return BodyAction::End;
                    }
                    if !self.pausing {
                        self.timer.as_mut().reset(end);
                        // Ready only when the time has come; then the rules are evaluated again.
                        if self.timer.as_mut().poll(cx).is_ready() {
                            cx.waker().wake_by_ref();
                        }
                    }
                }
                Fault::Slow { .. } | Fault::HoldUntilEnd if self.applies(&rule) => flow.push(rule),
                Fault::HalfFrame
                | Fault::GarbageFrame
                | Fault::Undecodable(_)
                | Fault::WithholdBookmarks
                | Fault::DropEvents
                | Fault::RepeatEvents => flow.push(rule),
                _ => {}
            }
        }
        BodyAction::Flow(flow)
    }

    fn error_event(&self, status: &Status) -> Bytes {
        if self.is_protobuf
            && let Ok(status) = protobuf::from_json(&status.to_vec())
        {
            return protobuf::watch_frame("ERROR", &status).into();
        }
        (json!({"type": "ERROR", "object": status}).to_string() + "\n").into()
    }

    /// Returns whether a rule that counts bodies applies to this one.
    fn applies(&mut self, rule: &FaultRule) -> bool {
        if self.hit_rules.contains(&rule.id()) {
            return true;
        }
        if self.missed_rules.contains(&rule.id()) {
            return false;
        }
        let hit = rule.hit();
        if hit { &mut self.hit_rules } else { &mut self.missed_rules }.insert(rule.id());
        hit
    }

    /// Applies the frame faults to a chunk of the body and appends it to `ready`.
    fn apply_frame_faults(&mut self, chunk: Bytes, rules: &[Arc<FaultRule>]) {
        let affects_frames =
            |rule: &&Arc<FaultRule>| !matches!(rule.fault(), Fault::Slow { .. } | Fault::HoldUntilEnd);
        if !rules.iter().any(|rule| affects_frames(&rule)) {
            self.ready.push_back(chunk);
            return;
        }
        // The frames of a watch, or the chunk of a list as a whole.
        let mut rest = chunk;
        while !rest.is_empty() && !self.ended {
            let line = match self.attributes.verb {
                RequestVerb::Watch => frame_len(&rest, self.is_protobuf),
                _ => rest.len(),
            };
            let frame = rest.split_to(line);
            self.apply_to_frame(frame, rules.iter().filter(affects_frames));
        }
    }

    fn apply_to_frame<'a>(&mut self, mut frame: Bytes, rules: impl Iterator<Item = &'a Arc<FaultRule>>) {
        let bookmark = match self.is_protobuf {
            true => frame.get(4..).is_some_and(|event| event.starts_with(b"\x0a\x08BOOKMARK")),
            false => {
                frame.starts_with(b"{\"type\":\"BOOKMARK\"")
                    || frame.starts_with(b"{\"object\"") && is_bookmark(&frame)
            }
        };
        let mut repeats = false;
        for rule in rules {
            match rule.fault() {
                Fault::WithholdBookmarks if bookmark && rule.hit() => return,
                Fault::DropEvents if !bookmark && rule.hit() => return,
                Fault::HalfFrame if rule.hit() => {
                    let half = frame.len() / 2;
                    self.ready.push_back(frame.slice(..half));
                    self.ended = true;
                    return;
                }
                Fault::GarbageFrame if rule.hit() => {
                    frame = Bytes::from_static(if self.is_protobuf { GARBAGE_IN_PROTOBUF } else { GARBAGE });
                }
                Fault::Undecodable(damage) if !bookmark && rule.hit() => {
                    let damaged = if self.is_protobuf { damaged_protobuf } else { damaged_json };
                    frame = damaged(&frame, *damage, self.attributes.verb);
                }
                Fault::RepeatEvents if !bookmark && rule.hit() => repeats = true,
                _ => {}
            }
        }
        self.ready.push_back(frame.clone());
        self.ready.extend(self.repeat.take());
        self.repeat = repeats.then_some(frame);
    }

    fn is_held(&self, rules: &[Arc<FaultRule>]) -> bool {
        let waiting = || self.ready.iter().map(Bytes::len).sum::<usize>();
        !self.ended
            && rules.iter().any(|rule| matches!(rule.fault(), Fault::HoldUntilEnd))
            && waiting() <= MAX_HELD_BYTES
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.changes.register(cx.waker());
        loop {
            if self.ended && self.ready.is_empty() {
                return Poll::Ready(None);
            }
            let rules = match self.next_action(cx) {
                BodyAction::Stall => return Poll::Pending,
                BodyAction::End => return Poll::Ready(None),
                BodyAction::Fail => return Poll::Ready(Some(Err("injected reset".into()))),
                BodyAction::Error(event) => {
                    self.ready = VecDeque::from([event]);
                    self.ended = true;
                    return Poll::Ready(self.ready.pop_front().map(Ok));
                }
                BodyAction::Flow(rules) => rules,
            };
            let slow = rules.iter().find_map(|rule| match rule.fault() {
                Fault::Slow { bytes, every } => Some(((*bytes).max(1), *every)),
                _ => None,
            });
            if !self.is_held(&rules)
                && let Some(mut chunk) = self.ready.pop_front()
            {
                let Some((bytes, every)) = slow else { return Poll::Ready(Some(Ok(chunk))) };
                if self.pausing && self.timer.as_mut().poll(cx).is_pending() {
                    self.ready.push_front(chunk);
                    return Poll::Pending;
                }
                self.timer.as_mut().reset(Instant::now() + every);
                self.pausing = true;
                let part = chunk.split_to(bytes.min(chunk.len()));
                if !chunk.is_empty() {
                    self.ready.push_front(chunk);
                }
                return Poll::Ready(Some(Ok(part)));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        self.apply_frame_faults(chunk, &rules);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.ended = true,
            }
        }
    }
}

impl Body for FaultyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let chunk = ready!(self.poll_chunk(cx));
        if chunk.is_none() {
            self.log.ended();
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
    }

    /// Returns the length only if no fault may change it.
    fn size_hint(&self) -> SizeHint {
        match self.faults.active() {
            0 => self.inner.size_hint(),
            _ => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        false
    }
}

impl Drop for FaultyBody {
    fn drop(&mut self) {
        self.faults.unwatch_changes(&self.changes);
        // A whole body of known length is not polled to its end.
        if self.ready.is_empty() && self.inner.is_end_stream() {
            self.log.ended();
        }
    }
}

/// Limit of a held body, because no buffer is unbounded and some bodies never end.
const MAX_HELD_BYTES: usize = 1 << 20;

const GARBAGE: &[u8] = b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":]]\x07garbage\n";

/// A frame of protobuf that is no event.
const GARBAGE_IN_PROTOBUF: &[u8] = b"\0\0\0\x04\xff\xff\xff\xff";

fn is_bookmark(frame: &[u8]) -> bool {
    serde_json::from_slice::<Value>(frame).is_ok_and(|event| event["type"] == "BOOKMARK")
}

/// Returns the length of the first frame of a watch.
fn frame_len(chunk: &[u8], is_protobuf: bool) -> usize {
    if !is_protobuf {
        return chunk.iter().position(|b| *b == b'\n').map_or(chunk.len(), |at| at + 1);
    }
    let length = chunk.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
    chunk.len().min(4 + length)
}
