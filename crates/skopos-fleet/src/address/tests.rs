use super::*;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn what_is_no_cluster_is_denied_in_every_spelling() {
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
        "2001:db8::1",
        "64:ff9b::8.8.8.8",
    ] {
        assert_eq!(policy.check(ip(fine)), Ok(()), "{fine}");
    }
}

#[test]
fn networks_are_denied_and_allowed_by_configuration() {
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
fn the_guard_says_what_the_policy_says() {
    let guard = AddressPolicy::outside().guard();
    assert!(guard.check(ip("127.0.0.1")).unwrap_err().contains("loopback"));
    assert!(guard.check(ip("10.0.0.1")).is_ok());
    assert!(AddressPolicy::anywhere().guard().check(ip("127.0.0.1")).is_ok());
}

proptest! {
    /// However an IPv4 address is wrapped into an IPv6 one, it is judged as what it is.
    #[test]
    fn wrapping_an_address_does_not_help(bits in prop_oneof![any::<u32>(), 0u32..2], wrap in 0usize..4) {
        let v4 = Ipv4Addr::from(bits);
        let [a, b, c, d] = v4.octets();
        let pair = |x: u8, y: u8| u16::from(x) << 8 | u16::from(y);
        let (high, low) = (pair(a, b), pair(c, d));
        let v6 = match wrap {
            0 => v4.to_ipv6_mapped(),
            1 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            2 => Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            _ => Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        };
        let policy = AddressPolicy::outside().deny(net("10.0.0.0/8"));
        prop_assert_eq!(policy.check(IpAddr::V6(v6)).is_err(), policy.check(IpAddr::V4(v4)).is_err(), "{} in {}", v4, v6);
    }
}
