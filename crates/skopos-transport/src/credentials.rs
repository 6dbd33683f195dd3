//! Who we are, on every request: kube's own layers for URL, credentials and extra headers.

use std::{convert::Infallible, time::Duration};

use futures::{
    FutureExt,
    future::{self, BoxFuture, Shared},
};
use http::{Request, Response};
use kube::client::{AuthError, Body, ConfigExt};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use crate::error::{ConfigError, Death};

/// Turns a request with a path into one for this cluster, with credentials.
pub(crate) struct Credentials {
    config: kube::Config,
    refresh_interval: Duration,
    current: Mutex<Current>,
}

/// Takes a request and gives it back completed, as the "body" of a response, because the layers insist on one.
type Layers = BoxCloneSyncService<Request<Body>, Response<Request<Body>>, BoxError>;

/// Having credentials anew. It goes on when nobody waits any more: a plugin may ask a person to log in, and must not do so
/// again for each request.
type Renewal = Shared<BoxFuture<'static, Result<Layers, Death>>>;

#[derive(Default)]
struct Current {
    layers: Option<Layers>,
    renewal: Option<Renewal>,
    /// Begin of the last renewal.
    renewed_at: Option<Instant>,
    refreshes: u64,
}

impl Credentials {
    /// Finds mistakes early, except when that means to run a plugin: then the first request runs it.
    pub(crate) fn from_config(
        config: &kube::Config,
        refresh_interval: Duration,
    ) -> Result<Self, ConfigError> {
        let runs_something = config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some();
        let layers = match runs_something {
            true => {
                config.extra_headers_layer().map_err(|e| ConfigError::Header(e.to_string()))?;
                None
            }
            false => Some(build(config)?),
        };
        let current = Mutex::new(Current { layers, ..Current::default() });
        Ok(Self { config: config.clone(), refresh_interval, current })
    }

    /// Completes a request. May read a token file or wait for a plugin; the caller bounds it.
    pub(crate) async fn complete(&self, request: Request<Body>) -> Result<Request<Body>, Death> {
        let layers = self.current.lock().layers.clone();
        let layers = match layers {
            Some(layers) => layers,
            None => self.renew(false).await?,
        };
        let completed = layers.oneshot(request).await.map_err(|e| Death::Auth(e.to_string().into()))?;
        Ok(completed.into_body())
    }

    /// The server answered 401: has the credentials anew, unless that was done a moment ago.
    pub(crate) async fn rejected(&self) {
        if let Err(death) = self.renew(true).await {
            tracing::warn!(%death, "cannot renew credentials, keeping the old ones");
        }
    }

    /// How often a 401 made us have credentials anew.
    pub(crate) fn refreshes(&self) -> u64 {
        self.current.lock().refreshes
    }

    /// The result of the renewal that runs, or ran a moment ago; else of a new one.
    async fn renew(&self, rejected: bool) -> Result<Layers, Death> {
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
        let layers = renewal.await?;
        self.current.lock().layers = Some(layers.clone());
        Ok(layers)
    }
}

/// In a thread of its own, because kube reads files and runs plugins without yielding.
fn renewal(config: kube::Config) -> Renewal {
    async move {
        match tokio::task::spawn_blocking(move || build(&config)).await {
            Ok(built) => built.map_err(|error| Death::Auth(error.to_string().into())),
            Err(panic) => Err(Death::Auth(panic.to_string().into())),
        }
    }
    .boxed()
    .shared()
}

fn build(config: &kube::Config) -> Result<Layers, ConfigError> {
    let auth = config.auth_layer().map_err(|error| ConfigError::Auth(without_secrets(&error)))?;
    let headers = config.extra_headers_layer().map_err(|e| ConfigError::Header(e.to_string()))?;
    let give_back = tower::service_fn(|request: Request<Body>| {
        future::ready(Ok::<_, Infallible>(Response::new(request)))
    });
    let layers = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(headers)
        .map_err(BoxError::from)
        .service(give_back);
    Ok(BoxCloneSyncService::new(layers))
}

/// What went wrong, without what a plugin printed to its standard output: that may be a token.
pub(crate) fn without_secrets(error: &kube::Error) -> String {
    let kube::Error::Auth(AuthError::AuthExecRun { out, .. }) = error else { return error.to_string() };
    let stderr = String::from_utf8_lossy(&out.stderr);
    let stderr: String = stderr.trim().chars().take(500).collect();
    format!("exec plugin failed with {}: {stderr}", out.status)
}
