//! A notifier with a cluster and sinks in this process, under virtual time.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use skopos_notify::service::SinkReport;
use skopos_notify::service::control::NotifierPhase;
use skopos_notify::sink::memory::MemorySink;
use skopos_notify::sink::{EntryMark, ObservedEntry};
use skopos_testserver::{Fault, Match};
use support::{Cluster, annotated, endpoints, secs, sink};
use tokio::time::{Instant, sleep};

const READY: &str = "ready";

fn held(report: &SinkReport) -> Vec<(&str, usize)> {
    report.held.iter().map(|held| (held.reason.as_str(), held.count)).collect()
}

#[tokio::test(start_paused = true)]
async fn sinks_follow_cluster_within_half_second() {
    let cluster = Cluster::new().await;
    let (zone, edge) = (MemorySink::zone(), MemorySink::balancer());
    cluster.put("web", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![
        sink("zone", zone.clone(), endpoints("{service}.{namespace}", false)),
        sink("edge", edge.clone(), endpoints("k8s_{namespace}_{service}_{port}", true)),
    ]);
    running.equal(0).await;
    running.equal(1).await;
    let name = "k8s_default_web_http";
    assert_eq!(zone.serving("web.default"), ["10.0.0.1".into()]);
    assert_eq!(edge.serving(name), ["10.0.0.1:8080".into()]);
    let begun = Instant::now();
    cluster.put("web", &[("10.0.0.2", READY), ("10.0.0.3", READY)]);
    running.until(0, |_| zone.serving("web.default") == ["10.0.0.2".into(), "10.0.0.3".into()]).await;
    running.until(1, |_| edge.serving(name) == ["10.0.0.2:8080".into(), "10.0.0.3:8080".into()]).await;
    assert!(begun.elapsed() <= Duration::from_millis(500), "{:?}", begun.elapsed());
    cluster.delete("web");
    running.until(0, |_| zone.content().entries.is_empty()).await;
    running.until(1, |_| edge.content().entries.is_empty()).await;
    assert!(begun.elapsed() <= secs(1), "{:?}", begun.elapsed());
    running.stop().await;
    cluster.end().await;
}

// R2 of the field report: the API server is restarted again and again.
#[tokio::test(start_paused = true)]
async fn api_server_restarts_remove_nothing() {
    let cluster = Cluster::new().await;
    let (zone, edge) = (MemorySink::zone(), MemorySink::balancer());
    for service in 0..20 {
        cluster.put(&format!("s{service}"), &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    }
    let running = cluster.run(vec![
        sink("zone", zone.clone(), endpoints("{service}.{namespace}", false)),
        sink("edge", edge.clone(), endpoints("{service}_{port}", true)),
    ]);
    running.equal(0).await;
    running.equal(1).await;
    for restart in 0..10_u64 {
        let (steps, before) = (zone.steps().len() + edge.steps().len(), (zone.content(), edge.content()));
        cluster.stop_server();
        sleep(secs(20)).await;
        assert_eq!((zone.content(), edge.content()), before);
        assert_eq!(zone.steps().len() + edge.steps().len(), steps);
        let age = running.handle.reports()[0].outside_age_seconds.unwrap();
        assert!((20.0..35.0).contains(&age), "the age tells: {age}");
        // A change while no watch is open.
        let new = format!("10.0.1.{restart}");
        cluster.put("s0", &[("10.0.0.1", READY), ("10.0.0.2", READY), (new.as_str(), READY)]);
        cluster.start_server();
        let back = Instant::now();
        running.until(0, |_| zone.serving("s0.default").iter().any(|value| **value == *new)).await;
        running.until(1, |_| edge.serving("s0_http").iter().any(|value| value.starts_with(&new))).await;
        assert!(back.elapsed() <= secs(2), "{:?} after its return", back.elapsed());
        let caught_up =
            running.until(0, |report| report.outside_age_seconds.is_some_and(|age| age < 15.0)).await;
        // A proof of age and an observation, each within 10 s.
        assert!(back.elapsed() <= secs(20), "{:?} until the age says so", back.elapsed());
        assert!(caught_up.held.is_empty(), "{caught_up:?}");
        assert!(zone.steps().iter().chain(&edge.steps()).all(|step| step.losses().len() <= 1));
    }
    assert_eq!(zone.serving("s1.default").len(), 2);
    running.stop().await;
    cluster.end().await;
}

// Case 4.
#[tokio::test(start_paused = true)]
async fn empty_list_from_server_wipes_nothing() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    for service in 0..20 {
        cluster.put(&format!("s{service}"), &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    }
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    let before = zone.content();
    let empty = |kind: &str, group: &str| Fault::Answer {
        code: 200,
        headers: vec![(http::header::CONTENT_TYPE, "application/json".into())],
        body:
            json!({"kind": kind, "apiVersion": group, "metadata": {"resourceVersion": "999999"}, "items": []})
                .to_string(),
    };
    let guards = [
        cluster.server.faults().inject(empty("ServiceList", "v1")).on(Match::list().resource("services")),
        cluster
            .server
            .faults()
            .inject(empty("EndpointSliceList", "discovery.k8s.io/v1"))
            .on(Match::list().resource("endpointslices")),
        cluster.server.faults().inject(Fault::status(504, 0)).on(Match::watch()),
    ];
    cluster.server.close_watches();
    cluster.server.compact();
    sleep(secs(600)).await;
    assert_eq!(zone.content(), before, "{:#?}", running.handle.reports());
    assert!(running.handle.reports()[0].outside_age_seconds.unwrap() > 300.0);
    guards.into_iter().for_each(|guard| guard.heal());
    running.equal(0).await;
    assert_eq!(zone.content(), before);
    running.stop().await;
    cluster.end().await;
}

// Cases 22 and 23.
#[tokio::test(start_paused = true)]
async fn missed_deletion_waits_for_agreeing_list() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    for service in ["a", "b", "c"] {
        cluster.put(service, &[("10.0.0.1", READY)]);
    }
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    running.stop().await;
    cluster.delete("a");
    cluster.delete("b");
    cluster.put("b", &[("10.0.0.9", READY)]);
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    let report = running.until(0, |report| !report.held.is_empty()).await;
    assert!(held(&report).iter().all(|(reason, _)| *reason == "unconfirmed"), "{report:?}");
    assert_eq!(zone.serving("b").len(), 2, "added before anything is removed");
    let begun = Instant::now();
    running.equal(0).await;
    assert!(begun.elapsed() > secs(25) && begun.elapsed() < secs(65), "{:?}", begun.elapsed());
    assert_eq!(zone.content().entries.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    running.stop().await;
    cluster.end().await;
}

// Case 7, and an approval from outside.
#[tokio::test(start_paused = true)]
async fn mass_deletion_is_held_until_approved() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    for service in 0..30 {
        cluster.put(&format!("s{service}"), &[("10.0.0.1", READY)]);
    }
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    for service in 0..15 {
        cluster.delete(&format!("s{service}"));
    }
    running.until(0, |report| held(report).iter().any(|(reason, _)| *reason == "fraction")).await;
    sleep(secs(60)).await;
    let report = running.handle.reports().remove(0);
    assert_eq!(report.held.len(), 1, "{report:?}");
    assert_eq!(zone.content().entries.len(), 15 + report.held[0].count, "{report:?}");
    assert!(!running.handle.approve("nothing").await);
    assert!(running.handle.approve(&report.held[0].id).await);
    running.until(0, |_| zone.content().entries.len() == 15).await;
    running.equal(0).await;
    running.stop().await;
    cluster.end().await;
}

// Case 5, across a restart of the notifier.
#[tokio::test(start_paused = true)]
async fn another_cluster_is_detected_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let zone = MemorySink::zone();
    let with_state = || {
        let mut options = sink("zone", zone.clone(), endpoints("{service}", false));
        options.state = Some(folder.path().to_owned());
        options
    };
    let first = Cluster::new().await;
    first.put("web", &[("10.0.0.1", READY)]);
    let running = first.run(vec![with_state()]);
    running.equal(0).await;
    running.stop().await;
    first.end().await;
    let second = Cluster::new().await;
    second.put("other", &[("10.0.0.2", READY)]);
    let running = second.run(vec![with_state()]);
    let report = running.until(0, |report| !report.held.is_empty()).await;
    assert_eq!(held(&report), [("anotherCluster", 2)]);
    sleep(secs(300)).await;
    assert_eq!(zone.content().entries.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["web"]);
    running.stop().await;
    second.end().await;
}

// Cases 9 and 19.
#[tokio::test(start_paused = true)]
async fn recovered_sink_catches_up_and_drift_is_repaired() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    cluster.put("web", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    zone.set_down(Some("connection refused"));
    for change in 0..100 {
        cluster.put(&format!("s{}", change % 10), &[(&format!("10.0.1.{change}"), READY)]);
        sleep(secs(36)).await;
    }
    let report = running.handle.reports().remove(0);
    assert!(report.outside_age_seconds.unwrap() >= 3_600.0, "{report:?}");
    assert_eq!(report.sink_problem.as_deref(), Some("connection refused"));
    zone.set_down(None);
    let back = Instant::now();
    running.until(0, |_| zone.content().entries.len() == 11).await;
    assert!(back.elapsed() <= secs(10), "{:?}", back.elapsed());
    running.equal(0).await;
    zone.change(|outside| drop(outside.entries.remove("web")));
    let changed = Instant::now();
    running.until(0, |_| zone.serving("web").len() == 1).await;
    assert!(changed.elapsed() <= secs(10), "{:?}", changed.elapsed());
    running.until(0, |report| report.drift == 1).await;
    running.stop().await;
    cluster.end().await;
}

// Cases 20, 21 and hostile names.
#[tokio::test(start_paused = true)]
async fn first_service_keeps_contested_annotation_name() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    let service = |name: &str, host: &str, address: &str| {
        let mut object = support::service_object(name);
        object["metadata"]["annotations"] = json!({"skopos.dev/hostname": host});
        object["spec"]["externalIPs"] = json!([address]);
        object
    };
    cluster.server.create(service("b", "web.example.test", "192.0.2.2")).unwrap();
    let running = cluster.run(vec![sink("zone", zone.clone(), annotated())]);
    running.equal(0).await;
    cluster.server.create(service("a", "web.example.test", "192.0.2.1")).unwrap();
    let report = running.until(0, |report| !report.rejected.is_empty()).await;
    assert_eq!(report.rejected[0].about, "service/default/a");
    assert_eq!(zone.serving("web.example.test"), ["192.0.2.2".into()]);
    // A rename: the new name is written first, and the old one goes to the object that waited for it.
    cluster.server.update(service("b", "new.example.test", "192.0.2.2")).unwrap();
    running.until(0, |_| zone.serving("web.example.test") == ["192.0.2.1".into()]).await;
    assert_eq!(zone.serving("new.example.test"), ["192.0.2.2".into()]);
    running.equal(0).await;
    assert_eq!(
        running.handle.reports()[0].steps,
        BTreeMap::from([("done".to_owned(), zone.steps().len() as u64)])
    );
    running.stop().await;
    cluster.end().await;
}

// Case 31, and the last value of a name.
#[tokio::test(start_paused = true)]
async fn service_scaled_to_zero_keeps_last_backend() {
    let cluster = Cluster::new().await;
    let edge = MemorySink::balancer();
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    let running = cluster.run(vec![sink("edge", edge.clone(), endpoints("{service}_{port}", true))]);
    running.equal(0).await;
    cluster.put("web", &[]);
    let report = running.until(0, |report| held(report).iter().any(|(reason, _)| *reason == "lastOne")).await;
    assert_eq!(held(&report), [("lastOne", 1)]);
    sleep(secs(3_600)).await;
    assert_eq!(edge.serving("web_http").len(), 1);
    cluster.delete("web");
    running.until(0, |_| edge.content().entries.is_empty()).await;
    running.stop().await;
    cluster.end().await;
}

// As in any active cluster, the revision moves and Services do not change. Bookmarks come once a minute.
#[tokio::test(start_paused = true)]
async fn outside_age_stays_low_for_quiet_view() {
    let cluster = Cluster::new().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let zone = MemorySink::zone();
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    let mut oldest: f64 = 0.0;
    for _ in 0..1_200 {
        sleep(Duration::from_millis(500)).await;
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "other-", "namespace": "default"}});
        cluster.server.create(other).unwrap();
        let report = &running.handle.reports()[0];
        assert!(report.is_equal(), "{report:#?}");
        oldest = oldest.max(report.outside_age_seconds.unwrap());
    }
    assert!(oldest < 20.0, "the outside was {oldest} s old");
    running.stop().await;
    cluster.end().await;
}

// Cases 18 and 20, and a removal that waits for a person: `kubectl describe service` shows them.
#[tokio::test(start_paused = true)]
async fn service_denied_its_name_gets_event_with_reason() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    let foreign = ObservedEntry { mark: EntryMark::Foreign, members: Default::default(), tidy: true };
    zone.change(|outside| drop(outside.entries.insert("foreign".into(), foreign.clone())));
    let annotate = |service: &str, name: &str| {
        let mut object = cluster.server.get("services", Some("default"), service).unwrap();
        object["metadata"]["annotations"] = json!({"skopos.dev/hostname": name});
        object["spec"]["clusterIP"] = json!("10.96.0.1");
        cluster.server.update(object).unwrap();
    };
    for (service, name) in [("a", "shared"), ("b", "foreign")] {
        cluster.put(service, &[]);
        annotate(service, name);
    }
    let running = cluster.run(vec![sink("zone", zone.clone(), annotated())]);
    running.until(0, |report| report.outside == 1 && report.foreign_count == 1).await;
    // The later object does not get it.
    cluster.put("c", &[]);
    annotate("c", "shared");
    let told = |count: usize| {
        let cluster = &cluster;
        async move {
            loop {
                let (events, _) = cluster.server.list("events.events.k8s.io", Some("default")).unwrap();
                if events.len() >= count {
                    let line = |event: &serde_json::Value| {
                        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                        assert_eq!(event["regarding"]["kind"], "Service", "{event:#}");
                        let count = event["series"]["count"].as_u64().unwrap_or(1);
                        (
                            text(&event["regarding"]["name"]),
                            text(&event["reason"]),
                            text(&event["note"]),
                            count,
                        )
                    };
                    let mut events: Vec<_> = events.iter().map(line).collect();
                    events.sort();
                    return events;
                }
                sleep(secs(1)).await;
            }
        }
    };
    let events = told(2).await;
    let reasons: Vec<_> =
        events.iter().map(|(service, reason, ..)| (service.as_str(), reason.as_str())).collect();
    assert_eq!(reasons, [("b", "NameNotOurs"), ("c", "NameTaken")], "{events:#?}");
    assert!(
        events[0].2.contains("foreign exists in zone")
            && events[1].2.contains("belongs to service/default/a")
    );
    // A lasting problem is reported again, in the same Event.
    sleep(secs(310)).await;
    let events = told(2).await;
    assert_eq!(events.iter().map(|(.., count)| *count).collect::<Vec<_>>(), [2, 2], "{events:#?}");
    // A solved problem is not.
    zone.change(|outside| drop(outside.entries.remove("foreign")));
    running.until(0, |report| report.foreign_count == 0 && report.outside == 2).await;
    sleep(secs(310)).await;
    let events = told(2).await;
    assert_eq!(events.iter().map(|(.., count)| *count).collect::<Vec<_>>(), [2, 3], "{events:#?}");
    running.stop().await;
    cluster.end().await;
}

// Case 5: the namespace with the cluster's identity appears late.
#[tokio::test(start_paused = true)]
async fn writes_nothing_before_cluster_identity_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let zone = MemorySink::zone();
    let with_state = || {
        let mut options = sink("zone", zone.clone(), endpoints("{service}", false));
        options.state = Some(folder.path().to_owned());
        options
    };
    let first = Cluster::new().await;
    first.put("web", &[("10.0.0.1", READY)]);
    let running = first.run(vec![with_state()]);
    running.equal(0).await;
    running.stop().await;
    first.end().await;
    let second = Cluster::new().await;
    second.put("other", &[("10.0.0.2", READY)]);
    let late = second.server.faults().inject(Fault::WithholdHeaders).on(Match::any().resource("namespaces"));
    let running = second.run(vec![with_state()]);
    let report = running.until(0, |report| report.view_problem.is_some()).await;
    assert!(report.view_problem.unwrap().contains("kube-system"));
    sleep(secs(60)).await;
    assert_eq!(zone.steps().len(), 1, "{:?}", zone.steps());
    late.heal();
    let report = running.until(0, |report| !report.held.is_empty()).await;
    assert_eq!(held(&report), [("anotherCluster", 2)]);
    assert_eq!(zone.steps().len(), 1);
    running.stop().await;
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn commands_and_lists_proceed_under_constant_work() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    cluster.put("a", &[("10.0.0.1", READY)]);
    cluster.put("b", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    running.stop().await;
    cluster.delete("a");
    let mut options = sink("zone", support::Slow(zone.clone()), endpoints("{service}", false));
    options.observe_every = Duration::ZERO;
    let running = cluster.run(vec![options]);
    running.until(0, |report| !report.held.is_empty()).await;
    let answer = tokio::time::timeout(secs(10), running.handle.approve("nothing")).await;
    assert!(!answer.expect("it is answered"));
    running.until(0, |_| zone.content().entries.len() == 1).await;
    running.stop().await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn counts_are_whole_where_lists_are_cut() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    zone.change(|outside| {
        for service in 0..150 {
            let foreign = ObservedEntry { mark: EntryMark::Foreign, members: Default::default(), tidy: true };
            outside.entries.insert(format!("s{service}").into(), foreign);
        }
    });
    (0..150).for_each(|service| cluster.put(&format!("s{service}"), &[("10.0.0.1", READY)]));
    let running = cluster.run(vec![sink("zone", zone, endpoints("{service}", false))]);
    let report = running.until(0, |report| report.foreign_count == 150).await;
    assert_eq!(report.foreign.len(), 100);
    let text = skopos_notify::service::metrics(&NotifierPhase::Working(running.handle.clone()), None);
    assert!(text.contains("skopos_notify_foreign{sink=\"zone\"} 150"), "{text}");
    running.stop().await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_view_stays_fresh_enough_for_removal() {
    let cluster = Cluster::new().await;
    let zone = MemorySink::zone();
    cluster.put("web", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![sink("zone", zone.clone(), endpoints("{service}", false))]);
    running.equal(0).await;
    let mut oldest = 0.0_f64;
    for _ in 0..3_600 {
        sleep(secs(1)).await;
        oldest = oldest.max(running.handle.reports()[0].view_age_seconds.unwrap());
    }
    assert!(oldest < 20.0, "{oldest} s");
    running.stop().await;
    cluster.end().await;
}
