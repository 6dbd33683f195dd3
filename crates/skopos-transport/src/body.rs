//! The body of a response: its deadlines, and the actual reason of its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::conn_state::explain;
use crate::dialer::Protocol;
use crate::error::{TransportError, TransportErrorKind};
use crate::hub::Lease;
use crate::lag::{LagTolerantDeadline, LagTolerantSleep, NEVER};
use crate::options::Deadlines;
use crate::owner::Owner;

/// The body of a response.
///
/// It fails with the same [`TransportErrorKind`] as everything else on its connection. It holds its stream on the connection until it
/// has ended or is dropped. Its progress deadline counts only while the caller waits for bytes; the others always count.
pub struct TransportBody {
    inner: Incoming,
    lease: Option<Lease>,
    progress: Option<Progress>,
    body_deadline: Option<(LagTolerantDeadline, Duration)>,
    caller_deadline: Option<(Pin<Box<Sleep>>, Duration)>,
    /// The pending search for the reason of its failure.
    failing: Option<BoxFuture<'static, TransportError>>,
    protocol: Protocol,
    /// Keeps the transport alive while the body is read.
    _owner: Arc<Owner>,
}

/// The remaining wait until enough bytes must have arrived.
struct Progress {
    limit: Duration,
    min_bytes: usize,
    bytes: usize,
    left: Duration,
    waiting: Option<Instant>,
    timer: LagTolerantSleep,
}

impl TransportBody {
    pub(crate) fn new(
        inner: Incoming,
        lease: Lease,
        deadlines: &Deadlines,
        caller_deadline: Option<(Instant, Duration)>,
        owner: Arc<Owner>,
    ) -> Self {
        let lag_monitor = &lease.hub.lag_monitor;
        let progress = deadlines.progress.map(|limit| Progress {
            limit,
            min_bytes: lease.hub.options.min_progress_bytes,
            bytes: 0,
            left: limit,
            waiting: None,
            timer: lag_monitor.sleep(limit),
        });
        let body_deadline = deadlines.body.map(|limit| (lag_monitor.deadline(limit), limit));
        let caller_deadline =
            caller_deadline.map(|(at, after)| (Box::pin(tokio::time::sleep_until(at)), after));
        let protocol = lease.protocol;
        let ended = inner.is_end_stream();
        Self {
            inner,
            lease: (!ended).then_some(lease),
            progress,
            body_deadline,
            caller_deadline,
            failing: None,
            protocol,
            _owner: owner,
        }
    }

    /// Fails the stream for a known reason.
    fn fail(
        &mut self,
        error_kind: TransportErrorKind,
        blame_connection: bool,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let lease = self.lease.take();
        let id = lease.as_ref().map(Lease::id);
        if let Some(lease) = &lease {
            match blame_connection {
                true => lease.hub.retire(lease.id(), error_kind.clone()),
                false => lease.hub.count_error(id, &error_kind),
            }
        }
        Poll::Ready(Some(Err(TransportError::new(error_kind, id))))
    }

    /// Fails the stream with the reason that the connection's task knows.
    fn explain(&mut self, error: Result<hyper::Error, TransportErrorKind>) {
        let Some(lease) = self.lease.take() else { return };
        let conn_state = lease.conn_state.clone();
        self.failing = Some(Box::pin(async move {
            let explained = match error {
                Ok(error) => explain(conn_state, error).await,
                Err(error_kind) => conn_state.error(conn_state.first_error().cloned().unwrap_or(error_kind)),
            };
            if matches!(explained.kind(), TransportErrorKind::StreamReset { .. }) {
                lease.hub.count_error(Some(lease.id()), explained.kind());
            }
            explained
        }));
    }

    /// Returns the deadline that has passed, if any. It may pass even while bytes are available, if the reader is slower
    /// than the network.
    fn passed_deadline(&mut self) -> Option<TransportErrorKind> {
        if let Some((timer, after)) = &self.caller_deadline
            && timer.deadline() <= Instant::now()
        {
            return Some(TransportErrorKind::CallerDeadline { after: *after, because: None });
        }
        let (deadline, after) = self.body_deadline.as_mut()?;
        deadline.has_passed().then_some(TransportErrorKind::BodyDeadline { after: *after })
    }

    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Option<(TransportErrorKind, bool)> {
        if let Some((timer, after)) = &mut self.caller_deadline
            && timer.as_mut().poll(cx).is_ready()
        {
            return Some((TransportErrorKind::CallerDeadline { after: *after, because: None }, false));
        }
        if let Some((deadline, after)) = &mut self.body_deadline
            && Pin::new(deadline).poll(cx).is_ready()
        {
            return Some((TransportErrorKind::BodyDeadline { after: *after }, true));
        }
        if let Some(progress) = &mut self.progress
            && progress.poll_waiting(cx).is_ready()
        {
            return Some((TransportErrorKind::ProgressDeadline { after: progress.limit }, true));
        }
        None
    }
}

impl Body for TransportBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let this = &mut *self;
        if this.failing.is_none() {
            if this.lease.is_none() {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(error_kind) = this.passed_deadline() {
                        // The peer is not at fault.
                        return this.fail(error_kind, false);
                    }
                    if let Some(progress) = &mut this.progress {
                        progress.record(frame.data_ref().map_or(0, Bytes::len));
                    }
                    if this.inner.is_end_stream() {
                        this.lease = None;
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                // hyper reports a normal end also if the stream was cut off with NO_ERROR: we treat that as a failure.
                Poll::Ready(None) if this.protocol == Protocol::Http2 && !this.inner.is_end_stream() => {
                    this.explain(Err(TransportErrorKind::StreamReset { code: "NO_ERROR".into() }));
                }
                Poll::Ready(None) => {
                    this.lease = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => this.explain(Ok(error)),
                Poll::Pending => {
                    return match this.poll_deadlines(cx) {
                        Some((error_kind, blame_connection)) => this.fail(error_kind, blame_connection),
                        None => Poll::Pending,
                    };
                }
            }
        }
        let Some(failing) = &mut this.failing else { return Poll::Ready(None) };
        failing.as_mut().poll(cx).map(|error| {
            this.failing = None;
            Some(Err(error))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.failing.is_none() && (self.lease.is_none() || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl std::fmt::Debug for TransportBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connection = self.lease.as_ref().map(Lease::id);
        f.debug_struct("TransportBody").field("connection", &connection).finish_non_exhaustive()
    }
}

impl Progress {
    /// Records that bytes have arrived, after some waiting.
    fn record(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some(since) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        if self.bytes >= self.min_bytes {
            self.bytes = 0;
            self.left = self.limit;
        }
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            let now = Instant::now();
            self.waiting = Some(now);
            self.timer.reset(now + NEVER.min(self.left));
        }
        Pin::new(&mut self.timer).poll(cx)
    }
}
