//! Client side of an in-memory connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::connection::ConnectionId;
use crate::faults::ConnectionControl;

/// Client side of an in-memory connection: works under tokio's paused clock, where sockets do not.
///
/// All connection faults apply; a reset reads as [`io::ErrorKind::ConnectionReset`].
#[derive(Debug)]
pub struct MemoryStream {
    stream: DuplexStream,
    control: Arc<ConnectionControl>,
}

impl MemoryStream {
    pub(super) fn new(stream: DuplexStream, control: Arc<ConnectionControl>) -> Self {
        Self { stream, control }
    }

    /// Returns the connection ID, as used in the server's faults and request log.
    pub fn id(&self) -> ConnectionId {
        self.control.id()
    }

    fn reset(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if read.is_ok() && buf.filled().len() == before && buf.remaining() > 0 && self.control.is_reset() {
            return Poll::Ready(Err(self.reset()));
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.control.is_reset() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
