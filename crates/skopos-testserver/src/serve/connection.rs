//! Accept loop and serving of connections.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::memory::MemoryStream;
use super::open_connection::OpenConnection;
use super::service::answer;
use crate::connection::ConnectionId;
use crate::faults::{ConnectionControl, FaultyIo, ResettableStream};
use crate::state::ServerState;

/// HTTP versions that the server supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocols {
    #[default]
    Both,
    Http1,
    Http2,
}

/// Front end of the server: accepts and serves connections.
#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) state: Arc<ServerState>,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    protocols: Protocols,
    /// Maximum number of streams of one HTTP/2 connection.
    max_streams: u32,
    last_connection: AtomicU64,
    tasks: TaskTracker,
}

/// W14: the limit of kube-apiserver when its option is 0.
pub(crate) const DEFAULT_MAX_STREAMS: u32 = 100;

/// Timeout after which idle HTTP/1.1 connections are closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Buffer size of an in-memory connection in each direction.
const MEMORY_BUFFER_BYTES: usize = 256 * 1024;

impl HttpServer {
    pub(crate) fn new(
        state: Arc<ServerState>,
        tls: Option<Arc<ServerConfig>>,
        protocols: Protocols,
        max_streams: u32,
    ) -> Self {
        Self {
            state,
            tls: RwLock::new(tls),
            protocols,
            max_streams,
            last_connection: AtomicU64::new(0),
            tasks: TaskTracker::new(),
        }
    }

    /// Accepts connections until `open` is cancelled, which also closes the accepted ones. The port is free again when the task
    /// has ended.
    pub(crate) fn listen(self: &Arc<Self>, listener: TcpListener, open: CancellationToken) -> JoinHandle<()> {
        let http_server = self.clone();
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = open.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        // Small frames must not wait for acknowledgements; if this fails, they are merely delayed.
                        let _ = stream.set_nodelay(true);
                        let tls = http_server.tls.read().clone();
                        http_server.serve(stream, tls, open.clone());
                    }
                    // Out of descriptors, or the client has disconnected already.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
    }

    /// Creates an in-memory connection, served like one over TCP without TLS.
    pub(crate) fn connect(self: &Arc<Self>, open: CancellationToken) -> MemoryStream {
        let (client, server) = tokio::io::duplex(MEMORY_BUFFER_BYTES);
        let control = self.serve(server, None, open);
        MemoryStream::new(client, control)
    }

    /// Uses another certificate for new connections.
    pub(crate) fn set_tls(&self, tls: Option<Arc<ServerConfig>>) {
        *self.tls.write() = tls;
    }

    /// Waits until all tasks have ended; the caller must cancel them first.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Spawns a task beside the connections.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    fn serve<L: ResettableStream>(
        self: &Arc<Self>,
        stream: L,
        tls: Option<Arc<ServerConfig>>,
        open: CancellationToken,
    ) -> Arc<ConnectionControl> {
        let id = ConnectionId(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1);
        let control = self.state.faults.connected(id);
        self.state.activity.notify_waiters();
        let connection = Arc::new(OpenConnection {
            state: self.state.clone(),
            control: control.clone(),
            open: open.clone(),
            tasks: self.tasks.clone(),
        });
        let streams = open.child_token();
        let served =
            self.clone().run(FaultyIo::new(stream, control.clone()), tls, connection, streams.clone());
        let watched = control.clone();
        self.tasks.spawn(async move {
            // Its streams run as separate tasks and end with it.
            let _streams = streams.drop_guard();
            tokio::select! {
                biased;
                () = open.cancelled() => {}
                () = watched.killed() => {}
                () = served => {}
            }
        });
        control
    }

    async fn run<L: ResettableStream>(
        self: Arc<Self>,
        io: FaultyIo<L>,
        tls: Option<Arc<ServerConfig>>,
        connection: Arc<OpenConnection>,
        streams: CancellationToken,
    ) {
        match tls {
            None => self.http(io, connection, streams).await,
            Some(tls) => match TlsAcceptor::from(tls).accept(io).await {
                Ok(io) => self.http(io, connection, streams).await,
                Err(error) => tracing::debug!(%error, "TLS handshake failed"),
            },
        }
    }

    async fn http(
        self: Arc<Self>,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Arc<OpenConnection>,
        streams: CancellationToken,
    ) {
        let control = connection.control.clone();
        let builder = self.http_builder(streams);
        let service = service_fn(move |request| answer(connection.clone(), request));
        let serving = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
        tokio::pin!(serving);
        let ended = tokio::select! {
            biased;
            () = control.go_away_requested() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
            ended = &mut serving => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, connection = %control.id(), "connection failed");
        }
    }

    fn http_builder(&self, streams: CancellationToken) -> auto::Builder<StreamExecutor> {
        let mut builder = auto::Builder::new(StreamExecutor { tasks: self.tasks.clone(), open: streams });
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        let max_streams = self.state.faults.stream_limit().unwrap_or(self.max_streams);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(max_streams);
        match self.protocols {
            Protocols::Both => builder,
            Protocols::Http1 => builder.http1_only(),
            Protocols::Http2 => builder.http2_only(),
        }
    }
}

/// Reserves a loopback port without listening: no other process gets it, and connections are refused. 0 is any port.
pub(crate) fn reserve(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // A restarted server reuses its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

/// Listens on the reserved port.
pub(crate) fn listen(reserved: TcpSocket) -> io::Result<TcpListener> {
    reserved.listen(1024)
}

/// Executor of the streams of an HTTP/2 connection.
#[derive(Clone, Debug)]
struct StreamExecutor {
    tasks: TaskTracker,
    open: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let open = self.open.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = open.cancelled() => {}
                _ = stream => {}
            }
        });
    }
}
