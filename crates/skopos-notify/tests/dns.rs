//! The DNS sink against Debian's BIND and Knot.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use skopos_notify::sink::dns::{DnsKey, DnsSink};
use skopos_notify::sink::{
    EntryMark, Observed, ObservedEntry, Serving, Sink, SinkError, SinkStep, StepAction, StepOutcome,
};
use skopos_notify::{EntryName, EntryOwner, EntryValue};
use skopos_testserver::{Fault, Match};
use support::servers::{DnsServer, Kind, ZONE, signal};
use support::{Cluster, annotated, endpoints, quick, secs};
use tokio::net::UdpSocket;

const READY: &str = "ready";

fn name(host: &str) -> EntryName {
    format!("{host}.{ZONE}").into()
}

fn owner(service: &str) -> EntryOwner {
    EntryOwner {
        resource: "service".into(),
        namespace: "default".into(),
        name: service.into(),
        uid: format!("uid-of-{service}").into(),
    }
}

fn put(host: &str, before: Option<ObservedEntry>, values: &[&str]) -> SinkStep {
    let members: BTreeMap<EntryValue, _> =
        values.iter().map(|value| ((*value).into(), Serving::Active)).collect();
    SinkStep { name: name(host), before, action: StepAction::Put { owner: owner(host).into(), members } }
}

async fn entry(sink: &DnsSink, host: &str) -> Option<ObservedEntry> {
    let whole = sink.observe().await.expect("a transfer");
    let read = sink.read(&BTreeSet::from([name(host)])).await.expect("an answer");
    assert_eq!(
        whole.entries.get(&name(host)),
        read.entries.get(&name(host)),
        "both ways of reading say the same"
    );
    whole.entries.get(&name(host)).cloned()
}

fn values(entry: Option<ObservedEntry>) -> Vec<String> {
    entry.into_iter().flat_map(|entry| entry.members).map(|(value, _)| value.to_string()).collect()
}

async fn each(test: impl AsyncFn(&mut DnsServer)) {
    for kind in [Kind::Bind, Kind::Knot] {
        if let Some(mut server) = DnsServer::start(kind, "mail IN A 192.0.2.1").await {
            test(&mut server).await;
        }
    }
}

#[tokio::test]
async fn writes_changes_and_deletes_marked_name() {
    each(async |server| {
        let sink = server.sink();
        assert_eq!(sink.apply(&put("web", None, &["10.0.0.1", "fd00::1"]), None).await, StepOutcome::Done);
        let first = entry(&sink, "web").await.expect("it is there");
        assert!(matches!(&first.mark, EntryMark::Ours(Some(mark)) if mark.is(&owner("web"))), "{first:?}");
        assert!(first.tidy);
        assert_eq!(values(Some(first.clone())), ["10.0.0.1", "fd00::1"]);
        assert_eq!(sink.apply(&put("web", Some(first), &["10.0.0.2"]), None).await, StepOutcome::Done);
        let second = entry(&sink, "web").await;
        assert_eq!(values(second.clone()), ["10.0.0.2"]);
        let delete = SinkStep { name: name("web"), before: second, action: StepAction::Delete };
        assert_eq!(sink.apply(&delete, None).await, StepOutcome::Done);
        assert_eq!(entry(&sink, "web").await, None);
        let whole: Observed = sink.observe().await.unwrap();
        assert!(whole.entries.values().all(|entry| entry.mark == EntryMark::Foreign));
    })
    .await;
}

// Case 18, and the race that no check before the write can detect.
#[tokio::test]
async fn foreign_records_are_never_changed() {
    each(async |server| {
        let sink = server.sink();
        assert_eq!(entry(&sink, "mail").await.unwrap().mark, EntryMark::Foreign);
        // As if it had been added after the last observation.
        let outcome = sink.apply(&put("mail", None, &["10.0.0.1"]), None).await;
        assert!(matches!(outcome, StepOutcome::Conflict(_)), "{outcome:?}");
        // A record of another notifier.
        let mut options = server.options();
        options.owner = "others".into();
        let others = DnsSink::new(options).unwrap();
        assert_eq!(others.apply(&put("theirs", None, &["10.0.0.7"]), None).await, StepOutcome::Done);
        let theirs = entry(&sink, "theirs").await.unwrap();
        assert_eq!(theirs.mark, EntryMark::Foreign);
        for step in [put("theirs", None, &["10.0.0.1"]), put("theirs", Some(theirs), &["10.0.0.1"])] {
            let outcome = sink.apply(&step, None).await;
            assert!(matches!(outcome, StepOutcome::Conflict(_)), "{outcome:?}");
        }
        assert_eq!(values(entry(&sink, "theirs").await), ["10.0.0.7"]);
        assert_eq!(values(entry(&sink, "mail").await), ["192.0.2.1"]);
    })
    .await;
}

// Case 22: the mark is compared and set by the server.
#[tokio::test]
async fn server_refuses_write_on_outdated_view() {
    each(async |server| {
        let sink = server.sink();
        assert_eq!(sink.apply(&put("web", None, &["10.0.0.1"]), None).await, StepOutcome::Done);
        let before = entry(&sink, "web").await;
        let mut step = put("web", before.clone(), &["10.0.0.2"]);
        if let StepAction::Put { owner, .. } = &mut step.action {
            Arc::make_mut(owner).uid = "another".into();
        }
        assert_eq!(sink.apply(&step, None).await, StepOutcome::Done);
        let outcome = sink.apply(&put("web", before, &["10.0.0.3"]), None).await;
        assert!(matches!(outcome, StepOutcome::Conflict(_)), "{outcome:?}");
        assert_eq!(values(entry(&sink, "web").await), ["10.0.0.2"]);
    })
    .await;
}

// Cases 11 and 13: three different errors, and never an empty zone.
#[tokio::test]
async fn wrong_key_secret_and_clock_have_distinct_errors() {
    each(async |server| {
        let refused = async |options| {
            let sink = DnsSink::new(options).unwrap();
            let (read, written) =
                (sink.observe().await, sink.apply(&put("web", None, &["10.0.0.1"]), None).await);
            match (read, written) {
                (Err(SinkError::Refused(read)), StepOutcome::Refused(_)) => read,
                other => panic!("{other:?}"),
            }
        };
        let mut options = server.options();
        options.key = Some(DnsKey::new("nobody", "hmac-sha256", b"x").unwrap());
        let problem = refused(options).await;
        assert!(problem.contains("does not know the key nobody for this"), "{problem}");
        let mut options = server.options();
        options.key = Some(DnsKey::new("skopos", "hmac-sha256", b"wrong").unwrap());
        let problem = refused(options).await;
        assert!(problem.contains("another secret or algorithm for the key skopos"), "{problem}");
        let mut options = server.options();
        options.clock = std::sync::Arc::new(|| SystemTime::now() - Duration::from_secs(600));
        let problem = refused(options).await;
        assert!(problem.contains("s apart, and 300 s are allowed"), "{problem}");
        let mut options = server.options();
        options.key = None;
        let problem = refused(options).await;
        assert!(problem.contains("refuses transfers") || problem.contains("NOTAUTH"), "{problem}");
        let mut options = server.options();
        options.zone = "elsewhere.test".into();
        let problem = refused(options).await;
        assert!(problem.contains("elsewhere.test"), "{problem}");
    })
    .await;
}

// Case 15: a type change, observed by continuous queries.
#[tokio::test]
async fn type_change_keeps_name_resolvable() {
    each(async |server| {
        let sink = server.sink();
        assert_eq!(sink.apply(&put("web", None, &["10.0.0.1"]), None).await, StepOutcome::Done);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(server.address).await.unwrap();
        let changes = async {
            for round in 0..10 {
                let value = if round % 2 == 0 { "elsewhere.example.org" } else { "10.0.0.2" };
                let before = entry(&sink, "web").await;
                assert_eq!(sink.apply(&put("web", before, &[value]), None).await, StepOutcome::Done);
                assert_eq!(values(entry(&sink, "web").await), [value]);
            }
        };
        let asks = async {
            let mut query = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in name("web").as_str().split('.') {
                query.push(label.len() as u8);
                query.extend(label.as_bytes());
            }
            query.extend([0, 0, 1, 0, 1]);
            let mut asked = 0_u32;
            loop {
                socket.send(&query).await.unwrap();
                let mut answer = [0; 512];
                socket.recv(&mut answer).await.unwrap();
                assert_eq!(answer[3] & 0x0f, 0, "no NXDOMAIN");
                assert!(answer[7] > 0, "an answer: it is never without an address or a target");
                asked += 1;
                if asked.is_multiple_of(100) {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            () = changes => {}
            () = asks => {}
        }
    })
    .await;
}

// Cases 16 and 17.
#[tokio::test]
async fn repairs_ttl_and_caps_addresses_at_100() {
    each(async |server| {
        let cluster = Cluster::quick().await;
        let addresses: Vec<_> = (1..=150).map(|index| format!("10.0.1.{index}")).collect();
        let many: Vec<_> = addresses.iter().map(|address| (address.as_str(), READY)).collect();
        cluster.put("big", &many);
        let name = format!("{{service}}.{ZONE}");
        let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
        let report = running.equal(0).await;
        assert_eq!(report.left_out, BTreeMap::from([(format!("big.{ZONE}"), 50)]));
        let hundred = values(entry(&server.sink(), "big").await);
        assert_eq!(hundred.len(), 100);
        // One of them is removed, and one of the others replaces it.
        let gone = hundred[50].as_str();
        let rest: Vec<_> = many.iter().copied().filter(|(address, _)| *address != gone).collect();
        cluster.put("big", &rest);
        running.until(0, |report| report.left_out.values().eq(&[49]) && report.is_equal()).await;
        let after = values(entry(&server.sink(), "big").await);
        let kept = after.iter().filter(|address| hundred.contains(address)).count();
        assert_eq!((after.len(), kept), (100, 99));
        running.stop().await;
        let mut options = server.options();
        options.ttl = secs(60);
        assert!(!entry(&DnsSink::new(options.clone()).unwrap(), "big").await.unwrap().tidy);
        let other = DnsSink::new(options.clone()).unwrap();
        let running = cluster.run(vec![quick("zone", other, endpoints(&name, false))]);
        running.equal(0).await;
        assert!(entry(&DnsSink::new(options).unwrap(), "big").await.unwrap().tidy);
        running.stop().await;
        cluster.end().await;
    })
    .await;
}

// Case 21: at no time both names are missing.
#[tokio::test]
async fn rename_adds_new_name_before_removing_old() {
    each(async |server| {
        let service = |host: &str| {
            let mut object = support::service_object("web");
            object["metadata"]["annotations"] =
                serde_json::json!({"skopos.dev/hostname": format!("{host}.{ZONE}")});
            object["spec"]["externalIPs"] = serde_json::json!(["192.0.2.7"]);
            object
        };
        let cluster = Cluster::quick().await;
        cluster.server.create(service("old")).unwrap();
        let running = cluster.run(vec![quick("zone", server.sink(), annotated())]);
        running.equal(0).await;
        cluster.server.update(service("new")).unwrap();
        let watching = async {
            loop {
                let names = server.sink().observe().await.expect("a transfer").entries;
                match (names.contains_key(&name("old")), names.contains_key(&name("new"))) {
                    (false, new) => break assert!(new, "the old name went first"),
                    (true, _) => tokio::task::yield_now().await,
                }
            }
        };
        // The change was seen, so nothing waits for a second list.
        tokio::time::timeout(secs(20), watching).await.expect("the old name goes");
        running.equal(0).await;
        assert_eq!(values(entry(&server.sink(), "new").await), ["192.0.2.7"]);
        running.stop().await;
        cluster.end().await;
    })
    .await;
}

// Case 3: a watch that is silent while its connection lives.
#[tokio::test]
async fn silent_watch_is_detected_within_one_minute() {
    let Some(server) = DnsServer::start(Kind::Bind, "").await else { return };
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let name = format!("{{service}}.{ZONE}");
    let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
    running.equal(0).await;
    let stalled = cluster.server.faults().inject(Fault::Stall).on(Match::watch());
    let begun = tokio::time::Instant::now();
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    running.until(0, |report| report.view_problem.is_some() || report.steps["done"] == 2).await;
    assert!(begun.elapsed() < secs(65), "{:?}", begun.elapsed());
    stalled.heal();
    running.until(0, |report| report.steps["done"] == 2 && report.is_equal()).await;
    assert_eq!(values(entry(&server.sink(), "web").await), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(running.handle.reports()[0].steps.len(), 1, "nothing was removed or refused");
    running.stop().await;
    cluster.end().await;
}

// Case 9: killed, and restarted.
#[tokio::test]
async fn killed_dns_server_catches_up_after_restart() {
    let Some(mut server) = DnsServer::start(Kind::Bind, "").await else { return };
    let cluster = Cluster::quick().await;
    cluster.put("a", &[("10.0.0.1", READY)]);
    let name = format!("{{service}}.{ZONE}");
    let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
    running.equal(0).await;
    server.kill();
    cluster.put("b", &[("10.0.0.2", READY)]);
    let report = running.until(0, |report| report.sink_problem.is_some()).await;
    assert!(report.sink_problem.unwrap().contains("DNS server 127.0.0.1"), "it says which");
    server.run().await;
    running.equal(0).await;
    assert_eq!(values(entry(&server.sink(), "a").await), ["10.0.0.1"]);
    assert_eq!(values(entry(&server.sink(), "b").await), ["10.0.0.2"]);
    running.stop().await;
    cluster.end().await;
}

// Case 10: frozen; messages that were sent are executed when it wakes.
#[tokio::test]
async fn frozen_dns_server_converges_after_thaw() {
    let Some(server) = DnsServer::start(Kind::Bind, "mail IN A 192.0.2.1").await else { return };
    let mut options = server.options();
    options.time_limit = Duration::from_millis(500);
    let hasty = DnsSink::new(options).unwrap();
    // The first write reads the fence.
    assert!(matches!(hasty.apply(&put("mail", None, &["10.0.0.1"]), None).await, StepOutcome::Conflict(_)));
    signal(server.child(), Signal::SIGSTOP);
    let outcome = hasty.apply(&put("web", None, &["10.0.0.1"]), None).await;
    assert!(matches!(outcome, StepOutcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(hasty.observe().await, Err(SinkError::Incomplete(_) | SinkError::Unreachable(_))));
    signal(server.child(), Signal::SIGCONT);
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    let name = format!("{{service}}.{ZONE}");
    let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
    running.equal(0).await;
    assert_eq!(values(entry(&server.sink(), "web").await), ["10.0.0.1", "10.0.0.2"]);
    running.stop().await;
    cluster.end().await;
}

// Case 13: a refused transfer is not an empty zone.
#[tokio::test]
async fn unreadable_zone_is_not_treated_as_empty() {
    let Some(mut server) = DnsServer::start(Kind::Bind, "").await else { return };
    server.kill();
    server.configure("allow-update { key skopos; }; allow-transfer { none; };");
    server.run().await;
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let name = format!("{{service}}.{ZONE}");
    let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
    let report = running.until(0, |report| report.sink_problem.is_some()).await;
    assert!(report.sink_problem.as_deref().unwrap().contains("allow-transfer"), "{report:?}");
    assert_eq!((report.outside_age_seconds, report.steps.len()), (None, 0));
    running.stop().await;
    cluster.end().await;
}

// Case 14: one name of many is refused.
#[tokio::test]
async fn a_name_that_is_refused_holds_up_no_other() {
    let Some(mut server) = DnsServer::start(Kind::Bind, "").await else { return };
    server.kill();
    let policy = format!(
        "update-policy {{ deny skopos name bad.{ZONE}; grant skopos zonesub ANY; }}; allow-transfer {{ key skopos; }};"
    );
    server.configure(&policy);
    server.run().await;
    let cluster = Cluster::quick().await;
    for service in ["a", "bad", "c"] {
        cluster.put(service, &[("10.0.0.1", READY)]);
    }
    let name = format!("{{service}}.{ZONE}");
    let running = cluster.run(vec![quick("zone", server.sink(), endpoints(&name, false))]);
    let report = running.until(0, |report| report.outside == 2 && !report.problems.is_empty()).await;
    assert_eq!(report.problems[0].about, format!("bad.{ZONE}"));
    assert!(report.problems[0].message.contains("REFUSED"), "{report:?}");
    assert_eq!(report.outside_age_seconds, None, "it was never equal");
    running.stop().await;
    cluster.end().await;
}

#[test]
fn hostile_names_and_values_are_rejected() {
    let sink =
        DnsSink::new(skopos_notify::sink::dns::DnsOptions::new(ZONE, "127.0.0.1:1".parse().unwrap(), "o"))
            .unwrap();
    assert_eq!(sink.name("WEB.apps.example.test.").unwrap().as_str(), "web.apps.example.test");
    let long = format!("{}.{ZONE}", "a".repeat(64));
    for bad in [
        "",
        ZONE,
        "web.example.org",
        "*.apps.example.test",
        "a..apps.example.test",
        "a b.apps.example.test",
        "_skopos.a.apps.example.test",
        "evilapps.example.test",
        "-a.apps.example.test",
        "a\r\n.apps.example.test",
        &long,
    ] {
        assert!(sink.name(bad).is_err(), "{bad:?}");
    }
    for bad in ["", "10.0.0.1\n", "localhost", "a b.test", "10.0.0.1:80", "../etc"] {
        assert!(sink.value(bad).is_err(), "{bad:?}");
    }
    assert_eq!(&*sink.value("FD00:0::1").unwrap(), "fd00::1");
}
