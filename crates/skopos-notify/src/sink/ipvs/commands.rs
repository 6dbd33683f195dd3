//! Commands to ipvsadm, and the meaning of its errors.
//!
//! `ipvsadm -R` continues after a line that the kernel refuses, and its exit code is that of the last line: only stderr reports
//! the others. It stops at a line that it cannot parse, so all lines are made from parsed addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use super::process::Answer;
use super::service::{Protocol, VirtualService, parse_server};
use super::{Forward, IpvsOptions};
use crate::entry::EntryValue;
use crate::sink::{ObservedEntry, Serving, SinkStep, StepAction, StepOutcome};

/// Input of `ipvsadm -R`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) lines: String,
    /// Servers that are not written, with the reason.
    pub(super) left_out: Option<String>,
}

impl Forward {
    /// Returns the option of ipvsadm.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Masq => "-m",
            Self::Route => "-g",
            Self::Tunnel => "-i",
        }
    }
}

/// Makes the commands that give a virtual service these servers. Servers that get traffic come before those that lose it.
pub(super) fn put(
    service: VirtualService,
    before: Option<&ObservedEntry>,
    members: &BTreeMap<EntryValue, Serving>,
    options: &IpvsOptions,
) -> Commands {
    let none = BTreeMap::new();
    let known = before.map_or(&none, |entry| &entry.members);
    let (wanted, left_out) = fitting(service, members, options);
    let (flag, address, scheduler) = (service.flag(), service.address, &options.scheduler);
    let mut commands = Commands { lines: String::new(), left_out };
    // Each setting is written to all servers, because it is unknown which of them are wrong.
    let is_tidy = before.is_none_or(|entry| entry.tidy);
    match before {
        None => commands.push(format_args!("-A {flag} {address} -s {scheduler}")),
        Some(_) if !is_tidy => commands.push(format_args!("-E {flag} {address} -s {scheduler}")),
        Some(_) => {}
    }
    let forward = options.forward.flag();
    let (mut raised, mut lowered) = (Vec::new(), Vec::new());
    for (server, serving) in &wanted {
        let weight = u8::from(*serving == Serving::Active);
        let line = |command| format!("{command} {flag} {address} -r {server} {forward} -w {weight}");
        match known.get(server.to_string().as_str()) {
            None => commands.push(format_args!("{}", line("-a"))),
            Some(member) if is_tidy && member.draining == (weight == 0) => {}
            Some(_) if weight == 0 => lowered.push(line("-e")),
            Some(_) => raised.push(line("-e")),
        }
    }
    raised.iter().chain(&lowered).for_each(|line| commands.push(format_args!("{line}")));
    for value in known.keys() {
        // A value that was read back is an address.
        if let Ok(server) = value.parse::<SocketAddr>()
            && !wanted.contains_key(&server)
        {
            commands.push(format_args!("-d {flag} {address} -r {server}"));
        }
    }
    commands
}

/// Makes the command that removes a virtual service with all its servers.
pub(super) fn delete(service: VirtualService) -> Commands {
    let mut commands = Commands::default();
    commands.push(format_args!("-D {} {}", service.flag(), service.address));
    commands
}

impl Commands {
    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{line}");
    }
}

/// Chooses the servers that a virtual service can have, and explains why it cannot have the others.
fn fitting(
    service: VirtualService,
    members: &BTreeMap<EntryValue, Serving>,
    options: &IpvsOptions,
) -> (BTreeMap<SocketAddr, Serving>, Option<String>) {
    let (mut fitting, mut unfit, mut reason) = (BTreeMap::new(), Vec::new(), String::new());
    for (value, serving) in members {
        let server = parse_server(value).and_then(|server| check(service, server, options.forward));
        match server {
            // A protocol without connections has nothing to keep.
            Ok(_) if service.protocol == Protocol::Udp && *serving == Serving::Draining => {}
            Ok(server) => {
                fitting.insert(server, *serving);
            }
            Err(problem) => {
                unfit.push(&**value);
                reason = problem;
            }
        }
    }
    let left_out =
        (!unfit.is_empty()).then(|| format!("{service}: without {}, as {reason}", unfit.join(", ")));
    (fitting, left_out)
}

fn check(service: VirtualService, server: SocketAddr, forward: Forward) -> Result<SocketAddr, String> {
    if forward != Forward::Tunnel && server.is_ipv4() != service.address.is_ipv4() {
        return Err("a server of the other address family is reached by `forward: tunnel` only".to_owned());
    }
    // IPVS would silently use the port of the virtual service instead.
    if forward != Forward::Masq && server.port() != service.address.port() {
        return Err(format!(
            "servers have to listen on port {} where packets are sent on as they are: use `forward: masq`",
            service.address.port()
        ));
    }
    Ok(server)
}

/// Finds the reason for which ipvsadm cannot work at all, and what to do.
pub(super) fn cause(complaint: &str) -> Option<String> {
    let line = complaint.lines().find(|line| line.starts_with("Can't initialize ipvs"))?;
    if line.contains("Permission denied") || line.contains("not permitted") {
        return Some(format!("ipvsadm has no right to it ({line}): run it as root or with CAP_NET_ADMIN"));
    }
    Some(format!(
        "the kernel has no IPVS ({line}): load it with `modprobe ip_vs`, and at each start by /etc/modules-load.d"
    ))
}

/// Determines the outcome of a step.
pub(super) fn outcome(step: &SinkStep, answer: &Answer, options: &IpvsOptions) -> StepOutcome {
    if let Some(cause) = cause(&answer.complaint) {
        return StepOutcome::Refused(cause);
    }
    let (mut is_gone, mut other) = (false, None);
    for line in answer.complaints() {
        match line {
            // Another program was faster; reading back shows the current state.
            "Service already exists" | "Destination already exists" | "No such destination" => {}
            "Service not defined" | "No such service" => is_gone = true,
            "Scheduler or persistence engine not found" => {
                let scheduler = &options.scheduler;
                return StepOutcome::Refused(format!(
                    "{}: the kernel has no scheduler {scheduler}: load it with `modprobe ip_vs_{scheduler}`, or choose another",
                    step.name
                ));
            }
            _ => other = other.or(Some(line)),
        }
    }
    if let Some(line) = other {
        return StepOutcome::Refused(format!("{}: ipvsadm says {line:?}", step.name));
    }
    if is_gone && step.action != StepAction::Delete {
        return StepOutcome::Conflict(format!("{} was removed by another program", step.name));
    }
    if answer.code != 0 && answer.complaints().next().is_none() {
        return StepOutcome::Refused(format!("{}: ipvsadm says nothing, {}", step.name, answer.summary()));
    }
    StepOutcome::Done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryOwner;
    use crate::sink::{EntryMark, ObservedMember};

    fn options() -> IpvsOptions {
        IpvsOptions::at(["10.8.0.0/24".parse().expect("a network")])
    }

    fn service(text: &str) -> VirtualService {
        VirtualService::parse(text).expect("a virtual service")
    }

    fn before(members: &[(&str, bool)], tidy: bool) -> ObservedEntry {
        let member = |(value, draining): &(&str, bool)| {
            (EntryValue::from(*value), ObservedMember { draining: *draining, connections: 0 })
        };
        ObservedEntry { mark: EntryMark::Ours(None), members: members.iter().map(member).collect(), tidy }
    }

    fn members(members: &[(&str, Serving)]) -> BTreeMap<EntryValue, Serving> {
        members.iter().map(|(value, serving)| (EntryValue::from(*value), *serving)).collect()
    }

    fn lines(
        name: &str,
        before: Option<&ObservedEntry>,
        wanted: &[(&str, Serving)],
        options: &IpvsOptions,
    ) -> Vec<String> {
        let commands = put(service(name), before, &members(wanted), options);
        assert_eq!(commands.left_out, None);
        commands.lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_service_comes_with_its_servers_and_goes_whole() {
        let wanted = [("10.9.0.1:8080", Serving::Active), ("10.9.0.2:8080", Serving::Active)];
        let expected = [
            "-A -t 10.8.0.1:80 -s wlc",
            "-a -t 10.8.0.1:80 -r 10.9.0.1:8080 -m -w 1",
            "-a -t 10.8.0.1:80 -r 10.9.0.2:8080 -m -w 1",
        ];
        assert_eq!(lines("tcp/10.8.0.1:80", None, &wanted, &options()), expected);
        let expected = ["-A -u [fd00::1]:53 -s wlc", "-a -u [fd00::1]:53 -r [fd00::9]:53 -m -w 1"];
        assert_eq!(
            lines("udp/[fd00::1]:53", None, &[("[fd00::9]:53", Serving::Active)], &options()),
            expected
        );
        assert_eq!(delete(service("tcp/10.8.0.1:80")).lines, "-D -t 10.8.0.1:80\n");
    }

    #[test]
    fn activates_before_draining_and_skips_unchanged() {
        let before = before(
            &[("10.9.0.1:80", false), ("10.9.0.2:80", false), ("10.9.0.3:80", true), ("10.9.0.4:80", false)],
            true,
        );
        let wanted = [
            ("10.9.0.2:80", Serving::Draining),
            ("10.9.0.3:80", Serving::Active),
            ("10.9.0.4:80", Serving::Active),
            ("10.9.0.5:80", Serving::Active),
        ];
        let expected = [
            "-a -t 10.8.0.1:80 -r 10.9.0.5:80 -m -w 1",
            "-e -t 10.8.0.1:80 -r 10.9.0.3:80 -m -w 1",
            "-e -t 10.8.0.1:80 -r 10.9.0.2:80 -m -w 0",
            "-d -t 10.8.0.1:80 -r 10.9.0.1:80",
        ];
        assert_eq!(lines("tcp/10.8.0.1:80", Some(&before), &wanted, &options()), expected);
    }

    #[test]
    fn an_untidy_service_is_written_with_all_its_servers() {
        let before = before(&[("10.9.0.1:80", false), ("10.9.0.2:80", true)], false);
        let wanted = [("10.9.0.1:80", Serving::Active), ("10.9.0.2:80", Serving::Draining)];
        let mut options = options();
        options.forward = Forward::Route;
        let expected = [
            "-E -t 10.8.0.1:80 -s wlc",
            "-e -t 10.8.0.1:80 -r 10.9.0.1:80 -g -w 1",
            "-e -t 10.8.0.1:80 -r 10.9.0.2:80 -g -w 0",
        ];
        assert_eq!(lines("tcp/10.8.0.1:80", Some(&before), &wanted, &options), expected);
    }

    #[test]
    fn udp_does_not_drain() {
        let before = before(&[("10.9.0.1:53", false), ("10.9.0.2:53", false)], true);
        let wanted = [("10.9.0.1:53", Serving::Active), ("10.9.0.2:53", Serving::Draining)];
        let expected = ["-d -u 10.8.0.1:53 -r 10.9.0.2:53"];
        assert_eq!(lines("udp/10.8.0.1:53", Some(&before), &wanted, &options()), expected);
    }

    #[test]
    fn unsupported_servers_are_left_out_and_named() {
        let wanted = members(&[("10.9.0.1:80", Serving::Active), ("[fd00::9]:80", Serving::Active)]);
        let mut options = options();
        let commands = put(service("tcp/10.8.0.1:80"), None, &wanted, &options);
        assert_eq!(commands.lines, "-A -t 10.8.0.1:80 -s wlc\n-a -t 10.8.0.1:80 -r 10.9.0.1:80 -m -w 1\n");
        assert!(commands.left_out.is_some_and(|problem| problem.contains("without [fd00::9]:80, as")));
        options.forward = Forward::Tunnel;
        let commands = put(service("tcp/10.8.0.1:80"), None, &wanted, &options);
        assert!(commands.lines.contains("-r [fd00::9]:80 -i -w 1"));
        assert_eq!(commands.left_out, None);
        let wanted = members(&[("10.9.0.1:8080", Serving::Active)]);
        let commands = put(service("tcp/10.8.0.1:80"), None, &wanted, &options);
        assert!(commands.left_out.is_some_and(|problem| problem.contains("listen on port 80")));
    }

    #[test]
    fn ipvsadm_complaints_map_to_outcomes() {
        let owner = EntryOwner {
            resource: "service".into(),
            namespace: "default".into(),
            name: "web".into(),
            uid: "1".into(),
        };
        let of = |action: &StepAction, code, complaint: &str| {
            let step = SinkStep { name: "tcp/10.8.0.1:80".into(), before: None, action: action.clone() };
            let answer = Answer { code, output: String::new(), complaint: complaint.to_owned() };
            outcome(&step, &answer, &options())
        };
        let put = StepAction::Put { owner: owner.into(), members: BTreeMap::new() };
        assert_eq!(of(&put, 0, ""), StepOutcome::Done);
        assert_eq!(of(&put, 255, "Service already exists\nDestination already exists\n"), StepOutcome::Done);
        assert_eq!(of(&put, 0, "No such destination\n"), StepOutcome::Done);
        assert_eq!(of(&StepAction::Delete, 255, "No such service\n"), StepOutcome::Done);
        assert!(matches!(of(&put, 255, "Service not defined\n"), StepOutcome::Conflict(_)));
        let refused = |code, complaint: &str| match of(&put, code, complaint) {
            StepOutcome::Refused(problem) => problem,
            other => panic!("{other:?}"),
        };
        // The other lines fail because of the first.
        let complaint = "Scheduler or persistence engine not found\nService not defined\n";
        assert!(refused(255, complaint).contains("`modprobe ip_vs_wlc`"));
        let not_unicast = "Invalid operation.  Possibly wrong module version, address not unicast, ...\n";
        assert!(
            refused(0, not_unicast).contains("address not unicast"),
            "an exit code is that of the last line"
        );
        assert!(refused(2, "").contains("exit code 2"));
    }

    #[test]
    fn missing_module_or_capability_is_named() {
        let missing = "modprobe: FATAL: Module ip_vs not found in directory /lib/modules/6.1.0\n\
            Can't initialize ipvs: Protocol not available\n\
            Are you sure that IP Virtual Server is built in the kernel or as module?\n";
        assert!(cause(missing).is_some_and(|cause| cause.contains("`modprobe ip_vs`")));
        let denied = missing.replace("Protocol not available", "Permission denied (you must be root)");
        assert!(cause(&denied).is_some_and(|cause| cause.contains("CAP_NET_ADMIN")));
        assert_eq!(cause("Service already exists\n"), None);
    }
}
