//! Source over the storage: one resource as requests see it, since an API server may lag behind.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use skopos_serve::{
    Blocks, Compacted, Contents, ReadError, ResourceType, Source, VersionRequirement, Window, object_key,
};
use tokio::time::{Instant, sleep};

use crate::clock::ServerClock;
use crate::faults::{Faults, RequestAttributes};
use crate::state::ServerState;
use crate::storage::{ReadScope, ResourceKey, Storage, Stored};

/// One resource of the storage as one request sees it.
#[derive(Clone, Debug)]
pub(crate) struct StoredResource {
    storage: Storage,
    resource: ResourceKey,
    window: Arc<Window<Arc<Stored>>>,
    faults: Faults,
    attributes: Arc<RequestAttributes>,
    clock: ServerClock,
    rng: Arc<Mutex<fastrand::Rng>>,
    blocks: Blocks,
}

/// State of the resource at one revision.
#[derive(Debug)]
pub(crate) struct StoredState {
    storage: Storage,
    resource: ResourceKey,
    revision: u64,
}

impl StoredResource {
    pub(crate) fn new(
        state: &ServerState,
        resource: &ResourceType,
        attributes: Arc<RequestAttributes>,
    ) -> Self {
        let resource = ResourceKey::from(resource);
        Self {
            window: state.storage.window(&resource),
            storage: state.storage.clone(),
            resource,
            faults: state.faults.clone(),
            attributes,
            clock: state.clock,
            rng: state.rng.clone(),
            blocks: state.blocks.clone(),
        }
    }

    /// Returns the newest revision that the request sees.
    fn visible_revision(&self) -> u64 {
        let newest = self.storage.revision();
        self.horizon().map_or(newest, |limit| limit.min(newest))
    }

    /// Waits until the request sees a revision (L6).
    async fn wait_for(&self, version: u64, timeout: Duration) -> Result<u64, ReadError> {
        let deadline = Instant::now() + timeout;
        loop {
            let visible_revision = self.visible_revision();
            if visible_revision >= version {
                return Ok(visible_revision);
            }
            if Instant::now() >= deadline {
                return Err(ReadError::Ahead { requested: version, current: visible_revision });
            }
            sleep(PROGRESS_POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }
}

/// Poll interval: kube-apiserver asks etcd for progress about this often while reads wait.
const PROGRESS_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Source for StoredResource {
    type Item = Arc<Stored>;
    type Contents = StoredState;

    async fn read(&self, wanted: VersionRequirement, timeout: Duration) -> Result<StoredState, ReadError> {
        let revision = match wanted {
            VersionRequirement::Newest => self.storage.revision(),
            VersionRequirement::Any => self.visible_revision(),
            VersionRequirement::NotOlderThan(version) => self.wait_for(version, timeout).await?,
            VersionRequirement::Exactly(version) => version,
        };
        Ok(StoredState { storage: self.storage.clone(), resource: self.resource.clone(), revision })
    }

    fn window(&self) -> &Arc<Window<Arc<Stored>>> {
        &self.window
    }

    fn progress(&self) -> u64 {
        self.visible_revision()
    }

    fn horizon(&self) -> Option<u64> {
        self.faults.lag(&self.attributes, &self.storage)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn jitter(&self) -> f64 {
        self.rng.lock().f64()
    }

    fn blocks(&self) -> Option<&Blocks> {
        Some(&self.blocks)
    }
}

impl Contents for StoredState {
    type Item = Arc<Stored>;

    fn revision(&self) -> u64 {
        self.revision
    }

    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<Stored>>, Compacted> {
        self.storage.get_at(&self.resource, &object_key(namespace, name), self.revision)
    }

    fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        max: usize,
    ) -> Result<Vec<Arc<Stored>>, Compacted> {
        self.storage.scan(&self.resource, ReadScope::new(namespace), from, self.revision, max)
    }

    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted> {
        Ok(self.storage.count_from(&self.resource, ReadScope::new(namespace), from, self.revision))
    }
}
