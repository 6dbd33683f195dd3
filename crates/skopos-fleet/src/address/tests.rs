use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn denies_non_cluster_addresses_in_every_spelling() {
    let policy = AddressPolicy::outside();
    for denied in [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.1",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "224.0.0.1",
        "239.255.255.255",
        "255.255.255.255",
        "240.0.0.1",
        "::",
        "::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2001::1",
        "fd00::5efe:127.0.0.1",
        "2001:db8::200:5efe:169.254.169.254",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "::ffff:0.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ] {
        let error = policy.check(ip(denied)).expect_err(denied);
        assert!(matches!(error, DeniedAddress::Special(_)), "{denied}: {error}");
        assert_eq!(AddressPolicy::anywhere().check(ip(denied)), Ok(()));
    }
    for fine in [
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "8.8.8.8",
        "100.64.0.1",
        "fd00::1",
        "fd00:42::43",
        "2001:db8::1",
        "2001:db8::5efe:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ] {
        assert_eq!(policy.check(ip(fine)), Ok(()), "{fine}");
    }
}

#[test]
fn configuration_denies_and_allows_networks() {
    let policy = AddressPolicy::outside().deny(net("10.96.0.0/12")).allow(net("10.96.0.1/32"));
    assert_eq!(policy.check(ip("10.100.0.1")), Err(DeniedAddress::Network(net("10.96.0.0/12"))));
    assert_eq!(policy.check(ip("::ffff:10.100.0.1")), Err(DeniedAddress::Network(net("10.96.0.0/12"))));
    assert_eq!(policy.check(ip("10.96.0.1")), Ok(()), "what is allowed by name goes before");
    assert_eq!(policy.check(ip("10.0.0.1")), Ok(()));
    let local = AddressPolicy::outside().allow(net("127.0.0.0/8"));
    assert_eq!(local.check(ip("127.0.0.1")), Ok(()));
    assert!(local.check(ip("169.254.169.254")).is_err(), "the rest stays denied");
    assert!(AddressPolicy::anywhere().deny(net("10.0.0.0/8")).check(ip("10.1.1.1")).is_err());
}

#[test]
fn filter_agrees_with_policy() {
    let filter = AddressPolicy::outside().filter();
    assert!(filter.check(ip("127.0.0.1")).unwrap_err().contains("loopback"));
    assert!(filter.check(ip("10.0.0.1")).is_ok());
    assert!(AddressPolicy::anywhere().filter().check(ip("127.0.0.1")).is_ok());
}

/// Returns an address of this machine other than loopback, if there is one: the source address of outgoing packets.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn filter_denies_own_addresses_at_each_dial() {
    let Some(own) = own_address() else {
        return eprintln!("not run: the machine has no address but loopback");
    };
    let policy = AddressPolicy::outside();
    assert_eq!(policy.check(own), Ok(()), "which addresses the machine has is looked up when it is dialled");
    assert!(policy.filter().check(own).unwrap_err().contains("of this machine"), "{own}");
    if let IpAddr::V4(v4) = own {
        assert!(policy.filter().check(v4.to_ipv6_mapped().into()).is_err());
    }
    assert!(policy.allow(IpNet::from(own)).filter().check(own).is_ok());
    assert!(AddressPolicy::anywhere().deny(net("10.99.0.0/16")).filter().check(own).is_ok());
    assert!(AddressPolicy::outside().filter().check(ip("192.0.2.1")).is_ok());
}

proptest! {
    /// Checks that an IPv4 address gets the same verdict in every IPv6 notation.
    #[test]
    fn wrapping_an_address_does_not_help(bits in prop_oneof![any::<u32>(), 0u32..2], wrap in 0usize..5) {
        let v4 = Ipv4Addr::from(bits);
        let [a, b, c, d] = v4.octets();
        let pair = |x: u8, y: u8| u16::from(x) << 8 | u16::from(y);
        let (high, low) = (pair(a, b), pair(c, d));
        let v6 = match wrap {
            0 => v4.to_ipv6_mapped(),
            1 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            2 => Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            3 => Ipv6Addr::new(0xfd01, 0, 0, 0, 0x200, 0x5efe, high, low),
            _ => Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        };
        let policy = AddressPolicy::outside().deny(net("10.0.0.0/8"));
        prop_assert_eq!(policy.check(IpAddr::V6(v6)).is_err(), policy.check(IpAddr::V4(v4)).is_err(), "{} in {}", v4, v6);
    }
}
