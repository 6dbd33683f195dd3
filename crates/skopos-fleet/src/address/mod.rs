//! Where a fleet connects to, whoever named the server.
//!
//! Names of servers come from kubeconfigs that strangers wrote, and what a name resolves to is the business of whoever owns
//! the name. So not the name is judged but each address, in the dial that connects to it and after the name was resolved
//! ([`skopos::transport::AddressGuard`]): between the check and the use there is nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use skopos::transport::AddressGuard;

/// Which addresses may be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPolicy {
    /// What no cluster is found behind: this machine, the link, the cloud's metadata, groups.
    special: bool,
    denied: Vec<IpNet>,
    allowed: Vec<IpNet>,
}

impl AddressPolicy {
    /// For servers that strangers name: not loopback, not link-local, not the metadata services of clouds, not multicast,
    /// broadcast, unspecified and reserved addresses. Private networks are allowed: clusters live there; deny those of your
    /// own pods and services with [`AddressPolicy::deny`].
    pub fn outside() -> Self {
        Self { special: false, denied: Vec::new(), allowed: Vec::new() }
    }

    /// For servers that the user named: everything.
    pub fn anywhere() -> Self {
        Self { special: true, denied: Vec::new(), allowed: Vec::new() }
    }

    /// Denies a network.
    pub fn deny(mut self, network: IpNet) -> Self {
        self.denied.push(network);
        self
    }

    /// Allows a network, whatever else is denied.
    pub fn allow(mut self, network: IpNet) -> Self {
        self.allowed.push(network);
        self
    }

    /// Whether an address may be connected to.
    ///
    /// # Errors
    /// If not, with the reason.
    pub fn check(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        let faces = faces(address);
        let inside = |networks: &[IpNet]| {
            networks.iter().find(|network| faces.iter().any(|face| network.contains(face))).copied()
        };
        if inside(&self.allowed).is_some() {
            return Ok(());
        }
        if let Some(network) = inside(&self.denied) {
            return Err(DeniedAddress::Network(network));
        }
        let special = faces.iter().find_map(|face| special(*face)).filter(|_| !self.special);
        special.map_or(Ok(()), |what| Err(DeniedAddress::Special(what)))
    }

    /// The same for a transport, which asks at each dial.
    pub fn guard(&self) -> AddressGuard {
        if *self == Self::anywhere() {
            return AddressGuard::open();
        }
        let policy = self.clone();
        AddressGuard::new(move |address| policy.check(address).map_err(|denied| denied.to_string().into()))
    }
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self::outside()
    }
}

/// Why an address may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeniedAddress {
    /// It is in a network that the configuration denies.
    #[error("{0} is denied by configuration")]
    Network(IpNet),
    /// No cluster of somebody else's is there.
    #[error("it is {0}; allow its network if that is meant")]
    Special(&'static str),
}

/// An address, and those that it stands for: an IPv6 address may carry an IPv4 one inside, and a gateway or the kernel
/// connects to that.
fn faces(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else { return vec![address] };
    let inner = embedded(v6).map(IpAddr::V4);
    std::iter::once(address).chain(inner).collect()
}

fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = v6.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // Mapped (RFC 4291): for ::ffff:0.0.0.0, too, Linux connects to this machine.
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(v4(high, low)),
        // The old compatible form; :: and ::1 are none.
        [0, 0, 0, 0, 0, 0, high, low] if !(high == 0 && low <= 1) => Some(v4(high, low)),
        // Translated (RFC 2765), NAT64 (RFC 6052, RFC 8215).
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(v4(high, low)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let o = v4.octets();
    let is = |yes: bool, what| yes.then_some(what);
    is(v4.is_loopback(), "a loopback address")
        .or(is(METADATA_V4.contains(&o), "a cloud's metadata service"))
        .or(is(v4.is_link_local(), "a link-local address, where clouds have their metadata service"))
        .or(is(v4.is_multicast(), "a multicast address"))
        .or(is(v4.is_broadcast(), "the broadcast address"))
        .or(is(o[0] == 0, "an unspecified address"))
        .or(is(o[0] >= 240, "a reserved address"))
}

fn special_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let first = v6.segments()[0];
    let is = |yes: bool, what| yes.then_some(what);
    is(v6.is_loopback(), "a loopback address")
        .or(is(v6.is_unspecified(), "an unspecified address"))
        .or(is(v6.segments() == METADATA_V6, "a cloud's metadata service"))
        .or(is(first & 0xffc0 == 0xfe80, "a link-local address"))
        .or(is(first & 0xffc0 == 0xfec0, "a site-local address"))
        .or(is(v6.is_multicast(), "a multicast address"))
}

/// Azure's, Alibaba's and Oracle's, which are not link-local.
const METADATA_V4: [[u8; 4]; 3] = [[168, 63, 129, 16], [100, 100, 100, 200], [192, 0, 0, 192]];
/// That of EC2: `fd00:ec2::254`.
const METADATA_V6: [u16; 8] = [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254];

#[cfg(test)]
mod tests;
