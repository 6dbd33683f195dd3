//! The handle of a controller: its status, its counters, and adding keys manually.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::ObjectKey;
use skopos::workqueue::{AddError, Durations, WorkQueue, WorkQueueStats};

use crate::options::ControllerOptions;
use crate::own_writes::OwnWrites;
use crate::view::View;

/// A handle of a controller that runs or will run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    shared: Arc<Shared>,
}

/// The status of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerStatus {
    /// It does not run yet.
    NotStarted,
    /// It waits for a term: another candidate leads, or none does.
    Standby,
    /// It waits for a view that is fresh enough.
    Stale {
        /// The resource, and the reason.
        reason: String,
    },
    /// It works.
    Working,
    /// It has ended.
    Stopped,
}

/// The counters of a controller. They begin with the process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ControllerStats {
    /// The controller's name.
    pub name: String,
    /// Reconciliations that ended with `Outcome::Done`.
    pub succeeded: u64,
    /// Reconciliations that ended with `Outcome::RequeueAfter`.
    pub requeued: u64,
    /// Reconciliations that failed and are retried.
    pub failed: u64,
    /// Reconciliations that failed and are not retried.
    pub failed_terminally: u64,
    /// Reconciliations that panicked.
    pub panicked: u64,
    /// Reconciliations that exceeded the time limit.
    pub timed_out: u64,
    /// Reconciliations that were dropped because the term ended.
    pub dropped: u64,
    /// Times that a key was put off because a view was too old.
    pub put_off_stale: u64,
    /// Times that a key has waited longer than [`own_write_limit`](ControllerOptions::own_write_limit) for the controller's own write.
    pub put_off_own_write: u64,
    /// Keys that wait until a view shows the controller's own write. They hold no worker.
    pub waiting_for_own_writes: usize,
    /// The maximum number of reconciliations that run at the same time.
    pub workers: usize,
    /// The durations of reconciliations.
    pub reconcile: Durations,
    /// The counters of the work queue. Its `longest_running` is that of the reconciliation that has run longest.
    pub queue: WorkQueueStats,
}

/// State shared by the handle, the handlers and the workers.
pub(crate) struct Shared {
    pub(crate) options: ControllerOptions,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) own_writes: Arc<OwnWrites>,
    status: Mutex<ControllerStatus>,
    /// The informers, while the controller exists: a handle does not keep them running.
    views: Mutex<Vec<Arc<dyn View>>>,
    counts: Mutex<ControllerStats>,
    /// The keys whose changes may have been missed since they were last reconciled.
    gaps: Mutex<HashSet<ObjectKey>>,
}

impl ControllerHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the status.
    pub fn status(&self) -> ControllerStatus {
        let status = self.shared.status.lock().clone();
        match (&status, self.shared.stale()) {
            (ControllerStatus::Working, Some(reason)) => ControllerStatus::Stale { reason },
            _ => status,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> ControllerStats {
        let queue = self.shared.queue.stats();
        let options = &self.shared.options;
        let (name, workers) = (options.name.clone(), options.workers.max(1));
        // The work queue measures how long a worker has each key.
        ControllerStats {
            name,
            workers,
            reconcile: queue.work.clone(),
            queue,
            ..self.shared.counts.lock().clone()
        }
    }

    /// Adds a key manually.
    ///
    /// # Errors
    /// When the controller has ended, or the queue is full.
    pub fn enqueue(&self, key: ObjectKey) -> Result<(), AddError> {
        self.shared.queue.add(key)
    }
}

impl fmt::Display for ControllerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started"),
            Self::Standby => f.write_str("standby: another candidate leads, or none does"),
            Self::Stale { reason } => write!(f, "stale: {reason}"),
            Self::Working => f.write_str("working"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl ControllerStats {
    /// Returns the number of reconciliations that ended, with any result.
    pub fn total(&self) -> u64 {
        let failed = self.failed + self.failed_terminally + self.panicked + self.timed_out;
        self.succeeded + self.requeued + failed
    }
}

impl Shared {
    pub(crate) fn new(
        options: ControllerOptions,
        queue: WorkQueue<ObjectKey>,
        views: Vec<Arc<dyn View>>,
    ) -> Self {
        Self {
            options,
            queue,
            own_writes: Arc::default(),
            status: Mutex::new(ControllerStatus::NotStarted),
            views: Mutex::new(views),
            counts: Mutex::default(),
            gaps: Mutex::default(),
        }
    }

    pub(crate) fn set_status(&self, status: ControllerStatus) {
        *self.status.lock() = status;
    }

    /// Returns the informers.
    pub(crate) fn views(&self) -> Vec<Arc<dyn View>> {
        self.views.lock().clone()
    }

    /// Returns the first informer whose content is too old, with the reason.
    pub(crate) fn stale(&self) -> Option<String> {
        self.views().iter().find_map(|view| {
            let freshness = view.freshness();
            (!freshness.is_within(self.options.max_age)).then(|| format!("{}: {freshness}", view.resource()))
        })
    }

    /// Closes the queue and releases the informers.
    pub(crate) fn close(&self) {
        self.queue.shut_down();
        self.set_status(ControllerStatus::Stopped);
        let views = std::mem::take(&mut *self.views.lock());
        drop(views);
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut ControllerStats)) {
        count(&mut self.counts.lock());
    }

    /// Records that changes of a key may have been missed.
    pub(crate) fn missed(&self, key: &ObjectKey, gap: bool) {
        if gap {
            self.gaps.lock().insert(key.clone());
        }
    }

    /// Takes the gap record of a key. The caller restores it if the reconciliation fails.
    pub(crate) fn take_gap(&self, key: &ObjectKey) -> bool {
        self.gaps.lock().remove(key)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.lock().clone();
        f.debug_struct("Controller")
            .field("name", &self.options.name)
            .field("status", &status)
            .finish_non_exhaustive()
    }
}

/// The delay of a key that is postponed.
pub(crate) const PUT_OFF: Duration = Duration::from_secs(1);
