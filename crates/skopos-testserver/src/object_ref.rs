//! Reference to an object: its resource, namespace and name.

use std::sync::Arc;

use skopos_serve::{ResourceType, object_key};
use skopos_wire::{GroupResource, Status};

use crate::storage::{ResourceKey, Stored};

/// Reference to an object that is written.
#[derive(Clone, Debug)]
pub(crate) struct ObjectRef {
    pub(crate) resource: Arc<ResourceType>,
    pub(crate) resource_key: ResourceKey,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl ObjectRef {
    pub(crate) fn new(resource: &Arc<ResourceType>, namespace: Option<&str>, name: &str) -> Self {
        Self {
            resource: resource.clone(),
            resource_key: ResourceKey::from(&**resource),
            namespace: namespace.filter(|_| resource.namespaced).map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Creates the reference to a stored object.
    pub(crate) fn from_stored(resource: &Arc<ResourceType>, stored: &Stored) -> Self {
        Self::new(resource, stored.namespace(), stored.name())
    }

    pub(crate) fn key(&self) -> String {
        object_key(self.namespace.as_deref(), &self.name)
    }

    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource::new(&self.resource.group, &self.resource.plural)
    }

    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(self.group_resource(), &self.name)
    }
}
