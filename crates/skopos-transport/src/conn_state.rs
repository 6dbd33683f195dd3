//! The state of one connection: shared by its socket, its task, its streams and its bodies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::class::ConnectionId;
use crate::dialer::Io;
use crate::error::{TransportError, TransportErrorKind};

/// The state of one connection, up to the single reason of its end.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) id: ConnectionId,
    /// The first error: on the socket, from a deadline, or by our own decision. Later ones are consequences.
    first_error: OnceLock<TransportErrorKind>,
    /// The reason of the end, set once everything has ended.
    end_reason: watch::Sender<Option<TransportErrorKind>>,
    /// Cancelled to end the connection and all its streams now.
    pub(crate) kill: CancellationToken,
    /// hyper's own tasks for this connection.
    pub(crate) tasks: TaskTracker,
    created_at: Instant,
    /// The time of the last received bytes, in microseconds since the connection was made.
    last_read: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Notified of possible events that only the connection's task can see (SETTINGS came).
    pub(crate) task_notify: tokio::sync::Notify,
    /// Set while every poll of a task notifies: until the first SETTINGS.
    pub(crate) notify_on_poll: std::sync::atomic::AtomicBool,
}

impl ConnectionState {
    pub(crate) fn new(id: ConnectionId) -> Arc<Self> {
        Arc::new(Self {
            id,
            first_error: OnceLock::new(),
            end_reason: watch::Sender::new(None),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
            created_at: Instant::now(),
            last_read: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            task_notify: tokio::sync::Notify::new(),
            notify_on_poll: std::sync::atomic::AtomicBool::new(true),
        })
    }

    /// Returns the time of the last bytes from the socket, or of the start of its use.
    pub(crate) fn last_read(&self) -> Instant {
        self.created_at + Duration::from_micros(self.last_read.load(Ordering::Relaxed))
    }

    fn record_read(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.last_read.store(self.created_at.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// Records an error, if it is the first.
    pub(crate) fn record(&self, error_kind: TransportErrorKind) {
        let _ = self.first_error.set(error_kind);
    }

    pub(crate) fn first_error(&self) -> Option<&TransportErrorKind> {
        self.first_error.get()
    }

    /// Ends everything on the connection with this reason.
    pub(crate) fn kill(&self, error_kind: TransportErrorKind) {
        self.record(error_kind);
        self.kill.cancel();
    }

    /// Publishes the reason once nothing of the connection is left.
    pub(crate) fn finish(&self) -> TransportErrorKind {
        let error_kind = self.first_error.get().cloned().unwrap_or(TransportErrorKind::Eof);
        self.end_reason.send_replace(Some(error_kind.clone()));
        error_kind
    }

    pub(crate) fn error(&self, error_kind: TransportErrorKind) -> TransportError {
        TransportError::new(error_kind, Some(self.id))
    }
}

/// Finds the reason behind a hyper error on one of the connection's streams.
///
/// hyper reports only "broken pipe" to a stream when its connection has died. The connection's task knows the reason and
/// ends a moment later, so this waits for it, for a bounded time.
pub(crate) async fn explain(conn_state: Arc<ConnectionState>, error: hyper::Error) -> TransportError {
    // Once we have ended the connection ourselves, hyper's error is only a consequence.
    let ours = conn_state.kill.is_cancelled().then(|| conn_state.first_error().cloned()).flatten();
    let error_kind = match ours.or_else(|| stream_error(&error)) {
        Some(error_kind) => error_kind,
        None => {
            let mut end_reasons = conn_state.end_reason.subscribe();
            let over = tokio::time::timeout(END_REASON_TIMEOUT, end_reasons.wait_for(Option::is_some)).await;
            let known = match over {
                Ok(Ok(error_kind)) => error_kind.clone(),
                _ => conn_state.first_error().cloned(),
            };
            known.unwrap_or_else(|| connection_error(&error))
        }
    };
    conn_state.error(error_kind)
}

/// Time that a stream waits for the reason of its connection's end.
const END_REASON_TIMEOUT: Duration = Duration::from_millis(250);

/// Returns the reason if the error concerns this stream alone.
fn stream_error(error: &hyper::Error) -> Option<TransportErrorKind> {
    if error.is_parse_too_large() {
        return Some(TransportErrorKind::TooLarge(error.to_string().into()));
    }
    if error.is_user() && !error.is_canceled() {
        return Some(TransportErrorKind::request(chain(error)));
    }
    let h2 = source::<h2::Error>(error)?;
    (h2.is_reset() && h2.is_remote()).then(|| TransportErrorKind::StreamReset { code: reason(h2.reason()) })
}

/// Converts an error of a connection (or one without more information).
pub(crate) fn connection_error(error: &hyper::Error) -> TransportErrorKind {
    if error.is_timeout() {
        return TransportErrorKind::PingTimeout;
    }
    if let Some(io) = source::<io::Error>(error) {
        return TransportErrorKind::from_socket_error(io);
    }
    if let Some(h2) = source::<h2::Error>(error) {
        if h2.is_go_away() && h2.is_remote() {
            return TransportErrorKind::GoAway { code: reason(h2.reason()) };
        }
        if let Some(io) = h2.get_io() {
            return TransportErrorKind::from_socket_error(io);
        }
        return TransportErrorKind::protocol(h2);
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return TransportErrorKind::Eof;
    }
    if error.is_parse_too_large() {
        return TransportErrorKind::TooLarge(error.to_string().into());
    }
    TransportErrorKind::protocol(chain(error))
}

/// Returns whether the server has not processed the request, so that any request may be sent again (RFC 9113, 8.7).
pub(crate) fn was_not_processed(error: &hyper::Error) -> bool {
    source::<h2::Error>(error)
        .is_some_and(|e| e.is_remote() && e.is_reset() && e.reason() == Some(h2::Reason::REFUSED_STREAM))
}

fn reason(reason: Option<h2::Reason>) -> Arc<str> {
    match reason {
        Some(reason) => format!("{reason:?}").into(),
        None => "unknown".into(),
    }
}

fn source<T: std::error::Error + 'static>(error: &hyper::Error) -> Option<&T> {
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// A socket that records its events in the connection's state.
pub(crate) struct InstrumentedIo {
    inner: Box<dyn Io>,
    conn_state: Arc<ConnectionState>,
}

impl InstrumentedIo {
    pub(crate) fn new(inner: Box<dyn Io>, conn_state: Arc<ConnectionState>) -> Self {
        conn_state.record_read(0);
        Self { inner, conn_state }
    }
}

impl AsyncRead for InstrumentedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let wanted = buf.remaining() > 0;
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        match &result {
            Ok(()) => match (buf.filled().len() - before) as u64 {
                0 if wanted => self.conn_state.record(TransportErrorKind::Eof),
                0 => {}
                n => self.conn_state.record_read(n),
            },
            Err(error) => self.conn_state.record(TransportErrorKind::from_socket_error(error)),
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for InstrumentedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        Poll::Ready(self.record_write(result))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        if let Err(error) = &result {
            self.conn_state.record(TransportErrorKind::from_socket_error(error));
        }
        Poll::Ready(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        Poll::Ready(self.record_write(result))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl InstrumentedIo {
    fn record_write(&self, result: io::Result<usize>) -> io::Result<usize> {
        match &result {
            Ok(n) => _ = self.conn_state.bytes_out.fetch_add(*n as u64, Ordering::Relaxed),
            Err(error) => self.conn_state.record(TransportErrorKind::from_socket_error(error)),
        }
        result
    }
}

/// The executor of hyper's tasks of one connection: none outlives it.
#[derive(Clone)]
pub(crate) struct ConnectionExecutor(pub(crate) Arc<ConnectionState>);

impl<F> hyper::rt::Executor<F> for ConnectionExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let conn_state = self.0.clone();
        let kill = conn_state.kill.clone();
        let mut future = Box::pin(future);
        let polling = std::future::poll_fn(move |cx| {
            let polled = future.as_mut().poll(cx);
            if conn_state.notify_on_poll.load(Ordering::Relaxed) {
                conn_state.task_notify.notify_one();
            }
            polled
        });
        self.0.tasks.spawn(async move {
            kill.run_until_cancelled(polling).await;
        });
    }
}
