//! Frames of events, encoded once in each form and shared by all watchers.

use std::any::Any;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::event_type::EventType;
use crate::memory_budget::{Evictable, Reservation};
use crate::table::IncludeObject;

/// Form of an object in a frame: everything that changes its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameShape<'a> {
    pub(crate) layout: Layout,
    /// True for protobuf, false for JSON.
    pub(crate) is_protobuf: bool,
    /// API version of the objects, or of the columns.
    pub(crate) version: &'a str,
}

/// Representation of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Full,
    Partial,
    Table {
        include: IncludeObject,
        /// Identity of the columns: callers may have different ones, and the cells of one do not fit the headings of another.
        columns: u64,
    },
}

/// Frames of the latest events, bounded in bytes.
#[derive(Debug)]
pub(super) struct Frames {
    /// Frames by event number.
    frames: HashMap<u64, Vec<EncodedFrame>>,
    /// Event numbers and times, in the order in which the first frames were made.
    order: VecDeque<(u64, Instant)>,
    bytes: Reservation,
    max_bytes: usize,
    encoded: u64,
}

#[derive(Debug)]
struct EncodedFrame {
    kind: EventType,
    layout: Layout,
    is_protobuf: bool,
    version: Box<str>,
    bytes: Bytes,
}

impl Frames {
    pub(super) fn new(max_bytes: usize, bytes: Reservation) -> Self {
        Self { frames: HashMap::new(), order: VecDeque::new(), bytes, max_bytes, encoded: 0 }
    }

    /// Returns the number of frames made so far.
    pub(super) fn encoded(&self) -> u64 {
        self.encoded
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.bytes()
    }

    /// Drops the frames of all events before this one.
    pub(super) fn forget_before(&mut self, number: u64) {
        self.order.retain(|(event, _)| *event >= number);
        let mut bytes = self.bytes();
        self.frames.retain(|event, frames| {
            let kept = *event >= number;
            if !kept {
                bytes -= cost(frames);
            }
            kept
        });
        self.bytes.set(bytes);
        self.order.shrink_to(2 * self.order.len());
        self.frames.shrink_to(2 * self.frames.len());
    }

    /// Returns the frame of event `number` in a form; on a miss, `make` makes it.
    pub(super) fn get_or_encode(
        &mut self,
        number: u64,
        kind: EventType,
        shape: FrameShape<'_>,
        make: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let event_frames = self.frames.entry(number).or_insert_with(|| {
            self.order.push_back((number, Instant::now()));
            Vec::with_capacity(1)
        });
        if let Some(frame) = event_frames.iter().find(|frame| frame.is(kind, shape)) {
            return frame.bytes.clone();
        }
        let bytes = make();
        self.encoded += 1;
        let frame = EncodedFrame {
            kind,
            layout: shape.layout,
            is_protobuf: shape.is_protobuf,
            version: shape.version.into(),
            bytes: bytes.clone(),
        };
        self.bytes.set(self.bytes.bytes() + frame.cost());
        event_frames.push(frame);
        while self.bytes() > self.max_bytes && self.pop_oldest().is_some() {}
        bytes
    }

    fn pop_oldest(&mut self) -> Option<Vec<EncodedFrame>> {
        let (oldest, _) = self.order.pop_front()?;
        let frames = self.frames.remove(&oldest).unwrap_or_default();
        self.bytes.set(self.bytes() - cost(&frames));
        Some(frames)
    }
}

impl Evictable for Mutex<Frames> {
    fn usage(&self) -> Option<(usize, Instant)> {
        let frames = self.lock();
        let (_, oldest) = frames.order.front()?;
        Some((frames.bytes(), *oldest))
    }

    fn evict(&self, bytes: usize, youngest: Instant) -> Box<dyn Any> {
        let mut frames = self.lock();
        let enough = frames.bytes().saturating_sub(bytes);
        let mut evicted = Vec::new();
        while frames.bytes() > enough && frames.order.front().is_some_and(|(_, made)| *made <= youngest) {
            evicted.extend(frames.pop_oldest());
        }
        Box::new(evicted)
    }
}

impl EncodedFrame {
    fn is(&self, kind: EventType, shape: FrameShape<'_>) -> bool {
        (self.kind, self.layout, self.is_protobuf) == (kind, shape.layout, shape.is_protobuf)
            && *self.version == *shape.version
    }

    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

fn cost(frames: &[EncodedFrame]) -> usize {
    frames.iter().map(EncodedFrame::cost).sum()
}

/// Overhead of a frame besides its bytes.
const OVERHEAD: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_budget::MemoryBudget;

    const FULL: FrameShape<'_> = FrameShape { layout: Layout::Full, is_protobuf: false, version: "v1" };

    #[test]
    fn encodes_frame_once_per_event_type_and_shape() {
        let mut frames = Frames::new(1 << 20, MemoryBudget::unbounded().share());
        let mut get = |number, kind, shape, text: &'static str| {
            frames.get_or_encode(number, kind, shape, || Bytes::from(text))
        };
        assert_eq!(get(1, EventType::Added, FULL, "a"), "a");
        assert_eq!(get(1, EventType::Added, FULL, "again"), "a");
        assert_eq!(get(1, EventType::Modified, FULL, "b"), "b");
        assert_eq!(get(1, EventType::Added, FrameShape { layout: Layout::Partial, ..FULL }, "c"), "c");
        assert_eq!(get(1, EventType::Added, FrameShape { version: "v2", ..FULL }, "d"), "d");
        assert_eq!(get(1, EventType::Added, FrameShape { is_protobuf: true, ..FULL }, "p"), "p");
        assert_eq!(get(2, EventType::Added, FULL, "e"), "e");
        assert_eq!(frames.encoded(), 6);
    }

    #[test]
    fn evicts_oldest_frames_over_byte_limit() {
        let mut frames = Frames::new(10 * (1000 + OVERHEAD), MemoryBudget::unbounded().share());
        for number in 0..100 {
            frames.get_or_encode(number, EventType::Added, FULL, || Bytes::from(vec![0; 1000]));
        }
        assert_eq!((frames.frames.len(), frames.order.len(), frames.encoded()), (10, 10, 100));
        frames.get_or_encode(99, EventType::Added, FULL, || unreachable!("it is kept"));
        assert_eq!(frames.bytes(), 10 * (1000 + OVERHEAD));
    }
}
