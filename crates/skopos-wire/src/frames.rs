//! Watch streams, split into frames.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};

use crate::nesting::{Nesting, join};
use crate::object::Identity;
use crate::{BrokenFrame, Limits, RawObject, WatchEvent};

/// Splits the body of a watch into frames: one JSON value each, whatever the chunks and with or without newlines between.
///
/// Holds the frame in progress and the chunks that were not looked at yet, so take all frames after each chunk. A frame
/// that arrived in one chunk is a slice of it.
///
/// Frames come out as bytes, of which only the end was looked for ([`next_frame`](FrameSplitter::next_frame)), or as events
/// ([`next_event`](FrameSplitter::next_event)). What can be no frame comes out line by line, so that it is seen to be
/// broken at once and not when the stream ends: a line that starts with anything but a bracket, a string that a newline cuts
/// off, and a frame that is followed by another one at the start of a line before it is complete (nobody indents by nothing).
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
}

#[derive(Clone, Copy, Debug)]
enum State {
    Between,
    InFrame {
        nesting: Nesting,
        /// Whether the next byte stands at the start of a line.
        line_start: bool,
    },
    InGarbage,
}

/// A stream that cannot be split any further. The server is at fault, or something between it and us.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame is longer than [`Limits::max_frame_bytes`].
    #[error("watch frame exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
        /// Whose object it is, if its first part tells.
        identity: Identity,
    },
    /// A frame nests deeper than [`Limits::max_depth`].
    #[error("watch frame nests deeper than the limit of {limit}")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// Whose object it is, if its first part tells.
        identity: Identity,
    },
    /// The stream ends in the middle of a frame.
    #[error("watch ends after {bytes} bytes of a frame, before it is complete")]
    Truncated {
        /// How many bytes of the frame there were.
        bytes: usize,
    },
}

impl FrameSplitter {
    /// A splitter for one stream.
    pub fn new(limits: Limits) -> Self {
        Self { limits, chunks: VecDeque::new(), partial: Vec::new(), state: State::Between, failed: None }
    }

    /// Takes the next chunk of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        // After an error nothing more comes out, so nothing more is held; and nothing is held of nothing, however often it comes.
        if !chunk.is_empty() && self.failed.is_none() {
            self.chunks.push_back(chunk);
        }
    }

    /// The next frame; `None` if it is not complete yet.
    ///
    /// # Errors
    /// If a frame exceeds a limit. The same error comes back from every later call.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        self.next(|_, _| None, |frame, _| frame)
    }

    /// The next frame, read; `None` if it is not complete yet. Faster than reading what [`FrameSplitter::next_frame`] gives:
    /// one look at a frame finds its end and what it says, unless it came with several chunks.
    ///
    /// # Errors
    /// As [`FrameSplitter::next_frame`]. A frame that is no event is none.
    pub fn next_event(&mut self) -> Result<Option<Result<WatchEvent, BrokenFrame>>, FrameError> {
        let whole = |text: &[u8], limits: &Limits| {
            WatchEvent::at_start_of(text, limits).map(|(event, len)| (Ok(event), len))
        };
        self.next(whole, |frame, limits| WatchEvent::parse_slice(&frame, limits))
    }

    /// The next frame: what `whole` makes of the text that begins with it and how long it is, or what `read` makes of the
    /// bytes between its ends.
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

    /// How many bytes of an incomplete frame are held.
    pub fn held_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Says whether the stream ended between two frames.
    ///
    /// # Errors
    /// If it has failed before, or ends within a frame. Frames that were not taken do not count.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.partial.is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.partial.len() }),
        }
    }

    /// The frame that the chunk begins with, if it can be read as a whole at once.
    fn whole<T>(&self, chunk: &mut Bytes, whole: impl Fn(&[u8], &Limits) -> Option<(T, usize)>) -> Option<T> {
        let State::Between = self.state else { return None };
        skip_blank(chunk);
        let (frame, len) = whole(chunk, &self.limits)?;
        chunk.advance(len);
        Some(frame)
    }

    /// Goes on through the chunk to the end of the frame in progress, or of the chunk.
    fn frame(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        if let State::Between = self.state {
            skip_blank(chunk);
            self.state = match chunk.first() {
                None => return Ok(None),
                Some(b'{' | b'[') => State::InFrame { nesting: Nesting::default(), line_start: false },
                Some(_) => State::InGarbage,
            };
        }
        let (len, done) = match &mut self.state {
            State::Between => (0, false),
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

    /// Whose object the frame in progress is about.
    fn identity(&self, chunk: &[u8]) -> Identity {
        // Metadata stands near the start, and an attacker shall not make us search 64 MiB twice.
        const ENOUGH: usize = 1 << 20;
        let head: Vec<u8> = self.partial.iter().chain(chunk).take(ENOUGH).copied().collect();
        RawObject::identify(&head)
    }
}

fn skip_blank(chunk: &mut Bytes) {
    let blank = chunk.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
    chunk.advance(blank);
}

/// As [`Nesting::advance`], and also ends at a newline that no frame can go on behind.
fn advance_lines(
    nesting: &mut Nesting,
    line_start: &mut bool,
    bytes: &[u8],
    max_depth: usize,
) -> Result<(usize, bool), ()> {
    let mut pos = 0;
    while pos < bytes.len() {
        // No string goes on here: the newline would have ended the frame.
        if std::mem::take(line_start) && bytes[pos] == b'{' {
            return Ok((pos, true));
        }
        // In windows, so that a chunk full of tiny frames is not searched to its end for each of them.
        let window = bytes.len().min(pos + WINDOW);
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

/// How far the end of a line is searched at once, in bytes.
const WINDOW: usize = 8 << 10;

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
            // Broken, and seen to be at once.
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
        for len in WINDOW - 20..WINDOW + 20 {
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
    fn a_whole_frame_that_is_not_utf8_is_no_event() {
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
    fn what_comes_whole_is_looked_at_once() {
        let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}}"#;
        let mut splitter = FrameSplitter::new(Limits::default());
        splitter.push(format!("{frame}\n{frame}{frame}\n").into());
        for _ in 0..3 {
            let event = splitter.next(WatchEvent::at_start_of, |_, _| panic!("looked at again"));
            assert!(matches!(event, Ok(Some(WatchEvent::Added(_)))));
        }
    }

    #[test]
    fn holds_nothing_of_what_is_empty_or_behind_an_error() {
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
    fn caps_frames_and_says_whose_they_are() {
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
