//! How a connection comes into being, as a trait: sockets in life, pipes in memory in tests and simulations.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::error::Death;

/// Makes connections: resolves the name anew each time, tries all addresses, sets up TLS.
///
/// The transport bounds every dial by its connect deadline and drops the future then; it never runs more dials than its
/// backoff admits. [`dialer_fn`] makes one of a closure.
pub trait Dialer: Send + Sync + 'static {
    /// One attempt.
    fn dial(&self, attempt: DialAttempt) -> BoxFuture<'static, Result<Dialed, Death>>;

    /// A dial failed, or what it gave died before it was of any use. What was kept for it (certificates) may be wrong.
    fn failed(&self, _death: &Death) {}

    /// The server answered 401 on a connection from here: looks whether it would know us better on a new one, and says so of
    /// those that stand ([`Dialed::superseded_by`]). Called for every 401, and waited for no longer than 5 s.
    fn rejected(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A [`Dialer`] of a closure.
pub fn dialer_fn<F, Fut>(dial: F) -> Arc<dyn Dialer>
where
    F: Fn(DialAttempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Dialed, Death>> + Send + 'static,
{
    Arc::new(DialerFn(dial))
}

struct DialerFn<F>(F);

impl<F, Fut> Dialer for DialerFn<F>
where
    F: Fn(DialAttempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Dialed, Death>> + Send + 'static,
{
    fn dial(&self, attempt: DialAttempt) -> BoxFuture<'static, Result<Dialed, Death>> {
        Box::pin((self.0)(attempt))
    }
}

/// One attempt to connect, and how far it has come.
#[derive(Clone, Debug)]
pub struct DialAttempt {
    uri: http::Uri,
    number: u64,
    rhythm: Duration,
    http1_only: bool,
    stage: Arc<AtomicUsize>,
}

/// What [`DialAttempt::stage`] may say.
const STAGES: [&str; 9] = [
    "start",
    "certificates",
    "name resolution",
    "tcp",
    "proxy name resolution",
    "proxy tcp",
    "proxy",
    "tls",
    "http/2 settings",
];

impl DialAttempt {
    pub(crate) fn new(uri: http::Uri, number: u64, rhythm: Duration) -> Self {
        Self { uri, number, rhythm, http1_only: false, stage: Arc::default() }
    }

    /// For a connection that is to become one of another protocol.
    pub(crate) fn over_http1(self) -> Self {
        Self { http1_only: true, ..self }
    }

    /// The cluster's URL.
    pub fn uri(&self) -> &http::Uri {
        &self.uri
    }

    /// Counts the dials of this transport, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How often a server that does not answer may be tried again within this attempt.
    pub fn rhythm(&self) -> Duration {
        self.rhythm
    }

    /// Nothing but HTTP/1.1 is of use: nothing else may be offered to the server.
    pub fn http1_only(&self) -> bool {
        self.http1_only
    }

    /// Remembers how far the attempt has come, for the error if it gets stuck there.
    pub(crate) fn enter(&self, stage: Stage) {
        // The furthest of those that run side by side.
        self.stage.fetch_max(stage as usize, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> &'static str {
        STAGES[self.stage.load(Ordering::Relaxed)]
    }
}

/// How far a dial has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Reading files, or waiting for an exec plugin.
    Certificates = 1,
    Resolve = 2,
    Tcp = 3,
    // In place of the two above.
    ProxyResolve = 4,
    ProxyTcp = 5,
    /// Until the proxy has connected to the server; TLS with the proxy is a part of it.
    Proxy = 6,
    Tls = 7,
    Settings = 8,
}

/// A byte stream in both directions. Implemented for everything that can be one.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// What a [`Dialer`] gives.
pub struct Dialed {
    pub(crate) io: Box<dyn Io>,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Arc<str>,
    pub(crate) superseded: CancellationToken,
}

impl Dialed {
    /// A standing connection; `protocol` is what ALPN chose, or what is known beforehand.
    pub fn new(io: impl Io, protocol: Protocol) -> Self {
        let superseded = CancellationToken::new();
        Self { io: Box::new(io), protocol, peer: "in memory".into(), superseded }
    }

    /// Names the other end, for stats.
    pub fn with_peer(mut self, peer: impl fmt::Display) -> Self {
        self.peer = peer.to_string().into();
        self
    }

    /// When `token` is cancelled the connection takes no more requests, because a new one is to be preferred. Those that are
    /// on it go on.
    pub fn superseded_by(mut self, token: CancellationToken) -> Self {
        self.superseded = token;
        self
    }
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialed").field("protocol", &self.protocol).field("peer", &self.peer).finish()
    }
}

/// The version of HTTP on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// One request at a time, no PING.
    Http1,
    /// Many at once.
    Http2,
}
