//! The keys that an event concerns.

use std::any::TypeId;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Deserialize;
use skopos::{Event, Object, ObjectKey};

/// The owner that a mapping looks for.
#[derive(Clone, Debug)]
pub(crate) struct OwnerKind {
    group: String,
    kind: String,
    namespaced: bool,
}

impl OwnerKind {
    pub(crate) fn new<K: Resource<DynamicType = ()>>() -> Self
    where
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() != TypeId::of::<k8s_openapi::ClusterResourceScope>();
        Self { group: K::group(&()).into_owned(), kind: K::kind(&()).into_owned(), namespaced }
    }

    /// Returns the keys of the controlling owners of an event's object, before and after the event. The version of the
    /// reference is ignored, as in controller-runtime: owners outlive versions of their API.
    pub(crate) fn owners<O>(&self, event: &Event<O>) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = both(event).filter_map(|object| self.owner(object)).collect();
        keys.dedup();
        keys
    }

    fn owner<O>(&self, object: &Object<O>) -> Option<ObjectKey> {
        let owned: Owned = object.raw().decode().ok()?;
        let owner = owned.metadata.owner_references.into_iter().find(|owner| self.is(owner))?;
        match (self.namespaced, object.namespace()) {
            (true, Some(namespace)) => Some(ObjectKey::namespaced(namespace, &owner.name)),
            // A namespaced owner of an object without a namespace does not exist in Kubernetes.
            (true, None) => None,
            (false, _) => Some(ObjectKey::cluster(&owner.name)),
        }
    }

    fn is(&self, owner: &OwnerReference) -> bool {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.controller == Some(true) && owner.kind == self.kind && group == self.group
    }
}

/// Returns the states of an event's object to be mapped.
pub(crate) fn both<O>(event: &Event<O>) -> impl Iterator<Item = &Object<O>> {
    let (old, new) = match event {
        Event::Updated { old, new, .. } => (Some(old), new),
        Event::Deleted { object, old, .. } => (Some(old), object),
        event => (None, event.object()),
    };
    old.into_iter().chain([new])
}

#[derive(Deserialize)]
struct Owned {
    metadata: OwnedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMetadata {
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}
