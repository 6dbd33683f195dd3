use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::template::Template;
use super::{Claim, Claims, Rejected};
use crate::entry::{EntryOwner, EntryValue, Readiness};
use crate::sink::Sink;

/// Objects that ask a sink for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// Services that say their names in an annotation.
    Services(ServiceSource),
    /// The endpoints of Services.
    Endpoints(EndpointSource),
}

/// Services that say their names in an annotation: they lead to the addresses of their load balancer, or of the Service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSource {
    /// The annotation with the names, separated by commas.
    pub annotation: String,
    /// Types of Services: `LoadBalancer`, `ClusterIP`, `NodePort`, `ExternalName`. Empty: all.
    pub types: Vec<String>,
    /// Labels that they have to have.
    pub labels: BTreeMap<String, String>,
}

/// The endpoints of Services, as EndpointSlices have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSource {
    /// Only of Services without an address of their own, or only of others.
    pub headless: Option<bool>,
    /// Labels of the Service, which its slices have, too.
    pub labels: BTreeMap<String, String>,
    /// The name: `{service}`, `{namespace}`, and with ports `{port}`.
    pub name: Template,
    /// True if each port has a name of its own and values are `address:port`.
    pub ports: bool,
}

/// The label with the name of a slice's Service (Kubernetes, discovery/v1).
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of slices of headless Services (set by the EndpointSlice controller).
const HEADLESS: &str = "service.kubernetes.io/headless";

impl ClaimSource {
    /// Returns the claims of a Service; `None` if the source does not select it.
    pub(super) fn of_service(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        match self {
            Self::Services(source) => source.claims(service, sink),
            Self::Endpoints(source) => source.names(service, sink),
        }
    }

    /// Returns the claims of an EndpointSlice; `None` if the source does not select it.
    pub(super) fn of_slice(&self, slice: &EndpointSlice, sink: &dyn Sink) -> Option<Claims> {
        let Self::Endpoints(source) = self else { return None };
        source.claims(slice, sink)
    }
}

impl ServiceSource {
    fn claims(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let meta = &service.metadata;
        let names = meta.annotations.as_ref()?.get(&self.annotation)?;
        let spec = service.spec.as_ref()?;
        let service_type = spec.type_.as_deref().unwrap_or("ClusterIP");
        let is_of_type = self.types.is_empty() || self.types.iter().any(|wanted| wanted == service_type);
        if !is_of_type || !has_labels(meta.labels.as_ref(), &self.labels) {
            return None;
        }
        let owner = owner_of(service);
        let mut claims = Claims::default();
        let mut members = BTreeMap::new();
        for value in values(service, service_type) {
            match sink.value(&value) {
                Ok(value) => drop(members.insert(value, Readiness::Ready)),
                Err(reason) => claims.reject(&owner, reason),
            }
        }
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match sink.name(name) {
                Ok(name) => {
                    claims.claims.push(Claim { name, owner: owner.clone(), members: members.clone() })
                }
                Err(reason) => claims.reject(&owner, reason),
            }
        }
        Some(claims)
    }
}

/// Returns the addresses of a Service.
fn values(service: &Service, service_type: &str) -> Vec<String> {
    let spec = service.spec.as_ref();
    if service_type == "ExternalName" {
        return spec.and_then(|spec| spec.external_name.clone()).into_iter().collect();
    }
    if service_type == "LoadBalancer" {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
        return ingress
            .filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()))
            .collect();
    }
    let external: Vec<_> = spec.and_then(|spec| spec.external_ips.clone()).unwrap_or_default();
    if !external.is_empty() {
        return external;
    }
    let addresses =
        spec.and_then(|spec| spec.cluster_ips.clone().or_else(|| spec.cluster_ip.clone().map(|ip| vec![ip])));
    addresses.unwrap_or_default().into_iter().filter(|address| address != "None").collect()
}

fn owner_of(service: &Service) -> EntryOwner {
    let meta = &service.metadata;
    EntryOwner {
        resource: "service".into(),
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
    }
}

impl EndpointSource {
    /// Returns claims without values. A Service keeps its names while it has no endpoints: its slices have no ports then.
    fn names(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let spec = service.spec.as_ref()?;
        let is_headless = spec.cluster_ip.as_deref() == Some("None");
        let is_meant = self.headless.is_none_or(|wanted| wanted == is_headless);
        let has_endpoints = spec.type_.as_deref() != Some("ExternalName");
        if !is_meant || !has_endpoints || !has_labels(service.metadata.labels.as_ref(), &self.labels) {
            return None;
        }
        let owner = owner_of(service);
        let places = BTreeMap::from([("namespace", &*owner.namespace), ("service", &*owner.name)]);
        let mut claims = Claims::default();
        if !self.ports {
            claims.claim(sink, &owner, &self.name.fill(&places), &[], str::to_owned);
            return Some(claims);
        }
        for port in spec.ports.iter().flatten() {
            // As a slice names it: by its name, or else by the number that the pods listen on.
            let number = match &port.target_port {
                Some(IntOrString::Int(number)) => Some(*number),
                Some(IntOrString::String(_)) => None,
                None => Some(port.port),
            };
            let name = port.name.clone().filter(|name| !name.is_empty());
            let Some(text) = name.or(number.map(|number| number.to_string())) else { continue };
            let mut places = places.clone();
            places.insert("port", &text);
            claims.claim(sink, &owner, &self.name.fill(&places), &[], str::to_owned);
        }
        Some(claims)
    }

    fn claims(&self, slice: &EndpointSlice, sink: &dyn Sink) -> Option<Claims> {
        let labels = slice.metadata.labels.as_ref()?;
        let service = labels.get(SERVICE_NAME)?;
        let is_headless = labels.contains_key(HEADLESS);
        let is_meant = self.headless.is_none_or(|wanted| wanted == is_headless);
        if !is_meant || !has_labels(Some(labels), &self.labels) || slice.address_type == "FQDN" {
            return None;
        }
        let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
        let owners = slice.metadata.owner_references.iter().flatten();
        // A slice that somebody wrote by hand has none: it goes with the Service of that name.
        let uid = owners
            .filter(|owner| owner.kind == "Service")
            .map(|owner| owner.uid.as_str())
            .next()
            .unwrap_or_default();
        let owner = EntryOwner {
            resource: "service".into(),
            namespace: namespace.into(),
            name: service.as_str().into(),
            uid: uid.into(),
        };
        let places = BTreeMap::from([("namespace", namespace), ("service", service.as_str())]);
        let mut claims = Claims::default();
        if !self.ports {
            claims.claim(sink, &owner, &self.name.fill(&places), slice.endpoints.all(), |address| {
                address.to_owned()
            });
            return Some(claims);
        }
        for port in slice.ports.iter().flatten() {
            let Some(number) = port.port else { continue };
            let text =
                port.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| number.to_string());
            let mut places = places.clone();
            places.insert("port", &text);
            let name = self.name.fill(&places);
            let value = |address: &str| {
                if address.contains(':') {
                    format!("[{address}]:{number}")
                } else {
                    format!("{address}:{number}")
                }
            };
            claims.claim(sink, &owner, &name, slice.endpoints.all(), value);
        }
        Some(claims)
    }
}

impl Claims {
    fn claim(
        &mut self,
        sink: &dyn Sink,
        owner: &EntryOwner,
        name: &str,
        endpoints: &[Endpoint],
        value: impl Fn(&str) -> String,
    ) {
        let name = match sink.name(name) {
            Ok(name) => name,
            Err(reason) => return self.reject(owner, reason),
        };
        let mut members: BTreeMap<EntryValue, Readiness> = BTreeMap::new();
        for endpoint in endpoints {
            for address in &endpoint.addresses {
                match sink.value(&value(address)) {
                    Ok(value) => drop(members.insert(value, readiness(endpoint))),
                    Err(reason) => self.reject(owner, reason),
                }
            }
        }
        self.claims.push(Claim { name, owner: owner.clone(), members });
    }

    fn reject(&mut self, owner: &EntryOwner, reason: String) {
        self.rejected.push(Rejected { object: owner.to_string(), reason });
    }
}

/// The endpoints of a slice: the API's description says that they are optional from Kubernetes 1.36 on.
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

/// Reads the conditions as discovery/v1 says: `ready` that is not set means true.
fn readiness(endpoint: &Endpoint) -> Readiness {
    let conditions = endpoint.conditions.as_ref();
    let is = |condition: Option<bool>, otherwise: bool| condition.unwrap_or(otherwise);
    if is(conditions.and_then(|conditions| conditions.terminating), false) {
        Readiness::Terminating
    } else if is(conditions.and_then(|conditions| conditions.ready), true) {
        Readiness::Ready
    } else {
        Readiness::NotReady
    }
}

fn has_labels(labels: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    let has = |(key, value): (&String, &String)| {
        labels.and_then(|labels| labels.get(key)).is_some_and(|known| value == "*" || known == value)
    };
    wanted.iter().all(has)
}
