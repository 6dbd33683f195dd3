//! Inspection of the bytes of clients before hyper reads them, for facts that hyper does not report.
//!
//! * HTTP/1.1: a request with both `Content-Length` and `Transfer-Encoding`. hyper uses the latter and removes the former,
//!   so a service cannot refuse it, and another server in front may have used the former.
//! * HTTP/2: frames that cost the client nothing and the server a reply each. h2 accepts any number of them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::ConnectionActivity;

/// A connection whose bytes are inspected.
pub(super) struct Inspected<S> {
    stream: S,
    framing: Framing,
    activity: Arc<ConnectionActivity>,
}

/// A parser of the framing of a connection. Malformed input is left to hyper, which then closes the connection.
#[derive(Debug, Default)]
struct Framing {
    state: State,
    /// The start of an incomplete line.
    line: Vec<u8>,
    head: Head,
}

#[derive(Debug)]
enum State {
    /// The number of bytes of the HTTP/2 preface read so far.
    Preface(usize),
    /// The lines of a head.
    Head,
    /// The number of bytes of a body, before the next head.
    Body(u64),
    ChunkSize,
    /// The number of bytes of a chunk with its line end.
    Chunk(u64),
    Trailers,
    /// The header of a frame, as far as read.
    Frame {
        header: [u8; FRAME_HEADER_LEN],
        length: usize,
    },
    /// The number of bytes of a frame's payload.
    Payload(u64),
    /// Another protocol, or input that cannot be parsed.
    Done,
}

#[derive(Debug, Default)]
struct Head {
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
    switches: bool,
}

/// The findings in a piece of the connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    /// True if there is a request with two lengths.
    is_ambiguous: bool,
    /// The number of frames that demand a reply or do nothing.
    control_frames: u32,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEADER_LEN: usize = 9;

/// The longest line that matters: a length, or the encodings of a body.
const MAX_LINE: usize = 256;

impl<S> Inspected<S> {
    pub(super) fn new(stream: S, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, framing: Framing::default(), activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inspected<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let this = &mut *self;
        if let Some(read) = buffer.filled().get(before..) {
            let findings = this.framing.follow(read);
            this.activity.record_sent(findings.control_frames, findings.is_ambiguous);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inspected<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Default for State {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Framing {
    /// Parses the next bytes.
    fn follow(&mut self, mut bytes: &[u8]) -> Findings {
        let mut findings = Findings::default();
        while let Some(first) = bytes.first() {
            bytes = match &mut self.state {
                State::Preface(at) if PREFACE.get(*at) == Some(first) => {
                    *at += 1;
                    if *at == PREFACE.len() {
                        self.state = State::frame();
                    }
                    &bytes[1..]
                }
                State::Preface(at) => {
                    // The bytes were the start of a head.
                    self.line.extend_from_slice(&PREFACE[..*at]);
                    self.state = State::Head;
                    bytes
                }
                State::Body(left) | State::Chunk(left) | State::Payload(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = self.state.behind();
                    }
                    &bytes[taken..]
                }
                State::Frame { header, length } => {
                    header[*length] = *first;
                    *length += 1;
                    if *length == FRAME_HEADER_LEN {
                        let header = *header;
                        findings.control_frames += u32::from(is_control(&header));
                        self.state = State::payload(&header);
                    }
                    &bytes[1..]
                }
                State::Head | State::ChunkSize | State::Trailers => {
                    let end = memchr::memchr(b'\n', bytes);
                    let part = end.map_or(bytes, |end| &bytes[..end]);
                    let room = MAX_LINE.saturating_sub(self.line.len()).min(part.len());
                    self.line.extend_from_slice(&part[..room]);
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        findings.is_ambiguous |= self.end_line(&line);
                        self.line = line;
                        self.line.clear();
                    }
                    end.map_or(&[][..], |end| &bytes[end + 1..])
                }
                State::Done => return findings,
            };
        }
        findings
    }

    /// Parses a line. Returns whether it ends the head of a request with two lengths.
    fn end_line(&mut self, line: &[u8]) -> bool {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match &self.state {
            State::ChunkSize => {
                let digits = line.split(|byte| !byte.is_ascii_hexdigit()).next();
                let size = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                self.state = match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
                    Some(0) => State::Trailers,
                    // The chunk includes its line end.
                    Some(size) => State::Chunk(size.saturating_add(2)),
                    None => State::Done,
                };
                false
            }
            State::Trailers => {
                if line.is_empty() {
                    self.state = State::Head;
                }
                false
            }
            _ if line.is_empty() && !self.head.has_begun => false,
            _ if line.is_empty() => self.end_head(),
            _ if !self.head.has_begun => {
                self.head.has_begun = true;
                false
            }
            _ => {
                if !self.head.read(line) {
                    self.state = State::Done;
                }
                false
            }
        }
    }

    fn end_head(&mut self) -> bool {
        let Head { length, is_chunked, switches, .. } = std::mem::take(&mut self.head);
        let is_ambiguous = length.is_some() && is_chunked;
        self.state = match length {
            _ if switches || is_ambiguous => State::Done,
            _ if is_chunked => State::ChunkSize,
            Some(length @ 1..) => State::Body(length),
            _ => State::Head,
        };
        is_ambiguous
    }
}

impl State {
    fn frame() -> Self {
        Self::Frame { header: [0; FRAME_HEADER_LEN], length: 0 }
    }

    fn payload(header: &[u8; FRAME_HEADER_LEN]) -> Self {
        match u64::from(payload_length(header)) {
            0 => Self::frame(),
            length => Self::Payload(length),
        }
    }

    /// Returns the state after a body, a chunk or a payload.
    fn behind(&self) -> Self {
        match self {
            Self::Chunk(_) => Self::ChunkSize,
            Self::Payload(_) => Self::frame(),
            _ => Self::Head,
        }
    }
}

impl Head {
    /// Parses a header. Returns whether the message can be parsed further.
    fn read(&mut self, line: &[u8]) -> bool {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
            self.length = self.length.or(value);
            return value.is_some();
        }
        self.is_chunked |= name.eq_ignore_ascii_case(b"transfer-encoding");
        self.switches |= name.eq_ignore_ascii_case(b"upgrade");
        true
    }
}

fn payload_length(header: &[u8; FRAME_HEADER_LEN]) -> u32 {
    let [high, middle, low, ..] = *header;
    u32::from_be_bytes([0, high, middle, low])
}

/// Returns whether a frame demands a reply or does nothing: SETTINGS, PING, PRIORITY, and empty DATA that does not end a
/// stream.
fn is_control(header: &[u8; FRAME_HEADER_LEN]) -> bool {
    const END_STREAM: u8 = 1;
    let [_, _, _, kind, flags, ..] = *header;
    match kind {
        0 => payload_length(header) == 0 && flags & END_STREAM == 0,
        2 | 4 | 6 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds bytes in pieces of these lengths, repeatedly.
    fn follow(bytes: &[u8], pieces: &[usize]) -> Findings {
        let (mut framing, mut all, mut rest) = (Framing::default(), Findings::default(), bytes);
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).clamp(1, rest.len().max(1)).min(rest.len()));
            let findings = framing.follow(now);
            all.is_ambiguous |= findings.is_ambiguous;
            all.control_frames += findings.control_frames;
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        assert!(framing.line.len() <= MAX_LINE);
        all
    }

    /// A body that looks like a request with two lengths.
    const TRAP: &str = "x\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn plain() -> impl Strategy<Value = String> {
        let line = prop::sample::select(vec![
            "GET /a HTTP/1.1",
            "POST /b HTTP/1.1",
            "\r\nPATCH / HTTP/1.0",
            "PRI / HTTP/1.1",
        ]);
        let body = prop_oneof![Just(String::new()), Just(TRAP.to_owned()), "[a-z\r\n:]{0,40}"];
        let name = |name: &'static str| {
            prop::bool::ANY.prop_map(move |upper| if upper { name.to_uppercase() } else { name.into() })
        };
        (line, body, prop::bool::ANY, name("content-length"), name("transfer-encoding"), 1_usize..9, "[a-z]{0,300}").prop_map(
            |(line, body, chunked, length, encoding, chunk, filler)| match chunked {
                false => format!("{line}\r\nhost: a\r\n{length}: {}\r\nx: {filler}\r\n\r\n{body}", body.len()),
                true => {
                    let chunks = body.as_bytes().chunks(chunk).map(|chunk| {
                        format!("{:x};x=y\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))
                    });
                    let chunks: String = chunks.collect();
                    format!("{line}\r\n{encoding}: gzip, chunked\r\nx: {filler}\r\n\r\n{chunks}0\r\nContent-Length: 3\r\nx: y\r\n\r\n")
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn two_lengths_are_found_behind_any_requests(
            before in prop::collection::vec(plain(), 0..5),
            pieces in prop::collection::vec(1_usize..80, 1..5),
            reversed in any::<bool>(),
        ) {
            let before = before.concat();
            prop_assert_eq!(follow(before.as_bytes(), &pieces), Findings::default(), "{:?}", before);
            let (one, other) = ("content-length: 5", "Transfer-Encoding: chunked");
            let (one, other) = if reversed { (other, one) } else { (one, other) };
            let smuggled = format!("{before}POST / HTTP/1.1\r\n{one}\r\nx: y\r\n{other}\r\n\r\n0\r\n\r\n");
            prop_assert!(follow(smuggled.as_bytes(), &pieces).is_ambiguous, "{:?}", smuggled);
        }

        #[test]
        fn no_bytes_upset_it(bytes in prop::collection::vec(any::<u8>(), 0..400), pieces in prop::collection::vec(1_usize..80, 1..5)) {
            follow(&bytes, &pieces);
            follow(&[PREFACE, &bytes].concat(), &pieces);
        }
    }

    #[test]
    fn counts_only_control_frames() {
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
            [&length[1..], &[kind, flags], &1_u32.to_be_bytes(), payload].concat()
        };
        let traffic = [
            PREFACE.to_vec(),
            frame(4, 0, &[0; 6]),
            frame(1, 4, &[6; 300]),
            frame(0, 0, &[4; 1000]),
            frame(0, 1, &[]),
            frame(8, 0, &[0; 4]),
            frame(6, 0, &[6; 8]),
            frame(2, 0, &[0; 5]),
            frame(0, 0, &[]),
            frame(3, 0, &[0; 4]),
        ];
        for pieces in [&[1][..], &[7, 2], &[10_000]] {
            let findings = follow(&traffic.concat(), pieces);
            assert_eq!(findings, Findings { is_ambiguous: false, control_frames: 4 }, "{pieces:?}");
        }
    }
}
