//! In-memory server, and pipes to it that can be cut, frozen or refused.
#![allow(dead_code, reason = "each test file uses its part")]

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use skopos_transport::{
    DialAttempt, Dialed, Protocol, Transport, TransportBody, TransportError, TransportErrorKind,
    TransportOptions, dialer_fn,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The behavior of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A server responds.
    Serve,
    /// No server listens.
    Refuse,
    /// The SYN is lost.
    Silent,
    /// The connection is accepted, and then no bytes ever come.
    Mute,
    /// The connection is accepted and closed at once.
    Hangup,
}

/// The server, its network, and a record of its requests.
#[derive(Clone)]
pub(crate) struct Bench {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    tasks: TaskTracker,
    events: broadcast::Sender<Bytes>,
    begin: Instant,
}

struct State {
    mode: Mode,
    protocol: Protocol,
    max_streams: Option<u32>,
    dials: Vec<Duration>,
    pipes: Vec<Pipe>,
    requests: Vec<Seen>,
    open_watches: usize,
    /// The `Authorization` that the server accepts; `None` if it does not check.
    token: Option<String>,
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) pipe: usize,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
}

/// One connection, seen from the network.
#[derive(Clone)]
pub(crate) struct Pipe {
    valve: Arc<Mutex<Valve>>,
    /// Ends the server's side with a FIN.
    server: CancellationToken,
    go_away: CancellationToken,
}

#[derive(Default)]
struct Valve {
    frozen: bool,
    reset: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    mode: Mode::Serve,
                    protocol: Protocol::Http2,
                    max_streams: Some(250),
                    dials: Vec::new(),
                    pipes: Vec::new(),
                    requests: Vec::new(),
                    open_watches: 0,
                    token: None,
                }),
                tasks: TaskTracker::new(),
                events: broadcast::channel(64).0,
                begin: Instant::now(),
            }),
        }
    }

    pub(crate) fn http1() -> Self {
        let bench = Self::new();
        bench.inner.state.lock().protocol = Protocol::Http1;
        bench
    }

    pub(crate) fn with_max_streams(max: impl Into<Option<u32>>) -> Self {
        let bench = Self::new();
        bench.inner.state.lock().max_streams = max.into();
        bench
    }

    pub(crate) fn options() -> TransportOptions {
        TransportOptions { seed: Some(1), wall_clock: None, ..Default::default() }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport_with(Self::options())
    }

    pub(crate) fn transport_with(&self, options: TransportOptions) -> Transport {
        self.transport_of(kube::Config::new("http://cluster.test:8080/".parse().unwrap()), options)
    }

    pub(crate) fn transport_of(&self, config: kube::Config, options: TransportOptions) -> Transport {
        let inner = self.inner.clone();
        let dialer = dialer_fn(move |attempt| inner.clone().dial(attempt));
        Transport::with_dialer(config, options, dialer).unwrap()
    }

    pub(crate) fn mode(&self, mode: Mode) {
        self.inner.state.lock().mode = mode;
    }

    pub(crate) fn token(&self, token: &str) {
        self.inner.state.lock().token = Some(format!("Bearer {token}"));
    }

    /// Returns the start times of the dials, since the bench was made.
    pub(crate) fn dials(&self) -> Vec<Duration> {
        self.inner.state.lock().dials.clone()
    }

    pub(crate) fn pipes(&self) -> Vec<Pipe> {
        self.inner.state.lock().pipes.clone()
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.inner.state.lock().requests.clone()
    }

    /// Sends an event to all watches.
    pub(crate) fn event(&self, text: &'static str) {
        let _ = self.inner.events.send(Bytes::from_static(text.as_bytes()));
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.inner.begin.elapsed()
    }

    /// Returns the number of running server tasks: one per connection.
    pub(crate) fn open(&self) -> usize {
        self.inner.tasks.len()
    }
}

impl Pipe {
    /// Drops all bytes in both directions from now on, silently.
    pub(crate) fn freeze(&self) {
        self.valve.lock().frozen = true;
    }

    pub(crate) fn reset(&self) {
        let mut valve = self.valve.lock();
        valve.reset = true;
        if let Some(waker) = valve.waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn fin(&self) {
        self.server.cancel();
    }

    pub(crate) fn go_away(&self) {
        self.go_away.cancel();
    }

    /// Returns whether the client has dropped its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.valve.lock().closed
    }
}

impl Inner {
    async fn dial(self: Arc<Self>, _attempt: DialAttempt) -> Result<Dialed, TransportErrorKind> {
        let (mode, protocol) = {
            let mut state = self.state.lock();
            state.dials.push(self.begin.elapsed());
            (state.mode, state.protocol)
        };
        match mode {
            Mode::Refuse => {
                return Err(TransportErrorKind::Refused {
                    to: "cluster.test".into(),
                    reason: "refused".into(),
                });
            }
            Mode::Silent => std::future::pending().await,
            Mode::Serve | Mode::Mute | Mode::Hangup => {}
        }
        let (client, server) = tokio::io::duplex(64 * 1024);
        let pipe = Pipe {
            valve: Arc::default(),
            server: CancellationToken::new(),
            go_away: CancellationToken::new(),
        };
        let number = {
            let mut state = self.state.lock();
            state.pipes.push(pipe.clone());
            state.pipes.len() - 1
        };
        match mode {
            Mode::Serve => {
                self.tasks.spawn(self.clone().serve(server, number, pipe.clone(), protocol));
            }
            Mode::Mute => {
                let cut = pipe.server.clone();
                self.tasks.spawn(async move {
                    cut.cancelled().await;
                    drop(server);
                });
            }
            _ => drop(server),
        }
        Ok(Dialed::new(ClientEnd { inner: client, valve: pipe.valve }, protocol))
    }

    async fn serve(self: Arc<Self>, io: DuplexStream, number: usize, pipe: Pipe, protocol: Protocol) {
        let this = self.clone();
        let service =
            service_fn(move |request| this.clone().answer(number, request).map(Ok::<_, Infallible>));
        let io = TokioIo::new(io);
        match protocol {
            Protocol::Http2 => {
                let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                builder.timer(TokioTimer::new()).max_concurrent_streams(self.state.lock().max_streams);
                let mut connection = Box::pin(builder.serve_connection(io, service));
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = pipe.server.cancelled() => {}
                    () = pipe.go_away.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        let _ = pipe.server.run_until_cancelled(connection).await;
                    }
                }
            }
            Protocol::Http1 => {
                let connection = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
                let _ = pipe.server.run_until_cancelled(connection).await;
            }
        }
    }

    async fn answer(
        self: Arc<Self>,
        pipe: usize,
        request: Request<Incoming>,
    ) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let path = request.uri().path_and_query().unwrap().to_string();
        let name = path.rsplit('/').next().unwrap_or_default();
        let refused = {
            let mut state = self.state.lock();
            let headers = request.headers().clone();
            let refused = state
                .token
                .as_ref()
                .is_some_and(|t| headers.get(header::AUTHORIZATION).is_none_or(|a| a != t));
            state.requests.push(Seen { pipe, path: path.clone(), headers });
            // As a kube-apiserver does with each 401.
            if refused || name == "farewell" {
                state.pipes[pipe].go_away();
            }
            refused
        };
        if refused {
            let mut response = Response::new(full("{}"));
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            return response;
        }
        if path.contains("watch=true") {
            return Response::new(self.watch());
        }
        match name {
            "hang" => std::future::pending().await,
            "slow" => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Response::new(full("slow"))
            }
            // A byte every three seconds.
            "loris" => Response::new(streamed(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Some((Ok(Frame::data(Bytes::from_static(b"x"))), ()))
            }))),
            // Data every five seconds without end: progress, but no end.
            "endless" => Response::new(streamed(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Some((Ok(Frame::data(Bytes::from(vec![b'x'; 2048]))), ()))
            }))),
            // The last response of this connection.
            "farewell" => {
                let mut response = Response::new(full(&path));
                response.headers_mut().insert(header::CONNECTION, "close".parse().unwrap());
                response
            }
            "big" => Response::new(full(&"x".repeat(8 << 20))),
            "broken" => Response::new(streamed(
                stream::iter([Ok(Frame::data(Bytes::from_static(b"half")))]).chain(stream::once(async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Err(io::Error::other("broken"))
                })),
            )),
            "redirect" => {
                let mut response = Response::new(full(""));
                *response.status_mut() = StatusCode::FOUND;
                response.headers_mut().insert(header::LOCATION, "https://evil.test/".parse().unwrap());
                response
            }
            "zipped" => {
                let mut response = Response::new(full("\u{1f}\u{8b}"));
                response.headers_mut().insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
                response
            }
            _ => Response::new(full(&path)),
        }
    }

    fn watch(self: Arc<Self>) -> UnsyncBoxBody<Bytes, io::Error> {
        self.state.lock().open_watches += 1;
        let open = OpenWatch(self.clone());
        streamed(stream::unfold((self.events.subscribe(), open), |(mut events, open)| async {
            let event = events.recv().await.ok()?;
            Some((Ok(Frame::data(event)), (events, open)))
        }))
    }
}

struct OpenWatch(Arc<Inner>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.state.lock().open_watches -= 1;
    }
}

fn full(text: &str) -> UnsyncBoxBody<Bytes, io::Error> {
    Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync()
}

fn streamed(
    frames: impl stream::Stream<Item = io::Result<Frame<Bytes>>> + Send + 'static,
) -> UnsyncBoxBody<Bytes, io::Error> {
    StreamBody::new(frames).boxed_unsync()
}

/// The client's end of a pipe, behind a valve.
struct ClientEnd {
    inner: DuplexStream,
    valve: Arc<Mutex<Valve>>,
}

impl ClientEnd {
    fn check(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut valve = self.valve.lock();
        if valve.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        valve.waker = Some(cx.waker().clone());
        if valve.frozen { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.valve.lock().closed = true;
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.check(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_read(cx, buf),
            other => other,
        }
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (frozen, reset) = {
            let valve = self.valve.lock();
            (valve.frozen, valve.reset)
        };
        match (reset, frozen) {
            (true, _) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            // Lost on the way.
            (_, true) => Poll::Ready(Ok(buf.len())),
            _ => Pin::new(&mut self.inner).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(crate) fn post(path: &str) -> Request<Body> {
    Request::post(path).body(Body::from(Bytes::from_static(b"{}"))).unwrap()
}

pub(crate) const WATCH: &str = "/api/v1/pods?watch=true";
pub(crate) const READ: &str = "/version";

/// Returns a response's whole body.
pub(crate) async fn text(response: Response<TransportBody>) -> Result<String, TransportError> {
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Sends a request and reads all of its response.
pub(crate) async fn ask(transport: &Transport, path: &str) -> Result<String, TransportError> {
    text(transport.send(get(path)).await?).await
}

/// Returns the next piece of a body.
pub(crate) async fn next(body: &mut TransportBody) -> Option<Result<Bytes, TransportError>> {
    body.frame().await.map(|frame| frame.map(|f| f.into_data().unwrap_or_default()))
}
