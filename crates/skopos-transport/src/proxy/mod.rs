//! Connections through a proxy: the proxy is asked to connect to the server, and then only forwards bytes.
//!
//! TLS and HTTP/2 with its PINGs go through it from end to end; the kernel's checks (keep-alive, user timeout) cover the
//! connection to the proxy. The proxy resolves the server's name, also with `socks5://`, as in Go's net/http.

mod connect;
mod environment;
mod fault;
mod socks;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::uri::Authority;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

pub use self::environment::proxy_from_environment;
pub use self::fault::ProxyFault;
use crate::dialer::{DialAttempt, Io, Stage};
use crate::error::{ConfigError, TransportErrorKind};
use crate::options::TransportOptions;
use crate::tls::{DialSettings, TlsSource};

/// The configuration of one proxy for one server.
pub(crate) struct Proxy {
    /// The URL for display, without user and password.
    name: Arc<str>,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// TLS of the connection to the proxy itself, if its URL begins with `https://`.
    pub(crate) tls: Option<Arc<TlsSource>>,
    protocol: ProxyProtocol,
    server: Server,
}

/// The protocol of the proxy, with its credentials.
enum ProxyProtocol {
    Connect(Option<HeaderValue>),
    Socks5(Option<Login>),
}

/// The server that the proxy must connect to.
struct Server {
    /// A name or an address, without brackets.
    host: Arc<str>,
    port: u16,
    /// Both, in HTTP's notation.
    authority: Authority,
}

struct Login {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl Proxy {
    /// Returns the proxy of a configuration, if it has one.
    pub(crate) fn from_config(
        config: &kube::Config,
        server_port: u16,
        options: &TransportOptions,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(url) = &config.proxy_url else { return Ok(None) };
        let name = name(url);
        let bad = |reason| ConfigError::Proxy { proxy: name.to_string(), reason };
        if !options.addresses.is_open() {
            return Err(bad(
                "it would connect to addresses that cannot be checked here: reach the cluster without it, or \
                 admit all addresses (TransportOptions::addresses)",
            ));
        }
        let host = url.host().filter(|host| !host.is_empty()).ok_or(bad("has no host"))?;
        let port_of = |default| port_of(url, host, default).ok_or(bad("has a port that is none"));
        let login = login(url);
        let (port, protocol) = match url.scheme_str().map(str::to_ascii_lowercase).as_deref() {
            None | Some("http") => (port_of(80)?, ProxyProtocol::Connect(login.map(basic))),
            Some("https") => (port_of(443)?, ProxyProtocol::Connect(login.map(basic))),
            Some("socks5" | "socks5h") => {
                let fits = |login: &Login| {
                    (1..=255).contains(&login.user.len()) && (1..=255).contains(&login.password.len())
                };
                if login.as_ref().is_some_and(|login| !fits(login)) {
                    return Err(bad("user and password have 1 to 255 bytes each in SOCKS5"));
                }
                (port_of(1080)?, ProxyProtocol::Socks5(login))
            }
            _ => return Err(bad("has to begin with http://, https://, socks5:// or socks5h://")),
        };
        let tls = match url.scheme_str() {
            Some("https") => {
                Some(Arc::new(TlsSource::from_config(&trust(config), host, &over_http1(options))?))
            }
            _ => None,
        };
        let server = Server::new(&config.cluster_url, server_port)?;
        Ok(Some(Self { host: without_brackets(host).into(), name, port, tls, protocol, server }))
    }

    /// Connects to the server through the proxy at the other end of `stream`. The caller must bound it.
    pub(crate) async fn connect<S: Io>(
        &self,
        stream: S,
        tls: Option<&DialSettings>,
        attempt: &DialAttempt,
    ) -> Result<Box<dyn Io>, TransportErrorKind> {
        attempt.enter(Stage::Proxy);
        let connected = match tls {
            None => self.handshake(stream).await,
            Some(tls) => match tls.connect(false, stream).await {
                Ok(stream) => self.handshake(stream).await,
                Err(error) => Err(fault::from_socket_error(&error)),
            },
        };
        connected.map_err(|fault| self.proxy_error(fault))
    }

    async fn handshake<S: Io>(&self, stream: S) -> Result<Box<dyn Io>, ProxyFault> {
        match &self.protocol {
            ProxyProtocol::Connect(authorization) => {
                connect::connect(stream, &self.server.authority, authorization.as_ref()).await
            }
            ProxyProtocol::Socks5(login) => socks::connect(stream, &self.server, login.as_ref()).await,
        }
    }

    /// Converts an error on the way to the proxy itself.
    pub(crate) fn not_reached(&self, error_kind: TransportErrorKind) -> TransportErrorKind {
        match error_kind {
            // A failure of this process only.
            TransportErrorKind::Resources(_) => error_kind,
            error_kind => self.proxy_error(ProxyFault::Connection(Arc::new(error_kind))),
        }
    }

    fn proxy_error(&self, fault: ProxyFault) -> TransportErrorKind {
        TransportErrorKind::Proxy { proxy: self.name.clone(), fault }
    }

    /// Returns the name of the other end, for stats; `address` is the proxy's.
    pub(crate) fn peer(&self, address: SocketAddr) -> String {
        format!("{} through {address}", self.server.authority)
    }
}

impl Server {
    fn new(url: &Uri, port: u16) -> Result<Self, ConfigError> {
        let bad = |reason| ConfigError::Url { url: name(url).to_string(), reason };
        let host = url.host().unwrap_or_default();
        let authority = format!("{host}:{port}").parse().map_err(|_| bad("has a host that is none"))?;
        let host = without_brackets(host);
        if host.len() > 255 {
            return Err(bad("has a host of more than 255 bytes"));
        }
        Ok(Self { host: host.into(), port, authority })
    }

    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

/// Returns a URL without its secrets.
fn name(url: &Uri) -> Arc<str> {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{host_and_port}", url.scheme_str().unwrap_or("http")).into()
}

/// Returns the port; `None` if it is invalid.
fn port_of(url: &Uri, host: &str, default: u16) -> Option<u16> {
    let host_and_port = url.authority()?.as_str().rsplit('@').next()?;
    match host_and_port.strip_prefix(host)? {
        "" | ":" => Some(default),
        _ => url.port_u16().filter(|port| *port > 0),
    }
}

fn login(url: &Uri) -> Option<Login> {
    let (login, _) = url.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let decoded = |text| percent_decode_str(text).collect();
    (!login.is_empty()).then(|| Login { user: decoded(user), password: decoded(password) })
}

fn basic(Login { user, password }: Login) -> HeaderValue {
    let encoded = STANDARD.encode([&user[..], b":", &password[..]].concat());
    let mut value =
        HeaderValue::try_from(format!("Basic {encoded}")).expect("base64 has nothing that a header may not");
    value.set_sensitive(true);
    value
}

/// Returns only the configuration's server trust, without the client's identity: the proxy gets no client certificate.
fn trust(config: &kube::Config) -> kube::Config {
    let mut config = config.clone();
    config.auth_info = Default::default();
    config.tls_server_name = None;
    config
}

fn over_http1(options: &TransportOptions) -> TransportOptions {
    TransportOptions { http1_only: true, ..options.clone() }
}

pub(crate) fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
