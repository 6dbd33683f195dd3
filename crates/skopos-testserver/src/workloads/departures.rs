//! Removal of pods at the end of their grace period, and of empty namespaces.

use std::time::Duration;

use crate::lifecycle::Expected;
use crate::place::Place;
use crate::state::ServerState;
use crate::storage::{ResourceKey, Scope};
use crate::write::{DeleteOptions, Writer};

/// Retry interval for a namespace that is not empty yet.
const RETRY: Duration = Duration::from_secs(1);

/// Removes objects when they are due; runs forever.
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
        // It may be deleted already.
        let _ = writer.end_grace(place, &due.uid);
        return;
    }
    if empty_namespace(state, &place.name) {
        writer.remove_now(place);
    } else {
        state.lifecycle.postpone(due, RETRY);
    }
}

/// Deletes the objects of a namespace; returns whether none is left.
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
