//! Connection faults: a layer between the socket and TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::connection::ConnectionId;

/// Way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// In order, as when a program exits.
    Fin,
    /// With a reset, as in a crash or from a load balancer.
    Rst,
}

/// Direction in which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data from clients does not arrive.
    ToServer,
    /// Data from the server does not arrive.
    ToClient,
    /// Both.
    Both,
}

/// Connections that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// The connections open now.
    Existing,
    /// The connections opened from now on.
    New,
    /// All.
    All,
    /// This one.
    One(ConnectionId),
}

/// State of a connection, as used by the faults.
#[derive(Debug)]
pub(crate) struct ConnectionControl {
    id: ConnectionId,
    inbound_holes: AtomicUsize,
    outbound_holes: AtomicUsize,
    reader: AtomicWaker,
    writer: AtomicWaker,
    killed: CancellationToken,
    mode: Mutex<Option<CloseMode>>,
    go_away: CancellationToken,
}

/// Black hole, and the connections in it.
#[derive(Debug)]
pub(super) struct BlackHole {
    connections: Connections,
    direction: Direction,
    members: Mutex<Vec<Arc<ConnectionControl>>>,
}

impl ConnectionControl {
    pub(super) fn new(id: ConnectionId) -> Self {
        Self {
            id,
            inbound_holes: AtomicUsize::new(0),
            outbound_holes: AtomicUsize::new(0),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            killed: CancellationToken::new(),
            mode: Mutex::new(None),
            go_away: CancellationToken::new(),
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn kill(&self, mode: CloseMode) {
        self.mode.lock().get_or_insert(mode);
        self.killed.cancel();
    }

    pub(super) fn go_away(&self) {
        self.go_away.cancel();
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn killed(&self) {
        self.killed.cancelled().await;
    }

    /// Waits until the client is to be sent a GOAWAY.
    pub(crate) async fn go_away_requested(&self) {
        self.go_away.cancelled().await;
    }

    pub(crate) fn request_go_away(&self) {
        self.go_away.cancel();
    }

    /// Returns whether it ended, or is to end, with a reset.
    pub(crate) fn is_reset(&self) -> bool {
        *self.mode.lock() == Some(CloseMode::Rst)
    }
}

impl BlackHole {
    pub(super) fn new(connections: Connections, direction: Direction) -> Self {
        Self { connections, direction, members: Mutex::default() }
    }

    pub(super) fn covers_new(&self) -> bool {
        matches!(self.connections, Connections::New | Connections::All)
    }

    pub(super) fn covers_open(&self, id: ConnectionId) -> bool {
        match self.connections {
            Connections::Existing | Connections::All => true,
            Connections::New => false,
            Connections::One(one) => one == id,
        }
    }

    pub(super) fn add_connection(&self, connection: &Arc<ConnectionControl>) {
        self.for_each_direction(connection, |holes| {
            holes.fetch_add(1, Ordering::AcqRel);
        });
        self.members.lock().push(connection.clone());
    }

    pub(super) fn release(&self) {
        for connection in self.members.lock().drain(..) {
            self.for_each_direction(&connection, |holes| {
                holes.fetch_sub(1, Ordering::AcqRel);
            });
            connection.reader.wake();
            connection.writer.wake();
        }
    }

    pub(super) fn members(&self) -> usize {
        self.members.lock().len()
    }

    fn for_each_direction(&self, connection: &ConnectionControl, change: impl Fn(&AtomicUsize)) {
        if self.direction != Direction::ToClient {
            change(&connection.inbound_holes);
        }
        if self.direction != Direction::ToServer {
            change(&connection.outbound_holes);
        }
    }
}

/// Byte stream that can be reset.
pub(crate) trait ResettableStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Turns the coming close into a reset.
    fn reset_on_close(&self);
}

impl ResettableStream for TcpStream {
    fn reset_on_close(&self) {
        if let Err(error) = self.set_zero_linger() {
            tracing::debug!(%error, "the connection is closed in order instead of reset");
        }
    }
}

impl ResettableStream for DuplexStream {
    /// Does nothing: the other end reads the control itself.
    fn reset_on_close(&self) {}
}

/// Byte stream with the faults of its connection.
#[derive(Debug)]
pub(crate) struct FaultyIo<L: ResettableStream> {
    stream: L,
    control: Arc<ConnectionControl>,
}

impl<L: ResettableStream> FaultyIo<L> {
    pub(crate) fn new(stream: L, control: Arc<ConnectionControl>) -> Self {
        Self { stream, control }
    }

    fn poll_outbound(&self, cx: &Context<'_>) -> Poll<()> {
        self.control.writer.register(cx.waker());
        match self.control.outbound_holes.load(Ordering::Acquire) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl<L: ResettableStream> AsyncRead for FaultyIo<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.control.reader.register(cx.waker());
        if self.control.inbound_holes.load(Ordering::Acquire) > 0 {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<L: ResettableStream> AsyncWrite for FaultyIo<L> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_outbound(cx));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_outbound(cx));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbound(cx));
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbound(cx));
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<L: ResettableStream> Drop for FaultyIo<L> {
    fn drop(&mut self) {
        if self.control.is_reset() {
            self.stream.reset_on_close();
        }
    }
}
