//! Objects that are deleted and still there: pods in their grace period, namespaces that are emptied.

use std::time::Duration;

use parking_lot::Mutex;
use skopos_serve::deadline::LONGEST;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::place::Place;

/// How long the containers of a pod take to end where something runs them.
const ENDING: Duration = Duration::from_secs(1);

/// What is to go in time.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    workloads: bool,
    expected: Mutex<Vec<Expected>>,
    changed: Notify,
}

/// An object that is to go.
#[derive(Debug)]
pub(crate) struct Expected {
    at: Instant,
    pub(crate) place: Place,
    pub(crate) uid: String,
}

impl Lifecycle {
    /// With `workloads`, pods end faster than their grace period demands, and owners take their dependents with them.
    pub(crate) fn new(workloads: bool) -> Self {
        Self { workloads, expected: Mutex::default(), changed: Notify::new() }
    }

    /// Whether workloads get their pods.
    pub(crate) fn runs_workloads(&self) -> bool {
        self.workloads
    }

    /// Whether dependents are deleted with their owners.
    pub(crate) fn collects_garbage(&self) -> bool {
        self.workloads
    }

    /// Sees to it that an object goes once its grace period is over.
    pub(crate) fn expect(&self, place: Place, uid: &str, grace: Duration) {
        let delay = if self.workloads { grace.min(ENDING) } else { grace };
        self.postpone(Expected { at: Instant::now(), place, uid: uid.to_owned() }, delay);
        self.changed.notify_one();
    }

    /// What could not go yet is due again after `delay`.
    pub(crate) fn postpone(&self, expected: Expected, delay: Duration) {
        self.expected.lock().push(Expected { at: Instant::now() + delay.min(LONGEST), ..expected });
    }

    pub(crate) fn take_due(&self) -> Vec<Expected> {
        let now = Instant::now();
        let mut expected = self.expected.lock();
        let (due, later) = expected.drain(..).partition(|e| e.at <= now);
        *expected = later;
        due
    }

    /// Waits until something is due, or something new is expected.
    pub(crate) async fn changed(&self) {
        let next = self.expected.lock().iter().map(|e| e.at).min();
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
