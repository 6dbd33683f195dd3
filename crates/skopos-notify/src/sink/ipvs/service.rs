use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::entry::EntryName;

/// A virtual service, as IPVS knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualService {
    pub(super) protocol: Protocol,
    pub(super) address: SocketAddr,
}

/// A protocol of virtual services that can be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl VirtualService {
    /// Parses `tcp/10.8.0.1:80`. The text is untrusted.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?} is no virtual service, such as tcp/10.8.0.1:80 or udp/[fd00::1]:53");
        let (protocol, address) = text.split_once('/').ok_or_else(expected)?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(expected()),
        };
        let address = parse_address(address).ok_or_else(expected)?;
        if address.port() == 0 {
            return Err(format!("{text:?} has no port"));
        }
        Ok(Self { protocol, address })
    }

    /// Returns the name as entries have it.
    pub(super) fn name(self) -> EntryName {
        self.to_string().into()
    }

    /// Returns the option of ipvsadm for the protocol.
    pub(super) fn flag(self) -> &'static str {
        match self.protocol {
            Protocol::Tcp => "-t",
            Protocol::Udp => "-u",
        }
    }
}

impl fmt::Display for VirtualService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{protocol}/{}", self.address)
    }
}

/// Parses `ADDRESS:PORT` of a real server.
pub(super) fn parse_server(text: &str) -> Result<SocketAddr, String> {
    let server = parse_address(text).ok_or_else(|| format!("{text:?} is not ADDRESS:PORT"))?;
    if server.port() == 0 {
        return Err(format!("{text:?} has no port"));
    }
    // The kernel accepts no others ("address not unicast").
    let is_host = match server.ip() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    };
    if is_host { Ok(server) } else { Err(format!("{text:?} is no address of a server")) }
}

/// Parses an address and its port; a scope (`%eth0`) is no part of it.
pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    let has_scope = matches!(address, SocketAddr::V6(address) if address.scope_id() != 0);
    (!has_scope && !text.contains('%')).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_service_has_one_spelling() {
        for (text, name) in [
            ("tcp/10.8.0.1:80", "tcp/10.8.0.1:80"),
            ("udp/10.8.0.1:53", "udp/10.8.0.1:53"),
            ("tcp/[FD00:0::1]:80", "tcp/[fd00::1]:80"),
        ] {
            assert_eq!(VirtualService::parse(text).map(VirtualService::name), Ok(name.into()));
        }
        for text in [
            "",
            "10.8.0.1:80",
            "tcp/10.8.0.1",
            "tcp/10.8.0.1:0",
            "tcp/10.8.0.1:65536",
            "tcp/10.8.0.1:80 -s rr",
            "tcp/10.8.0.1:80\n-C",
            "tcp/ 10.8.0.1:80",
            "tcp/fd00::1:80",
            "tcp/[fe80::1%1]:80",
            "tcp/[fe80::1%0]:80",
            "tcp/host:80",
            "TCP/10.8.0.1:80",
            "sctp/10.8.0.1:80",
            "tcp/tcp/10.8.0.1:80",
        ] {
            assert!(VirtualService::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_server_is_a_host_and_a_port() {
        assert_eq!(parse_server("[FD00::0:1]:80").unwrap().to_string(), "[fd00::1]:80");
        assert_eq!(parse_server("127.0.0.1:80").unwrap().to_string(), "127.0.0.1:80");
        for text in [
            "10.9.0.1",
            "10.9.0.1:0",
            "0.0.0.0:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
            "[::]:80",
            "10.9.0.1:80 -w 100",
        ] {
            assert!(parse_server(text).is_err(), "{text:?}");
        }
    }
}
