//! Cluster access for controllers: objects as JSON values, found by owner.

use std::sync::Arc;

use serde_json::{Value, json};
use skopos_serve::ResourceType;
use skopos_wire::Status;

use crate::object_ref::ObjectRef;
use crate::state::ServerState;
use crate::storage::{ReadScope, ResourceKey, Stored};
use crate::write::{DeleteOptions, ObjectPart, WriteOptions, Writer};

/// Field manager of the controllers' writes.
const MANAGER: &str = "kube-controller-manager";

/// Client of the controllers.
#[derive(Clone, Copy)]
pub(super) struct ControllerClient<'a> {
    pub(super) state: &'a ServerState,
}

impl<'a> ControllerClient<'a> {
    /// Returns the resource of a built-in kind.
    pub(super) fn resource(self, group: &str, plural: &str) -> Option<Arc<ResourceType>> {
        self.state.registry.resolve(group, "v1", plural)
    }

    pub(super) fn get(self, resource: &ResourceType, key: &str) -> Option<Value> {
        self.state.storage.get(&ResourceKey::from(resource), key).map(|stored| stored.to_value())
    }

    /// Returns the objects of a namespace that `owner` controls. Only those with the labels of `selector` are examined, because
    /// labels are available without parsing the whole object.
    pub(super) fn controlled(self, resource: &ResourceType, owner: &Value, selector: &Value) -> Vec<Value> {
        let namespace = owner["metadata"]["namespace"].as_str();
        let (objects, _) = self.state.storage.list(&ResourceKey::from(resource), ReadScope::new(namespace));
        let labels = &selector["matchLabels"];
        let labelled = |stored: &Stored| {
            let mut labels = labels.as_object().into_iter().flatten();
            labels.all(|(key, value)| stored.label(key) == value.as_str())
        };
        let objects = objects.iter().filter(|stored| labelled(stored)).map(|stored| stored.to_value());
        objects
            .filter(|object| controller_of(object).is_some_and(|c| c["uid"] == owner["metadata"]["uid"]))
            .collect()
    }

    /// Creates an object that `owner` controls.
    pub(super) fn create(
        self,
        resource: &Arc<ResourceType>,
        owner: &Value,
        mut object: Value,
    ) -> Result<Value, Status> {
        let namespace = owner["metadata"]["namespace"].as_str();
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        // The name is in the object, or made from its prefix.
        let object_ref = ObjectRef::new(resource, namespace, "");
        Ok(Writer::new(self.state).create(&object_ref, object, &WriteOptions::trusted(MANAGER))?.to_value())
    }

    /// Changes an object; does nothing if it does not exist.
    pub(super) fn edit(self, resource: &Arc<ResourceType>, object: &Value, edit: impl Fn(&mut Value)) {
        self.write(resource, object, ObjectPart::Whole, edit);
    }

    /// Changes the fields that a controller may write with the status of an object; does nothing if it does not exist.
    pub(super) fn edit_with_status(
        self,
        resource: &Arc<ResourceType>,
        object: &Value,
        edit: impl Fn(&mut Value),
    ) {
        self.write(resource, object, ObjectPart::Status, edit);
    }

    /// Changes the status of an object; does nothing if it does not exist.
    pub(super) fn set_status(self, resource: &Arc<ResourceType>, object: &Value, status: &Value) {
        self.write(resource, object, ObjectPart::Status, |object| object["status"] = status.clone());
    }

    fn write(
        self,
        resource: &Arc<ResourceType>,
        object: &Value,
        part: ObjectPart,
        edit: impl Fn(&mut Value),
    ) {
        let object_ref = object_ref(resource, object);
        let written = Writer::new(self.state).modify_object(
            &object_ref,
            part,
            &WriteOptions::trusted(MANAGER),
            |old| {
                let mut new = old.clone();
                edit(&mut new);
                Ok(new)
            },
        );
        // A missing object is no problem: its deletion is a separate event.
        if let Err(status) = written.filter_missing() {
            tracing::warn!(%status, object = %object_ref.key(), "a controller's write was refused");
        }
    }

    /// Deletes an object as controllers do: with its grace period.
    pub(super) fn delete(self, resource: &Arc<ResourceType>, object: &Value) {
        let _ = Writer::new(self.state).delete(&object_ref(resource, object), &DeleteOptions::default());
    }

    pub(super) fn now(self) -> String {
        self.state.clock.now_text()
    }
}

/// Filter that drops errors about a missing object.
trait FilterMissing {
    fn filter_missing(self) -> Result<(), Status>;
}

impl<T> FilterMissing for Result<T, Status> {
    fn filter_missing(self) -> Result<(), Status> {
        match self {
            Err(status) if status.code != 404 => Err(status),
            _ => Ok(()),
        }
    }
}

/// Returns the reference to the controller of an object.
pub(super) fn controller_of(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

pub(super) fn object_ref(resource: &Arc<ResourceType>, object: &Value) -> ObjectRef {
    let metadata = &object["metadata"];
    ObjectRef::new(resource, metadata["namespace"].as_str(), metadata["name"].as_str().unwrap_or_default())
}

/// Returns whether an object is being deleted.
pub(super) fn terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns whether a pod counts for its owner: neither finished nor being deleted.
pub(super) fn active(pod: &Value) -> bool {
    !terminating(pod) && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Creates a pod from the template of `owner`, without a name.
pub(super) fn pod_of_template(owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field) {
            pod["metadata"][field] = value.clone();
        }
    }
    pod
}

/// Returns a short hash of a template.
pub(super) fn template_hash(template: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a: stable over versions of Rust, unlike the standard library's hashes.
    let mut hash =
        without_empty_fields(template).to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut text = String::new();
    for _ in 0..10 {
        text.push(LETTERS[(hash % LETTERS.len() as u64) as usize] as char);
        hash /= LETTERS.len() as u64;
    }
    text
}

/// Returns a template without empty fields: clients differ in whether they omit them.
fn without_empty_fields(value: &Value) -> Value {
    let empty = |value: &Value| {
        value.is_null()
            || value == ""
            || value.as_object().is_some_and(|m| m.is_empty())
            || value.as_array().is_some_and(Vec::is_empty)
    };
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| (name.clone(), without_empty_fields(value)));
            Value::Object(fields.filter(|(_, value)| !empty(value)).collect())
        }
        Value::Array(items) => items.iter().map(without_empty_fields).collect(),
        scalar => scalar.clone(),
    }
}

/// Returns whether the JSON contains a text: far cheaper than parsing it.
pub(super) fn json_contains(json: &[u8], part: &str) -> bool {
    std::str::from_utf8(json).is_ok_and(|json| json.contains(part))
}
