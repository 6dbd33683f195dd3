//! How the gateway and its clusters stand: for probes, for Prometheus, for people.
//!
//! ```text
//!  /healthz, /livez   the process answers                  for everybody
//!  /readyz            it serves; never waits for clusters  for everybody
//!  /metrics           Prometheus' text                     for observers
//!  /api/v1/status     the same for people, as JSON         for observers
//! ```

mod metrics;
mod requests;
pub mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::RwLock;
use skopos_wire::{GroupResource, Status};
use tokio::sync::watch;

use self::metrics::Metrics;
use crate::auth::Identity;
use crate::clusters::Clusters;
use crate::config::ConfigState;
use crate::gateway::{GatewayBuilder, not_found, route_fn};
use crate::listen::ListenStats;
use crate::merged::Merged;
use crate::response::{self, Response};
use crate::route::Call;
use crate::services::Services;

/// How everything stands. Cheap to clone.
#[derive(Clone)]
pub struct State {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) services: Services,
    ready: Arc<AtomicBool>,
    /// Of the listener, once there is one.
    pub(crate) listen: Arc<RwLock<Option<ListenStats>>>,
    /// What serves single clusters, and all together, once it does.
    pub(crate) routes: Arc<RwLock<Option<(Clusters, Merged)>>>,
    /// Of the configuration file, if one is followed.
    pub(crate) config: Option<watch::Receiver<ConfigState>>,
    metrics: Metrics,
}

// === impl State ===

impl State {
    /// Of these clusters, and of the file that is followed, if one is.
    #[must_use]
    pub fn new(services: Services, config: Option<watch::Receiver<ConfigState>>) -> Self {
        Self::over(services, config, Arc::default(), Arc::default(), Arc::default())
    }

    /// The same listener with other services.
    #[must_use]
    pub fn renewed(&self, services: Services) -> Self {
        let Shared { config, ready, listen, routes, .. } = &*self.shared;
        Self::over(services, config.clone(), ready.clone(), listen.clone(), routes.clone())
    }

    fn over(
        services: Services,
        config: Option<watch::Receiver<ConfigState>>,
        ready: Arc<AtomicBool>,
        listen: Arc<RwLock<Option<ListenStats>>>,
        routes: Arc<RwLock<Option<(Clusters, Merged)>>>,
    ) -> Self {
        let shared = Arc::new_cyclic(|shared| Shared {
            metrics: Metrics::new(shared.clone()),
            services,
            ready,
            listen,
            routes,
            config,
        });
        Self { shared }
    }

    /// The gateway listens, with these counts: it is ready.
    pub fn listening(&self, stats: ListenStats) {
        *self.shared.listen.write() = Some(stats);
        self.shared.ready.store(true, Ordering::Release);
    }

    /// These serve single clusters, and all together: what they make and hold is counted.
    pub fn serving(&self, clusters: Clusters, merged: Merged) {
        *self.shared.routes.write() = Some((clusters, merged));
    }

    /// The gateway is about to stop: balancers are to send their requests elsewhere.
    pub fn stopping(&self) {
        self.shared.ready.store(false, Ordering::Release);
    }

    /// Plugs the routes in.
    #[must_use]
    pub fn plug_into(&self, gateway: GatewayBuilder) -> GatewayBuilder {
        let state = || self.clone();
        let alive =
            route_fn(|call: Call| async move { leaf(&call, || response::text(StatusCode::OK, "ok")) });
        let ready = state();
        let ready = route_fn(move |call: Call| {
            let state = ready.clone();
            async move { leaf(&call, || state.ready()) }
        });
        let metrics = state();
        let metrics = route_fn(move |call: Call| {
            let state = metrics.clone();
            async move { leaf(&call, || state.metrics(&call)) }
        });
        let api = state();
        let api = route_fn(move |call: Call| {
            let state = api.clone();
            async move { state.api(&call) }
        });
        gateway
            .open_route("healthz", alive.clone())
            .open_route("livez", alive)
            .open_route("readyz", ready)
            .route("metrics", metrics)
            .route("api", api)
            .observed(Arc::new(self.shared.metrics.requests()))
    }

    fn ready(&self) -> Response {
        match self.shared.ready.load(Ordering::Acquire) {
            true => response::text(StatusCode::OK, "ok"),
            false => response::text(StatusCode::SERVICE_UNAVAILABLE, "the gateway is starting or stopping"),
        }
    }

    fn metrics(&self, call: &Call) -> Response {
        if let Err(status) = self.observes(&call.identity, "/metrics") {
            return response::status(&status);
        }
        match self.shared.metrics.text() {
            Ok(text) => response::bytes(
                StatusCode::OK,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                Bytes::from(text),
            ),
            Err(error) => response::status(&Status::internal_error(error)),
        }
    }

    fn api(&self, call: &Call) -> Response {
        if call.path.segments().ne(["v1", "status"]) {
            return not_found();
        }
        if let Err(status) = self.observes(&call.identity, "/api/v1/status") {
            return response::status(&status);
        }
        let report = status::Report::of(&self.shared);
        response::bytes(
            StatusCode::OK,
            "application/json",
            serde_json::to_vec(&report).unwrap_or_default().into(),
        )
    }

    /// Names and states of clusters are for those who are named for it; where nobody has to prove anything, for everybody on
    /// this machine.
    fn observes(&self, who: &Identity, path: &str) -> Result<(), Status> {
        let config = &self.shared.services.config;
        let observers = &config.authorization.observers;
        let named = observers.users.contains(&who.user)
            || observers.groups.iter().any(|group| who.groups.contains(group));
        if named || !config.authentication.is_configured() {
            return Ok(());
        }
        let problem = format!(
            "User {:?} cannot get path {path:?}: name the user or a group in authorization.observers",
            who.user
        );
        Err(Status::forbidden(GroupResource::new("", ""), "", problem))
    }
}

/// What has nothing below it.
fn leaf(call: &Call, answer: impl FnOnce() -> Response) -> Response {
    if call.path.is_root() { answer() } else { not_found() }
}
