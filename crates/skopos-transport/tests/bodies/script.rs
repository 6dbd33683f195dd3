//! Server that is scripted by bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use skopos_transport::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) struct Script {
    pub(crate) protocol: Protocol,
    /// Set for HTTP/2 frames that are well formed as such; otherwise the raw bytes are sent.
    framed: bool,
    rest: Mutex<VecDeque<u8>>,
    sent: AtomicUsize,
    connections: AtomicUsize,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Maximum number of connections; later ones are refused.
const CONNECTIONS: usize = 6;
/// Maximum number of frames of a flood.
const FLOOD: usize = 2000;
/// Maximum number of bytes on all connections together.
const MAX_BODY_BYTES: usize = 4 << 20;

enum Step {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Stops reading the client's bytes.
    Deaf,
    Close,
}

impl Script {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let (kind, rest) = bytes.split_first().unwrap_or((&0, &[]));
        Script {
            protocol: if kind.is_multiple_of(8) { Protocol::Http1 } else { Protocol::Http2 },
            framed: kind % 8 > 1,
            rest: Mutex::new(rest.iter().copied().collect()),
            sent: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Accepts a connection, whose other end continues the script.
    pub(crate) fn accept(self: Arc<Self>) -> Option<DuplexStream> {
        if self.connections.fetch_add(1, Relaxed) >= CONNECTIONS {
            return None;
        }
        let (client, server) = tokio::io::duplex(16 * 1024);
        let this = self.clone();
        self.tasks.spawn(async move { this.stop.clone().run_until_cancelled(this.serve(server)).await });
        Some(client)
    }

    /// Returns the number of bytes sent so far.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Relaxed)
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn serve(self: Arc<Self>, io: DuplexStream) {
        let (mut reader, mut writer) = tokio::io::split(io);
        let deaf = CancellationToken::new();
        let hearing = deaf.clone();
        let listening = hearing.run_until_cancelled(async move {
            let mut buffer = [0; 4096];
            while reader.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
        });
        let speaking = async {
            if self.framed {
                // Without it nothing proceeds.
                self.send(&mut writer, &frame(4, 0, 0, &[])).await?;
            }
            while let Some(step) = self.next_step() {
                match step {
                    Step::Bytes(bytes) => self.send(&mut writer, &bytes).await?,
                    Step::Pause(span) => tokio::time::sleep(span).await,
                    Step::Deaf => deaf.cancel(),
                    Step::Close => return Some(()),
                }
            }
            // The script is over: silence.
            std::future::pending().await
        };
        tokio::select! {
            _ = speaking => {}
            // The client has closed, or is no longer read.
            () = async { listening.await; std::future::pending().await } => {}
        }
    }

    async fn send(&self, writer: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) -> Option<()> {
        if self.sent.fetch_add(bytes.len(), Relaxed) > MAX_BODY_BYTES {
            return None;
        }
        writer.write_all(bytes).await.ok()
    }

    fn next_step(&self) -> Option<Step> {
        let mut rest = self.rest.lock();
        let kind = rest.pop_front()?;
        let mut byte = || rest.pop_front().unwrap_or(0);
        Some(match kind {
            0..16 => Step::Close,
            16..24 => Step::Deaf,
            24..48 => Step::Pause(Duration::from_millis(u64::from(byte()))),
            48..64 => Step::Pause(Duration::from_secs(u64::from(byte()))),
            64..80 => {
                // Many repetitions of one piece.
                let times = usize::from(byte()) * 8;
                let one = self.say(&mut byte);
                Step::Bytes(one.repeat(times.min(FLOOD)))
            }
            _ => Step::Bytes(self.say(&mut byte)),
        })
    }

    fn say(&self, byte: &mut impl FnMut() -> u8) -> Vec<u8> {
        if self.protocol == Protocol::Http1 {
            return http1(byte);
        }
        if !self.framed {
            return (0..byte() % 64).map(|_| byte()).collect();
        }
        let stream = |byte: &mut dyn FnMut() -> u8| match byte() % 16 {
            0 => 0,
            15 => u32::from(byte()) << 16 | 1,
            few => u32::from(few) * 2 - 1,
        };
        let kind = byte();
        match kind % 16 {
            // A response: 200, the end of the headers, not of the stream.
            0..4 => frame(1, 4, stream(byte), &[0x88]),
            4 => {
                let statuses = [0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e];
                frame(1, byte() & 5, stream(byte), &[statuses[usize::from(byte()) % 7]])
            }
            5..8 => {
                let (flags, stream, len) = (byte() & 9, stream(byte), usize::from(byte()));
                frame(0, flags, stream, &vec![b'x'; len])
            }
            8 => frame(3, 0, stream(byte), &u32::from(byte() % 16).to_be_bytes()),
            9 => {
                let last = u32::from(byte()).to_be_bytes();
                let code = u32::from(byte() % 16).to_be_bytes();
                frame(7, 0, 0, &[last, code].concat())
            }
            10 => {
                let (id, value) = (u16::from(byte() % 10), u32::from(byte()) << (byte() % 25));
                frame(4, byte() & 1, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            }
            11 => frame(8, 0, stream(byte), &(u32::from(byte()) << (byte() % 24)).to_be_bytes()),
            12 => frame(6, byte() & 1, 0, &[byte(); 8]),
            13 => {
                let (stream, len) = (stream(byte), byte() % 32);
                let block: Vec<u8> = (0..len).map(|_| byte()).collect();
                frame(if kind & 16 > 0 { 9 } else { 1 }, byte() & 0x2d, stream, &block)
            }
            14 => {
                let payload: Vec<u8> = (0..byte() % 32).map(|_| byte()).collect();
                frame(byte(), byte(), stream(byte), &payload)
            }
            _ => (0..byte() % 32).map(|_| byte()).collect(),
        }
    }
}

/// Returns a piece of HTTP/1.1.
fn http1(byte: &mut impl FnMut() -> u8) -> Vec<u8> {
    let pieces: [&[u8]; 16] = [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 410 Gone\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: https://evil.test/\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"content-length: 5\r\n",
        b"content-length: 18446744073709551616\r\n",
        b"transfer-encoding: chunked\r\n",
        b"content-encoding: gzip\r\n",
        b"connection: close\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        b"0\r\n\r\n",
        b"hello",
        b"x: ",
    ];
    match byte() {
        kind @ 0..224 => pieces[usize::from(kind) % 16].to_vec(),
        _ => (0..byte() % 32).map(|_| byte()).collect(),
    }
}

/// Encodes an HTTP/2 frame (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}
