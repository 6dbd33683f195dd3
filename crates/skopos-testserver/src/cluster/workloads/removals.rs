//! Removal of pods at the end of their grace period, and of empty namespaces.

use std::time::Duration;

use crate::lifecycle::ScheduledRemoval;
use crate::object_ref::ObjectRef;
use crate::state::ServerState;
use crate::storage::{ReadScope, ResourceKey};
use crate::write::{DeleteOptions, Writer};

/// Retry interval for a namespace that is not empty yet.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Removes objects when they are due; runs forever.
pub(super) async fn run(state: &ServerState) {
    loop {
        for due in state.lifecycle.take_due() {
            remove(state, due);
        }
        state.lifecycle.changed().await;
    }
}

fn remove(state: &ServerState, due: ScheduledRemoval) {
    let object_ref = &due.object_ref;
    let writer = Writer::new(state);
    if object_ref.resource.plural != "namespaces" {
        // It may be deleted already.
        let _ = writer.end_grace(object_ref, &due.uid);
        return;
    }
    if empty_namespace(state, &object_ref.name) {
        writer.remove_now(object_ref);
    } else {
        state.lifecycle.reschedule(due, RETRY_DELAY);
    }
}

/// Deletes the objects of a namespace; returns whether none is left.
fn empty_namespace(state: &ServerState, name: &str) -> bool {
    let writer = Writer::new(state);
    let mut empty = true;
    for resource in state.registry.all().iter().filter(|r| r.namespaced) {
        let key = ResourceKey::from(&**resource);
        let (objects, _) = state.storage.list(&key, ReadScope::new(Some(name)));
        for object in objects {
            let _ = writer.delete(&ObjectRef::from_stored(resource, &object), &DeleteOptions::now());
        }
        empty &= state.storage.list(&key, ReadScope::new(Some(name))).0.is_empty();
    }
    empty
}
