use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use skopos::{Event, Freshness, Object, ObjectKey, Snapshot};

use super::source::SERVICE_NAME;

/// Content of a cluster, as far as a sink needs it.
#[derive(Clone, Default)]
pub struct ClusterContent {
    /// The Services.
    pub services: Option<Snapshot<Service>>,
    /// The EndpointSlices.
    pub slices: Option<Snapshot<EndpointSlice>>,
    /// The pods.
    pub pods: Option<Snapshot<Pod>>,
}

/// A change of a cluster.
pub enum ClusterChange {
    /// A change of a Service.
    Service(Event<Service>),
    /// A change of an EndpointSlice.
    Slice(Event<EndpointSlice>),
    /// A change of a pod.
    Pod(Event<Pod>),
}

impl ClusterContent {
    /// Returns the age of the oldest part; `None` if there is no part.
    pub(crate) fn freshness(&self) -> Option<Freshness> {
        let services = self.services.as_ref().map(Snapshot::freshness);
        let slices = self.slices.as_ref().map(Snapshot::freshness);
        let pods = self.pods.as_ref().map(Snapshot::freshness);
        [services, slices, pods].into_iter().flatten().reduce(Freshness::worst)
    }

    /// Takes newer content. A part that is not there says nothing about its objects.
    pub(super) fn take_in(&mut self, newer: Self) {
        self.services = newer.services.or_else(|| self.services.take());
        self.slices = newer.slices.or_else(|| self.slices.take());
        self.pods = newer.pods.or_else(|| self.pods.take());
    }

    /// Returns the Service of one of the slices. The key is that of the stored Service, if there is one, so that it takes no memory.
    pub(super) fn service_of(&self, slice: &ObjectKey) -> Option<ObjectKey> {
        let key = service_of(&self.slices.as_ref()?.get(slice)?)?;
        let stored = self.services.as_ref().and_then(|services| services.get(&key));
        Some(stored.map_or(key, |service| service.key().clone()))
    }

    /// Returns a Service, if it is there and can be read.
    pub(super) fn service(&self, key: &ObjectKey) -> Option<Service> {
        self.services.as_ref()?.get(key)?.decode().ok()
    }
}

/// Returns the keys of the objects that have changed.
pub(super) fn changed<K>(before: &Option<Snapshot<K>>, now: &Option<Snapshot<K>>) -> Vec<ObjectKey> {
    match (before, now) {
        (Some(before), Some(now)) => now.changed_since(before),
        (None, Some(now)) => now.iter().map(|object| object.key().clone()).collect(),
        (_, None) => Vec::new(),
    }
}

/// Returns the Service of a slice.
pub(super) fn service_of(slice: &Object<EndpointSlice>) -> Option<ObjectKey> {
    Some(ObjectKey::namespaced(slice.namespace()?, slice.label(SERVICE_NAME)?))
}
