//! Pods whose grace period is over go, and namespaces that are empty.

use std::time::Duration;

use crate::lifecycle::Expected;
use crate::place::Place;
use crate::state::ServerState;
use crate::storage::{ResourceKey, Scope};
use crate::write::{DeleteOptions, Writer};

/// How often a namespace is looked at that something holds up.
const RETRY: Duration = Duration::from_secs(1);

/// Lets objects go in time; never ends.
pub(super) async fn run(state: &ServerState) {
    loop {
        for due in state.lifecycle.take_due() {
            finish(state, due);
        }
        state.lifecycle.changed().await;
    }
}

fn finish(state: &ServerState, due: Expected) {
    let place = &due.place;
    let writer = Writer::new(state);
    if place.resource.plural != "namespaces" {
        // It may be gone already.
        let _ = writer.end_grace(place, &due.uid);
        return;
    }
    if empty_namespace(state, &place.name) {
        writer.remove_now(place);
    } else {
        state.lifecycle.postpone(due, RETRY);
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
