//! Splitting of watch streams into frames.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};

use crate::nesting::{Nesting, join};
use crate::object::Identity;
use crate::{BrokenFrame, Limits, RawObject, WatchEvent};

/// Splits the body of a watch into frames of one JSON value each, for any chunk sizes and with or without newlines between.
///
/// Holds the frame in progress and unprocessed chunks, so take all frames after each chunk. A frame that arrived in one
/// chunk is a slice of it.
///
/// Frames come out as bytes that are only delimited ([`next_frame`](FrameSplitter::next_frame)), or as events
/// ([`next_event`](FrameSplitter::next_event)). Text that cannot be a frame comes out line by line, so that it is seen to
/// be broken at once and not when the stream ends. Such text is a line that does not start with a bracket, a string cut off
/// by a newline, or an incomplete frame with another one at the start of a later line (indented JSON always has an indent
/// there).
///
/// ```
/// # use skopos_wire::{FrameSplitter, Limits};
/// let mut splitter = FrameSplitter::new(Limits::default());
/// splitter.push("{\"a\":1}\n{\"b\"".into());
/// assert_eq!(splitter.next_frame()?.unwrap(), r#"{"a":1}"#);
/// assert_eq!(splitter.next_frame()?, None);
/// splitter.push(":2}{}\n".into());
/// assert_eq!(splitter.next_frame()?.unwrap(), r#"{"b":2}"#);
/// assert_eq!(splitter.next_frame()?.unwrap(), "{}");
/// assert_eq!(splitter.next_frame()?, None);
/// splitter.finish()?;
/// # Ok::<(), skopos_wire::FrameError>(())
/// ```
#[derive(Debug)]
pub struct FrameSplitter {
    limits: Limits,
    chunks: VecDeque<Bytes>,
    partial: Vec<u8>,
    state: State,
    failed: Option<FrameError>,
    /// True for frames of protobuf, each with its length in four bytes before it.
    is_protobuf: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Between,
    /// Inside the length of a frame of protobuf.
    InLength {
        bytes: u8,
        length: u32,
    },
    /// Inside a frame of protobuf.
    InMessage {
        length: usize,
    },
    InFrame {
        nesting: Nesting,
        /// Set if the next byte is at the start of a line.
        line_start: bool,
    },
    InGarbage,
}

/// A stream that cannot be split any further. The server, or an intermediary, is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame longer than [`Limits::max_frame_bytes`].
    #[error("watch frame exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
        /// The object's identity, if the start of the frame has it.
        identity: Identity,
    },
    /// A frame that nests deeper than [`Limits::max_depth`].
    #[error("watch frame nests deeper than the limit of {limit}")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The object's identity, if the start of the frame has it.
        identity: Identity,
    },
    /// A stream that ends inside a frame.
    #[error("watch ends after {bytes} bytes of a frame, before it is complete")]
    Truncated {
        /// Bytes received of the frame.
        bytes: usize,
    },
}

impl FrameSplitter {
    /// Creates a splitter for one stream of JSON.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            chunks: VecDeque::new(),
            partial: Vec::new(),
            state: State::Between,
            failed: None,
            is_protobuf: false,
        }
    }

    /// Creates a splitter for one stream of protobuf (`application/vnd.kubernetes.protobuf;stream=watch`).
    pub fn protobuf(limits: Limits) -> Self {
        Self { is_protobuf: true, ..Self::new(limits) }
    }

    /// Adds the next chunk of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        // After an error no more frames come out, so nothing is held. Empty chunks are never held.
        if !chunk.is_empty() && self.failed.is_none() {
            self.chunks.push_back(chunk);
        }
    }

    /// Returns the next frame; `None` if it is not complete yet.
    ///
    /// # Errors
    /// If a frame exceeds a limit. Every later call returns the same error.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        self.next(|_, _| None, |frame, _| frame)
    }

    /// Returns the next frame, parsed; `None` if it is not complete yet. Faster than parsing the result of
    /// [`FrameSplitter::next_frame`]: a single pass finds the frame's end and its content, unless it spans chunks.
    ///
    /// # Errors
    /// As [`FrameSplitter::next_frame`]. A frame that is not an event is not an error of the stream.
    pub fn next_event(&mut self) -> Result<Option<Result<WatchEvent, BrokenFrame>>, FrameError> {
        if self.is_protobuf {
            return self.next(|_, _| None, |frame, limits| WatchEvent::parse_protobuf(&frame, limits));
        }
        let whole = |text: &[u8], limits: &Limits| {
            WatchEvent::at_start_of(text, limits).map(|(event, len)| (Ok(event), len))
        };
        self.next(whole, |frame, limits| WatchEvent::parse_slice(&frame, limits))
    }

    /// Returns the next frame: either `whole`'s result for text that begins with it, with its length, or `read`'s result
    /// for the delimited bytes.
    fn next<T>(
        &mut self,
        whole: impl Fn(&[u8], &Limits) -> Option<(T, usize)>,
        read: impl Fn(Bytes, &Limits) -> T,
    ) -> Result<Option<T>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while let Some(mut chunk) = self.chunks.pop_front() {
            let frame = match self.whole(&mut chunk, &whole) {
                Some(frame) => Ok(Some(frame)),
                None => self.frame(&mut chunk).map(|frame| frame.map(|frame| read(frame, &self.limits))),
            };
            if !chunk.is_empty() {
                self.chunks.push_front(chunk);
            }
            match frame {
                Ok(None) => {}
                Ok(frame) => return Ok(frame),
                Err(error) => {
                    self.chunks.clear();
                    self.partial = Vec::new();
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Returns the number of bytes held of an incomplete frame.
    pub fn held_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Checks that the stream ended between two frames.
    ///
    /// # Errors
    /// If it has failed before, or ends within a frame. Complete frames that the caller did not take do not count.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.failed {
            Some(error) => Err(error),
            None if matches!(self.state, State::Between) => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.partial.len() }),
        }
    }

    /// Returns the frame at the start of the chunk, if it can be parsed in a single pass.
    fn whole<T>(&self, chunk: &mut Bytes, whole: impl Fn(&[u8], &Limits) -> Option<(T, usize)>) -> Option<T> {
        let State::Between = self.state else { return None };
        if self.is_protobuf {
            return None;
        }
        skip_blank(chunk);
        let (frame, len) = whole(chunk, &self.limits)?;
        chunk.advance(len);
        Some(frame)
    }

    /// Scans the chunk to the end of the frame in progress, or of the chunk.
    fn frame(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        if self.is_protobuf {
            return self.message(chunk);
        }
        if let State::Between = self.state {
            skip_blank(chunk);
            self.state = match chunk.first() {
                None => return Ok(None),
                Some(b'{' | b'[') => State::InFrame { nesting: Nesting::default(), line_start: false },
                Some(_) => State::InGarbage,
            };
        }
        let (len, done) = match &mut self.state {
            State::Between | State::InLength { .. } | State::InMessage { .. } => (0, false),
            State::InGarbage => match memchr::memchr(b'\n', chunk) {
                Some(end) => (end, true),
                None => (chunk.len(), false),
            },
            State::InFrame { nesting, line_start } => {
                let max_depth = self.limits.max_depth.min(crate::json::DEPTH_CAP);
                match advance_lines(nesting, line_start, chunk, max_depth) {
                    Ok(end) => end,
                    Err(()) => {
                        let identity = self.identity(chunk);
                        return Err(FrameError::TooDeep { limit: self.limits.max_depth, identity });
                    }
                }
            }
        };
        if self.partial.len() + len > self.limits.max_frame_bytes {
            let identity = self.identity(chunk);
            return Err(FrameError::TooLarge { limit: self.limits.max_frame_bytes, identity });
        }
        if !done {
            self.partial.extend_from_slice(&chunk.split_to(len));
            return Ok(None);
        }
        self.state = State::Between;
        let end = chunk.split_to(len);
        Ok(Some(if self.partial.is_empty() { end } else { join(&mut self.partial, &end) }))
    }

    /// Advances in a frame of protobuf to its end, or to that of the chunk.
    fn message(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        loop {
            match self.state {
                State::Between | State::InFrame { .. } | State::InGarbage => {
                    if chunk.is_empty() {
                        return Ok(None);
                    }
                    self.state = State::InLength { bytes: 0, length: 0 };
                }
                State::InLength { bytes: 4, length } => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    let limit = self.limits.max_frame_bytes;
                    if length > limit {
                        return Err(FrameError::TooLarge { limit, identity: Identity::default() });
                    }
                    self.state = State::InMessage { length };
                }
                State::InLength { bytes, length } => {
                    if chunk.is_empty() {
                        return Ok(None);
                    }
                    let length = length << 8 | u32::from(chunk.get_u8());
                    self.state = State::InLength { bytes: bytes + 1, length };
                }
                State::InMessage { length } => {
                    let missing = length - self.partial.len();
                    if chunk.len() < missing {
                        self.partial.extend_from_slice(&chunk.split_to(chunk.len()));
                        return Ok(None);
                    }
                    let end = chunk.split_to(missing);
                    self.state = State::Between;
                    return Ok(Some(if self.partial.is_empty() {
                        end
                    } else {
                        join(&mut self.partial, &end)
                    }));
                }
            }
        }
    }

    /// Returns the identity of the object in the frame in progress.
    fn identity(&self, chunk: &[u8]) -> Identity {
        // Metadata is near the start, and an attacker must not make us search 64 MiB twice.
        const MAX_HEAD_BYTES: usize = 1 << 20;
        let head: Vec<u8> = self.partial.iter().chain(chunk).take(MAX_HEAD_BYTES).copied().collect();
        RawObject::identify(&head)
    }
}

fn skip_blank(chunk: &mut Bytes) {
    let blank = chunk.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
    chunk.advance(blank);
}

/// Advances as [`Nesting::advance`] does, and also ends at a newline that cannot be inside a frame.
fn advance_lines(
    nesting: &mut Nesting,
    line_start: &mut bool,
    bytes: &[u8],
    max_depth: usize,
) -> Result<(usize, bool), ()> {
    let mut pos = 0;
    while pos < bytes.len() {
        // This is never inside a string: the newline would have ended the frame.
        if std::mem::take(line_start) && bytes[pos] == b'{' {
            return Ok((pos, true));
        }
        // In windows, so that a chunk full of tiny frames is not searched to its end for each of them.
        let window = bytes.len().min(pos + SEARCH_WINDOW);
        let line = memchr::memchr(b'\n', &bytes[pos..window]).map_or(window, |at| pos + at);
        let (len, done) = nesting.advance(&bytes[pos..line], max_depth).map_err(|_| ())?;
        pos += len;
        if done {
            return Ok((pos, true));
        }
        if bytes.get(pos) == Some(&b'\n') {
            if nesting.in_string {
                return Ok((pos, true));
            }
            pos += 1;
            *line_start = true;
        }
    }
    Ok((pos, false))
}

/// Bytes searched for the end of a line at a time.
const SEARCH_WINDOW: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn split(stream: &str, chunk: usize, limits: Limits) -> Result<Vec<String>, FrameError> {
        let mut splitter = FrameSplitter::new(limits);
        let mut frames = Vec::new();
        for chunk in stream.as_bytes().chunks(chunk) {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = splitter.next_frame()? {
                frames.push(String::from_utf8(frame.to_vec()).unwrap());
            }
        }
        splitter.finish()?;
        Ok(frames)
    }

    #[test]
    fn splits_at_any_chunk_boundary() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("\n\r\n ", &[]),
            ("{\"a\":\"}\\\"{\\\\\"}\n{\"b\":[{}]}\n", &["{\"a\":\"}\\\"{\\\\\"}", "{\"b\":[{}]}"]),
            ("{}{}[]", &["{}", "{}", "[]"]),
            ("{\n  \"a\": {\n    \"b\": 1\n  }\n}\n{}", &["{\n  \"a\": {\n    \"b\": 1\n  }\n}", "{}"]),
            // Broken, and detected at once.
            ("upstream error\n{\"a\":1}\n", &["upstream error", "{\"a\":1}"]),
            ("{\"a\":\"cut\n{\"b\":1}\n", &["{\"a\":\"cut", "{\"b\":1}"]),
            ("{\"a\":{\"b\":1\n{\"c\":1}\n", &["{\"a\":{\"b\":1\n", "{\"c\":1}"]),
            ("{\"a\":\"\\\n{}\n", &["{\"a\":\"\\", "{}"]),
        ];
        for (stream, frames) in cases {
            for chunk in 1..=stream.len().max(1) {
                assert_eq!(
                    split(stream, chunk, Limits::default()).unwrap(),
                    *frames,
                    "{stream:?} by {chunk}"
                );
            }
        }
    }

    #[test]
    fn sees_newlines_wherever_they_stand_in_a_large_chunk() {
        for len in SEARCH_WINDOW - 20..SEARCH_WINDOW + 20 {
            let long = "x".repeat(len);
            let stream = format!("{{\"a\":\"{long}\\n\"}}\n{{\"b\":\"{long}\n{{\"c\":[\n{{}}\n");
            let frames = split(&stream, stream.len(), Limits::default()).unwrap();
            let expected = [
                format!("{{\"a\":\"{long}\\n\"}}"),
                format!("{{\"b\":\"{long}"),
                "{\"c\":[\n".into(),
                "{}".into(),
            ];
            assert_eq!(frames, expected, "{len}");
        }
    }

    #[test]
    fn rejects_complete_frame_with_invalid_utf8() {
        let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"5"},"data":"x"}}"#;
        let mut latin1 = frame.as_bytes().to_vec();
        let at = frame.len() - 4;
        assert_eq!(std::mem::replace(&mut latin1[at], 0xe9), b'x');
        let mut splitter = FrameSplitter::new(Limits::default());
        splitter.push(latin1.into());
        splitter.push(frame.replace('x', "é").into_bytes().into());
        let broken = splitter.next_event().unwrap().unwrap().unwrap_err();
        assert_eq!(broken.reason, crate::ScanError::InvalidUtf8 { offset: at }.into());
        assert!(splitter.next_event().unwrap().unwrap().is_ok());
    }

    #[test]
    fn scans_complete_frame_once() {
        let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}}"#;
        let mut splitter = FrameSplitter::new(Limits::default());
        splitter.push(format!("{frame}\n{frame}{frame}\n").into());
        for _ in 0..3 {
            let event = splitter.next(WatchEvent::at_start_of, |_, _| panic!("looked at again"));
            assert!(matches!(event, Ok(Some(WatchEvent::Added(_)))));
        }
    }

    #[test]
    fn holds_no_bytes_after_empty_chunk_or_error() {
        let mut splitter = FrameSplitter::new(Limits { max_frame_bytes: 10, ..Limits::default() });
        splitter.push(Bytes::new());
        assert!(splitter.chunks.is_empty());
        splitter.push("{\"a\":\"0123456789\"}{}".into());
        let error = splitter.next_frame().unwrap_err();
        splitter.push("{}".into());
        assert_eq!(splitter.next_frame(), Err(error));
        assert!(splitter.chunks.is_empty() && splitter.held_bytes() == 0);
    }

    #[test]
    fn tells_a_stream_that_ends_in_a_frame() {
        assert_eq!(split("{}\n{\"a\":", 3, Limits::default()), Err(FrameError::Truncated { bytes: 5 }));
    }

    #[test]
    fn caps_frames_and_names_their_object() {
        let stream = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","uid":"u","resourceVersion":"5"}},"data":"{}"}}}}"#,
            "x".repeat(1000)
        );
        let limits = Limits { max_frame_bytes: 500, ..Limits::default() };
        for chunk in [1, 100, 5000] {
            let Err(FrameError::TooLarge { limit: 500, identity }) = split(&stream, chunk, limits.clone())
            else {
                panic!("by {chunk}");
            };
            assert_eq!(identity.key.unwrap().to_string(), "a");
        }
        let limits = Limits { max_depth: 3, ..Limits::default() };
        assert!(split("{\"a\":[[]]}", 2, limits.clone()).is_ok());
        assert!(matches!(split("{\"a\":[[[]]]}", 2, limits), Err(FrameError::TooDeep { limit: 3, .. })));
    }
}
