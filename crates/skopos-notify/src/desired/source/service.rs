use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::{has_labels, listed, owner_of};
use crate::desired::claims::Claims;
use crate::entry::Readiness;
use crate::sink::Sink;

/// Services with their names in an annotation. A name leads to the addresses of the load balancer, or of the Service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSource {
    /// The annotation with the names, separated by commas.
    pub annotation: String,
    /// Types of Services: `LoadBalancer`, `ClusterIP`, `NodePort`, `ExternalName`. Empty: all.
    pub types: Vec<String>,
    /// Labels that the Services must have.
    pub labels: BTreeMap<String, String>,
}

impl ServiceSource {
    /// Returns the claims of a Service; `None` if it is not selected.
    pub(super) fn claims(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let meta = &service.metadata;
        let names = meta.annotations.as_ref()?.get(&self.annotation)?;
        let spec = service.spec.as_ref()?;
        let service_type = spec.type_.as_deref().unwrap_or("ClusterIP");
        let is_of_type = self.types.is_empty() || self.types.iter().any(|wanted| wanted == service_type);
        if !is_of_type || !has_labels(meta.labels.as_ref(), &self.labels) {
            return None;
        }
        let owner = owner_of("service", &service.metadata);
        let mut claims = Claims::default();
        let values = values(service, service_type);
        for name in listed(names) {
            let values = values.iter().map(|value| (value.clone(), Readiness::Ready));
            claims.claim(sink, &owner, name, values);
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
