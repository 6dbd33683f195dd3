//! The network of a client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An IPv4 address, or the /64 network of an IPv6 address, because a host usually has a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SourceNetwork(IpAddr);

impl From<SocketAddr> for SourceNetwork {
    fn from(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                Self(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into())
            }
            ip => Self(ip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_network() {
        let network = |text: &str| SourceNetwork::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(network("10.0.0.1:1"), network("[::ffff:10.0.0.1]:2"));
        assert_ne!(network("10.0.0.1:1"), network("10.0.0.2:1"));
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::ffff:2]:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
        assert_ne!(network("[::1]:1"), network("[::2]:1"));
    }
}
