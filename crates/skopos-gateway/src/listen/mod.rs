//! Listener: accepts connections and keeps each within its limits.
//!
//! ```text
//!  accept ─▶ half open ─▶ (TLS) ─▶ HTTP/1.1 or HTTP/2 ─▶ Handler
//!               │                        │
//!               └────── reaper: looks at every connection each second, and closes those that break a limit
//! ```

mod activity;
mod connection;
pub(crate) mod descriptors;
mod framing;
#[cfg(test)]
mod kept_open_tests;
mod reaper;
mod source;
mod tls;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::ConnectionContext;
use self::reaper::ConnectionReaper;
pub(crate) use self::reaper::ListenStats;
pub(crate) use self::source::SourceNetwork;
pub(crate) use self::tls::TlsError;
use self::tls::TlsReloader;
use crate::config::Limits;
use crate::limits::log_limit::LogLimit;
use crate::response::Response;

/// Options of the listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenOptions {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// The certificates; plain HTTP if absent.
    pub tls: Option<TlsFiles>,
    /// True if callers must authenticate.
    pub authenticated: bool,
    /// The limits of clients.
    pub limits: Limits,
}

/// PEM files, which are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The CAs that sign client certificates. Clients without one still connect.
    pub client_ca: Option<PathBuf>,
}

/// The reason why the gateway does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Every client that can reach the address could read every cluster.
    #[error(
        "{address} can be reached from other machines: {missing} must be configured first, or listen on 127.0.0.1"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
        /// TLS, authentication, or both.
        missing: &'static str,
    },
    /// The address is not available.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A handler of requests. Cheap to clone.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn handle(
        &self,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = Response> + Send + 'static;
}

/// The client end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The client's certificate, verified against the configured CAs.
    pub certificate: Option<CertificateDer<'static>>,
    /// True if the connection is encrypted.
    pub tls: bool,
    /// Cancelled when the gateway is about to stop; streams end then.
    pub draining: CancellationToken,
    /// The facts learned from its requests so far.
    pub(crate) record: Arc<PeerRecord>,
}

/// The facts learned from the requests of a connection.
#[derive(Debug, Default)]
pub(crate) struct PeerRecord {
    is_known: AtomicBool,
    token_refused: AtomicBool,
}

/// A bound socket that does not accept yet.
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<TlsReloader>>,
    reaper: Arc<ConnectionReaper>,
    /// The number of descriptors reserved for other uses.
    reserve: Box<dyn Fn() -> usize + Send + Sync>,
}

/// The result of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of connections that were still busy at the drain deadline, and were cut.
    pub cut: usize,
}

impl Peer {
    /// Makes a peer with nothing known but its address.
    pub fn new(address: SocketAddr, tls: bool, draining: CancellationToken) -> Self {
        Self { address, certificate: None, tls, draining, record: Arc::default() }
    }

    /// Returns the network of the peer.
    pub(crate) fn source(&self) -> SourceNetwork {
        self.address.into()
    }
}

impl PeerRecord {
    /// Records a caller who proved an identity.
    pub(crate) fn caller_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Returns whether any caller has proved an identity.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Records whether a token was refused.
    pub(crate) fn token_reviewed(&self, refused: bool) {
        self.token_refused.store(refused, Ordering::Relaxed);
    }

    /// Returns whether the last token was refused.
    pub(crate) fn is_token_refused(&self) -> bool {
        self.token_refused.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// Binds the address.
    ///
    /// # Errors
    /// If the address is not loopback and TLS or authentication is missing, if it is not available, or if a certificate cannot
    /// be used.
    pub(crate) fn bind(options: &ListenOptions) -> Result<Self, ListenError> {
        let address = options.address;
        if !address.ip().is_loopback() {
            let missing = match (&options.tls, options.authenticated) {
                (None, false) => Some("TLS and an authentication"),
                (None, true) => Some("TLS"),
                (Some(_), false) => Some("an authentication"),
                (Some(_), true) => None,
            };
            if let Some(missing) = missing {
                return Err(ListenError::Exposed { address, missing });
            }
        }
        let tls = options.tls.clone().map(TlsReloader::load).transpose()?.map(Arc::new);
        let bound = |error| ListenError::Bind { address, error };
        let socket = listen(address).map_err(bound)?;
        let address = socket.local_addr().map_err(bound)?;
        let reserve = Box::new(|| descriptors::reserve(0, 0));
        Ok(Self { socket, address, tls, reaper: ConnectionReaper::new(options.limits.clone()), reserve })
    }

    /// Keeps as many file descriptors free as `reserve` returns, which is called repeatedly.
    pub(crate) fn reserving(mut self, reserve: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.reserve = Box::new(reserve);
        self
    }

    /// Returns the address, with the port that was chosen.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters, for metrics.
    pub(crate) fn stats(&self) -> ListenStats {
        ListenStats::new(self.reaper.clone())
    }

    /// Serves until cancelled. Then answers get their time to end, and the remaining connections are cut. When this returns,
    /// all connections and tasks have ended. If dropped before, it cuts all of them without waiting.
    pub(crate) async fn run(self, handler: impl Handler, stop: CancellationToken) -> Drained {
        let limits = self.reaper.limits().clone();
        let tasks = TaskTracker::new();
        let draining = CancellationToken::new();
        let cut = CancellationToken::new();
        let _dropped = cut.clone().drop_guard();
        let context = Arc::new(ConnectionContext {
            handler,
            reaper: self.reaper.clone(),
            tls: self.tls.clone(),
            tasks: tasks.clone(),
            draining: draining.clone(),
            cut: cut.clone(),
        });
        tasks.spawn(self.reaper.clone().run(cut.clone()));
        if let Some(tls) = &self.tls {
            let reaper = self.reaper.clone();
            tasks.spawn(tls.clone().follow(cut.clone(), move |settings| reaper.recheck(settings)));
        }
        let limit = descriptors::limit();
        let configured = limits.connections as usize;
        let permitted = || descriptors::connections(limit, (self.reserve)(), configured);
        if permitted() < configured {
            let (open_files, permitted) = (limit, permitted());
            tracing::warn!(
                open_files,
                permitted,
                configured,
                "the limit of open files permits fewer connections than listen.limits.connections: raise it (ulimit -n, LimitNOFILE)"
            );
        }
        stop.run_until_cancelled(accept(&self.socket, &context, permitted)).await;
        drop(self.socket);
        draining.cancel();
        let _ = tokio::time::timeout(limits.drain.0, self.reaper.wait_until_empty()).await;
        let left = self.reaper.connections();
        cut.cancel();
        tasks.close();
        tasks.wait().await;
        Drained { cut: left }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A [`Listener`] of connections in memory, for tests on virtual time.
#[cfg(test)]
pub(crate) struct InMemory<H> {
    context: Arc<ConnectionContext<H>>,
}

#[cfg(test)]
impl<H: Handler> InMemory<H> {
    pub(crate) fn new(handler: H, limits: Limits) -> Self {
        Self::over(handler, limits, None)
    }

    pub(crate) fn with_tls(handler: H, limits: Limits, files: TlsFiles) -> Self {
        Self::over(handler, limits, Some(Arc::new(TlsReloader::load(files).unwrap())))
    }

    fn over(handler: H, limits: Limits, tls: Option<Arc<TlsReloader>>) -> Self {
        let context = ConnectionContext {
            handler,
            reaper: ConnectionReaper::new(limits),
            tls,
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        context.tasks.spawn(context.reaper.clone().run(context.cut.clone()));
        if let Some(tls) = &context.tls {
            let reaper = context.reaper.clone();
            context
                .tasks
                .spawn(tls.clone().follow(context.cut.clone(), move |settings| reaper.recheck(settings)));
        }
        Self { context: Arc::new(context) }
    }

    pub(crate) fn connect(&self) -> tokio::io::DuplexStream {
        let (near, far) = tokio::io::duplex(4 * 1024);
        self.context.clone().serve(far, SocketAddr::from(([127, 0, 0, 1], 999)));
        near
    }

    pub(crate) fn connections(&self) -> usize {
        self.context.reaper.connections()
    }

    /// Returns how many connections were closed for exceeding a limit.
    pub(crate) fn closed(&self) -> u64 {
        ListenStats::new(self.context.reaper.clone()).closed().map(|(_, count)| count).sum()
    }

    /// Drains all connections without cutting any.
    pub(crate) async fn drain(&self) {
        self.context.draining.cancel();
        self.context.reaper.wait_until_empty().await;
    }
}

/// Accepts connections without end. Beyond the limit, connections wait in the system's backlog.
async fn accept<H: Handler>(
    socket: &TcpListener,
    context: &Arc<ConnectionContext<H>>,
    permitted: impl Fn() -> usize,
) {
    /// The pause when descriptors or memory are exhausted, so that other connections can end.
    const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
    let log = LogLimit::new(Duration::from_secs(60));
    // After descriptor exhaustion fewer connections fit than computed.
    let mut scarce = usize::MAX;
    loop {
        context.reaper.make_room(|| permitted().min(scarce)).await;
        match socket.accept().await {
            Ok((stream, address)) => {
                scarce = scarce.saturating_add(1);
                // Small frames must not wait for acknowledgements. If this fails, they are only slower.
                let _ = stream.set_nodelay(true);
                context.clone().serve(stream, address);
            }
            Err(error) if descriptors::is_exhausted(&error) => {
                let connections = context.reaper.connections();
                if log.permits() {
                    tracing::warn!(%error, connections, "out of file descriptors: idle connections are closed, and others wait. Raise the limit (ulimit -n, LimitNOFILE)");
                }
                scarce = connections.max(1);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted gateway can bind its port again at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}
