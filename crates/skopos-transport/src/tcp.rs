//! The production dialer: DNS, TCP, the proxy, TLS.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::net::TcpStream;

use crate::address_filter::AddressFilter;
use crate::dialer::{DialAttempt, Dialed, Dialer, Io, Protocol, Stage};
use crate::error::{ConfigError, TransportErrorKind};
use crate::options::TransportOptions;
use crate::proxy::{Proxy, ProxyFault, without_brackets};
use crate::single_flight::{DoneGuard, SingleFlight};
use crate::tls::{DialSettings, TlsSource};
use crate::via::{RESOLVE_TIMEOUT, Via};

/// Silence of the previous addresses after which the next one is tried (RFC 8305 recommends 250 ms).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The same delay when one of them has accepted: a server to which all clients reconnect at once responds slowly, and more
/// handshakes would slow it further.
const HANDSHAKE_ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// The maximum number of sockets of one dial, and of addresses that it tries.
const MAX_SOCKETS: usize = 16;

/// The longest keep-alive times and the longest acknowledgement timeout that Linux accepts; longer values are an invalid
/// argument.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(i16::MAX as u64);
const MAX_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// A dialer that resolves the name for each dial, tries all addresses, then does TLS with current certificates. With a
/// proxy, name and addresses are the proxy's.
pub(crate) struct TcpDialer {
    host: Arc<str>,
    port: u16,
    proxy: Option<Proxy>,
    /// None with a proxy.
    via: Option<Via>,
    tls: Option<Arc<TlsSource>>,
    plain_protocol: Protocol,
    keep_alive: socket2::TcpKeepalive,
    user_timeout: Duration,
    address_filter: AddressFilter,
    /// The shared lookup. A running one is joined, not repeated: each occupies a thread that cannot be stopped.
    lookup: SingleFlight<LookupResult>,
    /// The index of the address that is tried first; each failure advances it. One address may accept everything and never
    /// respond, and which one it was is known only when the dial is over.
    first_address: AtomicUsize,
}

type LookupResult = Result<Vec<SocketAddr>, Arc<str>>;

impl TcpDialer {
    pub(crate) fn from_config(
        config: &kube::Config,
        options: &TransportOptions,
    ) -> Result<Self, ConfigError> {
        let url = &config.cluster_url;
        let bad = |reason| ConfigError::Url { url: url.to_string(), reason };
        let host = url.host().filter(|h| !h.is_empty()).ok_or_else(|| bad("has no host"))?;
        let tls = match url.scheme_str() {
            Some("https") => Some(Arc::new(TlsSource::from_config(config, host, options)?)),
            Some("http") => None,
            _ => return Err(bad("must begin with http:// or https://")),
        };
        let port = url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let proxy = Proxy::from_config(config, port, options)?;
        let (host, port) = match &proxy {
            Some(proxy) => (proxy.host.clone(), proxy.port),
            None => (without_brackets(host).into(), port),
        };
        Ok(Self {
            host,
            port,
            via: options.via.clone().filter(|_| proxy.is_none()),
            proxy,
            tls,
            plain_protocol: if options.http2_prior_knowledge { Protocol::Http2 } else { Protocol::Http1 },
            // HTTP/1.1 has no PING, so the kernel probes: after one interval of silence, then two probes. It counts whole
            // seconds, and does not accept zero.
            keep_alive: socket2::TcpKeepalive::new()
                .with_time(options.ping_interval.clamp(Duration::from_secs(1), MAX_KEEP_ALIVE))
                .with_interval((options.ping_timeout / 2).clamp(Duration::from_secs(1), MAX_KEEP_ALIVE))
                .with_retries(2),
            user_timeout: (options.ping_interval + options.ping_timeout).min(MAX_USER_TIMEOUT),
            address_filter: options.addresses.clone(),
            lookup: SingleFlight::new(),
            first_address: AtomicUsize::new(0),
        })
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, TransportErrorKind> {
        if let Ok(ip) = self.host.parse() {
            // An IP address must not wait for a resolver thread: other lookups and plugins may occupy all of them.
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let found = self.lookup.run(|done| lookup(self.host.clone(), self.port, done)).await;
        found.map_err(|reason| self.not_reached(TransportErrorKind::Dns { host: self.host.clone(), reason }))
    }

    /// Attributes an error to the proxy or to the server.
    fn not_reached(&self, error_kind: TransportErrorKind) -> TransportErrorKind {
        match &self.proxy {
            Some(proxy) => proxy.not_reached(error_kind),
            None => error_kind,
        }
    }

    /// Returns the allowed addresses, in the order in which they are tried.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, TransportErrorKind> {
        let mut addresses = allowed(self.resolve().await?, &self.address_filter)?;
        let first = self.first_address.load(Relaxed).checked_rem(addresses.len());
        addresses.rotate_left(first.unwrap_or_default());
        addresses.truncate(MAX_SOCKETS);
        Ok(addresses)
    }

    /// Returns the allowed addresses, or the other way if the name does not resolve.
    async fn addresses_or_way(&self) -> Result<Result<Vec<SocketAddr>, &Via>, TransportErrorKind> {
        let Some(via) = &self.via else { return self.addresses().await.map(Ok) };
        if via.is_only_way() {
            return Ok(Err(via));
        }
        match tokio::time::timeout(RESOLVE_TIMEOUT, self.addresses()).await {
            Ok(Err(TransportErrorKind::Dns { .. })) | Err(_) => Ok(Err(via)),
            Ok(found) => found.map(Ok),
        }
    }

    /// Connects by the other way, and TLS.
    async fn connect_via(
        &self,
        via: &Via,
        certificates: &Certificates,
        attempt: &DialAttempt,
    ) -> Result<Dialed, TransportErrorKind> {
        attempt.enter(Stage::Via);
        let stream = via.open().await?;
        Ok(self.connect_tls(stream, certificates, attempt).await?.with_peer(via.name()))
    }

    /// Connects by TCP, the proxy and TLS, once with each address.
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        certificates: &Certificates,
        attempt: &DialAttempt,
    ) -> Result<Dialed, TransportErrorKind> {
        let accepted = AtomicBool::new(false);
        connect_first(addresses, &accepted, |address| {
            self.connect_to(address, certificates, attempt, &accepted)
        })
        .await
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        certificates: &Certificates,
        attempt: &DialAttempt,
        accepted: &AtomicBool,
    ) -> Result<Dialed, TransportErrorKind> {
        attempt.enter(if self.proxy.is_some() { Stage::ProxyTcp } else { Stage::Tcp });
        let stream = self.tcp(address).await;
        let stream = stream
            .map_err(|error| self.not_reached(TransportErrorKind::from_connect_error(address, &error)))?;
        accepted.store(true, Relaxed);
        match &self.proxy {
            None => Ok(self.connect_tls(stream, certificates, attempt).await?.with_peer(address)),
            Some(proxy) => {
                let stream = proxy.connect(stream, certificates.proxy.as_ref(), attempt).await?;
                Ok(self.connect_tls(stream, certificates, attempt).await?.with_peer(proxy.peer(address)))
            }
        }
    }

    /// Sets up TLS with the server, if configured.
    async fn connect_tls<S: Io>(
        &self,
        stream: S,
        certificates: &Certificates,
        attempt: &DialAttempt,
    ) -> Result<Dialed, TransportErrorKind> {
        let Some(tls) = &certificates.server else {
            let protocol = if attempt.http1_only() { Protocol::Http1 } else { self.plain_protocol };
            return Ok(Dialed::new(stream, protocol));
        };
        attempt.enter(Stage::Tls);
        let stream = tls.connect(attempt.http1_only(), stream).await;
        let stream = stream.map_err(|error| TransportErrorKind::from_socket_error(&error))?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok(Dialed::new(stream, protocol).superseded_by(tls.superseded()))
    }

    async fn certificates(&self) -> Result<Certificates, TransportErrorKind> {
        let proxy = match self.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref()) {
            Some(tls) => Some(tls.dial_settings().await.map_err(|error_kind| self.not_reached(error_kind))?),
            None => None,
        };
        let server = match &self.tls {
            Some(tls) => Some(tls.dial_settings().await?),
            None => None,
        };
        Ok(Certificates { server, proxy })
    }

    async fn tcp(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        self.prepare(&stream)?;
        Ok(stream)
    }

    fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(stream);
        socket.set_tcp_keepalive(&self.keep_alive)?;
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
        socket.set_tcp_user_timeout(Some(self.user_timeout))?;
        #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia")))]
        let _ = self.user_timeout;
        Ok(())
    }
}

/// The certificates for the TLS of one dial, if any.
struct Certificates {
    server: Option<DialSettings>,
    proxy: Option<DialSettings>,
}

/// The shared part of a dialer, so that dials are `'static`.
pub(crate) struct SharedTcpDialer(pub(crate) Arc<TcpDialer>);

impl Dialer for SharedTcpDialer {
    fn dial(&self, attempt: DialAttempt) -> BoxFuture<'static, Result<Dialed, TransportErrorKind>> {
        let dialer = self.0.clone();
        Box::pin(async move {
            // Certificates first: reading them must not age a connection that is already open.
            attempt.enter(Stage::Certificates);
            let certificates = dialer.certificates().await?;
            attempt.enter(if dialer.proxy.is_some() { Stage::ProxyResolve } else { Stage::Resolve });
            let addresses = match dialer.addresses_or_way().await? {
                Ok(addresses) => addresses,
                Err(via) => return dialer.connect_via(via, &certificates, &attempt).await,
            };
            let connect = || dialer.connect(&addresses, &certificates, &attempt);
            retry_every(attempt.rhythm(), MAX_SOCKETS.div_ceil(addresses.len()), connect).await
        })
    }

    /// Handles a failed dial. A server rejects a client certificate only after the handshake, so this may come late.
    fn failed(&self, error_kind: &TransportErrorKind) {
        self.0.first_address.fetch_add(1, Relaxed);
        let wrong = match error_kind {
            TransportErrorKind::Tls(_) => self.0.tls.as_ref(),
            TransportErrorKind::Proxy { fault: ProxyFault::Connection(error_kind), .. }
                if matches!(**error_kind, TransportErrorKind::Tls(_)) =>
            {
                self.0.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref())
            }
            _ => None,
        };
        if let Some(tls) = wrong {
            tls.mark_untrusted();
        }
    }

    fn rejected(&self) -> BoxFuture<'static, ()> {
        let dialer = self.0.clone();
        Box::pin(async move {
            if let Some(tls) = &dialer.tls {
                tls.rejected().await;
            }
        })
    }
}

/// Returns the addresses that the filter allows.
fn allowed(
    addresses: Vec<SocketAddr>,
    filter: &AddressFilter,
) -> Result<Vec<SocketAddr>, TransportErrorKind> {
    let mut denied = None;
    let mut is_allowed = |address: &SocketAddr| match filter.check(address.ip()) {
        Ok(()) => true,
        Err(reason) => {
            denied = Some(TransportErrorKind::AddressDenied { address: address.ip(), reason });
            false
        }
    };
    let allowed: Vec<SocketAddr> = addresses.into_iter().filter(|address| is_allowed(address)).collect();
    match (allowed.is_empty(), denied) {
        (true, Some(denied)) => Err(denied),
        _ => Ok(allowed),
    }
}

/// Calls `getaddrinfo` in its own thread. Results are not cached, neither good nor bad: dials are a second apart.
fn lookup(host: Arc<str>, port: u16, done: DoneGuard) -> BoxFuture<'static, LookupResult> {
    async move {
        let name = host.clone();
        let resolve = move || {
            let _done = done;
            (&*name, port).to_socket_addrs().map(Vec::from_iter)
        };
        match tokio::task::spawn_blocking(resolve).await {
            Ok(Ok(addresses)) if addresses.is_empty() => Err("no addresses".into()),
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(error.to_string().into()),
            Err(error) => Err(error.to_string().into()),
        }
    }
    .boxed()
}

/// Connects to the first address that responds. The next one is tried when those before have failed, or have been
/// silent for [`ATTEMPT_DELAY`], or for [`HANDSHAKE_ATTEMPT_DELAY`] once one of them has `accepted`. Fails when all
/// have failed. The caller must bound it.
async fn connect_first<T, F, Fut>(
    addresses: &[SocketAddr],
    accepted: &AtomicBool,
    connect: F,
) -> Result<T, TransportErrorKind>
where
    F: Fn(SocketAddr) -> Fut,
    Fut: Future<Output = Result<T, TransportErrorKind>>,
{
    let mut queue = addresses.iter();
    let mut running = FuturesUnordered::new();
    let mut last = TransportErrorKind::protocol("no addresses");
    loop {
        match queue.next() {
            Some(address) => running.push(connect(*address)),
            None if running.is_empty() => return Err(last),
            None => {}
        }
        let silence = async {
            tokio::time::sleep(ATTEMPT_DELAY).await;
            if accepted.load(Relaxed) {
                tokio::time::sleep(HANDSHAKE_ATTEMPT_DELAY - ATTEMPT_DELAY).await;
            }
        };
        tokio::select! {
            biased;
            Some(result) = running.next() => match result {
                Ok(connected) => return Ok(connected),
                Err(error_kind) => last = more_specific(last, error_kind),
            },
            () = silence, if queue.len() > 0 => {}
        }
    }
}

/// Returns the failure to report: the last one, unless another is a TLS failure, after which certificates are read again,
/// or comes from a proxy that was reached.
fn more_specific(before: TransportErrorKind, now: TransportErrorKind) -> TransportErrorKind {
    let weight = |error_kind: &TransportErrorKind| match error_kind {
        TransportErrorKind::Tls(_) => 2,
        TransportErrorKind::Proxy { fault: ProxyFault::Connection(error_kind), .. } => match **error_kind {
            TransportErrorKind::Dns { .. } | TransportErrorKind::Refused { .. } => 0,
            _ => 1,
        },
        TransportErrorKind::Proxy { .. } => 1,
        _ => 0,
    };
    if weight(&before) > weight(&now) { before } else { now }
}

/// Returns the first established connection. A silent server is tried again every `interval`, at most `rounds` times in
/// total, beside the pending attempts. Otherwise a server that comes back in between would be found late: the kernel
/// repeats a lost SYN only after 1, 3 and 7 seconds, and TLS never repeats its first message. Fails with the last error
/// when all attempts have failed; the cluster's backoff then schedules the next one. The caller must bound it.
async fn retry_every<T, F, Fut>(
    interval: Duration,
    rounds: usize,
    connect: F,
) -> Result<T, TransportErrorKind>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, TransportErrorKind>>,
{
    let mut attempts = std::iter::repeat_with(connect).take(rounds);
    let mut running = FuturesUnordered::new();
    running.extend(attempts.next());
    let mut last = TransportErrorKind::protocol("no addresses");
    while !running.is_empty() {
        tokio::select! {
            biased;
            Some(result) = running.next() => match result {
                Ok(connected) => return Ok(connected),
                Err(error_kind) => last = more_specific(last, error_kind),
            },
            () = tokio::time::sleep(interval) => running.extend(attempts.next()),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::error::TlsFault;

    const SECOND: Duration = Duration::from_secs(1);

    /// The flag of a test where no address has accepted.
    static NOT_ACCEPTED: AtomicBool = AtomicBool::new(false);

    fn addresses(n: u8) -> Vec<SocketAddr> {
        (1..=n).map(|i| SocketAddr::from(([10, 0, 0, i], 443))).collect()
    }

    fn refused(address: SocketAddr) -> TransportErrorKind {
        TransportErrorKind::Refused { to: address.to_string().into(), reason: "no".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_address_is_followed_by_next_at_once() {
        let begin = Instant::now();
        let three = addresses(3);
        let got = connect_first(&three, &NOT_ACCEPTED, |a| async move {
            if a.ip().to_string() == "10.0.0.3" { Ok(a) } else { Err(refused(a)) }
        });
        assert_eq!(got.await.unwrap(), addresses(3)[2]);
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_address_does_not_delay_next() {
        let begin = Instant::now();
        let two = addresses(2);
        let got = connect_first(&two, &NOT_ACCEPTED, |a| async move {
            if a.ip().to_string() == "10.0.0.1" {
                std::future::pending::<()>().await;
            }
            Ok::<_, TransportErrorKind>(a)
        });
        assert_eq!(got.await.unwrap(), addresses(2)[1]);
        assert!(begin.elapsed() <= ATTEMPT_DELAY + Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_address_gets_second_for_handshake() {
        let (begin, accepted) = (Instant::now(), AtomicBool::new(false));
        let two = addresses(2);
        let got = connect_first(&two, &accepted, |a| {
            let first = !accepted.swap(true, Relaxed);
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, TransportErrorKind>(a)
            }
        });
        assert_eq!(got.await.unwrap(), addresses(2)[1]);
        let took = begin.elapsed();
        assert!(
            took >= HANDSHAKE_ATTEMPT_DELAY && took <= HANDSHAKE_ATTEMPT_DELAY + Duration::from_millis(4),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn tls_failure_outranks_other_errors() {
        let two = addresses(2);
        let untrusted = || TransportErrorKind::Tls(TlsFault::Untrusted("no".into()));
        let got = connect_first(&two, &NOT_ACCEPTED, |a| async move {
            Err::<(), _>(if a == addresses(1)[0] { untrusted() } else { refused(a) })
        });
        assert_eq!(got.await.unwrap_err(), untrusted());
    }

    #[tokio::test]
    async fn silent_and_untrusted_addresses_are_passed_over() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ((stranger, _), (good, certificate)) = (tls_server().await, tls_server().await);
        let mut config = kube::Config::new("https://server.test/".parse().unwrap());
        config.root_cert = Some(vec![certificate]);
        let dialer = dialer(&config);
        let dialed = dial(&dialer, &[stranger, silent.local_addr().unwrap(), good]).await;
        assert_eq!(*dialed.peer, good.to_string());
    }

    #[tokio::test]
    async fn dial_after_failure_starts_at_another_address() {
        let (one, two) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let both = [one.local_addr().unwrap(), two.local_addr().unwrap()];
        let dialer = dialer(&kube::Config::new("http://server.test/".parse().unwrap()));
        assert_eq!(*dial(&dialer, &both).await.peer, both[0].to_string());
        // It accepted the connection and then stayed silent.
        dialer.failed(&TransportErrorKind::ConnectTimeout { after: SECOND, stage: "http/2 settings" });
        for _ in 0..2 {
            assert_eq!(*dial(&dialer, &both).await.peer, both[1].to_string());
        }
    }

    #[tokio::test]
    async fn an_address_is_not_looked_up() {
        let mut config = kube::Config::new("https://192.0.2.1/".parse().unwrap());
        for address in ["192.0.2.1:443", "[2001:db8::1]:6443"] {
            config.cluster_url = format!("https://{address}/").parse().unwrap();
            let found = dialer(&config).0.addresses().now_or_never();
            assert_eq!(found, Some(Ok(vec![address.parse().unwrap()])), "without a thread");
        }
        config.proxy_url = Some("http://[2001:db8::2]:3128".parse().unwrap());
        let found = dialer(&config).0.addresses().now_or_never();
        assert_eq!(found, Some(Ok(vec!["[2001:db8::2]:3128".parse().unwrap()])));
    }

    fn dialer(config: &kube::Config) -> SharedTcpDialer {
        SharedTcpDialer(Arc::new(TcpDialer::from_config(config, &TransportOptions::default()).unwrap()))
    }

    /// Dials a name that resolves to these addresses.
    async fn dial(dialer: &SharedTcpDialer, addresses: &[SocketAddr]) -> Dialed {
        let addresses = addresses.to_vec();
        let found = async {
            tokio::task::yield_now().await;
            Ok(addresses)
        };
        // A lookup that is already running when the dial needs it.
        assert!(dialer.0.lookup.run(|_| found.boxed()).now_or_never().is_none());
        let attempt = DialAttempt::new("https://server.test/".parse().unwrap(), 1, SECOND);
        tokio::time::timeout(10 * SECOND, dialer.dial(attempt)).await.expect("in time").unwrap()
    }

    /// Starts a TLS server; returns its address and its certificate.
    async fn tls_server() -> (SocketAddr, Vec<u8>) {
        let identity = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
        let certificate = identity.cert.der().clone();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the test's runtime.
        TaskTracker::new().spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let _ = acceptor.accept(socket).await;
            }
        });
        (address, certificate.to_vec())
    }

    #[test]
    fn address_filter_removes_denied_addresses() {
        let filter = AddressFilter::new(|ip| match ip.is_loopback() {
            true => Err("loopback".into()),
            false => Ok(()),
        });
        let local = SocketAddr::from(([127, 0, 0, 1], 443));
        let mixed = [addresses(1), vec![local]].concat();
        assert_eq!(allowed(mixed, &filter), Ok(addresses(1)));
        let denied = TransportErrorKind::AddressDenied { address: local.ip(), reason: "loopback".into() };
        assert_eq!(allowed(vec![local], &filter), Err(denied));
        assert_eq!(allowed(vec![local], &AddressFilter::open()), Ok(vec![local]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_addresses_refused_returns_last_error() {
        let two = addresses(2);
        let got = connect_first(&two, &NOT_ACCEPTED, |a| async move { Err::<(), _>(refused(a)) }).await;
        assert_eq!(got.unwrap_err(), refused(addresses(2)[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn recovered_server_is_reached_within_second() {
        let begin = Instant::now();
        let got = retry_every(SECOND, 10, || async {
            // Attempts in the first 3.5 seconds are never answered.
            if begin.elapsed() < Duration::from_millis(3_500) {
                std::future::pending::<()>().await;
            }
            Ok::<_, TransportErrorKind>(())
        });
        got.await.unwrap();
        assert!(begin.elapsed() <= Duration::from_millis(4_510), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn sockets_of_one_dial_are_bounded() {
        let started = std::cell::Cell::new(0);
        let connect = || {
            started.set(started.get() + 1);
            std::future::pending::<Result<(), TransportErrorKind>>()
        };
        let never = retry_every(SECOND, 8, connect);
        assert!(tokio::time::timeout(Duration::from_secs(600), never).await.is_err());
        assert_eq!(started.get(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_round_is_not_retried() {
        let begin = Instant::now();
        let refused = || async { Err::<(), _>(refused(addresses(1)[0])) };
        assert!(retry_every(SECOND, 8, refused).await.is_err());
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
