//! Addresses to which a fleet may connect, whatever the origin of a server's name.
//!
//! Names of servers come from untrusted kubeconfigs, and the owner of a name decides what it resolves to. So the policy
//! checks each address instead of the name, in the dial and after the name was resolved
//! ([`skopos::transport::AddressFilter`]): nothing can change between check and use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::{IpNet, Ipv6Net};
use skopos::transport::AddressFilter;

/// Policy of the addresses that may be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Set if addresses are allowed behind which no cluster is expected: this machine, link-local, cloud metadata,
    /// multicast.
    special: bool,
    denied: Vec<IpNet>,
    allowed: Vec<IpNet>,
}

impl AddressPolicy {
    /// Creates a policy for untrusted servers: no loopback, no link-local, no cloud metadata services, no multicast,
    /// broadcast, unspecified and reserved addresses. Private networks are allowed, because clusters live there; deny
    /// those of your own pods and services with [`AddressPolicy::deny`].
    pub fn outside() -> Self {
        Self { special: false, denied: Vec::new(), allowed: Vec::new() }
    }

    /// Creates a policy for trusted servers: allows everything.
    pub fn anywhere() -> Self {
        Self { special: true, denied: Vec::new(), allowed: Vec::new() }
    }

    /// Denies a network.
    #[must_use]
    pub fn deny(mut self, network: IpNet) -> Self {
        self.denied.push(network);
        self
    }

    /// Allows a network, even if it is otherwise denied.
    #[must_use]
    pub fn allow(mut self, network: IpNet) -> Self {
        self.allowed.push(network);
        self
    }

    /// Checks whether an address may be connected to.
    ///
    /// # Errors
    /// If not, with the reason.
    pub fn check(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        let equivalents = equivalents(address);
        if self.allows(&equivalents) {
            return Ok(());
        }
        let denied =
            self.denied.iter().find(|network| equivalents.iter().any(|address| network.contains(address)));
        if let Some(network) = denied {
            return Err(DeniedAddress::Network(*network));
        }
        let special = equivalents.iter().find_map(|address| special(*address)).filter(|_| !self.special);
        special.map_or(Ok(()), |what| Err(DeniedAddress::Special(what)))
    }

    /// Returns this policy for a transport, which applies it at each dial. It also denies addresses of this machine,
    /// which may change at any time and so are looked up at each dial.
    pub fn filter(&self) -> AddressFilter {
        if *self == Self::anywhere() {
            return AddressFilter::open();
        }
        let policy = self.clone();
        AddressFilter::new(move |address| {
            policy.check_at_dial(address).map_err(|denied| denied.to_string().into())
        })
    }

    fn check_at_dial(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        self.check(address)?;
        let equivalents = equivalents(address);
        let is_allowed = self.special || self.allows(&equivalents);
        match !is_allowed && equivalents.iter().any(|address| is_of_this_machine(*address)) {
            true => Err(DeniedAddress::Special("an address of this machine")),
            false => Ok(()),
        }
    }

    fn allows(&self, equivalents: &[IpAddr]) -> bool {
        self.allowed.iter().any(|network| equivalents.iter().any(|address| network.contains(address)))
    }
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self::outside()
    }
}

/// Reason why an address may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeniedAddress {
    /// The address is in a network that the configuration denies.
    #[error("{0} is denied by configuration")]
    Network(IpNet),
    /// No foreign cluster is expected there.
    #[error("it is {0}; allow its network if that is meant")]
    Special(&'static str),
}

/// Returns an address and the one embedded in it. An IPv6 address may carry an IPv4 address, and a gateway or the
/// kernel connects to that.
fn equivalents(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else { return vec![address] };
    let inner = embedded(v6).map(IpAddr::V4);
    std::iter::once(address).chain(inner).collect()
}

fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = v6.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // Mapped (RFC 4291). For ::ffff:0.0.0.0, too, Linux connects to this machine.
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(v4(high, low)),
        // The old compatible form, except :: and ::1.
        [0, 0, 0, 0, 0, 0, high, low] if !(high == 0 && low <= 1) => Some(v4(high, low)),
        // Translated (RFC 2765), NAT64 (RFC 6052, RFC 8215).
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(v4(high, low)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(v4(high, low)),
        // ISATAP (RFC 5214), in any network.
        [_, _, _, _, 0 | 0x0200, 0x5efe, high, low] => Some(v4(high, low)),
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
        .or(is(METADATA_V6.iter().any(|own| own.contains(&v6)), "a cloud's metadata service"))
        .or(is(TEREDO.contains(&v6), "a Teredo address, which embeds one of IPv4"))
        .or(is(first & 0xffc0 == 0xfe80, "a link-local address"))
        .or(is(first & 0xffc0 == 0xfec0, "a site-local address"))
        .or(is(v6.is_multicast(), "a multicast address"))
}

/// The metadata services of Azure, Alibaba and Oracle, which are not link-local.
const METADATA_V4: [[u8; 4]; 3] = [[168, 63, 129, 16], [100, 100, 100, 200], [192, 0, 0, 192]];
/// The metadata services of AWS (`::254` has the metadata and `::23` the credentials of pods), Google, Scaleway and
/// Linode.
const METADATA_V6: [Ipv6Net; 4] = [
    network_v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    network_v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0], 64),
    network_v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    network_v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 0], 48),
];

/// The Teredo network (RFC 4380).
const TEREDO: Ipv6Net = network_v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32);

const fn network_v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// Returns whether the address belongs to this machine: then the kernel would use it as the source address, too. Sends
/// nothing.
fn is_of_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The port does not matter: connecting a datagram socket sends no packet.
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests;
