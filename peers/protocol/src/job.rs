//! The job of the compared controllers: for each config map with the label `job=parent`, one child that says what the parent says, and a hash of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};

/// Where parents and children are.
pub const NAMESPACE: &str = "default";
/// The selector of parents and children.
pub const EVERYTHING: &str = "job";
/// The selector of parents.
pub const PARENTS: &str = "job=parent";
/// The selector of children.
pub const CHILDREN: &str = "job=child";
/// The entry of `data` that parents and children have.
pub const VALUE: &str = "value";

/// Returns the name of a parent's child.
pub fn child_name(parent: &str) -> String {
    format!("{parent}-child")
}

/// Returns what the child of a parent with this value has to say.
pub fn child_value(value: &str) -> String {
    let hash = Sha256::digest(value);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{value} {hash}")
}

/// Returns the child that a parent is to have; `None` if it is not an object of the server.
pub fn wanted(parent: &ConfigMap) -> Option<ConfigMap> {
    let metadata = &parent.metadata;
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let value = parent.data.as_ref().and_then(|data| data.get(VALUE)).map_or("", String::as_str);
    Some(ConfigMap {
        metadata: ObjectMeta {
            name: Some(child_name(&owner.name)),
            namespace: metadata.namespace.clone(),
            labels: Some(BTreeMap::from([("job".into(), "child".into())])),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(VALUE.into(), child_value(value))])),
        ..ConfigMap::default()
    })
}

/// Returns whether a child is as it is wanted.
pub fn is_right(child: &ConfigMap, wanted: &ConfigMap) -> bool {
    child.data == wanted.data && child.metadata.owner_references == wanted.metadata.owner_references
}
