use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{endpoints_of, has_labels, owner_of, owner_of_slice, with_port};
use crate::desired::claims::{Claims, values};
use crate::sink::Sink;
use crate::template::Template;

/// The endpoints of Services, as EndpointSlices have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSource {
    /// Only of headless Services, or only of others.
    pub headless: Option<bool>,
    /// Labels of the Service, which its slices have, too.
    pub labels: BTreeMap<String, String>,
    /// The name: `{service}`, `{namespace}`, and with ports `{port}`.
    pub name: Template,
    /// True if each port has its own name and values are `address:port`.
    pub ports: bool,
}

/// The label of slices of headless Services (set by the EndpointSlice controller).
const HEADLESS: &str = "service.kubernetes.io/headless";

impl EndpointSource {
    /// Returns claims without values. A Service keeps its names while it has no endpoints: its slices have no ports then.
    pub(super) fn names(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let spec = service.spec.as_ref()?;
        let is_headless = spec.cluster_ip.as_deref() == Some("None");
        let is_meant = self.headless.is_none_or(|wanted| wanted == is_headless);
        let has_endpoints = spec.type_.as_deref() != Some("ExternalName");
        if !is_meant || !has_endpoints || !has_labels(service.metadata.labels.as_ref(), &self.labels) {
            return None;
        }
        let owner = owner_of("service", &service.metadata);
        let places = BTreeMap::from([("namespace", &*owner.namespace), ("service", &*owner.name)]);
        let mut claims = Claims::default();
        if !self.ports {
            claims.claim(sink, &owner, &self.name.fill(&places), []);
            return Some(claims);
        }
        for port in spec.ports.iter().flatten() {
            // A slice names the port by its name, or else by the number that the pods listen on.
            let number = match &port.target_port {
                Some(IntOrString::Int(number)) => Some(*number),
                Some(IntOrString::String(_)) => None,
                None => Some(port.port),
            };
            let name = port.name.clone().filter(|name| !name.is_empty());
            let Some(text) = name.or(number.map(|number| number.to_string())) else { continue };
            let mut places = places.clone();
            places.insert("port", &text);
            claims.claim(sink, &owner, &self.name.fill(&places), []);
        }
        Some(claims)
    }

    /// Returns the claims of a slice; `None` if it is not selected.
    pub(super) fn claims(
        &self,
        slice: &EndpointSlice,
        service: Option<&Service>,
        sink: &dyn Sink,
    ) -> Option<Claims> {
        let labels = slice.metadata.labels.as_ref()?;
        let is_headless = labels.contains_key(HEADLESS);
        let is_meant = self.headless.is_none_or(|wanted| wanted == is_headless);
        if !is_meant || !has_labels(Some(labels), &self.labels) || slice.address_type == "FQDN" {
            return None;
        }
        let owner = owner_of_slice(slice, service)?;
        let places = BTreeMap::from([("namespace", &*owner.namespace), ("service", &*owner.name)]);
        let mut claims = Claims::default();
        if !self.ports {
            let values = values(endpoints_of(slice), str::to_owned);
            claims.claim(sink, &owner, &self.name.fill(&places), values);
            return Some(claims);
        }
        for port in slice.ports.iter().flatten() {
            let Some(number) = port.port else { continue };
            let text =
                port.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| number.to_string());
            let mut places = places.clone();
            places.insert("port", &text);
            let values = values(endpoints_of(slice), |address| with_port(address, number));
            claims.claim(sink, &owner, &self.name.fill(&places), values);
        }
        Some(claims)
    }
}
