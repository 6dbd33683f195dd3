//! Upgrades to another protocol on a dedicated connection, as exec, attach and port-forward need.
//!
//! The connection is dialed for one request and is never in the pool. Any response except a switch is read whole, and the
//! connection is closed: no other request can follow on it (CVE-2018-1002105).

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Fuse};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::class::ConnectionId;
use crate::conn_state::{ConnectionState, InstrumentedIo, connection_error};
use crate::connection::to_origin_form;
use crate::error::{TransportError, TransportErrorKind};
use crate::hub::Hub;
use crate::lag::Expired;
use crate::owner::Owner;

/// The result of a request for another protocol.
#[derive(Debug)]
pub enum Upgrade {
    /// A switch to the protocol: the headers of the response (101), and the stream.
    Switched(Response<Tunnel>),
    /// Any other response, complete. Its connection is closed.
    Answered(Response<Bytes>),
}

impl Upgrade {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Switched(response) => response.status(),
            Self::Answered(response) => response.status(),
        }
    }
}

/// A stream to a server that has switched to another protocol. Closed when dropped.
///
/// It stays open as long as its owner keeps it, and otherwise ends only when the server ends it. The owner must end it when
/// [`Tunnel::withdrawn`] completes.
pub struct Tunnel {
    io: TokioIo<Upgraded>,
    withdrawn: CancellationToken,
    /// Makes the transport's shutdown wait for the stream.
    _held: TaskTrackerToken,
    _owner: Arc<Owner>,
}

/// The largest response other than a switch: an error message of the API server.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

impl Tunnel {
    /// Completes when the stream must end: the transport is parked or shut down.
    pub fn withdrawn(&self) -> WaitForCancellationFutureOwned {
        self.withdrawn.clone().cancelled_owned()
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("withdrawn", &self.withdrawn.is_cancelled()).finish_non_exhaustive()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// A dedicated connection for one request.
pub(crate) struct DedicatedConnection {
    hub: Arc<Hub>,
    conn_state: Arc<ConnectionState>,
    withdrawn: CancellationToken,
    sender: SendRequest<Body>,
    connection: Fuse<ConnectionFuture>,
    /// The requested protocol.
    protocol: Option<HeaderValue>,
}

/// hyper's connection future, which must be polled to make progress.
type ConnectionFuture = BoxFuture<'static, hyper::Result<()>>;

impl DedicatedConnection {
    pub(crate) async fn dial(hub: &Arc<Hub>) -> Result<Self, TransportError> {
        let dialed = hub.dial_dedicated().await?;
        let conn_state = dialed.conn_state;
        let io = TokioIo::new(InstrumentedIo::new(dialed.io, conn_state.clone()));
        let (sender, connection) = http1::Builder::new()
            .handshake(io)
            .await
            .map_err(|error| conn_state.error(connection_error(&error)))?;
        Ok(Self {
            hub: hub.clone(),
            conn_state,
            withdrawn: dialed.withdrawn,
            sender,
            connection: connection.with_upgrades().boxed().fuse(),
            protocol: None,
        })
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.conn_state.id
    }

    /// Sends the request. `limit` is the time until the headers of the response.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Body>,
        limit: Option<Duration>,
    ) -> Result<Response<Incoming>, TransportError> {
        to_origin_form(&mut request);
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        self.protocol = request.headers().get(header::UPGRADE).cloned();
        let sending = self.sender.send_request(request);
        let late = |after| TransportErrorKind::HeadersDeadline { after };
        let answered =
            drive_until(&self.hub, &mut self.connection, &self.withdrawn, limit, late, sending).await;
        let answered = answered.map_err(|error_kind| self.conn_state.error(error_kind))?;
        let answer = answered.map_err(|error| self.failed(&error))?;
        self.hub.response_received(self.conn_state.id, answer.status() != StatusCode::UNAUTHORIZED);
        Ok(answer)
    }

    /// Converts the response to the result: a stream, or the complete response.
    pub(crate) async fn finish(
        mut self,
        owner: &Arc<Owner>,
        answer: Response<Incoming>,
        limit: Option<Duration>,
    ) -> Result<Upgrade, TransportError> {
        let (mut parts, body) = answer.into_parts();
        let late = |after| TransportErrorKind::BodyDeadline { after };
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            let collecting = Limited::new(body, MAX_RESPONSE_BYTES).collect();
            let collected =
                drive_until(&self.hub, &mut self.connection, &self.withdrawn, limit, late, collecting).await;
            let collected = collected.map_err(|error_kind| self.conn_state.error(error_kind))?;
            let body = collected.map_err(|error| match error.downcast::<hyper::Error>() {
                Ok(error) => self.failed(&error),
                Err(error) if error.is::<LengthLimitError>() => self.conn_state.error(too_large()),
                Err(error) => self.conn_state.error(TransportErrorKind::protocol(error)),
            })?;
            return Ok(Upgrade::Answered(Response::from_parts(parts, body.to_bytes())));
        }
        let same = |theirs: &HeaderValue| {
            let ours = self.protocol.as_ref();
            ours.is_some_and(|ours| ours.as_bytes().eq_ignore_ascii_case(theirs.as_bytes()))
        };
        if !parts.headers.get(header::UPGRADE).is_some_and(same) {
            return Err(self
                .conn_state
                .error(TransportErrorKind::protocol("it switches to a protocol that was not asked for")));
        }
        let switching = hyper::upgrade::on(Response::from_parts(parts.clone(), body));
        let switched =
            drive_until(&self.hub, &mut self.connection, &self.withdrawn, limit, late, switching).await;
        let switched = switched.map_err(|error_kind| self.conn_state.error(error_kind))?;
        let tunnel = Tunnel {
            io: TokioIo::new(switched.map_err(|error| self.failed(&error))?),
            withdrawn: self.withdrawn,
            _held: self.hub.tasks.token(),
            _owner: owner.clone(),
        };
        parts.extensions.clear();
        parts.extensions.insert(self.conn_state.id);
        Ok(Upgrade::Switched(Response::from_parts(parts, tunnel)))
    }

    fn failed(&self, error: &hyper::Error) -> TransportError {
        self.conn_state
            .error(self.conn_state.first_error().cloned().unwrap_or_else(|| connection_error(error)))
    }
}

/// Drives the connection and returns the result of `what`, unless it takes too long or the connection must end.
async fn drive_until<F: Future>(
    hub: &Hub,
    connection: &mut Fuse<ConnectionFuture>,
    withdrawn: &CancellationToken,
    limit: Option<Duration>,
    late: impl FnOnce(Duration) -> TransportErrorKind,
    what: F,
) -> Result<F::Output, TransportErrorKind> {
    let running = async {
        let mut what = pin!(what);
        tokio::select! {
            biased;
            output = &mut what => output,
            // The response that it has brought can still be taken.
            _ = connection => what.await,
        }
    };
    match withdrawn.run_until_cancelled(hub.lag_monitor.timeout(limit, running)).await {
        None => Err(hub.withdrawal_reason()),
        Some(Ok(output)) => Ok(output),
        Some(Err(Expired)) => Err(late(limit.unwrap_or_default())),
    }
}

fn too_large() -> TransportErrorKind {
    TransportErrorKind::TooLarge(format!("more than {MAX_RESPONSE_BYTES} bytes in place of a switch").into())
}
