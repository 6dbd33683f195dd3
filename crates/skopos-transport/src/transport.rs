//! The transport service: a request in, a response or a typed error out.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::TransportBody;
use crate::class::{ConnectionId, RequestClass, RequestOptions};
use crate::conn_state::{explain, was_not_processed};
use crate::credentials::{self, Credentials};
use crate::dialer::Dialer;
use crate::error::{ConfigError, TransportError, TransportErrorKind};
use crate::hub::{Hub, Lease};
use crate::lag::Expired;
use crate::options::TransportOptions;
use crate::owner::Owner;
use crate::pool::PoolKind;
use crate::request_log::RequestLog;
use crate::stats::TransportStats;
use crate::tcp::{SharedTcpDialer, TcpDialer};
use crate::upgrade::{DedicatedConnection, Upgrade};

/// Connections to one cluster, as a [`tower::Service`] from request to response. Cheap to clone; all clones share the
/// connections.
///
/// Requests carry a path (`/api/v1/pods?...`) and no host; credentials, headers and the cluster's URL are added. Options go
/// into the request's extensions as [`RequestOptions`] or [`RequestClass`]; the response's extensions have the
/// [`ConnectionId`].
///
/// When the last clone and the last body are dropped, all connections end. [`Transport::shutdown`] also waits for that.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::api::{Api, ListParams};
/// use skopos_transport::{Transport, TransportOptions, infer_config};
///
/// let transport = Transport::from_config(infer_config().await?, TransportOptions::default())?;
/// let pods: Api<Pod> = Api::all(transport.client("default"));
/// println!("{} pods", pods.list(&ListParams::default().limit(500)).await?.items.len());
/// transport.shutdown(std::time::Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Transport {
    owner: Arc<Owner>,
    /// The gate that requests of this handle wait for.
    gate: Option<CancellationToken>,
}

impl Transport {
    /// Creates a transport over TCP, and TLS for `https` URLs.
    ///
    /// CA, client certificate and token are read again from the files that `config` names. [`kube::Config`] drops the path
    /// of a kubeconfig's CA file; [`config_from_kubeconfig`](crate::config_from_kubeconfig) keeps it.
    ///
    /// With a [`kube::Config::proxy_url`] every connection goes through that proxy. `http://` and `https://` proxies use
    /// CONNECT, also to `http://` clusters; with `socks5://` and `socks5h://` the proxy resolves the cluster's name. User
    /// and password precede the proxy's host. TLS with the cluster is end to end; an `https://` proxy itself must be
    /// trusted by the configuration's CA, as with kubectl, and gets no client certificate. [`kube::Config`] uses the
    /// environment's `HTTPS_PROXY` and ignores `NO_PROXY`; [`infer_config`](crate::infer_config) and
    /// [`config_from_kubeconfig`](crate::config_from_kubeconfig) respect it.
    ///
    /// Installs rustls' ring provider as the process default if TLS is needed and no provider is installed yet; an
    /// application that needs another one must install it before.
    ///
    /// # Errors
    /// If URL, proxy, CA, client certificate, credentials, headers or options are invalid. An exec plugin is not run here:
    /// the first request runs it, and its failure is that request's [`TransportErrorKind::Auth`].
    pub fn from_config(config: kube::Config, options: TransportOptions) -> Result<Self, ConfigError> {
        let config = credentials::effective(config);
        let options = options.within_clocks();
        let dialer = Arc::new(TcpDialer::from_config(&config, &options)?);
        Self::with_dialer(config, options, Arc::new(SharedTcpDialer(dialer)))
    }

    /// Creates a transport over the connections of `dialer`. It uses URL, credentials and headers of `config`.
    ///
    /// # Errors
    /// If URL, credentials, headers or options are invalid.
    pub fn with_dialer(
        config: kube::Config,
        options: TransportOptions,
        dialer: Arc<dyn Dialer>,
    ) -> Result<Self, ConfigError> {
        options.validate()?;
        let options = options.within_clocks();
        let url = &config.cluster_url;
        if url.authority().is_none() || url.scheme().is_none() {
            return Err(ConfigError::Url { url: url.to_string(), reason: "needs scheme and host" });
        }
        let config = credentials::effective(config);
        let credentials = Credentials::from_config(&config, options.credential_refresh_interval)?;
        let hub = Hub::new(config.cluster_url, options, dialer);
        Ok(Self { owner: Arc::new(Owner { hub, credentials }), gate: None })
    }

    /// Returns a handle on the same connections whose requests are sent only once `gate` is cancelled. They wait for it
    /// within their own deadlines ([`RequestOptions::deadline`]); the deadlines of their class begin afterwards. It is for
    /// requests that must wait for information about the server, which other handles obtain in the meantime.
    #[must_use]
    pub fn behind(&self, gate: CancellationToken) -> Self {
        Self { owner: self.owner.clone(), gate: Some(gate) }
    }

    /// Returns a [`kube::Client`] on these connections. It runs in its own task, so this needs a runtime.
    pub fn client(&self, default_namespace: impl Into<String>) -> kube::Client {
        kube::Client::new(self.clone(), default_namespace)
    }

    /// Sends one request. Equivalent to the [`tower::Service`], but simpler to call.
    ///
    /// # Errors
    /// If there was no response, with the reason inside. Any HTTP status except a redirect is a response.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<TransportBody>, TransportError> {
        let hub = &self.owner.hub;
        match hub.stop.run_until_cancelled(Call::send(&self.owner, self.gate.as_ref(), request)).await {
            Some(result) => result,
            None => Err(TransportErrorKind::Closed.into()),
        }
    }

    /// Asks the server for another protocol: `request` is a GET or POST without a body whose `Upgrade` header names it.
    ///
    /// The request gets its own HTTP/1.1 connection, with the same TLS, credentials, address rules, backoff and deadlines
    /// as all others; nothing else is ever sent on that connection. If the server does not switch, its whole response is
    /// returned, and its connection is closed.
    ///
    /// # Errors
    /// As [`Transport::send`]; and if a response without a switch is larger than 1 MiB.
    pub async fn upgrade(&self, request: Request<Body>) -> Result<Upgrade, TransportError> {
        let hub = &self.owner.hub;
        match hub.stop.run_until_cancelled(Call::upgrade(&self.owner, self.gate.as_ref(), request)).await {
            Some(result) => result,
            None => Err(TransportErrorKind::Closed.into()),
        }
    }

    /// Waits until a connection is open, dialing as often as the backoff admits.
    ///
    /// # Errors
    /// If `limit` (or the connect deadline, if that is shorter) passes before; with the reason of the last failure.
    pub async fn connected(&self, limit: Duration) -> Result<(), TransportError> {
        let hub = &self.owner.hub;
        hub.ensure_ticker();
        let lease = tokio::time::timeout(limit, hub.lease(PoolKind::Other, None, true));
        match hub.stop.run_until_cancelled(lease).await {
            None => Err(TransportErrorKind::Closed.into()),
            Some(Ok(result)) => result.map(drop),
            Some(Err(_)) => Err(hub.no_connection(limit).into()),
        }
    }

    /// Retires a connection for new requests, because the caller has seen a problem with it. Requests and bodies on it may
    /// continue.
    pub fn retire(&self, connection: ConnectionId, why: impl fmt::Display) {
        self.owner.hub.retire(connection, TransportErrorKind::Distrusted(why.to_string().into()));
    }

    /// Stops dialing and ends the open connections, because the server is known to be down until [`Transport::wake`].
    /// Watches wait for that without their own bound; other requests fail at once with [`TransportErrorKind::Parked`]. `why` is a
    /// human-readable reason.
    pub fn park(&self, why: impl Into<Arc<str>>) {
        self.owner.hub.park(why.into());
    }

    /// Ends [`Transport::park`], because the server is probably up (again). Waiting requests trigger a dial now, regardless
    /// of the number of failures before.
    pub fn wake(&self) {
        self.owner.hub.wake();
    }

    /// Returns statistics of the transport.
    pub fn stats(&self) -> TransportStats {
        self.owner.hub.stats(self.owner.credentials.refreshes())
    }

    /// Ends all connections, requests and bodies now, with [`TransportErrorKind::Closed`]. Waits until all tasks and sockets have ended,
    /// but at most for `limit`. Returns whether they have. Later requests fail with [`TransportErrorKind::Closed`] too.
    ///
    /// Work in a blocking thread of the runtime, such as a plugin that waits for a login or the system's resolver, cannot
    /// be stopped and is not waited for. A runtime that is dropped waits for it without a bound, so end the runtime with
    /// [`shutdown_background`](tokio::runtime::Runtime::shutdown_background) or `shutdown_timeout`.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.owner.hub.close();
        tokio::time::timeout(limit, self.owner.hub.tasks.wait()).await.is_ok()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("stats", &self.stats()).finish()
    }
}

impl tower::Service<Request<Body>> for Transport {
    type Response = Response<TransportBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// Returns ready always: a request that finds no room reports that itself.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move { transport.send(request).await })
    }
}

/// A request in progress.
struct Call<'a> {
    owner: &'a Arc<Owner>,
    hub: &'a Arc<Hub>,
    gate: Option<&'a CancellationToken>,
    class: RequestClass,
    options: RequestOptions,
    /// Set if the caller requested compression, so it can decode it.
    encoding_requested: bool,
    /// The caller's own deadline.
    until: Option<(Instant, Duration)>,
    log: Option<RequestLog>,
}

/// A response, and the lease that its body needs.
type LeasedResponse = (Response<Incoming>, Lease);

/// The error of a request, with its body if it may be sent again.
type Retryable = (TransportError, Option<Body>);

/// Maximum number of sends of one request: there are few reasons for a retry, and each is safe.
const MAX_ATTEMPTS: usize = 3;

/// Age of credentials after which they are renewed before they are sent. Those that kube returns are valid for a minute.
const CREDENTIALS_MAX_AGE: Duration = Duration::from_secs(10);

/// Time for which a 401 is delayed so that the credentials for the next try are ready.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

impl<'a> Call<'a> {
    async fn send(
        owner: &'a Arc<Owner>,
        gate: Option<&'a CancellationToken>,
        mut request: Request<Body>,
    ) -> Result<Response<TransportBody>, TransportError> {
        if request.headers().contains_key(header::UPGRADE) {
            return Err(
                TransportErrorKind::request("for another protocol there is Transport::upgrade").into()
            );
        }
        let call = Call::new(owner, gate, &mut request);
        call.run(call.send_request(request), Response::status).await
    }

    async fn upgrade(
        owner: &'a Arc<Owner>,
        gate: Option<&'a CancellationToken>,
        mut request: Request<Body>,
    ) -> Result<Upgrade, TransportError> {
        let call = Call::new(owner, gate, &mut request);
        call.run(call.send_upgrade(request), Upgrade::status).await
    }

    fn new(owner: &'a Arc<Owner>, gate: Option<&'a CancellationToken>, request: &mut Request<Body>) -> Self {
        let hub = &owner.hub;
        hub.ensure_ticker();
        let options: RequestOptions = request.extensions_mut().remove().unwrap_or_default();
        let class = options.class.or_else(|| request.extensions_mut().remove());
        let class = class.unwrap_or_else(|| RequestClass::infer(request.method(), request.uri()));
        let encoding_requested = prepare(request, class);
        let now = Instant::now();
        let until = options.deadline.and_then(|after| Some((now.checked_add(after)?, after)));
        let log = RequestLog::begin(owner.credentials.server(), request);
        Call { owner, hub, gate, class, options, encoding_requested, until, log }
    }

    /// Runs the call within its deadline, and logs the outcome.
    async fn run<T>(
        &self,
        running: impl Future<Output = Result<T, TransportError>>,
        status: impl FnOnce(&T) -> StatusCode,
    ) -> Result<T, TransportError> {
        let result = self.within_deadline(running).await;
        if let Some(log) = &self.log {
            log.end(result.as_ref().map(status));
        }
        result
    }

    async fn within_deadline<T>(
        &self,
        running: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let Some((at, after)) = self.until else { return running.await };
        match tokio::time::timeout_at(at, running).await {
            Ok(result) => result,
            Err(_) => {
                Err(TransportErrorKind::CallerDeadline { after, because: self.hub.last_dial_error() }.into())
            }
        }
    }

    async fn send_request(&self, request: Request<Body>) -> Result<Response<TransportBody>, TransportError> {
        let (response, lease) = self.send_with_retries(request).await?;
        self.accept(response, lease).await
    }

    /// Performs an upgrade on a dedicated connection.
    async fn send_upgrade(&self, request: Request<Body>) -> Result<Upgrade, TransportError> {
        let (head, body) = request.into_parts();
        let request = Request::from_parts(self.complete(&head).await?, body);
        let deadlines = self.hub.options.deadlines.for_class(self.class);
        let mut connection = DedicatedConnection::dial(self.hub).await?;
        let response = connection.send(request, deadlines.headers).await?;
        self.check_response(&response, connection.id()).await?;
        connection.finish(self.owner, response, deadlines.body).await
    }

    /// Adds the cluster URL, credentials and default headers.
    async fn complete(&self, head: &Parts) -> Result<Parts, TransportError> {
        if let Some(gate) = self.gate {
            gate.cancelled().await;
        }
        let request = Request::from_parts(head.clone(), Body::empty());
        let completing = self.owner.credentials.complete(request);
        let limit = self.hub.options.connect_timeout;
        let request = match self.hub.lag_monitor.timeout(Some(limit), completing).await {
            Ok(request) => request,
            Err(Expired) => Err(TransportErrorKind::Auth("the token's source does not answer".into())),
        };
        let mut request = request.inspect_err(|error_kind| self.hub.credentials_missing(error_kind))?;
        // After the configuration's own headers, which may set another.
        request.headers_mut().entry(header::USER_AGENT).or_insert(USER_AGENT);
        Ok(request.into_parts().0)
    }

    /// Sends the request, and again where that is safe.
    async fn send_with_retries(&self, request: Request<Body>) -> Result<LeasedResponse, TransportError> {
        let (head, mut body) = request.into_parts();
        let mut attempts = 0;
        loop {
            let (completed, lease) = self.complete_and_lease(&head).await?;
            attempts += 1;
            match self.send_once(Request::from_parts(completed, body), lease).await {
                Ok(answer) => return Ok(answer),
                Err((_, Some(again))) if attempts < MAX_ATTEMPTS => {
                    self.hub.count_resend();
                    body = again;
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Returns the completed request and a lease. Credentials come first, because without them nothing is dialed. But a
    /// parked watch may wait for hours, and then they are renewed.
    async fn complete_and_lease(&self, head: &Parts) -> Result<(Parts, Lease), TransportError> {
        let completed = self.complete(head).await?;
        let since = Instant::now();
        let lease = self.lease().await?;
        match since.elapsed() < CREDENTIALS_MAX_AGE {
            true => Ok((completed, lease)),
            false => Ok((self.complete(head).await?, lease)),
        }
    }

    async fn lease(&self) -> Result<Lease, TransportError> {
        let wait = self.options.wait_for_connection.unwrap_or(self.class == RequestClass::Watch);
        self.hub.lease(PoolKind::from_class(self.class), self.options.avoid_connection, wait).await
    }

    /// Sends the request on one connection.
    async fn send_once(&self, request: Request<Body>, mut lease: Lease) -> Result<LeasedResponse, Retryable> {
        let deadlines = self.hub.options.deadlines.for_class(self.class);
        let (parts, body) = request.into_parts();
        let copy = body.try_clone();
        let Some(sender) = lease.sender.take() else {
            // Retired since it was chosen.
            return Err((lease.conn_state.error(TransportErrorKind::Outdated), Some(body)));
        };
        let idempotent = parts.method == Method::GET || parts.method == Method::HEAD;
        let sending = sender.send(Request::from_parts(parts, body));
        match self.hub.lag_monitor.timeout(deadlines.headers, sending).await {
            Ok(Ok(response)) => {
                self.hub.response_received(lease.id(), response.status() != StatusCode::UNAUTHORIZED);
                Ok((response, lease))
            }
            Ok(Err(mut failure)) => {
                let unsent = failure.take_message();
                let failure = failure.into_error();
                let refused = was_not_processed(&failure);
                let error = explain(lease.conn_state.clone(), failure).await;
                let again = match unsent {
                    Some(request) => Some(request.into_body()),
                    None if refused || (idempotent && is_stale_connection(&error, &lease)) => copy,
                    None => None,
                };
                if matches!(error.kind(), TransportErrorKind::StreamReset { .. }) {
                    self.hub.count_error(Some(lease.id()), error.kind());
                }
                Err((error, again))
            }
            Err(Expired) => {
                let after = deadlines.headers.unwrap_or_default();
                self.hub.retire(lease.id(), TransportErrorKind::HeadersDeadline { after });
                Err((lease.conn_state.error(TransportErrorKind::HeadersDeadline { after }), None))
            }
        }
    }

    /// Rejects responses that must not be used, and records what the server reports about the credentials.
    async fn check_response(
        &self,
        response: &Response<Incoming>,
        id: ConnectionId,
    ) -> Result<(), TransportError> {
        if let Some(error_kind) = rejection(response, self.encoding_requested) {
            self.hub.count_error(Some(id), &error_kind);
            return Err(TransportError::new(error_kind, Some(id)));
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            // The response goes to the caller in any case; its next request must have valid credentials.
            let rejected = future::join(self.owner.credentials.rejected(), self.hub.rejected());
            let _ = tokio::time::timeout(REFRESH_TIMEOUT, rejected).await;
        }
        Ok(())
    }

    /// Accepts a response whose headers have arrived.
    async fn accept(
        &self,
        response: Response<Incoming>,
        lease: Lease,
    ) -> Result<Response<TransportBody>, TransportError> {
        let id = lease.id();
        self.check_response(&response, id).await?;
        let deadlines = self.hub.options.deadlines.for_class(self.class);
        let (mut parts, body) = response.into_parts();
        parts.extensions.insert(id);
        let body = TransportBody::new(body, lease, deadlines, self.until, self.owner.clone());
        Ok(Response::from_parts(parts, body))
    }
}

/// Sets the headers of every request. Returns whether the caller requested an encoding.
fn prepare(request: &mut Request<Body>, class: RequestClass) -> bool {
    let headers = request.headers_mut();
    if class == RequestClass::Watch {
        // One gzip member per event and decoders that stop after the first: never on a watch.
        headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("identity"));
        return false;
    }
    headers.contains_key(header::ACCEPT_ENCODING)
}

const USER_AGENT: header::HeaderValue =
    header::HeaderValue::from_static(concat!("skopos/", env!("CARGO_PKG_VERSION")));

/// Returns an error for responses that must not be used.
fn rejection(response: &Response<Incoming>, encoding_requested: bool) -> Option<TransportErrorKind> {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
    if matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        let location = response.headers().get(header::LOCATION).map_or("".into(), text);
        return Some(TransportErrorKind::Redirected { status: response.status().as_u16(), location });
    }
    let encoding = response.headers().get(header::CONTENT_ENCODING)?;
    if encoding_requested || encoding.as_bytes().eq_ignore_ascii_case(b"identity") || encoding.is_empty() {
        return None;
    }
    Some(TransportErrorKind::UnaskedEncoding { encoding: text(encoding) })
}

/// Returns whether an idle connection had ended before the request came, or the server was just ending it. Every client
/// with a pool meets this race.
fn is_stale_connection(error: &TransportError, lease: &Lease) -> bool {
    match error.kind() {
        TransportErrorKind::GoAway { .. } => true,
        TransportErrorKind::Eof | TransportErrorKind::Reset(_) => lease.used,
        _ => false,
    }
}
