//! The client's end of a connection, with the wire's effect on its bytes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use skopos_testserver::MemoryStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::wire::Wire;

/// A byte stream over a wire.
pub(super) struct Pipe {
    stream: Option<MemoryStream>,
    wire: Arc<Wire>,
    /// Pieces on the way to the client, with their arrival times. An empty one is the end.
    inbound: VecDeque<(Instant, io::Result<Bytes>)>,
    outbound: VecDeque<(Instant, Bytes)>,
    waiting_out: usize,
    inbound_timer: Pin<Box<Sleep>>,
    outbound_timer: Pin<Box<Sleep>>,
    patience: Pin<Box<Sleep>>,
    /// Number of bytes that may pass until `tick`.
    allowance: usize,
    tick: Instant,
    lost: Option<OnLost>,
}

/// Callback that takes a pipe whose end the server does not learn.
type OnLost = Box<dyn FnOnce(Pipe) + Send>;

/// Size of the sockets' buffers.
const BUFFER: usize = 256 * 1024;

/// Time that the client's kernel waits for an acknowledgement: the TCP_USER_TIMEOUT that the transport sets.
const USER_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval of a throttle.
const TICK: Duration = Duration::from_millis(100);

impl Pipe {
    pub(super) fn new(
        stream: MemoryStream,
        wire: Arc<Wire>,
        lost: impl FnOnce(Pipe) + Send + 'static,
    ) -> Self {
        let now = Instant::now();
        Self {
            stream: Some(stream),
            wire,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            waiting_out: 0,
            inbound_timer: Box::pin(sleep_until(now)),
            outbound_timer: Box::pin(sleep_until(now)),
            patience: Box::pin(sleep_until(now)),
            allowance: 0,
            tick: now,
            lost: Some(Box::new(lost)),
        }
    }

    /// Takes the bytes that the server has sent.
    fn pull(&mut self, cx: &mut Context<'_>, delay: Duration) {
        let Some(stream) = &mut self.stream else { return };
        while self.inbound.len() < 64 && !matches!(self.inbound.back(), Some((_, end)) if is_end(end)) {
            let mut buffer = [0; 16 * 1024];
            let mut buffer = ReadBuf::new(&mut buffer);
            let piece = match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => Ok(Bytes::copy_from_slice(buffer.filled())),
                Poll::Ready(Err(error)) => Err(error),
            };
            self.inbound.push_back((Instant::now() + delay, piece));
        }
    }

    /// Gives the server the bytes that have arrived by now.
    fn push(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while let Some((due, piece)) = self.outbound.front_mut() {
            if *due > Instant::now() {
                self.outbound_timer.as_mut().reset(*due);
                if std::future::Future::poll(self.outbound_timer.as_mut(), cx).is_pending() {
                    return Ok(());
                }
            }
            match Pin::new(&mut *stream).poll_write(cx, piece) {
                Poll::Pending => return Ok(()),
                Poll::Ready(written) => {
                    let written = written?;
                    self.waiting_out -= written;
                    piece.advance(written);
                    if piece.is_empty() {
                        self.outbound.pop_front();
                    }
                }
            }
        }
        Ok(())
    }

    /// Fails the connection if bytes sent into a black hole are not acknowledged in time.
    fn give_up(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let fate = self.wire.fate();
        if let Some((sent, _)) = self.outbound.front()
            && fate.holes_out > 0
            && !fate.given_up
        {
            self.patience.as_mut().reset(*sent + USER_TIMEOUT);
            if std::future::Future::poll(self.patience.as_mut(), cx).is_ready() {
                self.wire.give_up();
            }
        }
        match self.wire.fate() {
            fate if fate.given_up => fate.error().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes that may pass now; waits for the next tick if none.
    fn poll_allowance(&mut self, cx: &mut Context<'_>, throttle: Option<usize>) -> Poll<usize> {
        let Some(bytes) = throttle else { return Poll::Ready(usize::MAX) };
        let now = Instant::now();
        if now >= self.tick {
            self.tick = now + TICK;
            self.allowance = bytes.max(1);
        }
        if self.allowance == 0 {
            self.inbound_timer.as_mut().reset(self.tick);
            ready!(std::future::Future::poll(self.inbound_timer.as_mut(), cx));
            self.tick = Instant::now() + TICK;
            self.allowance = bytes.max(1);
        }
        Poll::Ready(self.allowance)
    }

    fn poll_arrival(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let Some((due, _)) = self.inbound.front() else { return Poll::Pending };
        if *due > Instant::now() {
            self.inbound_timer.as_mut().reset(*due);
            ready!(std::future::Future::poll(self.inbound_timer.as_mut(), cx));
        }
        let Some((due, piece)) = self.inbound.pop_front() else { return Poll::Pending };
        let mut piece = match piece {
            Ok(piece) => piece,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if piece.is_empty() {
            self.inbound.push_front((due, Ok(piece)));
            return Poll::Ready(Ok(0));
        }
        let part = piece.split_to(piece.len().min(buf.remaining()).min(most));
        buf.put_slice(&part);
        if !piece.is_empty() {
            self.inbound.push_front((due, Ok(piece)));
        }
        Poll::Ready(Ok(part.len()))
    }
}

fn is_end(piece: &io::Result<Bytes>) -> bool {
    piece.as_ref().map_or(true, Bytes::is_empty)
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.wire.register(true, cx);
        this.give_up(cx)?;
        let fate = this.wire.fate();
        if fate.holes_out == 0 && !this.outbound.is_empty() {
            this.push(cx)?;
        }
        if fate.holes_in > 0 {
            return Poll::Pending;
        }
        if fate.ended.is_some() {
            return Poll::Ready(fate.error().map_or(Ok(()), Err));
        }
        let most = ready!(this.poll_allowance(cx, fate.throttle));
        let most = fate.cut.map_or(most, |cut| most.min(usize::try_from(cut.after).unwrap_or(most)).max(1));
        let read = if fate.is_plain() && fate.cut.is_none() && this.inbound.is_empty() {
            let Some(stream) = &mut this.stream else { return Poll::Ready(Ok(())) };
            let before = buf.filled().len();
            ready!(Pin::new(stream).poll_read(cx, buf))?;
            buf.filled().len() - before
        } else {
            this.pull(cx, fate.delay);
            ready!(this.poll_arrival(cx, buf, most))?
        };
        this.allowance = this.allowance.saturating_sub(read);
        this.wire.passed(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.wire.register(false, cx);
        let fate = this.wire.fate();
        if let Some(error) = fate.error() {
            return Poll::Ready(Err(error));
        }
        if fate.is_plain() && this.outbound.is_empty() {
            let Some(stream) = &mut this.stream else { return Poll::Ready(Ok(buf.len())) };
            return Pin::new(stream).poll_write(cx, buf);
        }
        if this.waiting_out >= BUFFER {
            if fate.holes_out == 0 {
                this.push(cx)?;
            }
            if this.waiting_out >= BUFFER {
                return Poll::Pending;
            }
        }
        let part = &buf[..buf.len().min(BUFFER - this.waiting_out)];
        this.waiting_out += part.len();
        this.outbound.push_back((Instant::now() + fate.delay, Bytes::copy_from_slice(part)));
        if fate.holes_out == 0 {
            this.push(cx)?;
        }
        this.give_up(cx)?;
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.wire.fate().holes_out == 0 && !this.outbound.is_empty() {
            this.push(cx)?;
        }
        match &mut this.stream {
            // Bytes in the kernel's buffer count as flushed.
            Some(stream) if this.outbound.is_empty() => Pin::new(stream).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.wire.fate().holes_out > 0 {
            return Poll::Ready(Ok(()));
        }
        this.push(cx)?;
        match &mut this.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.wire.close();
        // The server learns of the end only if bytes can reach it.
        if self.wire.fate().holes_out > 0
            && let (Some(stream), Some(lost)) = (self.stream.take(), self.lost.take())
        {
            let mut end = Pipe::new(stream, self.wire.clone(), |_| {});
            end.lost = None;
            lost(end);
        }
    }
}
