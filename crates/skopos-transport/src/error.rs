//! Why something ended: one typed value for connections, calls and bodies.

use std::{fmt, net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{class::ConnectionId, proxy::ProxyFault};

/// What a call, or the body of its response, fails with.
///
/// The [`Death`] inside is the same value for everybody who was on the connection that died.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{death}")]
pub struct TransportError {
    death: Death,
    connection: Option<ConnectionId>,
}

impl TransportError {
    pub(crate) fn new(death: Death, connection: Option<ConnectionId>) -> Self {
        Self { death, connection }
    }

    /// What happened.
    pub fn death(&self) -> &Death {
        &self.death
    }

    /// The connection that the request was on, if it got that far.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// Who is at fault, so that a caller knows whether asking again can help.
    pub fn fault(&self) -> Fault {
        self.death.fault()
    }

    /// The transport was shut down: no later call will succeed either.
    pub fn is_closed(&self) -> bool {
        matches!(self.death, Death::Closed)
    }
}

impl From<Death> for TransportError {
    fn from(death: Death) -> Self {
        Self::new(death, None)
    }
}

/// Who is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The server answered wrongly, too late, or closed. Asking again may help.
    Server,
    /// The way to the server is broken, or nobody is there. Asking again later may help.
    Network,
    /// Configuration or request is wrong, or the caller ended it. Asking again the same way does not help.
    Caller,
}

/// Why a connection, a dial or a single request ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Death {
    /// The name of the server could not be resolved.
    #[error("cannot resolve {host}: {reason}")]
    Dns {
        /// The name that was asked for.
        host: Arc<str>,
        /// What the resolver said.
        reason: Arc<str>,
    },
    /// The server's machine is there, but nobody listens (or the way there says so at once).
    #[error("connection refused by {to}: {reason}")]
    Refused {
        /// The address or host that refused.
        to: Arc<str>,
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// All addresses of the server are among those that may not be connected to
    /// ([`TransportOptions::addresses`](crate::TransportOptions)).
    #[error("{address} may not be connected to: {reason}")]
    AddressDenied {
        /// The last of them.
        address: IpAddr,
        /// Why.
        reason: Arc<str>,
    },
    /// The proxy is no way to the server. One that accepts and says nothing is a [`Death::ConnectTimeout`].
    #[error("proxy {proxy}: {fault}")]
    Proxy {
        /// Its URL without user and password.
        proxy: Arc<str>,
        /// Why not.
        fault: ProxyFault,
    },
    /// The transport is parked ([`Transport::park`](crate::Transport::park)): nothing is dialed.
    #[error("not connecting: {0}")]
    Parked(Arc<str>),
    /// No connection stood within the deadline: TCP, the proxy, TLS and the first HTTP/2 SETTINGS together.
    #[error("no connection within {after:?} (stuck at {stage})")]
    ConnectTimeout {
        /// The deadline that passed.
        after: Duration,
        /// How far it got: `certificates` (files or an exec plugin), `name resolution`, `tcp`, `tls`, `http/2 settings`. With
        /// a proxy `proxy name resolution`, `proxy tcp` and `proxy` (its answer) come before `tls`.
        stage: &'static str,
    },
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFault),
    /// Nobody answered an HTTP/2 PING (or TCP keep-alive probes) in time: the connection was silently dead.
    #[error("connection silent: no answer to a PING")]
    PingTimeout,
    /// The connection was reset.
    #[error("connection reset: {0}")]
    Reset(Arc<str>),
    /// The server closed the connection, also in the middle of something.
    #[error("connection closed by the server")]
    Eof,
    /// The server said that it takes no more requests on this connection (HTTP/2 GOAWAY).
    #[error("connection retired by the server (GOAWAY {code})")]
    GoAway {
        /// The HTTP/2 error code by its name, `NO_ERROR` for a graceful one.
        code: Arc<str>,
    },
    /// No response headers came in time. The connection takes no more requests.
    #[error("no response headers within {after:?}")]
    HeadersDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// A body that should flow did not. The connection takes no more requests.
    #[error("response body made no progress within {after:?}")]
    ProgressDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// The whole response took too long. The connection takes no more requests.
    #[error("response body not complete within {after:?}")]
    BodyDeadline {
        /// The deadline that passed.
        after: Duration,
    },
    /// The deadline that the caller gave with [`RequestOptions`](crate::RequestOptions) passed.
    #[error("no answer within {after:?}{}", Because(.because))]
    CallerDeadline {
        /// The deadline that passed.
        after: Duration,
        /// What stood in the way, if known.
        because: Option<Arc<Death>>,
    },
    /// The peer does not speak HTTP as it should.
    #[error("protocol: {0}")]
    Protocol(Arc<str>),
    /// The last dials failed: the next one is not due yet.
    #[error("not connected, next attempt in {}; last: {last}", In(*.until))]
    BackingOff {
        /// When the next dial is due.
        until: Instant,
        /// How the last dial failed.
        last: Arc<Death>,
    },
    /// The server ended this one stream; the connection lives on.
    #[error("stream reset by the server: {code}")]
    StreamReset {
        /// The HTTP/2 error code by its name.
        code: Arc<str>,
    },
    /// Response headers larger than the limit.
    #[error("too large: {0}")]
    TooLarge(Arc<str>),
    /// The server wants to send the caller elsewhere. Never followed (CVE-2020-8559, CVE-2022-3172).
    #[error("redirect refused: the server answered {status} with location {location:?}")]
    Redirected {
        /// The status, such as 302.
        status: u16,
        /// Where to, as the server wrote it.
        location: Arc<str>,
    },
    /// The body is compressed although nobody asked for it.
    #[error("response body is encoded as {encoding:?}, which was not asked for")]
    UnaskedEncoding {
        /// The content of `Content-Encoding`.
        encoding: Arc<str>,
    },
    /// The credentials could not be had: token file, exec plugin, provider.
    #[error("credentials: {0}")]
    Auth(Arc<str>),
    /// Every allowed connection is full of streams.
    #[error("all {connections} connections are full; raise max_connections")]
    Exhausted {
        /// How many connections there are.
        connections: usize,
    },
    /// The machine slept or the VM was paused: what the connection is worth is unknown.
    #[error("clock jumped by {by:?}: suspend or VM pause")]
    Suspended {
        /// How far the wall clock ran ahead of the monotonic one.
        by: Duration,
    },
    /// The process has no more file descriptors (EMFILE, ENFILE), or memory for sockets.
    #[error("out of resources: {0}")]
    Resources(Arc<str>),
    /// The request cannot be sent: no path, an upgrade, a bad header.
    #[error("bad request: {0}")]
    Request(Arc<str>),
    /// The caller asked for this connection to be retired.
    #[error("connection retired by the caller: {0}")]
    Distrusted(Arc<str>),
    /// The connection was too old, idle for too long, or made with a client certificate that has been replaced since. Nobody's
    /// request ends with it.
    #[error("connection outdated")]
    Outdated,
    /// The transport was shut down.
    #[error("transport is shut down")]
    Closed,
}

impl Death {
    /// Who is at fault.
    pub fn fault(&self) -> Fault {
        use Death::*;
        match self {
            Dns { .. } | Refused { .. } | ConnectTimeout { .. } | PingTimeout | Reset(_) | Eof => {
                Fault::Network
            }
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

    /// A short stable name for metrics and logs, such as `ping_timeout`.
    pub fn kind(&self) -> &'static str {
        use Death::*;
        match self {
            Dns { .. } => "dns",
            Refused { .. } => "refused",
            AddressDenied { .. } => "address_denied",
            Proxy { fault, .. } => fault.kind(),
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

    /// The death of the last dial, if this is a [`Death::BackingOff`]; else itself.
    pub fn root(&self) -> &Death {
        match self {
            Death::BackingOff { last, .. } => last.root(),
            other => other,
        }
    }

    pub(crate) fn request(reason: impl fmt::Display) -> Self {
        Death::Request(reason.to_string().into())
    }

    pub(crate) fn protocol(reason: impl fmt::Display) -> Self {
        Death::Protocol(reason.to_string().into())
    }

    /// What an error of a standing connection's socket means.
    pub(crate) fn of_socket(error: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        match error.kind() {
            UnexpectedEof => Death::Eof,
            TimedOut => Death::PingTimeout,
            // rustls reports a corrupt record or an alert in the middle of a connection this way.
            InvalidData => TlsFault::of(error).into(),
            _ => Death::Reset(error.to_string().into()),
        }
    }

    /// What an error of connecting a socket means.
    pub(crate) fn of_connect(to: SocketAddr, error: &std::io::Error) -> Self {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match error.raw_os_error() {
            Some(ENFILE | EMFILE) => return Death::Resources(error.to_string().into()),
            _ if error.kind() == std::io::ErrorKind::OutOfMemory => {
                return Death::Resources(error.to_string().into());
            }
            _ => {}
        }
        Death::Refused { to: to.to_string().into(), reason: error.to_string().into() }
    }
}

/// Why TLS could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The server's certificate is not signed by the configured CA, or is for another name.
    #[error("server certificate not trusted: {0} (check certificate-authority and tls-server-name)")]
    Untrusted(Arc<str>),
    /// The server's certificate has expired, or is not valid yet.
    #[error("server certificate outside its validity: {0} (check it, and this machine's clock)")]
    Expired(Arc<str>),
    /// The server does not accept, or misses, our client certificate; or it cannot be read.
    #[error("client certificate: {0}")]
    ClientCertificate(Arc<str>),
    /// Anything else, such as no TLS at the other end.
    #[error("{0}")]
    Other(Arc<str>),
}

impl TlsFault {
    /// Who is at fault.
    pub fn fault(&self) -> Fault {
        match self {
            TlsFault::Untrusted(_) | TlsFault::ClientCertificate(_) => Fault::Caller,
            TlsFault::Expired(_) | TlsFault::Other(_) => Fault::Server,
        }
    }

    pub(crate) fn of(error: &std::io::Error) -> Self {
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
                // A certificate of another cluster, whose CA has the same name, as "kubernetes" always has.
                | Alert::DecryptError
                | Alert::AccessDenied,
            ) => TlsFault::ClientCertificate(text),
            _ => TlsFault::Other(text),
        }
    }
}

/// Says since when or until when a certificate is valid, by its date.
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

/// The date of a time in seconds since 1970, as people write it.
fn day(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%d").to_string()
}

/// Why a [`Transport`](crate::Transport) cannot be built. Each says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The cluster URL has no host, or a scheme other than http and https.
    #[error("cluster url {url}: {reason}")]
    Url {
        /// The URL as configured.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The CA certificates cannot be read or used.
    #[error("certificate authority: {0}")]
    CertificateAuthority(String),
    /// The client certificate or its key cannot be read or used.
    #[error("client certificate: {0}")]
    ClientCertificate(String),
    /// The client certificate has expired: get a new one.
    #[error("client certificate expired on {}; get a new one", day(*not_after))]
    ClientCertificateExpired {
        /// End of its validity, in seconds since 1970.
        not_after: i64,
    },
    /// `tls-server-name`, or the host of the URL, is no valid DNS name or IP address.
    #[error("server name {0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// Token, token file, exec plugin or provider cannot be used.
    #[error("credentials: {0}")]
    Auth(String),
    /// An extra or impersonation header is not a valid header.
    #[error("header: {0}")]
    Header(String),
    /// The proxy (`proxy-url`, or of the environment) cannot be used.
    #[error("proxy {proxy}: {reason}")]
    Proxy {
        /// Its URL without user and password.
        proxy: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An option has a value that makes no sense.
    #[error("option {name}: {reason}")]
    Option {
        /// The field of [`TransportOptions`](crate::TransportOptions).
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

struct Because<'a>(&'a Option<Arc<Death>>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(death) => write!(f, ": {death}"),
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
