//! Lifecycle of objects with a pending deletion: pods in their grace period, namespaces that are emptied.

use std::time::Duration;

use parking_lot::Mutex;
use skopos_serve::deadline::LONGEST;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::object_ref::ObjectRef;

/// Time that a pod's containers take to end if workloads run.
const MAX_TERMINATION_TIME: Duration = Duration::from_secs(1);

/// Scheduled removals.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    workloads: bool,
    scheduled: Mutex<Vec<ScheduledRemoval>>,
    changed: Notify,
}

/// Object that is to be removed.
#[derive(Debug)]
pub(crate) struct ScheduledRemoval {
    at: Instant,
    pub(crate) object_ref: ObjectRef,
    pub(crate) uid: String,
}

impl Lifecycle {
    /// Creates the lifecycle. With `workloads`, pods end earlier than their grace period, and owners take their dependents with
    /// them.
    pub(crate) fn new(workloads: bool) -> Self {
        Self { workloads, scheduled: Mutex::default(), changed: Notify::new() }
    }

    /// Returns whether workload controllers run.
    pub(crate) fn runs_workloads(&self) -> bool {
        self.workloads
    }

    /// Returns whether dependents are deleted with their owners.
    pub(crate) fn collects_garbage(&self) -> bool {
        self.workloads
    }

    /// Schedules the removal of an object at the end of its grace period.
    pub(crate) fn schedule_removal(&self, object_ref: ObjectRef, uid: &str, grace: Duration) {
        let delay = if self.workloads { grace.min(MAX_TERMINATION_TIME) } else { grace };
        self.reschedule(ScheduledRemoval { at: Instant::now(), object_ref, uid: uid.to_owned() }, delay);
        self.changed.notify_one();
    }

    /// Schedules a removal that could not be done yet again after `delay`.
    pub(crate) fn reschedule(&self, scheduled: ScheduledRemoval, delay: Duration) {
        self.scheduled.lock().push(ScheduledRemoval { at: Instant::now() + delay.min(LONGEST), ..scheduled });
    }

    pub(crate) fn take_due(&self) -> Vec<ScheduledRemoval> {
        let now = Instant::now();
        let mut scheduled = self.scheduled.lock();
        let (due, later) = scheduled.drain(..).partition(|e| e.at <= now);
        *scheduled = later;
        due
    }

    /// Waits until a removal is due or a new one is scheduled.
    pub(crate) async fn changed(&self) {
        let next = self.scheduled.lock().iter().map(|e| e.at).min();
        let in_time = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.changed.notified() => {}
            () = in_time => {}
        }
    }
}
