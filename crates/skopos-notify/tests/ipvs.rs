//! The IPVS sink against Linux, with a separate kernel for each test.

mod support;

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::json;
use skopos_notify::desired::{ClaimSource, VirtualServiceSource};
use skopos_notify::sink::Serving::{Active, Draining};
use skopos_notify::sink::ipvs::{Forward, IpvsOptions, IpvsSink};
use skopos_notify::sink::{
    EntryMark, ObservedEntry, ObservedMember, Serving, Sink, SinkError, SinkStep, StepAction, StepOutcome,
};
use skopos_notify::{EntryOwner, EntryValue};
use support::{Cluster, Running, quick, secs, service_object, uml};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const WEB: &str = "tcp/10.8.0.1:80";
const DNS: &str = "udp/10.8.0.1:53";
const MODULES: &[&str] = &["ip_vs", "ip_vs_wlc", "ip_vs_rr"];

fn options() -> IpvsOptions {
    IpvsOptions::at(["10.8.0.0/24", "fd08::/64"].map(|network| network.parse().expect("a network")))
}

fn sink() -> IpvsSink {
    IpvsSink::new(options()).expect("a sink")
}

/// Runs a program, and returns its output; it must succeed.
async fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output().await;
    let output = output.expect("it starts");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

async fn ipvsadm(arguments: &str) -> String {
    run("ipvsadm", arguments).await
}

/// Adds the addresses of the virtual services and of two servers to this machine.
async fn addresses() {
    for address in ["10.8.0.1/32", "10.9.0.1/32", "10.9.0.2/32"] {
        run("ip", &format!("address add {address} dev lo")).await;
    }
}

async fn seen(sink: &IpvsSink, name: &str) -> Option<ObservedEntry> {
    sink.observe().await.expect("a dump").entries.remove(name)
}

fn step(name: &str, before: Option<ObservedEntry>, action: StepAction) -> SinkStep {
    SinkStep { name: name.into(), before, action }
}

fn put_action(members: &[(&str, Serving)]) -> StepAction {
    let owner = EntryOwner {
        resource: "service".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "1".into(),
    };
    let members = members.iter().map(|(value, serving)| ((*value).into(), *serving)).collect();
    StepAction::Put { owner: owner.into(), members }
}

/// Puts servers behind a name, given its last observation.
async fn put(sink: &IpvsSink, name: &str, members: &[(&str, Serving)]) -> StepOutcome {
    let before = seen(sink, name).await;
    sink.apply(&step(name, before, put_action(members)), None).await
}

/// Puts servers behind a name, and returns the servers that it has then.
async fn servers_after(sink: &IpvsSink, name: &str, members: &[(&str, Serving)]) -> Vec<String> {
    assert_eq!(put(sink, name, members).await, StepOutcome::Done);
    servers(sink, name).await
}

async fn servers(sink: &IpvsSink, name: &str) -> Vec<String> {
    let entry = seen(sink, name).await.expect("it is there");
    assert!(entry.tidy, "{entry:?}");
    let drains = |member: ObservedMember| if member.draining { " draining" } else { "" };
    entry.members.into_iter().map(|(value, member)| format!("{value}{}", drains(member))).collect()
}

#[tokio::test]
async fn servers_come_drain_and_go() {
    uml::run_inside("inside::servers_come_drain_and_go", MODULES).await;
}

#[tokio::test]
async fn connections_keep_a_draining_server() {
    uml::run_inside("inside::connections_keep_a_draining_server", MODULES).await;
}

// Case 38.
#[tokio::test]
async fn foreign_services_are_left_alone() {
    uml::run_inside("inside::foreign_services_are_left_alone", MODULES).await;
}

#[tokio::test]
async fn repairs_external_changes() {
    uml::run_inside("inside::repairs_external_changes", MODULES).await;
}

#[tokio::test]
async fn reports_missing_kernel_support() {
    uml::run_inside("inside::reports_missing_kernel_support", &[]).await;
}

// Cases 33, 34 and 38, with a cluster.
#[tokio::test]
async fn kernel_follows_cluster() {
    uml::run_inside("inside::kernel_follows_cluster", MODULES).await;
}

/// The tests of the same names, in user-mode Linux.
mod inside {
    use super::*;

    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn servers_come_drain_and_go() {
        if !uml::is_inside() {
            return;
        }
        let sink = sink();
        assert_eq!(sink.observe().await.unwrap().entries, BTreeMap::new());
        let two = [("10.9.0.1:8080", Active), ("10.9.0.2:8080", Active)];
        assert_eq!(servers_after(&sink, WEB, &two).await, ["10.9.0.1:8080", "10.9.0.2:8080"]);
        let expected = "-A -t 10.8.0.1:80 -s wlc\n\
            -a -t 10.8.0.1:80 -r 10.9.0.1:8080 -m -w 1\n\
            -a -t 10.8.0.1:80 -r 10.9.0.2:8080 -m -w 1\n";
        assert_eq!(ipvsadm("-Sn").await, expected);

        // A repeated step is no loss, and no problem.
        let again = step(WEB, None, put_action(&two));
        assert_eq!(sink.apply(&again, None).await, StepOutcome::Done);
        let third = [two[0], two[1], ("10.9.0.3:8080", Active)];
        assert_eq!(sink.apply(&step(WEB, None, put_action(&third)), None).await, StepOutcome::Done);
        assert_eq!(servers(&sink, WEB).await, ["10.9.0.1:8080", "10.9.0.2:8080", "10.9.0.3:8080"]);
        // A server that is gone already, and others after it.
        let before = seen(&sink, WEB).await;
        ipvsadm("-d -t 10.8.0.1:80 -r 10.9.0.1:8080").await;
        let step_of = |action| step(WEB, before.clone(), action);
        assert_eq!(sink.apply(&step_of(put_action(&[two[1]])), None).await, StepOutcome::Done);
        assert_eq!(servers(&sink, WEB).await, ["10.9.0.2:8080"]);

        let drained = [("10.9.0.1:8080", Active), ("10.9.0.2:8080", Draining)];
        assert_eq!(servers_after(&sink, WEB, &drained).await, ["10.9.0.1:8080", "10.9.0.2:8080 draining"]);
        assert_eq!(servers_after(&sink, WEB, &two).await, ["10.9.0.1:8080", "10.9.0.2:8080"]);
        assert_eq!(servers_after(&sink, WEB, &two[..1]).await, ["10.9.0.1:8080"]);
        // A name without servers still exists.
        assert_eq!(servers_after(&sink, WEB, &[]).await, Vec::<String>::new());

        let delete = step(WEB, seen(&sink, WEB).await, StepAction::Delete);
        assert_eq!(sink.apply(&delete, None).await, StepOutcome::Done);
        assert_eq!(ipvsadm("-Sn").await, "");
        assert_eq!(sink.apply(&delete, None).await, StepOutcome::Done, "it is gone already");
        // A service that another program removed during a change of its servers.
        let changed = step(WEB, before, put_action(&two));
        assert!(matches!(sink.apply(&changed, None).await, StepOutcome::Conflict(_)));

        let six = "tcp/[fd08::1]:443";
        assert_eq!(servers_after(&sink, six, &[("[fd09::1]:8443", Active)]).await, ["[fd09::1]:8443"]);
        assert_eq!(servers_after(&sink, DNS, &[("10.9.0.1:53", Active)]).await, ["10.9.0.1:53"]);
        let wanted = [("10.9.0.1:53", Draining), ("10.9.0.2:53", Active)];
        assert_eq!(servers_after(&sink, DNS, &wanted).await, ["10.9.0.2:53"], "UDP does not drain");

        // Many servers in one run of the program.
        let many: Vec<_> = (0..1000).map(|n| format!("10.9.{}.{}:80", 1 + n / 250, 1 + n % 250)).collect();
        let wanted: Vec<_> = many.iter().map(|value| (value.as_str(), Active)).collect();
        assert_eq!(servers_after(&sink, WEB, &wanted).await.len(), 1000);
    }

    /// Answers each connection with `hello`, and keeps it until the other side ends it.
    async fn serve(address: &str, tasks: &mut JoinSet<()>) {
        let listener = TcpListener::bind(address).await.expect("a port");
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let _ = stream.write_all(b"hello").await;
                    let _ = stream.read(&mut [0; 1]).await;
                });
            }
        });
    }

    async fn connect() -> Option<TcpStream> {
        let connecting = async {
            let mut stream = TcpStream::connect("10.8.0.1:80").await.ok()?;
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.ok()?;
            (&hello == b"hello").then_some(stream)
        };
        timeout(secs(3), connecting).await.ok().flatten()
    }

    async fn connections(sink: &IpvsSink, value: &str) -> u32 {
        seen(sink, WEB).await.expect("it is there").members[&EntryValue::from(value)].connections
    }

    // Cases 33 and 34.
    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn connections_keep_a_draining_server() {
        if !uml::is_inside() {
            return;
        }
        addresses().await;
        let (sink, mut tasks) = (sink(), JoinSet::new());
        serve("10.9.0.1:8080", &mut tasks).await;
        const ONE: &str = "10.9.0.1:8080";
        assert_eq!(servers_after(&sink, WEB, &[(ONE, Active)]).await, [ONE]);
        let mut stream = connect().await.expect("a connection through the kernel");
        assert_eq!(connections(&sink, ONE).await, 1);

        assert_eq!(servers_after(&sink, WEB, &[(ONE, Draining)]).await, ["10.9.0.1:8080 draining"]);
        assert_eq!(connections(&sink, ONE).await, 1);
        assert!(connect().await.is_none(), "it gets no new connection");
        // The existing connection remains.
        assert!(timeout(secs(1), stream.read(&mut [0; 1])).await.is_err());

        // It returns.
        assert_eq!(servers_after(&sink, WEB, &[(ONE, Active)]).await, [ONE]);
        let second = connect().await.expect("a connection through the kernel");
        assert_eq!(connections(&sink, ONE).await, 2);
        assert_eq!(servers_after(&sink, WEB, &[(ONE, Draining)]).await, ["10.9.0.1:8080 draining"]);

        // The kernel forgets a connection ten seconds after it was reset.
        stream.write_all(b"x").await.unwrap();
        for stream in [stream, second] {
            stream.set_zero_linger().unwrap();
        }
        let is_none = async {
            while connections(&sink, ONE).await > 0 {
                sleep(secs(1) / 5).await;
            }
        };
        timeout(secs(60), is_none).await.unwrap();
        let none: [&str; 0] = [];
        assert_eq!(servers_after(&sink, WEB, &[]).await, none);
    }

    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn foreign_services_are_left_alone() {
        if !uml::is_inside() {
            return;
        }
        for command in [
            "-A -t 10.7.0.1:80 -s rr -p 60",
            "-a -t 10.7.0.1:80 -r 10.9.0.1:80 -m -w 5",
            "-A -u [fd07::1]:53 -s rr",
            "-A -f 7 -s rr",
            "-a -f 7 -r 10.9.0.3:0 -g -w 1",
            "-A --sctp-service 10.8.0.1:80 -s rr",
            "-a --sctp-service 10.8.0.1:80 -r 10.9.0.4:99 -m -w 1",
        ] {
            ipvsadm(command).await;
        }
        let others = ipvsadm("-Sn").await;
        let sink = sink();
        assert_eq!(sink.observe().await.unwrap().entries, BTreeMap::new());
        assert_eq!(servers_after(&sink, WEB, &[("10.9.0.1:80", Active)]).await, ["10.9.0.1:80"]);
        let observed = sink.observe().await.unwrap();
        assert_eq!(observed.entries.len(), 1);
        assert_eq!(observed.entries[WEB].mark, EntryMark::Ours(None));
        assert!(sink.name("tcp/10.7.0.1:80").is_err());
        for action in [StepAction::Delete, put_action(&[("10.9.0.9:80", Active)])] {
            let refused = sink.apply(&step("tcp/10.7.0.1:80", None, action), None).await;
            assert!(
                matches!(&refused, StepOutcome::Refused(problem) if problem.contains("10.8.0.0/24")),
                "{refused:?}"
            );
        }
        let delete = step(WEB, seen(&sink, WEB).await, StepAction::Delete);
        assert_eq!(sink.apply(&delete, None).await, StepOutcome::Done);
        assert_eq!(ipvsadm("-Sn").await, others);
    }

    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn repairs_external_changes() {
        if !uml::is_inside() {
            return;
        }
        let sink = sink();
        let two = [("10.9.0.1:80", Active), ("10.9.0.2:80", Draining)];
        assert_eq!(put(&sink, WEB, &two).await, StepOutcome::Done);
        let tidy = ipvsadm("-Sn").await;
        for command in [
            "-E -t 10.8.0.1:80 -s rr",
            "-E -t 10.8.0.1:80 -s wlc -p 60",
            "-e -t 10.8.0.1:80 -r 10.9.0.1:80 -m -w 7",
            "-e -t 10.8.0.1:80 -r 10.9.0.1:80 -i -w 1",
            "-e -t 10.8.0.1:80 -r 10.9.0.2:80 -i -w 0 --tun-type gue --tun-port 6080",
        ] {
            ipvsadm(command).await;
            assert_ne!(ipvsadm("-Sn").await, tidy, "{command}");
            assert!(!seen(&sink, WEB).await.unwrap().tidy, "{command}");
            assert_eq!(put(&sink, WEB, &two).await, StepOutcome::Done);
            assert_eq!(ipvsadm("-Sn").await, tidy, "{command}");
        }
        for (forward, flag) in [(Forward::Route, "-g -w 1\n"), (Forward::Tunnel, "-i -w 1 --tun-type ipip\n")]
        {
            let mut options = options();
            (options.forward, options.scheduler) = (forward, "rr".to_owned());
            let sink = IpvsSink::new(options).unwrap();
            let other = "tcp/10.8.0.2:80";
            assert_eq!(servers_after(&sink, other, &[("10.9.0.1:80", Active)]).await, ["10.9.0.1:80"]);
            let rules = ipvsadm("-Sn").await;
            assert!(
                rules.contains(&format!("-A -t 10.8.0.2:80 -s rr\n-a -t 10.8.0.2:80 -r 10.9.0.1:80 {flag}")),
                "{rules}"
            );
            // The kernel would use the port of the virtual service instead.
            let refused = put(&sink, other, &[("10.9.0.1:8080", Active), ("10.9.0.2:80", Active)]).await;
            assert!(matches!(refused, StepOutcome::Refused(_)), "{refused:?}");
            assert_eq!(servers(&sink, other).await, ["10.9.0.2:80"]);
        }
        let mut options = options();
        options.forward = Forward::Tunnel;
        let tunnel = IpvsSink::new(options).unwrap();
        let name = "tcp/10.8.0.3:80";
        assert_eq!(servers_after(&tunnel, name, &[("[fd09::1]:80", Active)]).await, ["[fd09::1]:80"]);
        let refused = put(&sink, name, &[("[fd09::1]:80", Active), ("10.9.0.1:80", Active)]).await;
        assert!(matches!(refused, StepOutcome::Refused(_)), "{refused:?}");
        assert_eq!(servers(&sink, name).await, ["10.9.0.1:80"]);
    }

    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn reports_missing_kernel_support() {
        if !uml::is_inside() {
            return;
        }
        let sink = sink();
        let Err(SinkError::Refused(problem)) = sink.observe().await else { panic!("it has no IPVS") };
        assert!(problem.contains("`modprobe ip_vs`"), "{problem}");
        let put = step(WEB, None, put_action(&[("10.9.0.1:80", Active)]));
        assert_eq!(sink.apply(&put, None).await, StepOutcome::Refused(problem));

        uml::load("ip_vs").await;
        let StepOutcome::Refused(problem) = sink.apply(&put, None).await else {
            panic!("it has no scheduler")
        };
        assert!(problem.contains("`modprobe ip_vs_wlc`"), "{problem}");
        uml::load("ip_vs_wlc").await;
        assert_eq!(sink.apply(&put, None).await, StepOutcome::Done);

        // Root without the capability, and another user with it.
        let folder = tempfile::tempdir().unwrap();
        let wrapped = |name: &str, script: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            let command = folder.path().join(name);
            std::fs::write(&command, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut options = options();
            (options.command, options.time_limit) = (command, secs(2));
            IpvsSink::new(options).unwrap()
        };
        let without = wrapped("without", "exec setpriv --bounding-set=-net_admin ipvsadm \"$@\"");
        let Err(SinkError::Refused(problem)) = without.observe().await else { panic!("it has no right") };
        assert!(problem.contains("CAP_NET_ADMIN"), "{problem}");
        assert_eq!(without.apply(&put, None).await, StepOutcome::Refused(problem));
        let with = "exec setpriv --reuid=65534 --clear-groups --inh-caps=+net_admin --ambient-caps=+net_admin ipvsadm \"$@\"";
        assert_eq!(servers(&wrapped("with", with), WEB).await, ["10.9.0.1:80"]);
        // A write that did not complete may have been done, and truncated output is no answer.
        let late = wrapped("late", "ipvsadm \"$@\"; exec sleep 600");
        assert!(matches!(late.observe().await, Err(SinkError::Unreachable(_))));
        let delete = step(WEB, seen(&sink, WEB).await, StepAction::Delete);
        assert!(matches!(late.apply(&delete, None).await, StepOutcome::Unknown(_)));
        assert_eq!(seen(&sink, WEB).await, None);
        assert_eq!(sink.apply(&put, None).await, StepOutcome::Done);
        let cut = wrapped("cut", "ipvsadm \"$@\" | head -c 150");
        assert!(matches!(cut.observe().await, Err(SinkError::Incomplete(_))));
        let without_end = wrapped("killed", "kill -9 $$");
        assert!(without_end.observe().await.is_err());
        assert!(matches!(without_end.apply(&delete, None).await, StepOutcome::Unknown(_)));
    }

    /// Writes a Service with a virtual address, and its endpoints.
    fn put_service(cluster: &Cluster, endpoints: &[(&str, &str)]) {
        let mut service = service_object("web");
        service["metadata"]["annotations"] = json!({"skopos.dev/vip": "10.8.0.1"});
        // It may exist already.
        let _ = cluster.server.create(service);
        cluster.put("web", endpoints);
    }

    fn notifier(cluster: &Cluster) -> Running {
        let annotation = "skopos.dev/vip".to_owned();
        let source = VirtualServiceSource { annotation, labels: BTreeMap::new() };
        let mut options = quick("lvs", sink(), ClaimSource::VirtualServices(source));
        options.plan.drain = secs(600);
        cluster.run(vec![options])
    }

    async fn becomes(wanted: &[&str]) {
        let sink = sink();
        let waiting = async {
            while seen(&sink, WEB).await.is_none() || servers(&sink, WEB).await != wanted {
                sleep(secs(1) / 10).await;
            }
        };
        let waited = timeout(secs(60), waiting).await;
        assert!(waited.is_ok(), "{} in place of {wanted:?}", ipvsadm("-Sn").await);
    }

    #[tokio::test]
    #[ignore = "runs inside user-mode Linux"]
    async fn kernel_follows_cluster() {
        if !uml::is_inside() {
            return;
        }
        addresses().await;
        ipvsadm("-A -t 10.7.0.1:80 -s rr").await;
        let mut tasks = JoinSet::new();
        serve("10.9.0.1:8080", &mut tasks).await;
        let cluster = Cluster::quick().await;
        put_service(&cluster, &[("10.9.0.1", "ready")]);
        let running = notifier(&cluster);
        becomes(&["10.9.0.1:8080"]).await;
        let mut stream = connect().await.expect("a connection through the kernel");

        // It terminates and keeps its connection, also while the notifier is restarted.
        put_service(&cluster, &[("10.9.0.1", "terminating"), ("10.9.0.2", "ready")]);
        becomes(&["10.9.0.1:8080 draining", "10.9.0.2:8080"]).await;
        running.kill().await;
        let running = notifier(&cluster);
        running.equal(0).await;
        assert_eq!(servers(&sink(), WEB).await, ["10.9.0.1:8080 draining", "10.9.0.2:8080"]);
        assert!(timeout(secs(1), stream.read(&mut [0; 1])).await.is_err(), "it goes on");

        // It returns while no notifier runs, and gets traffic again (kubernetes #92019).
        running.kill().await;
        put_service(&cluster, &[("10.9.0.1", "ready"), ("10.9.0.2", "ready")]);
        let running = notifier(&cluster);
        becomes(&["10.9.0.1:8080", "10.9.0.2:8080"]).await;

        // The Service is deleted, and each server is removed when its last connection has ended.
        cluster.delete("web");
        becomes(&["10.9.0.1:8080 draining"]).await;
        stream.set_zero_linger().unwrap();
        drop(stream);
        running.until(0, |report| report.outside == 0 && report.wanted == 0).await;
        assert_eq!(ipvsadm("-Sn").await, "-A -t 10.7.0.1:80 -s rr\n", "that of others stays");
        running.stop().await;
        cluster.end().await;
    }
}
