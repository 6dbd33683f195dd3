//! Cached resources of a cluster: starting an informer and waiting for its content.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::core::ApiResource;
use skopos::ResourceId;
use tokio::time::{Instant, timeout};

use super::ClusterInner;
use crate::cluster::kinds::{CachedInformer, CachedKind, Starting, StopReason};
use crate::cluster::persistence::{PERSISTENCE_TIMEOUT, Persistence};
use crate::cluster::session::ClusterConnection;
use crate::error::FleetError;

/// Interval at which a call that waits for a cached resource checks it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl ClusterInner {
    pub(crate) async fn kind(
        self: &Arc<Self>,
        resource: &ResourceId,
        limit: Duration,
    ) -> Result<CachedKind, FleetError> {
        let begun = Instant::now();
        let with_content = || self.kinds.get(resource).map(CachedKind::new).filter(CachedKind::has_content);
        if let Some(kind) = with_content() {
            return Ok(kind);
        }
        let waiting = self.stop.run_until_cancelled(async {
            self.restored.cancelled().await;
            match with_content() {
                Some(kind) => Ok(kind),
                None => self.await_kind(resource).await,
            }
        });
        match timeout(limit, waiting).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(FleetError::Closed),
            Err(_) => Err(self.deadline_error(begun, Some(resource))),
        }
    }

    /// Waits up to the caller's limit, and returns early where waiting cannot help.
    async fn await_kind(self: &Arc<Self>, resource: &ResourceId) -> Result<CachedKind, FleetError> {
        if let Some(over) = self.closed_error() {
            return Err(over);
        }
        let running = self.kinds.is_started(resource);
        if !running {
            self.check_reachable(false)?;
        }
        let kind = CachedKind::new(self.await_start(resource).await?);
        loop {
            if kind.has_content() {
                return Ok(kind);
            }
            if let Some(ended) = kind.end_reason() {
                return Err(self.ended(resource, ended));
            }
            if let Some((code, reason)) = kind.refusal() {
                self.kinds.refused(resource, code, reason.clone());
                return Err(self.refused(resource, code, reason));
            }
            if let Some((attempts, reason)) = kind.failure() {
                return Err(self.failing(resource, attempts, reason));
            }
            self.check_reachable(true)?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits for a started resource over the connection that leads to the cluster now.
    async fn await_start(self: &Arc<Self>, resource: &ResourceId) -> Result<Arc<CachedInformer>, FleetError> {
        loop {
            let connection = self.connection();
            let starting = self.start_kind(resource, false)?;
            // Resources that were started before the cluster was paused are checked, too.
            self.check_reachable(true)?;
            match starting.await {
                Err(_) if !Arc::ptr_eq(&connection, &self.connection()) => {}
                started => return started,
            }
        }
    }

    /// Starts a cached resource. The start continues after its callers have given up.
    pub(crate) fn start_kind(
        self: &Arc<Self>,
        resource: &ResourceId,
        pinned: bool,
    ) -> Result<Starting, FleetError> {
        if let Some((code, reason)) = self.kinds.refusal(resource).filter(|_| !pinned) {
            return Err(self.refused(resource, code, reason));
        }
        let begin = || {
            let starting = self.starting(self.connection(), resource.clone(), pinned, self.restoring());
            let (inner, driven, resource) = (self.clone(), starting.clone(), resource.clone());
            self.tasks.spawn(async move {
                let started = inner.stop.run_until_cancelled(driven.clone()).await;
                if !matches!(started, Some(Ok(_))) {
                    inner.kinds.failed(&resource, &driven);
                }
                inner.wakeup.notify_one();
            });
            starting
        };
        self.kinds.start(resource, &self.options, begin).map_err(|reason| {
            let resource = Box::new(resource.clone());
            FleetError::Budget { cluster: self.id.clone(), resource, reason }
        })
    }

    /// Returns the persistence whose checkpoints a resource may start from. `None` once restoring is over: readers may
    /// have seen newer content, and must not see older.
    pub(super) fn restoring(&self) -> Option<Arc<dyn Persistence>> {
        self.persistence.clone().filter(|_| !self.restored.is_cancelled())
    }

    /// Starts a cached resource over a connection. The future holds no reference to the cluster, because the cluster
    /// holds the future.
    pub(super) fn starting(
        &self,
        connection: Arc<ClusterConnection>,
        resource: ResourceId,
        pinned: bool,
        persistence: Option<Arc<dyn Persistence>>,
    ) -> Starting {
        let (id, options) = (self.id.clone(), self.options.clone());
        let starting = async move {
            let session = connection.session().await?;
            let mut chosen = options.informer.options(&id, &resource);
            if let Some((persistence, identity)) = persistence.zip(session.factory.cluster()) {
                let preparing = persistence.prepare(&id, &identity, &resource, chosen.clone());
                chosen = timeout(PERSISTENCE_TIMEOUT, preparing).await.unwrap_or(chosen);
            }
            let informer = session.factory.raw(&api_resource(&resource), chosen);
            let informer = informer.map_err(|error| match session.factory.is_closed() {
                true => FleetError::Closed,
                false => FleetError::Config { cluster: id.clone(), reason: error.to_string().into() },
            })?;
            Ok(CachedInformer::new(informer, pinned))
        };
        starting.boxed().shared()
    }

    fn refused(&self, resource: &ResourceId, code: u16, reason: Arc<str>) -> FleetError {
        FleetError::Refused { cluster: self.id.clone(), resource: Box::new(resource.clone()), code, reason }
    }

    fn failing(&self, resource: &ResourceId, attempts: u32, reason: Arc<str>) -> FleetError {
        let (cluster, resource) = (self.id.clone(), Box::new(resource.clone()));
        FleetError::Failing { cluster, resource, attempts, reason }
    }

    fn ended(&self, resource: &ResourceId, ended: StopReason) -> FleetError {
        let (cluster, resource) = (self.id.clone(), Box::new(resource.clone()));
        match ended {
            StopReason::Removed => FleetError::Removed { cluster, since: self.state().since },
            StopReason::Closed => FleetError::Closed,
            StopReason::Idle
            | StopReason::Evicted
            | StopReason::Unwanted
            | StopReason::NotServed
            | StopReason::Reconnected
            | StopReason::Replaced => {
                let reason = "it was let go before it was complete; ask again".into();
                FleetError::Budget { cluster, resource, reason }
            }
        }
    }
}

fn api_resource(resource: &ResourceId) -> ApiResource {
    let ResourceId { group, version, plural, kind } = resource.clone();
    let api_version = match group.as_str() {
        "" => version.clone(),
        group => format!("{group}/{version}"),
    };
    ApiResource { group, version, api_version, kind, plural }
}
