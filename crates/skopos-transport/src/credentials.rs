//! Request credentials: kube's own layers for URL, credentials and extra headers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture, Ready, Shared};
use http::{HeaderValue, Request, Response, header};
use kube::client::{AuthError, Body, ConfigExt};
use kube::config::ExecConfig;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::error::{ConfigError, TransportErrorKind};
use crate::plugin::{self, PluginCredentials};
use crate::single_flight::{DoneGuard, RESULT_TTL, SingleFlight};
use crate::token_file::TokenFile;

/// Completes requests with the cluster's URL, credentials and headers.
pub(crate) struct Credentials {
    config: kube::Config,
    refresh_interval: Duration,
    /// The layers that never change.
    constant: Layers,
    current: Mutex<Current>,
    /// The pending query for the credentials of a request, shared with concurrent requests. In it kube runs a plugin when a
    /// token is about to expire, and keeps the plugin's output only if the query is polled to its end.
    query: SingleFlight<QueryResult>,
}

/// A service that takes a request and returns it completed, as the "body" of a response, because the layers require one.
type Layers = BoxCloneSyncService<Request<Body>, Response<Request<Body>>, BoxError>;

/// The pending creation of a source of credentials. It continues after every caller has given up: a plugin may ask a person
/// to log in, and must not do so again for each request.
type Renewal = Shared<BoxFuture<'static, Result<Layers, TransportErrorKind>>>;

#[derive(Default)]
struct Current {
    /// The layers that add the credentials.
    source: Option<Layers>,
    renewal: Option<Renewal>,
    /// The start of the last renewal.
    renewed_at: Option<Instant>,
    refreshes: u64,
}

impl Credentials {
    /// Returns the address of the server that the credentials are for.
    pub(crate) fn server(&self) -> &http::Uri {
        &self.config.cluster_url
    }

    /// Creates the credentials and reports mistakes early. A plugin is not run here: the first request runs it.
    pub(crate) fn from_config(
        config: &kube::Config,
        refresh_interval: Duration,
    ) -> Result<Self, ConfigError> {
        let headers = config.extra_headers_layer().map_err(|e| ConfigError::Header(e.to_string()))?;
        let constant = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(headers)
            .map_err(BoxError::from)
            .service(tower::service_fn(echo));
        let runs_something = config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some();
        let source = match runs_something {
            true => None,
            false => Some(build(config)?),
        };
        Ok(Self {
            config: config.clone(),
            refresh_interval,
            constant: BoxCloneSyncService::new(constant),
            current: Mutex::new(Current { source, ..Current::default() }),
            query: SingleFlight::new(),
        })
    }

    /// Completes a request. May read a token file or wait for a plugin; the caller must bound it.
    pub(crate) async fn complete(
        &self,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, TransportErrorKind> {
        let source = match self.source() {
            Some(source) => source,
            None => self.renew(false).await?,
        };
        match self.authorization(source).await {
            Ok(Some(credentials)) => _ = request.headers_mut().insert(header::AUTHORIZATION, credentials),
            Ok(None) => {}
            Err(error_kind) => {
                // The plugin may now return credentials of another type, which this source cannot use.
                self.current.lock().source = None;
                return Err(error_kind);
            }
        }
        apply(self.constant.clone(), request).await
    }

    /// Returns the header that the source adds to a request. An earlier query may have been abandoned long ago, so its
    /// result may have expired. Then a second query returns at once what the source has, after checking that it is
    /// still valid.
    async fn authorization(&self, source: Layers) -> Result<Option<HeaderValue>, TransportErrorKind> {
        let (began, header) = self.query.run(|done| query(source.clone(), done)).await;
        match began.elapsed() < RESULT_TTL {
            true => header,
            false => self.query.run(|done| query(source, done)).await.1,
        }
    }

    /// Handles a 401: renews the credentials, unless that was done just before.
    pub(crate) async fn rejected(&self) {
        if let Err(error_kind) = self.renew(true).await {
            tracing::warn!(%error_kind, "cannot renew credentials, keeping the old ones");
        }
    }

    /// Returns the number of renewals after a 401.
    pub(crate) fn refreshes(&self) -> u64 {
        self.current.lock().refreshes
    }

    /// Returns the current source, also from a renewal that no caller awaited to its end.
    fn source(&self) -> Option<Layers> {
        let (source, renewal) = {
            let current = self.current.lock();
            (current.source.clone(), current.renewal.clone().filter(|r| r.peek().is_none()))
        };
        match renewal.and_then(FutureExt::now_or_never) {
            Some(Ok(renewed)) => Some(self.set_source(renewed)),
            _ => source,
        }
    }

    /// Returns the result of the running or a recent renewal; otherwise of a new one.
    async fn renew(&self, rejected: bool) -> Result<Layers, TransportErrorKind> {
        let renewal = {
            let mut current = self.current.lock();
            let recent = current.renewed_at.is_some_and(|at| at.elapsed() < self.refresh_interval);
            let running = current.renewal.as_ref().is_some_and(|r| r.peek().is_none());
            match &current.renewal {
                Some(renewal) if recent || running => renewal.clone(),
                _ => {
                    let renewal = renewal(self.config.clone());
                    current.renewal = Some(renewal.clone());
                    current.renewed_at = Some(Instant::now());
                    current.refreshes += u64::from(rejected);
                    renewal
                }
            }
        };
        Ok(self.set_source(renewal.await?))
    }

    fn set_source(&self, source: Layers) -> Layers {
        self.current.lock().source = Some(source.clone());
        source
    }
}

/// Starts a renewal in its own thread, because kube reads files and runs plugins without yielding.
fn renewal(config: kube::Config) -> Renewal {
    async move {
        match tokio::task::spawn_blocking(move || build(&config)).await {
            Ok(Err(ConfigError::Auth(reason))) => Err(TransportErrorKind::Auth(reason.into())),
            Ok(built) => built.map_err(|error| TransportErrorKind::Auth(error.to_string().into())),
            Err(_) => Err(TransportErrorKind::Auth(PANICKED.into())),
        }
    }
    .boxed()
    .shared()
}

/// Returns the layers that add the credentials: a plugin's, a token file's, or those of kube.
fn build(config: &kube::Config) -> Result<Layers, ConfigError> {
    let auth = &config.auth_info;
    if let Some(exec) = &auth.exec {
        return PluginSource::run(exec).map(PluginSource::layers);
    }
    if let Some(path) = auth.token_file.as_deref().filter(|_| auth.auth_provider.is_none()) {
        let file = TokenFile::open(path, auth.token.as_ref()).map_err(ConfigError::Auth)?;
        return Ok(from_file(Arc::new(file)));
    }
    let token = auth.token.as_ref();
    if token.is_some_and(|token| HeaderValue::from_str(token.expose_secret()).is_err()) {
        // kube would panic here.
        return Err(ConfigError::Auth("the token has characters that no header may have".into()));
    }
    let auth = config.auth_layer().map_err(|error| ConfigError::Auth(without_secrets(&error)))?;
    let layers =
        ServiceBuilder::new().option_layer(auth).map_err(BoxError::from).service(tower::service_fn(echo));
    Ok(BoxCloneSyncService::new(layers))
}

fn from_file(file: Arc<TokenFile>) -> Layers {
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
        let file = file.clone();
        async move {
            request.headers_mut().insert(header::AUTHORIZATION, file.header().await);
            Ok::<_, BoxError>(Response::new(request))
        }
    }))
}

/// The token of an exec plugin, which is run again before the token expires.
struct PluginSource {
    exec: ExecConfig,
    current: Mutex<PluginCredentials>,
}

impl PluginSource {
    /// Runs the plugin for the first time. Blocks until it has ended.
    fn run(exec: &ExecConfig) -> Result<Self, ConfigError> {
        let current = plugin::run(exec).map_err(|error| ConfigError::Auth(error.to_string()))?;
        Ok(Self { exec: exec.clone(), current: Mutex::new(current) })
    }

    fn layers(self) -> Layers {
        let source = Arc::new(self);
        BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
            let source = source.clone();
            async move {
                if let Some(token) = source.header().await? {
                    request.headers_mut().insert(header::AUTHORIZATION, token);
                }
                Ok::<_, BoxError>(Response::new(request))
            }
        }))
    }

    /// Returns the `Authorization` header; `None` if the plugin returns only a certificate.
    async fn header(&self) -> Result<Option<HeaderValue>, BoxError> {
        if self.current.lock().is_expiring() {
            let exec = self.exec.clone();
            let renewed = tokio::task::spawn_blocking(move || plugin::run(&exec)).await;
            *self.current.lock() = renewed.map_err(|_| PANICKED)??;
        }
        let current = self.current.lock();
        let Some(token) = &current.token else { return Ok(None) };
        let header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
        let mut header =
            header.map_err(|_| "exec plugin: the token has characters that no header may have")?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// Drops credentials that kubectl would not use together: a plugin runs only if there is no token, no password and no
/// client certificate.
pub(crate) fn effective(mut config: kube::Config) -> kube::Config {
    let auth = &mut config.auth_info;
    let others = auth.token.is_some()
        || auth.token_file.is_some()
        || auth.username.is_some()
        || auth.client_certificate.is_some()
        || auth.client_certificate_data.is_some();
    if others {
        auth.exec = None;
    }
    config
}

fn echo(request: Request<Body>) -> Ready<Result<Response<Request<Body>>, Infallible>> {
    future::ready(Ok(Response::new(request)))
}

/// The start of a query, and the header that the source adds to a request.
type QueryResult = (Instant, Result<Option<HeaderValue>, TransportErrorKind>);

/// Queries the source. A plugin that it runs continues in kube's thread, and the next caller gets the result.
fn query(source: Layers, done: DoneGuard) -> BoxFuture<'static, QueryResult> {
    let began = Instant::now();
    async move {
        let _done = done;
        // A panic in the source must not propagate to every caller that joined.
        let asked = AssertUnwindSafe(apply(source, Request::new(Body::empty()))).catch_unwind().await;
        let request = asked.unwrap_or_else(|_| Err(TransportErrorKind::Auth(PANICKED.into())));
        (began, request.map(|request| request.headers().get(header::AUTHORIZATION).cloned()))
    }
    .boxed()
}

async fn apply(layers: Layers, request: Request<Body>) -> Result<Request<Body>, TransportErrorKind> {
    match layers.oneshot(request).await {
        Ok(completed) => Ok(completed.into_body()),
        Err(error) => Err(TransportErrorKind::Auth(match error.downcast_ref() {
            Some(error) => describe(error).into(),
            None => error.to_string().into(),
        })),
    }
}

/// A generic message: the panic's own may contain the credentials that were being read.
const PANICKED: &str = "the token's source panicked";

/// Describes an error without a plugin's standard output, which may contain a token or a part of one.
pub(crate) fn without_secrets(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => describe(error),
        error => error.to_string(),
    }
}

/// Describes an authentication error in kube's words only where these cannot contain plugin output.
fn describe(error: &AuthError) -> String {
    let unreadable =
        |line, column| format!("exec plugin: cannot read its output (line {line}, column {column})");
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let stderr = String::from_utf8_lossy(&out.stderr);
            let stderr: String = stderr.trim().chars().take(500).collect();
            format!("exec plugin failed with {}: {stderr}", out.status)
        }
        // kube shows the lines around the position.
        AuthError::AuthExecParse(error) => match error.location() {
            Some(at) => unreadable(at.line(), at.column()),
            None => "exec plugin: cannot read its output".into(),
        },
        AuthError::ParseTokenKey(error) => unreadable(error.line() as u64, error.column() as u64),
        AuthError::MalformedTokenExpirationDate(_) => {
            "the time when the plugin's token expires is none".into()
        }
        AuthError::AuthExec(text) if text.contains("panicked") => PANICKED.into(),
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::UnrefreshableTokenResponse
        | AuthError::ExecPluginFailed
        | AuthError::AuthExecStart(_)
        | AuthError::AuthExec(_)
        | AuthError::ReadTokenFile(..)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo => error.to_string(),
        _ => "the source of the credentials failed".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn panic_message_of_auth_task_is_redacted() {
        let panicked = "failed to spawn blocking auth task: task 7 panicked with message \"canary\"";
        assert_eq!(describe(&AuthError::AuthExec(panicked.into())), PANICKED);
        assert!(describe(&AuthError::AuthExec("no such provider".into())).contains("no such provider"));
    }

    #[test]
    fn rejects_token_invalid_in_header() {
        let mut config = kube::Config::new("https://server.test".parse().unwrap());
        config.auth_info.token = Some("a\u{7f}canary".to_owned().into());
        let refused = Credentials::from_config(&config, Duration::ZERO).err().unwrap().to_string();
        assert!(refused.contains("characters that no header may have") && !refused.contains("canary"));
    }

    /// Simulates a caller that went away before the token arrived; since then it may have expired.
    #[tokio::test(start_paused = true)]
    async fn abandoned_token_is_not_sent_after_ttl() {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = tower::service_fn(move |mut request: Request<Body>| {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let token = HeaderValue::from(number);
                request.headers_mut().insert(header::AUTHORIZATION, token);
                Ok::<_, BoxError>(Response::new(request))
            }
        });
        let config = kube::Config::new("https://server.test".parse().unwrap());
        let credentials = Credentials::from_config(&config, Duration::from_secs(5)).unwrap();
        credentials.current.lock().source = Some(BoxCloneSyncService::new(source));
        let complete = || credentials.complete(Request::new(Body::empty()));
        for (later, token) in [(1, "0"), (RESULT_TTL.as_secs() + 1, "2")] {
            let cut = tokio::time::timeout(Duration::from_secs(1), complete()).await;
            assert!(cut.is_err());
            tokio::time::sleep(Duration::from_secs(later)).await;
            let completed = complete().await.unwrap();
            assert_eq!(completed.headers()[header::AUTHORIZATION], token);
        }
    }
}
