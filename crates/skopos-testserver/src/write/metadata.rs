//! Metadata that the server itself writes.

use serde_json::{Map, Value, json};
use skopos_serve::ResourceType;

use super::part::ObjectPart;
use crate::patch::PatchShape;
use crate::patch::managed::{self, Manager, Managers, Operation};
use crate::state::ServerState;

/// Metadata fields that a client's update cannot change.
const SERVER_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Built-in kinds that have a generation.
const KINDS_WITH_GENERATION: [&str; 18] = [
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "Ingress",
    "IngressClass",
    "Job",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "Pod",
    "PodDisruptionBudget",
    "PodTemplate",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "ValidatingWebhookConfiguration",
];

/// Sets identity and creation time of a new object.
pub(super) fn init_metadata(state: &ServerState, resource: &ResourceType, object: &mut Value) {
    let uid = uuid::Builder::from_random_bytes(state.rng.lock().u128(..).to_le_bytes()).into_uuid();
    let metadata = metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), uid.to_string().into());
    metadata.insert("creationTimestamp".into(), state.clock.now_text().into());
    if resource.custom || KINDS_WITH_GENERATION.contains(&resource.kind.as_str()) {
        metadata.insert("generation".into(), json!(1));
    }
}

/// Copies the server's fields from the object's earlier state.
pub(super) fn preserve_server_fields(old: &Value, new: &mut Value) {
    let metadata = metadata_mut(new);
    for field in SERVER_FIELDS {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match metadata.get(field) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

/// Increments the generation if the desired state changed.
///
/// The desired state is everything besides metadata and status. The status counts too for a custom resource without a status
/// subresource, the annotations for Deployments, and the labels for EndpointSlices. A write of the status alone never counts.
pub(super) fn bump_generation(resource: &ResourceType, part: ObjectPart, old: &Value, new: &mut Value) {
    let Some(generation) = old["metadata"]["generation"].as_i64() else { return };
    if part == ObjectPart::Status {
        return;
    }
    let status_counts = resource.custom && resource.subresource("status").is_none();
    let fields = |object: &Value| -> Map<String, Value> {
        let fields = object.as_object().into_iter().flatten();
        let counted = fields.filter(|(name, _)| match name.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => status_counts,
            _ => true,
        });
        counted.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let metadata = match resource.kind.as_str() {
        "Deployment" if !resource.custom => Some("annotations"),
        "EndpointSlice" if !resource.custom => Some("labels"),
        _ => None,
    };
    let differs = |field: &str| {
        let map = |object: &Value| object["metadata"][field].as_object().cloned().unwrap_or_default();
        map(old) != map(new)
    };
    if fields(old) != fields(new) || metadata.is_some_and(differs) {
        metadata_mut(new).insert("generation".into(), json!(generation.saturating_add(1)));
    }
}

/// Returns a name for an object that has only a prefix.
pub(super) fn generated_name(state: &ServerState, prefix: &str) -> String {
    // As in Kubernetes: 63 characters in all, five of them random, none a vowel.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = state.rng.lock();
    let cut = prefix.char_indices().nth(58).map_or(prefix.len(), |(at, _)| at);
    let random = (0..5).map(|_| LETTERS[rng.usize(..LETTERS.len())] as char);
    prefix[..cut].chars().chain(random).collect()
}

/// Returns the managers before a write: as the client sent them, or as stored.
///
/// A client may edit `managedFields`; an empty entry clears them.
pub(super) fn managers_before(old: Option<&Value>, new: &Value) -> Managers {
    match &new["metadata"]["managedFields"] {
        Value::Array(sent) if !sent.is_empty() => Managers::from_json(&new["metadata"]["managedFields"]),
        _ => old.map(|old| Managers::from_json(&old["metadata"]["managedFields"])).unwrap_or_default(),
    }
}

/// Records a write other than apply.
pub(super) fn record(
    managers: &mut Managers,
    manager: &Manager,
    old: Option<&Value>,
    new: &Value,
    resource: &ResourceType,
) {
    let bare = |object: &Value| {
        let mut object = object.clone();
        metadata_mut(&mut object).remove("managedFields");
        object
    };
    managed::record(managers, manager, old.map(bare).as_ref(), &bare(new), PatchShape::root(resource));
}

pub(super) fn write_managers(object: &mut Value, managers: &Managers, now: &str) {
    let entries = managers.to_json(now);
    let metadata = metadata_mut(object);
    if entries.as_array().is_some_and(Vec::is_empty) {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), entries);
    }
}

/// Returns the manager of a write.
pub(super) fn manager(
    name: &str,
    operation: Operation,
    resource: &ResourceType,
    subresource: Option<&str>,
) -> Manager {
    Manager::new(name, operation, &resource.api_version(), subresource)
}

/// Returns whether two states of an object are equal except for resourceVersion and managers' times.
pub(super) fn is_unchanged(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        let metadata = metadata_mut(&mut object);
        metadata.remove("resourceVersion");
        for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            entry["time"] = Value::Null;
        }
        object
    };
    bare(old) == bare(new)
}

/// Returns the object's metadata; adds an empty one if it is missing.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}
