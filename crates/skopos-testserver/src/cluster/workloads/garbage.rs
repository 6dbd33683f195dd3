//! Garbage collection: dependents are deleted after their owners, before them (foreground), or not at all (orphan).

use std::time::Duration;

use serde_json::Value;
use skopos_serve::ResourceType;
use skopos_serve::resources::split_api_version;
use tokio::time::Instant;

use super::client::{ControllerClient, json_contains, terminating};
use crate::storage::{ReadScope, ResourceKey};

/// Poll interval for an object that waits for the deletion of its dependents.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Deletes the dependents of a deleted owner.
pub(super) fn collect(client: ControllerClient<'_>, uid: &str, namespace: Option<&str>) {
    for (resource, object) in dependents(client, uid, namespace) {
        if has_other_owner(client, &object, uid) {
            remove_owner_reference(client, &resource, &object, uid);
        } else if !terminating(&object) {
            client.delete(&resource, &object);
        }
    }
}

/// Deletes or orphans the dependents of an object that is deleted afterwards; returns when to check again.
pub(super) fn process_owner(
    client: ControllerClient<'_>,
    (group, plural): &(String, String),
    key: &str,
) -> Option<Instant> {
    let all = client.state.registry.all();
    let resource = all.iter().find(|r| r.group == *group && r.plural == *plural)?;
    let object = client.get(resource, key).filter(terminating)?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str();
    let has = |finalizer: &str| {
        object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|f| f == finalizer))
    };
    let dependents = dependents(client, uid, namespace);
    if has("orphan") {
        for (resource, object) in &dependents {
            remove_owner_reference(client, resource, object, uid);
        }
        remove_finalizer(client, resource, &object, "orphan");
        return None;
    }
    if !has("foregroundDeletion") {
        return None;
    }
    if dependents.is_empty() {
        remove_finalizer(client, resource, &object, "foregroundDeletion");
        return None;
    }
    for (resource, object) in dependents.iter().filter(|(_, object)| !terminating(object)) {
        client.delete(resource, object);
    }
    Some(Instant::now() + POLL_INTERVAL)
}

type Dependent = (std::sync::Arc<ResourceType>, Value);

/// Returns all objects that name `uid` as an owner.
fn dependents(client: ControllerClient<'_>, uid: &str, namespace: Option<&str>) -> Vec<Dependent> {
    let mut found: Vec<Dependent> = Vec::new();
    let all = client.state.registry.all();
    let mut seen = std::collections::BTreeSet::new();
    for resource in all.iter().filter(|r| namespace.is_none() || r.namespaced) {
        let key = ResourceKey::from(&**resource);
        if !seen.insert(key.clone()) {
            continue;
        }
        let (objects, _) = client.state.storage.list(&key, ReadScope::new(namespace));
        // Most objects do not contain it at all; that check is fast.
        for object in objects.iter().filter(|object| json_contains(object.json_slice(), uid)) {
            let object = object.to_value();
            if owners(&object).any(|owner| owner["uid"] == uid) {
                found.push((resource.clone(), object));
            }
        }
    }
    found
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// Returns whether an owner other than `uid` exists.
fn has_other_owner(client: ControllerClient<'_>, object: &Value, uid: &str) -> bool {
    owners(object).filter(|owner| owner["uid"] != uid).any(|owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (group, _) = split_api_version(text("apiVersion"));
        let Some(resource) = client.state.registry.by_group_kind(group, text("kind")) else { return false };
        let key = match object["metadata"]["namespace"].as_str().filter(|_| resource.namespaced) {
            Some(namespace) => format!("{namespace}/{}", text("name")),
            None => text("name").to_owned(),
        };
        let stored = client.state.storage.get(&ResourceKey::from(&*resource), &key);
        stored.is_some_and(|stored| stored.uid() == text("uid"))
    })
}

fn remove_owner_reference(
    client: ControllerClient<'_>,
    resource: &std::sync::Arc<ResourceType>,
    object: &Value,
    uid: &str,
) {
    client.edit(resource, object, |object| {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid);
        }
    });
}

fn remove_finalizer(
    client: ControllerClient<'_>,
    resource: &std::sync::Arc<ResourceType>,
    object: &Value,
    finalizer: &str,
) {
    client.edit(resource, object, |object| {
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|f| f != finalizer);
        }
    });
}
