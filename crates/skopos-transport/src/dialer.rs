//! Connection setup as a trait: sockets in production, in-memory pipes in tests and simulations.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::error::TransportErrorKind;

/// Makes connections: resolves the name for each dial, tries all addresses, sets up TLS.
///
/// The transport bounds every dial by its connect deadline and then drops the future; it never runs more dials than its
/// backoff admits. [`dialer_fn`] creates a dialer from a closure.
pub trait Dialer: Send + Sync + 'static {
    /// Makes one attempt.
    fn dial(&self, attempt: DialAttempt) -> BoxFuture<'static, Result<Dialed, TransportErrorKind>>;

    /// Reports that a dial failed, or that its connection died before any response. Cached data (certificates) may be
    /// wrong.
    fn failed(&self, _error_kind: &TransportErrorKind) {}

    /// Reports a 401 on a connection of this dialer. The dialer checks whether a new connection would have other
    /// credentials, and if so supersedes the open ones ([`Dialed::superseded_by`]). Called for every 401; the caller waits
    /// for at most 5 s.
    fn rejected(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Creates a [`Dialer`] from a closure.
pub fn dialer_fn<F, Fut>(dial: F) -> Arc<dyn Dialer>
where
    F: Fn(DialAttempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Dialed, TransportErrorKind>> + Send + 'static,
{
    Arc::new(DialerFn(dial))
}

struct DialerFn<F>(F);

impl<F, Fut> Dialer for DialerFn<F>
where
    F: Fn(DialAttempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Dialed, TransportErrorKind>> + Send + 'static,
{
    fn dial(&self, attempt: DialAttempt) -> BoxFuture<'static, Result<Dialed, TransportErrorKind>> {
        Box::pin((self.0)(attempt))
    }
}

/// An attempt to connect, and its progress.
#[derive(Clone, Debug)]
pub struct DialAttempt {
    uri: http::Uri,
    number: u64,
    rhythm: Duration,
    http1_only: bool,
    stage: Arc<AtomicUsize>,
}

/// The values of [`DialAttempt::stage`].
const STAGES: [&str; 10] = [
    "start",
    "certificates",
    "name resolution",
    "tcp",
    "proxy name resolution",
    "proxy tcp",
    "proxy",
    "the way to it",
    "tls",
    "http/2 settings",
];

impl DialAttempt {
    pub(crate) fn new(uri: http::Uri, number: u64, rhythm: Duration) -> Self {
        Self { uri, number, rhythm, http1_only: false, stage: Arc::default() }
    }

    /// Restricts the attempt to HTTP/1.1, for a connection that will switch to another protocol.
    pub(crate) fn over_http1(self) -> Self {
        Self { http1_only: true, ..self }
    }

    /// Returns the cluster's URL.
    pub fn uri(&self) -> &http::Uri {
        &self.uri
    }

    /// Returns the number of this dial in its transport, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the interval between tries of a silent server within this attempt.
    pub fn rhythm(&self) -> Duration {
        self.rhythm
    }

    /// Returns whether the dialer must offer only HTTP/1.1 to the server.
    pub fn http1_only(&self) -> bool {
        self.http1_only
    }

    /// Records the stage that the attempt has reached, for the error if it times out there.
    pub(crate) fn enter(&self, stage: Stage) {
        // The furthest stage of concurrent tries.
        self.stage.fetch_max(stage as usize, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> &'static str {
        STAGES[self.stage.load(Ordering::Relaxed)]
    }
}

/// The stage of a dial.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Reading files, or waiting for an exec plugin.
    Certificates = 1,
    Resolve = 2,
    Tcp = 3,
    // These replace the two above.
    ProxyResolve = 4,
    ProxyTcp = 5,
    /// Until the proxy has connected to the server; includes TLS with the proxy.
    Proxy = 6,
    /// Until the way other than TCP is open.
    Via = 7,
    Tls = 8,
    Settings = 9,
}

/// A byte stream in both directions. Implemented for every type that can be one.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// The connection that a [`Dialer`] returns.
pub struct Dialed {
    pub(crate) io: Box<dyn Io>,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Arc<str>,
    pub(crate) superseded: CancellationToken,
}

impl Dialed {
    /// Creates an established connection; `protocol` is ALPN's choice, or known beforehand.
    pub fn new(io: impl Io, protocol: Protocol) -> Self {
        let superseded = CancellationToken::new();
        Self { io: Box::new(io), protocol, peer: "in memory".into(), superseded }
    }

    /// Sets the name of the other end, for stats.
    #[must_use]
    pub fn with_peer(mut self, peer: impl fmt::Display) -> Self {
        self.peer = peer.to_string().into();
        self
    }

    /// Makes the connection take no more requests once `token` is cancelled, because a new one is preferable. Requests on
    /// it continue.
    #[must_use]
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
    /// HTTP/1.1: one request at a time, no PING.
    Http1,
    /// HTTP/2: many requests at once.
    Http2,
}
