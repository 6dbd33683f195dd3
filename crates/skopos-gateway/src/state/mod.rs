//! State of the gateway and its clusters: for probes, for Prometheus, for people.
//!
//! ```text
//!  /healthz, /livez   the process answers                  for all callers
//!  /readyz            it serves; never waits for clusters  for all callers
//!  /metrics           Prometheus' text                     for observers
//!  /api/v1/status     the same for people, as JSON         for observers
//! ```

mod metrics;
mod requests;
pub(crate) mod status;
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
use crate::gateway::route::Call;
use crate::gateway::services::Services;
use crate::gateway::{GatewayBuilder, not_found, route_fn};
use crate::listen::ListenStats;
use crate::merged::Merged;
use crate::response::{self, Response};

/// The state of the gateway and its clusters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct State {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) services: Services,
    ready: Arc<AtomicBool>,
    /// The counters of the listener, once it exists.
    pub(crate) listen: Arc<RwLock<Option<ListenStats>>>,
    /// The routes of single clusters and of all clusters, once they serve.
    pub(crate) routes: Arc<RwLock<Option<(Clusters, Merged)>>>,
    /// The state of the configuration file, if one is followed.
    pub(crate) config: Option<watch::Receiver<ConfigState>>,
    metrics: Metrics,
}

impl State {
    /// Makes the state of these services, and of the configuration file if one is followed.
    pub(crate) fn new(services: Services, config: Option<watch::Receiver<ConfigState>>) -> Self {
        Self::over(services, config, Arc::default(), Arc::default(), Arc::default())
    }

    /// Returns the same state with other services.
    pub(crate) fn renewed(&self, services: Services) -> Self {
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
            metrics: Metrics::new(shared.clone(), services.config.cache.max_age.0),
            services,
            ready,
            listen,
            routes,
            config,
        });
        Self { shared }
    }

    /// Records that the gateway listens, with these counters. From now on it is ready.
    pub(crate) fn listening(&self, stats: ListenStats) {
        *self.shared.listen.write() = Some(stats);
        self.shared.ready.store(true, Ordering::Release);
    }

    /// Records the routes of single clusters and of all clusters, whose figures are reported.
    pub(crate) fn serving(&self, clusters: Clusters, merged: Merged) {
        *self.shared.routes.write() = Some((clusters, merged));
    }

    /// Records that the gateway is about to stop, so that load balancers send requests elsewhere.
    pub(crate) fn stopping(&self) {
        self.shared.ready.store(false, Ordering::Release);
    }

    /// Adds the routes to a gateway.
    pub(crate) fn plug_into(&self, gateway: GatewayBuilder) -> GatewayBuilder {
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
        let report = status::Report::new(&self.shared);
        response::bytes(
            StatusCode::OK,
            "application/json",
            serde_json::to_vec(&report).unwrap_or_default().into(),
        )
    }

    /// Checks that the caller may see names and states of clusters: configured observers, or all callers on this machine if
    /// there is no authentication.
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

/// Answers a path with nothing below it.
fn leaf(call: &Call, answer: impl FnOnce() -> Response) -> Response {
    if call.path.is_root() { answer() } else { not_found() }
}
