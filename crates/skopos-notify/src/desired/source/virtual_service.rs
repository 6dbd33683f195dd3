use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{endpoints_of, has_labels, listed, owner_of, owner_of_slice, with_port};
use crate::desired::claims::{Claims, values};
use crate::sink::Sink;

/// The endpoints of Services behind virtual addresses, for balancers outside the cluster.
///
/// A Service lists its addresses in an annotation. Each of its ports is a virtual service `tcp/ADDRESS:PORT` or
/// `udp/ADDRESS:PORT`, and the endpoints of the same family are its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServiceSource {
    /// The annotation with the addresses, separated by commas.
    pub annotation: String,
    /// Labels that the Services must have.
    pub labels: BTreeMap<String, String>,
}

impl VirtualServiceSource {
    /// Returns claims without values: a Service keeps its addresses while it has no endpoints.
    pub(super) fn names(&self, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let addresses = self.addresses(service)?;
        let owner = owner_of("service", &service.metadata);
        let mut claims = Claims::default();
        for address in listed(addresses) {
            let Ok(address) = address.parse::<IpAddr>() else {
                claims.reject(&owner, format!("{address:?} in {} is no address", self.annotation));
                continue;
            };
            for port in ports(service) {
                match virtual_service(address, port) {
                    Ok(name) => drop(claims.claim(sink, &owner, &name, [])),
                    Err(reason) => claims.reject(&owner, reason),
                }
            }
        }
        Some(claims)
    }

    /// Returns the claims of a slice of a Service.
    pub(super) fn claims(&self, slice: &EndpointSlice, service: &Service, sink: &dyn Sink) -> Option<Claims> {
        let addresses = self.addresses(service)?;
        let owner = owner_of_slice(slice, Some(service))?;
        let is_of_family = |address: &IpAddr| match slice.address_type.as_str() {
            "IPv4" => address.is_ipv4(),
            "IPv6" => address.is_ipv6(),
            _ => false,
        };
        let mut claims = Claims::default();
        let addresses = listed(addresses).filter_map(|address| address.parse().ok());
        for address in addresses.filter(is_of_family) {
            for port in ports(service) {
                let Ok(name) = virtual_service(address, port) else { continue };
                let named = |name: Option<&str>| name.unwrap_or_default().to_owned();
                let of_port = slice.ports.iter().flatten();
                let number = of_port
                    .filter(|known| named(known.name.as_deref()) == named(port.name.as_deref()))
                    .find_map(|known| known.port);
                let Some(number) = number else { continue };
                let values = values(endpoints_of(slice), |address| with_port(address, number));
                claims.claim(sink, &owner, &name, values);
            }
        }
        Some(claims)
    }

    fn addresses<'a>(&self, service: &'a Service) -> Option<&'a str> {
        let addresses = service.metadata.annotations.as_ref()?.get(&self.annotation)?;
        has_labels(service.metadata.labels.as_ref(), &self.labels).then_some(addresses)
    }
}

fn ports(service: &Service) -> impl Iterator<Item = &ServicePort> {
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten())
}

/// Returns the name of the virtual service of a port.
fn virtual_service(address: IpAddr, port: &ServicePort) -> Result<String, String> {
    let number = u16::try_from(port.port).map_err(|_| format!("{} is no port", port.port))?;
    let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
        "TCP" => "tcp",
        "UDP" => "udp",
        other => return Err(format!("port {number} is {other}: only TCP and UDP are balanced")),
    };
    Ok(format!("{protocol}/{}", SocketAddr::new(address, number)))
}
