//! Errors: one typed reason for connections, calls and bodies.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::class::ConnectionId;
use crate::proxy::ProxyFault;

/// The error of a call, or of the body of its response.
///
/// All requests on a connection that died get the same [`TransportErrorKind`] inside.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}")]
pub struct TransportError {
    kind: TransportErrorKind,
    connection: Option<ConnectionId>,
}

impl TransportError {
    pub(crate) fn new(kind: TransportErrorKind, connection: Option<ConnectionId>) -> Self {
        Self { kind, connection }
    }

    /// Returns the reason.
    pub fn kind(&self) -> &TransportErrorKind {
        &self.kind
    }

    /// Returns the request's connection, if it got that far.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// Returns the party at fault, so that a caller knows whether a retry can help.
    pub fn fault(&self) -> Fault {
        self.kind.fault()
    }

    /// Returns whether the transport was shut down: no later call will succeed either.
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, TransportErrorKind::Closed)
    }
}

impl From<TransportErrorKind> for TransportError {
    fn from(kind: TransportErrorKind) -> Self {
        Self::new(kind, None)
    }
}

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The server: it responded wrongly or too late, or closed. A retry may help.
    Server,
    /// The network: the path to the server is broken, or no server listens. A later retry may help.
    Network,
    /// The caller: configuration or request is wrong, or the caller ended it. An unchanged retry does not help.
    Caller,
}

/// The reason for the end of a connection, a dial or a single request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// A server name that could not be resolved.
    #[error("cannot resolve {host}: {reason}")]
    Dns {
        /// The name.
        host: Arc<str>,
        /// The resolver's message.
        reason: Arc<str>,
    },
    /// A refused connection: the server's machine is up, but no server listens (or the network rejects at once).
    #[error("connection refused by {to}: {reason}")]
    Refused {
        /// The address or host that refused.
        to: Arc<str>,
        /// The operating system's message.
        reason: Arc<str>,
    },
    /// A server whose addresses are all denied by the address rules
    /// ([`TransportOptions::addresses`](crate::TransportOptions)).
    #[error("{address} may not be connected to: {reason}")]
    AddressDenied {
        /// The last denied address.
        address: IpAddr,
        /// The reason.
        reason: Arc<str>,
    },
    /// A proxy failure. A proxy that accepts and stays silent causes a [`TransportErrorKind::ConnectTimeout`].
    #[error("proxy {proxy}: {fault}")]
    Proxy {
        /// The proxy's URL without user and password.
        proxy: Arc<str>,
        /// The failure.
        fault: ProxyFault,
    },
    /// A way other than TCP that does not lead to the server.
    #[error("{via}: {reason}")]
    Via {
        /// The name of the way.
        via: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// A parked transport ([`Transport::park`](crate::Transport::park)), which does not dial.
    #[error("not connecting: {0}")]
    Parked(Arc<str>),
    /// No connection within the deadline: TCP, the proxy, TLS and the first HTTP/2 SETTINGS together.
    #[error("no connection within {after:?} (stuck at {stage})")]
    ConnectTimeout {
        /// The deadline that passed.
        after: Duration,
        /// The stage that it reached: `certificates` (files or an exec plugin), `name resolution`, `tcp`, `tls`,
        /// `http/2 settings`. With a proxy, `proxy name resolution`, `proxy tcp` and `proxy` (its response) come before `tls`.
        stage: &'static str,
    },
    /// A failure to set up TLS.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFault),
    /// An HTTP/2 PING (or TCP keep-alive probe) without a timely answer: the connection was silently dead.
    #[error("connection silent: no answer to a PING")]
    PingTimeout,
    /// A reset of the connection.
    #[error("connection reset: {0}")]
    Reset(Arc<str>),
    /// A connection that the server closed, also in the middle of a message.
    #[error("connection closed by the server")]
    Eof,
    /// The server's notice that it takes no more requests on this connection (HTTP/2 GOAWAY).
    #[error("connection retired by the server (GOAWAY {code})")]
    GoAway {
        /// The name of the HTTP/2 error code, `NO_ERROR` for a graceful end.
        code: Arc<str>,
    },
    /// No response headers in time. The connection takes no more requests.
    #[error("no response headers within {after:?}")]
    HeadersDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// A body without progress. The connection takes no more requests.
    #[error("response body made no progress within {after:?}")]
    ProgressDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// A response that took too long as a whole. The connection takes no more requests.
    #[error("response body not complete within {after:?}")]
    BodyDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// The expired deadline that the caller set with [`RequestOptions`](crate::RequestOptions).
    #[error("no answer within {after:?}{}", Because(.because))]
    CallerDeadline {
        /// The deadline that passed.
        after: Duration,
        /// The obstacle, if known.
        because: Option<Arc<TransportErrorKind>>,
    },
    /// A violation of HTTP by the peer.
    #[error("protocol: {0}")]
    Protocol(Arc<str>),
    /// A failed dial before this call: the next one is not due yet.
    #[error("not connected, next attempt in {}; last: {last}", In(*.until))]
    BackingOff {
        /// The time when the next dial is due.
        until: Instant,
        /// The error of the last dial.
        last: Arc<TransportErrorKind>,
    },
    /// A single stream that the server reset; the connection lives on.
    #[error("stream reset by the server: {code}")]
    StreamReset {
        /// The name of the HTTP/2 error code.
        code: Arc<str>,
    },
    /// Response headers larger than the limit.
    #[error("too large: {0}")]
    TooLarge(Arc<str>),
    /// A redirect to another URL. Never followed (CVE-2020-8559, CVE-2022-3172).
    #[error("redirect refused: the server answered {status} with location {location:?}")]
    Redirected {
        /// The status, such as 302.
        status: u16,
        /// The target, as the server wrote it.
        location: Arc<str>,
    },
    /// A compressed body that the caller did not request.
    #[error("response body is encoded as {encoding:?}, which was not asked for")]
    UnaskedEncoding {
        /// The content of `Content-Encoding`.
        encoding: Arc<str>,
    },
    /// Credentials that could not be obtained: token file, exec plugin, provider.
    #[error("credentials: {0}")]
    Auth(Arc<str>),
    /// No free stream on any allowed connection.
    #[error("all {connections} connections are full; raise max_connections")]
    Exhausted {
        /// The number of connections.
        connections: usize,
    },
    /// A suspend of the machine or a pause of the VM: the state of the connection is unknown.
    #[error("clock jumped by {by:?}: suspend or VM pause")]
    Suspended {
        /// The time by which the wall clock ran ahead of the monotonic one.
        by: Duration,
    },
    /// No more file descriptors in the process (EMFILE, ENFILE), or no memory for sockets.
    #[error("out of resources: {0}")]
    Resources(Arc<str>),
    /// A request that cannot be sent: no path, an upgrade, a bad header.
    #[error("bad request: {0}")]
    Request(Arc<str>),
    /// The caller's request to retire this connection.
    #[error("connection retired by the caller: {0}")]
    Distrusted(Arc<str>),
    /// A connection that was too old, idle for too long, or made with a client certificate that has been replaced since. No
    /// request fails with it.
    #[error("connection outdated")]
    Outdated,
    /// The shutdown of the transport.
    #[error("transport is shut down")]
    Closed,
}

impl TransportErrorKind {
    /// Returns the party at fault.
    pub fn fault(&self) -> Fault {
        use TransportErrorKind::*;
        match self {
            Dns { .. }
            | Refused { .. }
            | Via { .. }
            | ConnectTimeout { .. }
            | PingTimeout
            | Reset(_)
            | Eof => Fault::Network,
            Suspended { .. } | Distrusted(_) | Outdated | Parked(_) => Fault::Network,
            BackingOff { last, .. } => last.fault(),
            Tls(fault) => fault.fault(),
            Proxy { fault, .. } => fault.fault(),
            GoAway { .. } | HeadersDeadline { .. } | ProgressDeadline { .. } | BodyDeadline { .. } => {
                Fault::Server
            }
            Protocol(_) | StreamReset { .. } | TooLarge(_) | Redirected { .. } | UnaskedEncoding { .. } => {
                Fault::Server
            }
            CallerDeadline { .. }
            | AddressDenied { .. }
            | Auth(_)
            | Exhausted { .. }
            | Resources(_)
            | Request(_)
            | Closed => Fault::Caller,
        }
    }

    /// Returns a short stable name for metrics and logs, such as `ping_timeout`.
    pub fn label(&self) -> &'static str {
        use TransportErrorKind::*;
        match self {
            Dns { .. } => "dns",
            Refused { .. } => "refused",
            AddressDenied { .. } => "address_denied",
            Proxy { fault, .. } => fault.kind(),
            Via { .. } => "via",
            Parked(_) => "parked",
            ConnectTimeout { .. } => "connect_timeout",
            Tls(TlsFault::Untrusted(_)) => "tls_untrusted",
            Tls(TlsFault::Expired(_)) => "tls_expired",
            Tls(TlsFault::ClientCertificate(_)) => "tls_client_certificate",
            Tls(TlsFault::Other(_)) => "tls",
            PingTimeout => "ping_timeout",
            Reset(_) => "reset",
            Eof => "eof",
            GoAway { .. } => "go_away",
            HeadersDeadline { .. } => "headers_deadline",
            ProgressDeadline { .. } => "progress_deadline",
            BodyDeadline { .. } => "body_deadline",
            CallerDeadline { .. } => "caller_deadline",
            Protocol(_) => "protocol",
            BackingOff { .. } => "backing_off",
            StreamReset { .. } => "stream_reset",
            TooLarge(_) => "too_large",
            Redirected { .. } => "redirected",
            UnaskedEncoding { .. } => "unasked_encoding",
            Auth(_) => "auth",
            Exhausted { .. } => "exhausted",
            Suspended { .. } => "suspended",
            Resources(_) => "resources",
            Request(_) => "request",
            Distrusted(_) => "distrusted",
            Outdated => "outdated",
            Closed => "closed",
        }
    }

    /// Returns the error of the last dial for a [`TransportErrorKind::BackingOff`]; otherwise itself.
    pub fn root(&self) -> &TransportErrorKind {
        match self {
            TransportErrorKind::BackingOff { last, .. } => last.root(),
            other => other,
        }
    }

    pub(crate) fn request(reason: impl fmt::Display) -> Self {
        TransportErrorKind::Request(reason.to_string().into())
    }

    pub(crate) fn protocol(reason: impl fmt::Display) -> Self {
        TransportErrorKind::Protocol(reason.to_string().into())
    }

    /// Converts an error of an established connection's socket.
    pub(crate) fn from_socket_error(error: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        match error.kind() {
            UnexpectedEof => TransportErrorKind::Eof,
            TimedOut => TransportErrorKind::PingTimeout,
            // rustls reports a corrupt record or an alert in the middle of a connection this way.
            InvalidData => TlsFault::from_io_error(error).into(),
            _ => TransportErrorKind::Reset(error.to_string().into()),
        }
    }

    /// Converts an error of connecting a socket.
    pub(crate) fn from_connect_error(to: SocketAddr, error: &std::io::Error) -> Self {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match error.raw_os_error() {
            Some(ENFILE | EMFILE) => return TransportErrorKind::Resources(error.to_string().into()),
            _ if error.kind() == std::io::ErrorKind::OutOfMemory => {
                return TransportErrorKind::Resources(error.to_string().into());
            }
            _ => {}
        }
        TransportErrorKind::Refused { to: to.to_string().into(), reason: error.to_string().into() }
    }
}

/// The reason why TLS could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// A server certificate that is not signed by the configured CA, or is for another name.
    #[error("server certificate not trusted: {0} (check certificate-authority and tls-server-name)")]
    Untrusted(Arc<str>),
    /// A server certificate that has expired, or is not valid yet.
    #[error("server certificate outside its validity: {0} (check it, and this machine's clock)")]
    Expired(Arc<str>),
    /// A client certificate that the server rejects or requires, or that cannot be read.
    #[error("client certificate: {0}")]
    ClientCertificate(Arc<str>),
    /// Any other failure, such as no TLS at the other end.
    #[error("{0}")]
    Other(Arc<str>),
}

impl TlsFault {
    /// Returns the party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            TlsFault::Untrusted(_) | TlsFault::ClientCertificate(_) => Fault::Caller,
            TlsFault::Expired(_) | TlsFault::Other(_) => Fault::Server,
        }
    }

    pub(crate) fn from_io_error(error: &std::io::Error) -> Self {
        use rustls::{AlertDescription as Alert, CertificateError, Error};
        let text: Arc<str> = error.to_string().into();
        let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) else {
            return TlsFault::Other(text);
        };
        match tls {
            Error::InvalidCertificate(reason) => match reason {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => TlsFault::Expired(validity(reason)),
                _ => TlsFault::Untrusted(text),
            },
            Error::NoCertificatesPresented => TlsFault::Untrusted(text),
            Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
                // A certificate of another cluster whose CA has the same name, as "kubernetes" always has.
                | Alert::DecryptError
                | Alert::AccessDenied,
            ) => TlsFault::ClientCertificate(text),
            _ => TlsFault::Other(text),
        }
    }
}

/// Formats the date since or until which a certificate is valid.
fn validity(reason: &rustls::CertificateError) -> Arc<str> {
    use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
    let day = |time: rustls::pki_types::UnixTime| day(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    match reason {
        ExpiredContext { not_after, .. } => format!("certificate expired on {}", day(*not_after)).into(),
        NotValidYetContext { not_before, .. } => {
            format!("certificate is not valid before {}", day(*not_before)).into()
        }
        other => other.to_string().into(),
    }
}

/// Formats a time in seconds since 1970 as a human-readable date.
fn day(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%d").to_string()
}

/// The reason why a [`Transport`](crate::Transport) cannot be built. Each message says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A cluster URL without a host, or with a scheme other than http and https.
    #[error("cluster url {url}: {reason}")]
    Url {
        /// The URL as configured.
        url: String,
        /// The problem.
        reason: &'static str,
    },
    /// CA certificates that cannot be read or used.
    #[error("certificate authority: {0}")]
    CertificateAuthority(String),
    /// A client certificate or key that cannot be read or used.
    #[error("client certificate: {0}")]
    ClientCertificate(String),
    /// An expired client certificate: get a new one.
    #[error("client certificate expired on {}; get a new one", day(*not_after))]
    ClientCertificateExpired {
        /// The end of its validity, in seconds since 1970.
        not_after: i64,
    },
    /// A `tls-server-name`, or host of the URL, that is not a valid DNS name or IP address.
    #[error("server name {0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// A token, token file, exec plugin or provider that cannot be used.
    #[error("credentials: {0}")]
    Auth(String),
    /// An extra or impersonation header that is not valid.
    #[error("header: {0}")]
    Header(String),
    /// A proxy (`proxy-url`, or of the environment) that cannot be used.
    #[error("proxy {proxy}: {reason}")]
    Proxy {
        /// The proxy's URL without user and password.
        proxy: String,
        /// The problem.
        reason: &'static str,
    },
    /// An option with an invalid value.
    #[error("option {name}: {reason}")]
    Option {
        /// The field of [`TransportOptions`](crate::TransportOptions).
        name: &'static str,
        /// The problem.
        reason: &'static str,
    },
}

struct Because<'a>(&'a Option<Arc<TransportErrorKind>>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(error_kind) => write!(f, ": {error_kind}"),
            None => Ok(()),
        }
    }
}

struct In(Instant);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0.saturating_duration_since(Instant::now()).as_millis())
    }
}
