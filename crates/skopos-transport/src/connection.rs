//! A single connection: from the dialed byte stream to its last byte.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::conn_state::{ConnectionExecutor, ConnectionState, InstrumentedIo, connection_error};
use crate::dialer::{DialAttempt, Dialed, Protocol, Stage};
use crate::error::TransportErrorKind;
use crate::hub::Hub;
use crate::lag::LagMonitor;
use crate::options::TransportOptions;
use crate::ping::PingTimer;
use crate::pool::PoolKind;

/// The handle that sends requests on a connection.
#[derive(Clone)]
pub(crate) enum Sender {
    Http2(http2::SendRequest<Body>),
    Http1(Arc<Mutex<http1::SendRequest<Body>>>),
}

/// hyper's connection future, which must be polled to make progress.
pub(crate) enum ConnectionDriver {
    Http2(Pin<Box<Http2Connection>>),
    Http1(Pin<Box<http1::Connection<TokioIo<InstrumentedIo>, Body>>>, Arc<Mutex<http1::SendRequest<Body>>>),
}

type Http2Connection = http2::Connection<TokioIo<InstrumentedIo>, Body, ConnectionExecutor>;
pub(crate) type SendResult = Result<Response<Incoming>, TrySendError<Request<Body>>>;

/// The stream limit before the first SETTINGS: a value that no peer can send, since limits have 32 bits.
const UNKNOWN_LIMIT: usize = usize::MAX - 1;

/// Flow-control windows of one stream. A list should never wait for a window update on a typical network path; a watch has
/// little data, and there may be a thousand of them.
const LIST_WINDOW: u32 = 2 << 20;
const WATCH_WINDOW: u32 = 512 << 10;

/// The largest frame size that we advertise: fewer and larger pieces of a long list, without much to buffer.
const MAX_FRAME_SIZE: u32 = 64 << 10;

/// Time until an HTTP/1.1 connection must be ready for its next request.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// The largest window of HTTP/2.
const MAX_WINDOW: u64 = (1 << 31) - 1;

/// Performs the protocol handshake. An HTTP/2 connection counts as established once the server's SETTINGS have arrived:
/// only then is the stream limit known, and proven that the peer speaks HTTP/2.
pub(crate) async fn establish(
    dialed: Dialed,
    pool_kind: PoolKind,
    options: &TransportOptions,
    lag_monitor: &LagMonitor,
    conn_state: &Arc<ConnectionState>,
    attempt: &DialAttempt,
) -> Result<(Sender, ConnectionDriver, usize), TransportErrorKind> {
    let io = TokioIo::new(InstrumentedIo::new(dialed.io, conn_state.clone()));
    let why =
        |error: hyper::Error| conn_state.first_error().cloned().unwrap_or_else(|| connection_error(&error));
    match dialed.protocol {
        Protocol::Http2 => {
            attempt.enter(Stage::Settings);
            let handshake = http2_builder(pool_kind, options, lag_monitor, conn_state).handshake(io);
            let (sender, connection) = handshake.await.map_err(why)?;
            let mut connection = Box::pin(connection);
            let limit = initial_stream_limit(&mut connection, conn_state).await.map_err(why)?;
            let Some(limit) = limit else {
                return Err(conn_state.first_error().cloned().unwrap_or(TransportErrorKind::Eof));
            };
            conn_state.notify_on_poll.store(false, Ordering::Relaxed);
            Ok((Sender::Http2(sender), ConnectionDriver::Http2(connection), limit))
        }
        Protocol::Http1 => {
            let (sender, connection) = http1::Builder::new().handshake(io).await.map_err(why)?;
            let sender = Arc::new(Mutex::new(sender));
            Ok((Sender::Http1(sender.clone()), ConnectionDriver::Http1(Box::pin(connection), sender), 1))
        }
    }
}

fn http2_builder(
    pool_kind: PoolKind,
    options: &TransportOptions,
    lag_monitor: &LagMonitor,
    conn_state: &Arc<ConnectionState>,
) -> http2::Builder<ConnectionExecutor> {
    let stream_window = match pool_kind {
        PoolKind::Watch => WATCH_WINDOW,
        PoolKind::Other => LIST_WINDOW,
    };
    // Unread streams must not be able to use up the connection's window, or they starve the others (fault 9).
    let connection_window = (u64::from(stream_window) * options.max_streams as u64).min(MAX_WINDOW) as u32;
    let pings = PingTimer::new(lag_monitor, conn_state, options.ping_interval, options.ping_timeout);
    let mut builder = http2::Builder::new(ConnectionExecutor(conn_state.clone()));
    builder
        .keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.timeout())
        .timer(pings)
        .keep_alive_while_idle(true)
        .reset_stream_duration(options.reset_memory)
        .initial_max_send_streams(UNKNOWN_LIMIT)
        .max_frame_size(MAX_FRAME_SIZE)
        .initial_stream_window_size(stream_window)
        .initial_connection_window_size(connection_window);
    builder
}

/// Waits for the first SETTINGS; returns `None` if the connection ended before.
async fn initial_stream_limit(
    connection: &mut Pin<Box<Http2Connection>>,
    conn_state: &ConnectionState,
) -> Result<Option<usize>, hyper::Error> {
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended.map(|()| None),
            () = conn_state.task_notify.notified() => {}
        }
        let limit = connection.current_max_send_streams();
        if limit != UNKNOWN_LIMIT {
            return Ok(Some(limit));
        }
    }
}

impl Sender {
    /// Passes the request to hyper, in the form that the protocol requires, and gives up the handle.
    ///
    /// A request that is passed on at the moment in which the connection ends may be left in hyper's channel, where it has an
    /// end only with the last handle. A handle that is kept for the response would wait for itself.
    pub(crate) fn send(self, mut request: Request<Body>) -> Pin<Box<dyn Future<Output = SendResult> + Send>> {
        match self {
            Sender::Http2(mut sender) => Box::pin(sender.try_send_request(request)),
            Sender::Http1(sender) => {
                to_origin_form(&mut request);
                Box::pin(sender.lock().try_send_request(request))
            }
        }
    }
}

/// Converts the request for HTTP/1.1 to an origin server: path in the request line, authority in the `Host` header.
pub(crate) fn to_origin_form(request: &mut Request<Body>) {
    if let Some(authority) = request.uri().authority() {
        // Without user information (RFC 9110, 4.2.4).
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        if let Ok(host) = header::HeaderValue::from_str(host) {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = http::Version::HTTP_11;
}

impl ConnectionDriver {
    /// Runs the connection until it and its tasks have ended. Cancelling `conn_state.kill` ends it at once.
    pub(crate) async fn drive(self, hub: Arc<Hub>, conn_state: Arc<ConnectionState>) {
        match self {
            ConnectionDriver::Http2(connection) => drive_http2(connection, &hub, &conn_state).await,
            ConnectionDriver::Http1(connection, sender) => {
                drive_http1(connection, sender, &hub, &conn_state).await
            }
        }
        conn_state.kill.cancel();
        conn_state.tasks.close();
        conn_state.tasks.wait().await;
        hub.await_readers(&conn_state).await;
        hub.remove_closed(&conn_state);
    }
}

async fn drive_http2(mut connection: Pin<Box<Http2Connection>>, hub: &Hub, conn_state: &ConnectionState) {
    let mut known = connection.current_max_send_streams();
    let ended = {
        let run = poll_fn(|cx| {
            let polled = connection.as_mut().poll(cx);
            if polled.is_pending() {
                let limit = connection.current_max_send_streams();
                if limit != known {
                    known = limit;
                    hub.set_limit(conn_state.id, limit);
                }
            }
            polled
        });
        conn_state.kill.run_until_cancelled(run).await
    };
    drop(connection);
    let Some(ended) = ended else { return };
    // It takes no new streams; open ones continue while the socket lives (GOAWAY, or retired by us).
    hub.closing(conn_state, ended.err().map(|e| connection_error(&e)));
    if matches!(conn_state.first_error(), None | Some(TransportErrorKind::GoAway { .. })) {
        conn_state.tasks.close();
        conn_state.kill.run_until_cancelled(conn_state.tasks.wait()).await;
    }
}

async fn drive_http1(
    mut connection: Pin<Box<http1::Connection<TokioIo<InstrumentedIo>, Body>>>,
    sender: Arc<Mutex<http1::SendRequest<Body>>>,
    hub: &Hub,
    conn_state: &ConnectionState,
) {
    let mut becoming_ready = false;
    let mut ready_timeout = std::pin::pin!(tokio::time::sleep(READY_TIMEOUT));
    loop {
        tokio::select! {
            biased;
            () = conn_state.kill.cancelled() => return,
            ended = connection.as_mut() => {
                hub.closing(conn_state, ended.err().map(|e| connection_error(&e)));
                return;
            }
            // A response is done: wait until hyper accepts the next request.
            () = conn_state.task_notify.notified(), if !becoming_ready => {
                becoming_ready = true;
                ready_timeout.as_mut().reset(Instant::now() + READY_TIMEOUT);
            }
            ready = poll_fn(|cx| match sender.lock().poll_ready(cx) {
                Poll::Ready(ready) => Poll::Ready(ready.is_ok()),
                Poll::Pending => Poll::Pending,
            }), if becoming_ready => {
                becoming_ready = false;
                if ready {
                    hub.set_ready(conn_state.id);
                }
            }
            // The reader dropped the body before its end: a new dial is cheaper than reading the rest.
            () = &mut ready_timeout, if becoming_ready => return hub.closing(conn_state, Some(TransportErrorKind::Outdated)),
        }
    }
}
