//! State of the kernel, as ipvsadm prints it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::service::{Protocol, VirtualService, parse_address};
use super::{Forward, IpvsOptions};
use crate::sink::{EntryMark, Observed, ObservedEntry, ObservedMember};

/// Real servers of each virtual service, with the number of their connections.
type Counts = BTreeMap<VirtualService, BTreeMap<SocketAddr, u32>>;

/// Reads `ipvsadm -Sn` and `ipvsadm -Ln --exact`, which must list the same servers.
///
/// Neither output has an end marker, so each is a check of the other.
pub(super) fn parse(rules: &str, counts: &str, options: &IpvsOptions) -> Result<Observed, String> {
    let mut counts = parse_counts(counts, options)?;
    let mut entries = BTreeMap::new();
    for (line, words) in lines(rules)? {
        let rule = parse_rule(&words, options).ok_or_else(|| not_understood("-Sn", line))?;
        match rule {
            Rule::Other => {}
            Rule::Service { service, tidy } => {
                counts.get(&service).ok_or_else(changed)?;
                let entry = ObservedEntry { mark: EntryMark::Ours(None), members: BTreeMap::new(), tidy };
                entries.insert(service, entry);
            }
            Rule::Server { service, server, draining, tidy } => {
                let entry = entries.get_mut(&service).ok_or_else(|| not_understood("-Sn", line))?;
                let counted = counts.get_mut(&service).and_then(|servers| servers.remove(&server));
                let connections = counted.ok_or_else(changed)?;
                entry.members.insert(server.to_string().into(), ObservedMember { draining, connections });
                entry.tidy &= tidy;
            }
        }
    }
    let known: BTreeSet<_> = entries.keys().collect();
    if !counts.keys().eq(known) || counts.values().any(|servers| !servers.is_empty()) {
        return Err(changed());
    }
    let named = entries.into_iter().map(|(service, entry)| (service.name(), entry));
    Ok(Observed { entries: named.collect() })
}

enum Rule {
    /// The service is not ours.
    Other,
    Service {
        service: VirtualService,
        tidy: bool,
    },
    Server {
        service: VirtualService,
        server: SocketAddr,
        draining: bool,
        tidy: bool,
    },
}

/// Parses a line of `-Sn`; `None` if it is not understood.
fn parse_rule(words: &[&str], options: &IpvsOptions) -> Option<Rule> {
    let (command, service, rest) = match words {
        [command @ ("-A" | "-a"), "-f" | "--sctp-service", _, ..] => {
            return (*command == "-A" || words.contains(&"-r")).then_some(Rule::Other);
        }
        [command, "-t", address, rest @ ..] => (command, service(Protocol::Tcp, address)?, rest),
        [command, "-u", address, rest @ ..] => (command, service(Protocol::Udp, address)?, rest),
        _ => return None,
    };
    let is_ours = options.has(service.address.ip());
    match (*command, rest) {
        ("-A" | "-a", _) if !is_ours => Some(Rule::Other),
        ("-A", ["-s", scheduler, flags @ ..]) => {
            Some(Rule::Service { service, tidy: flags.is_empty() && *scheduler == options.scheduler })
        }
        ("-a", ["-r", server, forward, "-w", weight, flags @ ..]) => {
            let (server, weight) = (parse_address(server)?, weight.parse::<u32>().ok()?);
            let is_plain = match flags {
                [] => true,
                ["--tun-type", kind] => *kind == "ipip" && options.forward == Forward::Tunnel,
                _ => false,
            };
            let tidy = weight <= 1 && is_plain && *forward == options.forward.flag();
            Some(Rule::Server { service, server, draining: weight == 0, tidy })
        }
        _ => None,
    }
}

/// Parses `-Ln --exact`.
fn parse_counts(text: &str, options: &IpvsOptions) -> Result<Counts, String> {
    let mut lines = lines(text)?.into_iter();
    let begins = ["IP Virtual Server version ", "Prot LocalAddress:Port", "  -> RemoteAddress:Port"];
    for begin in begins {
        if !lines.next().is_some_and(|(line, _)| line.starts_with(begin)) {
            return Err(format!("ipvsadm -Ln does not begin with {begin:?}"));
        }
    }
    let (mut counts, mut current) = (Counts::new(), None);
    for (line, words) in lines {
        let parsed = match words.as_slice() {
            ["->", server, _forward, _weight, active, inactive] => {
                count(&mut counts, current, server, active, inactive)
            }
            ["FWM" | "SCTP", ..] => {
                current = None;
                Some(())
            }
            [protocol @ ("TCP" | "UDP"), address, _scheduler, ..] => {
                let protocol = if *protocol == "TCP" { Protocol::Tcp } else { Protocol::Udp };
                let parsed = service(protocol, address);
                current = parsed.filter(|service| options.has(service.address.ip()));
                current.iter().for_each(|service| {
                    counts.entry(*service).or_default();
                });
                parsed.map(|_| ())
            }
            _ => None,
        };
        parsed.ok_or_else(|| not_understood("-Ln", line))?;
    }
    Ok(counts)
}

/// Adds the connections of one server; `None` if the line is not understood.
fn count(
    counts: &mut Counts,
    service: Option<VirtualService>,
    server: &str,
    active: &str,
    inactive: &str,
) -> Option<()> {
    let (server, active, inactive): (_, u32, u32) =
        (parse_address(server)?, active.parse().ok()?, inactive.parse().ok()?);
    let Some(service) = service else { return Some(()) };
    match counts.get_mut(&service)?.entry(server) {
        Entry::Vacant(entry) => Some(*entry.insert(active.saturating_add(inactive))).map(|_| ()),
        Entry::Occupied(_) => None,
    }
}

fn service(protocol: Protocol, address: &str) -> Option<VirtualService> {
    Some(VirtualService { protocol, address: parse_address(address)? })
}

/// Splits an answer into lines and their words. An answer that was cut within a line is an error.
fn lines(text: &str) -> Result<Vec<(&str, Vec<&str>)>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the answer of ipvsadm ends in the middle of a line".to_owned());
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(|line| (line, line.split_whitespace().collect())).collect())
}

fn not_understood(command: &str, line: &str) -> String {
    let begin: String = line.chars().take(200).collect();
    format!("ipvsadm {command} says what is not understood: {begin:?}")
}

fn changed() -> String {
    "ipvsadm -Sn and -Ln tell of different servers: another program changed them meanwhile, or an answer was cut"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of ipvsadm 1.31 on Linux 6.1.
    const RULES: &str = "\
-A -t 10.8.0.1:80 -s wlc
-a -t 10.8.0.1:80 -r 10.9.0.1:8080 -m -w 0
-a -t 10.8.0.1:80 -r 10.9.0.2:8080 -m -w 1
-A -t 10.8.0.3:80 -s sh -p 60 -M 255.255.255.0 -b sh-fallback,sh-port
-A -t 10.8.0.4:80 -s wlc
-a -t 10.8.0.4:80 -r 10.9.0.4:80 -m -w 7
-A -t 10.8.0.5:80 -s wlc
-a -t 10.8.0.5:80 -r 10.9.0.5:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-A -u 10.8.0.4:5060 -s rr -p 77 --pe sip
-A -u 10.8.0.5:53 -s wlc -o
-A --sctp-service 10.8.0.4:99 -s rr
-a --sctp-service 10.8.0.4:99 -r 10.9.0.4:99 -m -w 1
-A -t 192.0.2.1:80 -s rr
-a -t 192.0.2.1:80 -r 10.9.0.4:99 -g -w 1
-A -t [fd00::2]:80 -s wlc -p 20 -M 64
-A -u [fd00::1]:53 -s wlc
-a -u [fd00::1]:53 -r [fd00::9]:53 -m -w 1
-A -f 7 -s rr -p 300
-a -f 7 -r 10.9.0.3:0 -g -w 1
-A -f 8 -6 -s rr
";
    const COUNTS: &str = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.8.0.1:80 wlc
  -> 10.9.0.1:8080                Masq    0      3          4         
  -> 10.9.0.2:8080                Masq    1      0          0         
TCP  10.8.0.3:80 sh (sh-fallback,sh-port) persistent 60 mask 255.255.255.0
TCP  10.8.0.4:80 wlc
  -> 10.9.0.4:80                  Masq    7      0          0         
TCP  10.8.0.5:80 wlc
  -> 10.9.0.5:80                  Tunnel  1      0          0         
UDP  10.8.0.4:5060 rr persistent 77 pe sip
UDP  10.8.0.5:53 wlc ops
SCTP 10.8.0.4:99 rr
  -> 10.9.0.4:99                  Masq    1      0          0         
TCP  192.0.2.1:80 rr
  -> 10.9.0.4:99                  Route   1      5          0         
TCP  [fd00::2]:80 wlc persistent 20 mask 64
UDP  [fd00::1]:53 wlc
  -> [fd00::9]:53                 Masq    1      0          0         
FWM  7 rr persistent 300
  -> 10.9.0.3:0                   Route   1      0          0         
FWM  8 IPv6 rr
";

    fn options() -> IpvsOptions {
        IpvsOptions::at(["10.8.0.0/24", "fd00::/64"].map(|network| network.parse().expect("a network")))
    }

    #[test]
    fn reads_only_own_services() {
        let observed = parse(RULES, COUNTS, &options()).unwrap();
        let tidy: Vec<_> = observed.entries.iter().map(|(name, entry)| (name.as_str(), entry.tidy)).collect();
        let expected = [
            ("tcp/10.8.0.1:80", true),
            ("tcp/10.8.0.3:80", false),
            ("tcp/10.8.0.4:80", false),
            ("tcp/10.8.0.5:80", false),
            ("tcp/[fd00::2]:80", false),
            ("udp/10.8.0.4:5060", false),
            ("udp/10.8.0.5:53", false),
            ("udp/[fd00::1]:53", true),
        ];
        assert_eq!(tidy, expected);
        let member = |draining, connections| ObservedMember { draining, connections };
        let members = &observed.entries["tcp/10.8.0.1:80"].members;
        let expected = BTreeMap::from_iter([
            ("10.9.0.1:8080".into(), member(true, 7)),
            ("10.9.0.2:8080".into(), member(false, 0)),
        ]);
        assert_eq!(*members, expected);
        assert_eq!(observed.entries["udp/[fd00::1]:53"].mark, EntryMark::Ours(None));
    }

    #[test]
    fn empty_kernel_differs_from_missing_output() {
        let header: String = COUNTS.split_inclusive('\n').take(3).collect();
        assert_eq!(parse("", &header, &options()), Ok(Observed::default()));
        assert!(parse("", "", &options()).is_err());
        assert!(parse(RULES, &header, &options()).is_err());
    }

    /// Checks that a cut text never passes for the complete list of our services.
    #[test]
    fn a_cut_answer_is_never_a_part() {
        let whole = parse(RULES, COUNTS, &options()).unwrap();
        for end in 0..RULES.len() {
            if let Ok(observed) = parse(&RULES[..end], COUNTS, &options()) {
                assert_eq!(observed, whole, "{end}");
            }
        }
        for end in 0..COUNTS.len() {
            if let Ok(observed) = parse(RULES, &COUNTS[..end], &options()) {
                assert_eq!(observed, whole, "{end}");
            }
        }
    }

    #[test]
    fn unknown_lines_are_errors() {
        let begin: String = COUNTS.split_inclusive('\n').take(3).collect();
        for line in ["-A -t 10.8.0.1:80 -s", "-X", "-A -q 1 -s rr", "-a -t 10.8.0.1:80 -r x -m -w 1"] {
            let problem = parse(&format!("{line}\n"), &begin, &options()).unwrap_err();
            assert!(problem.contains(line), "{problem}");
        }
        for line in ["  -> 10.9.0.2:8080 Masq 1 0 x", "  -> 10.9.0.2:8080 Masq 1 0", "TCP  x wlc", "AH x y"] {
            let problem = parse("", &format!("{begin}{line}\n"), &options()).unwrap_err();
            assert!(problem.contains(line), "{problem}");
        }
    }

    #[test]
    fn another_way_or_kind_of_tunnel_is_not_tidy() {
        let counts = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  \
            -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP 10.8.0.1:80 wlc\n  -> 10.9.0.1:80 Any 1 0 0\n";
        let tidy = |forward, server: &str| {
            let mut options = options();
            options.forward = forward;
            let rules = format!("-A -t 10.8.0.1:80 -s wlc\n-a -t 10.8.0.1:80 -r 10.9.0.1:80 {server}\n");
            parse(&rules, counts, &options).unwrap().entries["tcp/10.8.0.1:80"].tidy
        };
        assert!(tidy(Forward::Masq, "-m -w 1"));
        assert!(tidy(Forward::Route, "-g -w 0"));
        assert!(tidy(Forward::Tunnel, "-i -w 1 --tun-type ipip"));
        assert!(tidy(Forward::Tunnel, "-i -w 1"), "as older versions write it");
        assert!(!tidy(Forward::Masq, "-g -w 1"));
        assert!(!tidy(Forward::Masq, "-m -w 2"));
        assert!(!tidy(Forward::Masq, "-m -w 1 -x 10"));
        assert!(!tidy(Forward::Tunnel, "-i -w 1 --tun-type gre --tun-nocsum"));
    }
}
