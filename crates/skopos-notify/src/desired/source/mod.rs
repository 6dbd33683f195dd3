//! Sources: the objects that ask for names, and their claims.

mod endpoints;
mod pods;
mod service;
mod virtual_service;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use self::endpoints::EndpointSource;
pub use self::pods::{PodSource, PodSourceError, PodTemplates};
pub use self::service::ServiceSource;
pub use self::virtual_service::VirtualServiceSource;
use super::claims::Claims;
use crate::entry::EntryOwner;
use crate::sink::Sink;

/// Objects that ask a sink for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// Services with their names in an annotation.
    Services(ServiceSource),
    /// The endpoints of Services.
    Endpoints(EndpointSource),
    /// The endpoints of Services behind the virtual addresses in an annotation of these Services.
    VirtualServices(VirtualServiceSource),
    /// Pods, with one inventory item for each.
    Pods(PodSource),
}

/// The label with the name of a slice's Service (Kubernetes, discovery/v1).
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl ClaimSource {
    /// Returns the claims of a Service; `None` if the source does not select it.
    pub(super) fn service_claims(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        match self {
            Self::Services(source) => source.claims(service, sink),
            Self::Endpoints(source) => source.names(service, sink),
            Self::VirtualServices(source) => source.names(service, sink),
            Self::Pods(_) => None,
        }
    }

    /// Returns the claims of an EndpointSlice of a Service; `None` if the source does not select it.
    pub(super) fn slice_claims(
        &self,
        slice: &EndpointSlice,
        service: Option<&Service>,
        sink: &dyn Sink,
    ) -> Option<Claims> {
        match self {
            Self::Services(_) | Self::Pods(_) => None,
            Self::Endpoints(source) => source.claims(slice, service, sink),
            Self::VirtualServices(source) => source.claims(slice, service?, sink),
        }
    }

    /// Returns the claims of a pod; `None` if the source does not select it.
    pub(super) fn pod_claims(&self, pod: &Pod, sink: &dyn Sink) -> Option<Claims> {
        let Self::Pods(source) = self else { return None };
        source.claims(pod, sink)
    }

    /// Returns whether the source needs the pods, rather than the Services and their slices.
    pub(crate) fn is_of_pods(&self) -> bool {
        matches!(self, Self::Pods(_))
    }
}

fn owner_of(resource: &str, meta: &ObjectMeta) -> EntryOwner {
    EntryOwner {
        resource: resource.into(),
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
    }
}

/// Returns the Service of a slice. A slice written by hand has no owner reference; it belongs to the Service of that name.
fn owner_of_slice(slice: &EndpointSlice, service: Option<&Service>) -> Option<EntryOwner> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    let mut owners = slice.metadata.owner_references.iter().flatten();
    let uid = owners.find(|owner| owner.kind == "Service").map(|owner| owner.uid.as_str());
    let uid = uid.or_else(|| service?.metadata.uid.as_deref()).unwrap_or_default();
    Some(EntryOwner {
        resource: "service".into(),
        namespace: slice.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: name.as_str().into(),
        uid: uid.into(),
    })
}

/// Returns the names in an annotation, which are separated by commas.
fn listed(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Joins an address and a port.
fn with_port(address: &str, port: i32) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Returns the endpoints of a slice.
fn endpoints_of(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.all()
}

/// The endpoints of a slice. The API's description makes them optional from Kubernetes 1.36 on.
trait Endpoints {
    fn all(&self) -> &[Endpoint];
}

impl Endpoints for Vec<Endpoint> {
    fn all(&self) -> &[Endpoint] {
        self
    }
}

impl Endpoints for Option<Vec<Endpoint>> {
    fn all(&self) -> &[Endpoint] {
        self.as_deref().unwrap_or_default()
    }
}

fn has_labels(labels: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    let has = |(key, value): (&String, &String)| {
        labels.and_then(|labels| labels.get(key)).is_some_and(|known| value == "*" || known == value)
    };
    wanted.iter().all(has)
}
