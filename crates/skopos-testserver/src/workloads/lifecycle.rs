//! Objects that are deleted and still there: pods in their grace period, namespaces that are emptied.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::state::ServerState;
use crate::storage::{ResourceKey, Scope};
use crate::write::{DeleteOptions, Place, Writer};

/// How long the containers of a pod take to end where something runs them.
const ENDING: Duration = Duration::from_secs(1);
/// How often a namespace is looked at that something holds up.
const RETRY: Duration = Duration::from_secs(1);

/// What is to go in time.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    workloads: bool,
    expected: Mutex<Vec<Expected>>,
    changed: Notify,
}

#[derive(Debug)]
struct Expected {
    at: Instant,
    place: Place,
    uid: String,
}

impl Lifecycle {
    /// With `workloads`, pods end faster than their grace period demands, and owners take their dependents with them.
    pub(crate) fn new(workloads: bool) -> Self {
        Self { workloads, expected: Mutex::default(), changed: Notify::new() }
    }

    /// Whether workloads get their pods.
    pub(super) fn runs_workloads(&self) -> bool {
        self.workloads
    }

    /// Whether dependents are deleted with their owners.
    pub(crate) fn collects_garbage(&self) -> bool {
        self.workloads
    }

    /// Sees to it that an object goes once its grace period is over.
    pub(crate) fn expect(&self, place: Place, uid: &str, grace: Duration) {
        let delay = if self.workloads { grace.min(ENDING) } else { grace };
        self.expected.lock().push(Expected { at: Instant::now() + delay, place, uid: uid.to_owned() });
        self.changed.notify_one();
    }

    fn take_due(&self) -> Vec<Expected> {
        let now = Instant::now();
        let mut expected = self.expected.lock();
        let (due, later) = expected.drain(..).partition(|e| e.at <= now);
        *expected = later;
        due
    }

    fn next(&self) -> Option<Instant> {
        self.expected.lock().iter().map(|e| e.at).min()
    }
}

/// Lets objects go in time; never ends.
pub(super) async fn run(state: &ServerState) {
    let lifecycle = &state.lifecycle;
    loop {
        for due in lifecycle.take_due() {
            finish(state, due);
        }
        let next = lifecycle.next();
        let in_time = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = lifecycle.changed.notified() => {}
            () = in_time => {}
        }
    }
}

fn finish(state: &ServerState, due: Expected) {
    let Expected { place, uid, .. } = due;
    let writer = Writer::new(state);
    if place.resource.plural != "namespaces" {
        // It may be gone already.
        let _ = writer.end_grace(&place, &uid);
        return;
    }
    if empty_namespace(state, &place.name) {
        writer.remove_now(&place);
    } else {
        let at = Instant::now() + RETRY;
        state.lifecycle.expected.lock().push(Expected { at, place, uid });
    }
}

/// Deletes what is in a namespace; says whether nothing is left.
fn empty_namespace(state: &ServerState, name: &str) -> bool {
    let writer = Writer::new(state);
    let mut empty = true;
    for resource in state.registry.all().iter().filter(|r| r.namespaced) {
        let key = ResourceKey::from(&**resource);
        let (objects, _) = state.storage.list(&key, Scope::of(Some(name)));
        for object in objects {
            let _ = writer.delete(&Place::of(resource, &object), &DeleteOptions::now());
        }
        empty &= state.storage.list(&key, Scope::of(Some(name))).0.is_empty();
    }
    empty
}
