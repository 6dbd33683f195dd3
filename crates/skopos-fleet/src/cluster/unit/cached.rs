//! Cached resources of a cluster: starting an informer and waiting for its content.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::core::ApiResource;
use skopos::ResourceId;
use tokio::time::{Instant, timeout};

use super::Unit;
use crate::cluster::kinds::{CachedKind, Ended, Entry, Starting};
use crate::cluster::session::Link;
use crate::error::FleetError;
use crate::keeper::Keeper;

/// Timeout of one call to a keeper. After a restart a keeper has many calls to answer.
pub(crate) const KEEPER_PATIENCE: Duration = Duration::from_secs(20);

/// Interval at which a call that waits for a cached resource checks it.
const LOOK: Duration = Duration::from_millis(20);

impl Unit {
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
            self.recalled.cancelled().await;
            match with_content() {
                Some(kind) => Ok(kind),
                None => self.await_kind(resource).await,
            }
        });
        match timeout(limit, waiting).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(FleetError::Closed),
            Err(_) => Err(self.too_late(begun, Some(resource))),
        }
    }

    /// Waits up to the caller's limit, and returns early where waiting cannot help.
    async fn await_kind(self: &Arc<Self>, resource: &ResourceId) -> Result<CachedKind, FleetError> {
        if let Some(over) = self.is_over() {
            return Err(over);
        }
        let running = self.kinds.is_started(resource);
        if !running {
            self.check_answers(false)?;
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
            self.check_answers(true)?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for a started resource over the link that leads to the cluster now.
    async fn await_start(self: &Arc<Self>, resource: &ResourceId) -> Result<Arc<Entry>, FleetError> {
        loop {
            let link = self.link();
            let starting = self.start_kind(resource, false)?;
            // Resources that were started before the cluster was paused are checked, too.
            self.check_answers(true)?;
            match starting.await {
                Err(_) if !Arc::ptr_eq(&link, &self.link()) => {}
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
        let begin = || self.starting(self.link(), resource.clone(), pinned, self.recalling());
        let start = self.kinds.start(resource, &self.options, begin);
        let start = start.map_err(|reason| {
            let resource = Box::new(resource.clone());
            FleetError::Budget { cluster: self.id.clone(), resource, reason }
        })?;
        if let Some(number) = start.begun {
            let (unit, starting, resource) = (self.clone(), start.starting.clone(), resource.clone());
            self.tasks.spawn(async move {
                let started = unit.stop.run_until_cancelled(starting).await;
                if !matches!(started, Some(Ok(_))) {
                    unit.kinds.failed(&resource, number);
                }
                unit.stirred.notify_one();
            });
        }
        Ok(start.starting)
    }

    /// Returns the keeper whose checkpoints a resource may start from. `None` once restoring is over: readers may have
    /// seen newer content, and must not see older.
    pub(super) fn recalling(&self) -> Option<Arc<dyn Keeper>> {
        self.keeper.clone().filter(|_| !self.recalled.is_cancelled())
    }

    /// Starts a cached resource over a link. The future holds no reference to the unit, because the unit holds the
    /// future.
    pub(super) fn starting(
        &self,
        link: Arc<Link>,
        resource: ResourceId,
        pinned: bool,
        keeper: Option<Arc<dyn Keeper>>,
    ) -> Starting {
        let (id, options) = (self.id.clone(), self.options.clone());
        let starting = async move {
            let session = link.session().await?;
            let mut chosen = options.informer.options(&id, &resource);
            if let Some((keeper, identity)) = keeper.zip(session.factory.cluster()) {
                let preparing = keeper.prepare(&id, &identity, &resource, chosen.clone());
                chosen = timeout(KEEPER_PATIENCE, preparing).await.unwrap_or(chosen);
            }
            let informer = session.factory.raw(&api_resource(&resource), chosen);
            let informer = informer.map_err(|error| match session.factory.is_closed() {
                true => FleetError::Closed,
                false => FleetError::Config { cluster: id.clone(), reason: error.to_string().into() },
            })?;
            Ok(Entry::new(informer, pinned))
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

    fn ended(&self, resource: &ResourceId, ended: Ended) -> FleetError {
        let (cluster, resource) = (self.id.clone(), Box::new(resource.clone()));
        match ended {
            Ended::Removed => FleetError::Removed { cluster, since: self.state().since },
            Ended::Closed => FleetError::Closed,
            Ended::Idle
            | Ended::Evicted
            | Ended::Unwanted
            | Ended::NotServed
            | Ended::Reconnected
            | Ended::Replaced => {
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
