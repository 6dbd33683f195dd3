//! Which state a request sees when it does not insist on the newest: an API server may lag behind.

use std::sync::Arc;
use std::time::Duration;

use skopos_wire::Status;
use tokio::time::{Instant, sleep};

use crate::faults::{Faults, RequestFacts};
use crate::storage::Storage;

/// What a request sees of the storage.
#[derive(Clone, Debug)]
pub(crate) struct View {
    storage: Storage,
    faults: Faults,
    facts: Arc<RequestFacts>,
}

// === impl View ===

impl View {
    pub(crate) fn new(storage: &Storage, faults: &Faults, facts: &Arc<RequestFacts>) -> Self {
        Self { storage: storage.clone(), faults: faults.clone(), facts: facts.clone() }
    }

    /// The revision that the request may see now, if it lags behind the newest.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.faults.lag(&self.facts, &self.storage)
    }

    /// The newest revision that the request sees.
    pub(crate) fn revision(&self) -> u64 {
        let newest = self.storage.revision();
        self.limit().map_or(newest, |limit| limit.min(newest))
    }

    /// Waits until the request sees revision `version` (L6).
    ///
    /// # Errors
    /// 504 after `patience`.
    pub(crate) async fn wait_for(&self, version: u64, patience: Duration) -> Result<u64, Status> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.revision();
            if seen >= version {
                return Ok(seen);
            }
            if Instant::now() >= deadline {
                return Err(Status::too_large_resource_version(version, seen, 1));
            }
            sleep(STEP.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }
}

/// kube-apiserver asks etcd for progress about this often while reads wait.
const STEP: Duration = Duration::from_millis(20);
