//! The fence of a zone, on BIND and Knot: the server refuses writes of an earlier leader.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use skopos_notify::service::release;
use skopos_notify::sink::dns::DnsSink;
use skopos_notify::sink::{Fence, ObservedEntry, Serving, Sink, SinkStep, StepAction, StepOutcome};
use skopos_notify::{EntryName, EntryOwner};
use support::servers::{DnsServer, Kind, ZONE};
use support::{Cluster, endpoints, quick};

const READY: &str = "ready";

fn name(host: &str) -> EntryName {
    format!("{host}.{ZONE}").into()
}

fn fence(lease: &str, term: u64) -> Option<Fence> {
    Some(Fence { lease: lease.into(), term })
}

async fn entry(sink: &DnsSink, host: &str) -> Option<ObservedEntry> {
    sink.observe().await.expect("a transfer").entries.remove(&name(host))
}

async fn values(sink: &DnsSink, host: &str) -> Vec<String> {
    let entry = entry(sink, host).await;
    entry.into_iter().flat_map(|entry| entry.members).map(|(value, _)| value.to_string()).collect()
}

/// Writes a name over the present values, in a term.
async fn put(sink: &DnsSink, host: &str, value: &str, fence: Option<&Fence>) -> StepOutcome {
    let owner = EntryOwner {
        resource: "service".into(),
        namespace: "default".into(),
        name: host.into(),
        uid: "uid".into(),
    };
    let members = BTreeMap::from([(value.into(), Serving::Active)]);
    let action = StepAction::Put { owner: owner.into(), members };
    let step = SinkStep { name: name(host), before: entry(sink, host).await, action };
    sink.apply(&step, fence).await
}

fn problem(outcome: StepOutcome) -> String {
    match outcome {
        StepOutcome::Fenced(problem) => problem,
        other => panic!("not fenced: {other:?}"),
    }
}

async fn each(test: impl AsyncFn(&mut DnsServer)) {
    for kind in [Kind::Bind, Kind::Knot] {
        if let Some(mut server) = DnsServer::start(kind, "").await {
            test(&mut server).await;
        }
    }
}

// Case 26.
#[tokio::test]
async fn server_refuses_write_of_earlier_term() {
    each(async |server| {
        let (first, second) = (server.sink(), server.sink());
        let (term_41, term_42) = (fence("uid", 41), fence("uid", 42));
        assert_eq!(put(&first, "web", "10.0.0.1", term_41.as_ref()).await, StepOutcome::Done);
        assert_eq!(put(&second, "web", "10.0.0.2", term_42.as_ref()).await, StepOutcome::Done);
        let told = problem(put(&first, "web", "10.0.0.3", term_41.as_ref()).await);
        assert!(told.contains("term 42 writes the zone, and this process has term 41"), "{told}");
        assert_eq!(values(&second, "web").await, ["10.0.0.2"], "the record is as the later term wrote it");
        // Nothing more is sent, also not for names that do not exist.
        assert_eq!(problem(put(&first, "other", "10.0.0.3", term_41.as_ref()).await), told);
        // A sink that has not written before does not take over either.
        let told = problem(put(&server.sink(), "other", "10.0.0.3", term_41.as_ref()).await);
        assert!(told.contains("term 42"), "{told}");
        // A conflict is distinguished from a fence that has moved.
        let step = SinkStep { name: name("web"), before: None, action: StepAction::Delete };
        let outcome = second.apply(&step, term_42.as_ref()).await;
        assert!(matches!(outcome, StepOutcome::Conflict(_)), "{outcome:?}");
        assert_eq!(put(&second, "web", "10.0.0.4", term_42.as_ref()).await, StepOutcome::Done);
        // The next term of the first process.
        assert_eq!(put(&first, "web", "10.0.0.5", fence("uid", 43).as_ref()).await, StepOutcome::Done);
        problem(put(&second, "web", "10.0.0.6", term_42.as_ref()).await);
        let observed = first.observe().await.unwrap();
        assert!(observed.entries.keys().all(|name| !name.as_str().contains("_skopos")), "a fence is no name");
    })
    .await;
}

// A Lease that was deleted counts from the beginning, and must not lock the zone.
#[tokio::test]
async fn old_leader_cannot_retake_from_recreated_lease() {
    each(async |server| {
        let (first, second) = (server.sink(), server.sink());
        let (old, new) = (fence("first", 42), fence("second", 1));
        assert_eq!(put(&first, "web", "10.0.0.1", old.as_ref()).await, StepOutcome::Done);
        assert_eq!(put(&second, "web", "10.0.0.2", new.as_ref()).await, StepOutcome::Done);
        let told = problem(put(&first, "web", "10.0.0.3", old.as_ref()).await);
        assert!(told.contains("another Lease (uid second)"), "{told}");
        problem(put(&first, "web", "10.0.0.3", old.as_ref()).await);
        assert_eq!(values(&second, "web").await, ["10.0.0.2"]);
        // The Lease was restored from a backup: the same number again, from another process.
        let restored = server.sink();
        assert_eq!(put(&restored, "web", "10.0.0.4", new.as_ref()).await, StepOutcome::Done);
        problem(put(&second, "web", "10.0.0.5", new.as_ref()).await);
    })
    .await;
}

#[tokio::test]
async fn unelected_sink_writes_until_leader_takes_over() {
    each(async |server| {
        let (guest, leader) = (server.sink(), server.sink());
        assert_eq!(put(&guest, "web", "10.0.0.1", None).await, StepOutcome::Done);
        // An election is introduced for an existing zone.
        let term = fence("uid", 1);
        assert_eq!(put(&leader, "web", "10.0.0.2", term.as_ref()).await, StepOutcome::Done);
        let told = problem(put(&guest, "web", "10.0.0.1", None).await);
        assert!(told.contains("has no election"), "{told}");
        assert_eq!(values(&leader, "web").await, ["10.0.0.2"]);
        // `--once` beside a leader takes over nothing.
        assert_eq!(put(&server.sink(), "once", "10.0.0.7", None).await, StepOutcome::Done);
        assert_eq!(put(&leader, "web", "10.0.0.3", term.as_ref()).await, StepOutcome::Done);
    })
    .await;
}

#[tokio::test]
async fn release_removes_fence_last() {
    each(async |server| {
        let leader = server.sink();
        let term = fence("uid", 7);
        assert_eq!(put(&leader, "web", "10.0.0.1", term.as_ref()).await, StepOutcome::Done);
        let at = format!("tests._skopos-fence.{ZONE}");
        assert!(server.text(&at).await.is_some_and(|text| text.contains("lease=uid,term=7")));
        let released = release(&quick("zone", server.sink(), endpoints("{service}", false))).await.unwrap();
        assert_eq!((released.gone, released.left), (vec![name("web")], Vec::new()));
        assert_eq!(server.text(&at).await, None);
        let told = problem(put(&leader, "web", "10.0.0.1", term.as_ref()).await);
        assert!(told.contains("was removed while term 7 wrote"), "{told}");
        assert_eq!(leader.read(&BTreeSet::from([name("web")])).await.unwrap().entries.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn foreign_fence_refuses_write() {
    each(async |server| {
        let mut options = server.options();
        options.owner = "a.b".into();
        let (term, theirs) = (fence("uid", 1), DnsSink::new(options.clone()).unwrap());
        assert_eq!(put(&theirs, "web", "10.0.0.1", term.as_ref()).await, StepOutcome::Done);
        options.owner = "a-b".into();
        let outcome = put(&DnsSink::new(options).unwrap(), "other", "10.0.0.1", term.as_ref()).await;
        assert!(
            matches!(&outcome, StepOutcome::Refused(problem) if problem.contains("choose another `owner`")),
            "{outcome:?}"
        );
    })
    .await;
}

// The whole service: a fenced sink reports it, writes nothing more, and does not retry.
#[tokio::test]
async fn fenced_notifier_reports_and_stops_writing() {
    let Some(server) = DnsServer::start(Kind::Bind, "").await else { return };
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let source = || endpoints(&format!("{{service}}.{ZONE}"), false);
    let mut options = quick("zone", server.sink(), source());
    options.fence = fence("uid", 41);
    let first = cluster.run(vec![options]);
    first.equal(0).await;
    // A later leader with the same wanted state.
    let mut options = quick("zone", server.sink(), source());
    options.fence = fence("uid", 42);
    let second = cluster.run(vec![options]);
    second.equal(0).await;
    // It has nothing to write, so the first is not fenced yet; the next change decides.
    second.stop().await;
    let later = server.sink();
    assert_eq!(put(&later, "other", "10.0.0.9", fence("uid", 42).as_ref()).await, StepOutcome::Done);
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    let report = first.until(0, |report| report.fenced).await;
    assert!(report.sink_problem.as_deref().is_some_and(|told| told.contains("term 42")), "{report:#?}");
    assert!(!report.is_equal() && report.steps["fenced"] == 1, "{report:#?}");
    cluster.put("web", &[("10.0.0.3", READY)]);
    let begun = report.view_age_seconds;
    let report = first.until(0, |report| report.view_age_seconds != begun && report.pending > 0).await;
    assert_eq!(report.steps["fenced"], 1, "it is not tried again");
    assert_eq!(values(&later, "web").await, ["10.0.0.1"]);
    first.stop().await;
    cluster.end().await;
}
