//! Who we are, on every request: kube's own layers for URL, credentials and extra headers.

use std::{convert::Infallible, time::Duration};

use futures::future;
use http::{Request, Response};
use kube::client::{Body, ConfigExt};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use crate::error::{ConfigError, Death};

/// Turns a request with a path into one for this cluster, with credentials.
pub(crate) struct Credentials {
    config: kube::Config,
    refresh_interval: Duration,
    current: Mutex<Current>,
    refreshing: tokio::sync::Mutex<()>,
}

/// Takes a request and gives it back completed, as the "body" of a response, because the layers insist on one.
type Layers = BoxCloneSyncService<Request<Body>, Response<Request<Body>>, BoxError>;

#[derive(Default)]
struct Current {
    layers: Option<Layers>,
    refreshed: Option<Instant>,
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
        Ok(Self {
            config: config.clone(),
            refresh_interval,
            current: Mutex::new(Current { layers, ..Current::default() }),
            refreshing: tokio::sync::Mutex::new(()),
        })
    }

    /// Completes a request. May read a token file or wait for a plugin; the caller bounds it.
    pub(crate) async fn complete(&self, request: Request<Body>) -> Result<Request<Body>, Death> {
        let layers = self.current.lock().layers.clone();
        let layers = match layers {
            Some(layers) => layers,
            None => self.renew().await?,
        };
        let completed = layers.oneshot(request).await.map_err(|e| Death::Auth(e.to_string().into()))?;
        Ok(completed.into_body())
    }

    /// The server answered 401: has the credentials anew, unless that was done a moment ago. Returns whether it did.
    pub(crate) async fn rejected(&self) -> bool {
        let due =
            |current: &Current| current.refreshed.is_none_or(|at| at.elapsed() >= self.refresh_interval);
        let Ok(_only_one) = self.refreshing.try_lock() else {
            // Somebody is at it: wait, so that the caller's next request has the result.
            drop(self.refreshing.lock().await);
            return false;
        };
        {
            let mut current = self.current.lock();
            if !due(&current) {
                return false;
            }
            current.refreshed = Some(Instant::now());
            current.refreshes += 1;
        }
        match self.renewed().await {
            Ok(layers) => self.current.lock().layers = Some(layers),
            Err(death) => tracing::warn!(%death, "cannot renew credentials, keeping the old ones"),
        }
        true
    }

    /// How often a 401 made us have credentials anew.
    pub(crate) fn refreshes(&self) -> u64 {
        self.current.lock().refreshes
    }

    async fn renew(&self) -> Result<Layers, Death> {
        let _only_one = self.refreshing.lock().await;
        let present = self.current.lock().layers.clone();
        if let Some(layers) = present {
            return Ok(layers);
        }
        let layers = self.renewed().await?;
        self.current.lock().layers = Some(layers.clone());
        Ok(layers)
    }

    async fn renewed(&self) -> Result<Layers, Death> {
        let config = self.config.clone();
        let built = tokio::task::spawn_blocking(move || build(&config)).await;
        match built {
            Ok(Ok(layers)) => Ok(layers),
            Ok(Err(error)) => Err(Death::Auth(error.to_string().into())),
            Err(panic) => Err(Death::Auth(panic.to_string().into())),
        }
    }
}

fn build(config: &kube::Config) -> Result<Layers, ConfigError> {
    let auth = config.auth_layer().map_err(|e| ConfigError::Auth(e.to_string()))?;
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
