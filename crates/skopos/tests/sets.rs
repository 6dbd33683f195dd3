//! Informers of a set of namespaces: errors of one namespace do not affect another.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::checkpoint::{Checkpoint, CheckpointLimits};
use skopos::{
    AuditError, Condition, FactoryOptions, Informer, InformerFactory, InformerOptions, ReadError, Scope,
};
use skopos_testserver::{Fault, ForbiddenGuard, Match, Outcome, RequestRecord, TestServer};
use support::*;
use tokio::time::timeout;

const OF_A: &str = "/api/v1/namespaces/a/";
const OF_C: &str = "/api/v1/namespaces/c/";

/// Creates an informer of two namespaces, and then forbids the first.
async fn half_forbidden(options: FactoryOptions) -> (World, Informer<ConfigMap>, ForbiddenGuard) {
    let world = world_with(TestServer::builder(), options).await;
    world.create("a", "one", "1");
    world.create("c", "one", "1");
    let maps: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespaces(["a", "c"])).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 2).await.unwrap();
    let forbidden = world.server.auth().forbid(Match::any().path_prefix(OF_A));
    world.server.close_watches();
    eventually("one is forbidden, the other goes on", || {
        let conditions: Vec<Condition> =
            maps.states().into_iter().map(|(_, state)| state.condition).collect();
        conditions == [Condition::Forbidden, Condition::Watching]
    })
    .await;
    (world, maps, forbidden)
}

/// Returns a checkpoint that was written to a file and read back.
fn written(maps: &Informer<ConfigMap>) -> Checkpoint {
    let mut file = Vec::new();
    maps.checkpoint().unwrap().write_to(&mut file).unwrap();
    Checkpoint::read_from(file.as_slice(), &CheckpointLimits::default()).unwrap()
}

fn is_probe(request: &RequestRecord, path: &str) -> bool {
    request.path.starts_with(path) && request.query_param("limit").as_deref() == Some("1")
}

#[tokio::test(start_paused = true)]
async fn proves_age_beside_forbidden_namespace() {
    let (world, _maps, _forbidden) = half_forbidden(quiet()).await;
    world.server.clear_requests();
    tokio::time::sleep(secs(600)).await;
    let probes = |path| world.server.requests().iter().filter(|request| is_probe(request, path)).count();
    let (of_a, of_c) = (probes(OF_A), probes(OF_C));
    assert!(of_a <= 1 && (20..=26).contains(&of_c), "{of_a} of what is forbidden, {of_c} of what is not");
}

#[tokio::test(start_paused = true)]
async fn heals_lost_event_beside_forbidden_namespace() {
    let options = FactoryOptions { audit_interval: Some(secs(60)), ..quiet() };
    let (world, maps, _forbidden) = half_forbidden(options).await;
    let lost = world.server.faults().inject(Fault::DropEvents).on(Match::watch().path_prefix(OF_C));
    world.create("c", "two", "1");
    lost.wait_hits(1).await;
    lost.heal();
    // The next event hides that it is missing.
    world.create("c", "three", "1");
    eventually_within(secs(180), "it is found and listed again", || maps.snapshot().len() == 4).await;
    let audits = maps.stats().audits;
    assert!(audits.mismatches == 1 && audits.failed == 0, "{audits:?}");
    let report = audits.last.expect("an audit");
    assert!((report.listed, report.differences, report.complete) == (3, 1, false), "{report}");
    assert!(
        report.to_string().ends_with("; a not compared: left out of this audit; its list/watch is forbidden"),
        "{report}"
    );
    assert_eq!(maps.snapshot().iter().filter(|object| object.namespace() == Some("a")).count(), 1);
}

/// Checks that an audit on demand tries everything, and lists the namespaces that it could not compare.
#[tokio::test(start_paused = true)]
async fn an_audit_says_which_namespaces_were_not_compared() {
    let (world, maps, forbidden) = half_forbidden(quiet()).await;
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && !report.complete && report.listed == 1, "{report}");
    let [of_a] = report.not_compared.as_slice() else { panic!("{report}") };
    assert!(of_a.namespace.as_deref() == Some("a") && matches!(of_a.error, AuditError::List(_)), "{of_a}");

    let all = world.server.auth().forbid(Match::any());
    assert!(matches!(maps.audit(secs(10)).await, Err(AuditError::List(_))));
    drop((all, forbidden));
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.complete && report.not_compared.is_empty() && report.listed == 2, "{report}");
}

/// Checks that restored content is confirmed for each namespace separately, and once.
#[tokio::test(start_paused = true)]
async fn confirms_checkpoint_beside_forbidden_namespace() {
    let mut world = world().await;
    world.create("c", "one", "1");
    let set = || InformerOptions::namespaces(["a", "c"]);
    let maps: Informer<ConfigMap> = world.factory.informer(set()).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    let checkpoint = written(&maps);
    assert!(world.factory.shutdown(secs(1)).await.complete);
    world.factory = InformerFactory::new(transport_to(&world.server), quiet());
    let forbidden = world.server.auth().forbid(Match::any().path_prefix(OF_A));
    let maps: Informer<ConfigMap> = world.factory.informer(set().restored(checkpoint)).expect("an informer");
    tokio::time::sleep(secs(120)).await;
    let audits = maps.stats().audits;
    assert!((audits.completed, audits.failed) == (1, 0) && !maps.has_synced(), "{audits:?}");
    let report = audits.last.expect("an audit");
    assert!(report.listed == 1 && report.not_compared.len() == 1, "{report}");
    drop(forbidden);
    maps.wait_synced(PLENTY).await.unwrap();
}

/// Checks a rollback that the server has shown in one namespace; the other namespace is forbidden, so its list/watch cannot
/// notice.
#[tokio::test(start_paused = true)]
async fn rolled_back_forbidden_namespace_is_not_live() {
    let world = world().await;
    let backup = world.put("a", "one", "1");
    for n in 0..10 {
        world.create("c", &format!("lost-{n}"), "1");
    }
    let maps: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespaces(["a", "c"])).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 2).await.unwrap();
    world.server.roll_back(backup).unwrap();
    let _forbidden = world.server.auth().forbid(Match::any().path_prefix(OF_C));
    world.server.close_watches();
    eventually("one has noticed", || maps.snapshot().epoch() == 1).await;
    until_nothing_is_of_this_moment().await;
    let read = maps.read(secs(1), secs(5)).await;
    assert!(matches!(read, Err(ReadError::TooOld { .. })), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn namespace_set_ignores_order_and_duplicates() {
    let world = world().await;
    world.create("a", "one", "1");
    let scope = Scope::Namespaces(["b", "a", "a"].map(str::to_owned).to_vec());
    let maps: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::from_scope(scope)).expect("an informer");
    let sorted = Scope::Namespaces(["a", "b"].map(str::to_owned).to_vec());
    assert_eq!((maps.scope(), maps.states().len()), (&sorted, 2));
    let _same: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespaces(["a", "b"])).expect("an informer");
    assert_eq!(world.factory.stats().informers, 1);
    maps.wait_synced(secs(5)).await.unwrap();
    assert_eq!(written(&maps).scope(), &sorted);
}

#[tokio::test(start_paused = true)]
async fn an_audit_lists_few_namespaces_at_a_time() {
    let world = world().await;
    let set = (0..50).map(|n| format!("n{n}"));
    let maps: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespaces(set)).expect("an informer");
    maps.wait_synced(PLENTY).await.unwrap();
    let _slow = world.server.faults().inject(Fault::DelayHeaders(secs(1))).on(Match::list());
    let open = || {
        let requests = world.server.requests();
        let lists = requests.iter().filter(|r| r.verb == "list" && !is_probe(r, ""));
        lists.filter(|r| r.outcome == Outcome::Waiting).count()
    };
    let audit = maps.audit(secs(60));
    tokio::pin!(audit);
    let mut most = 0;
    let report = loop {
        match timeout(secs(1) / 10, &mut audit).await {
            Ok(report) => break report.unwrap(),
            Err(_) => most = most.max(open()),
        }
    };
    assert!((1..=8).contains(&most), "{most} at a time");
    assert!(report.is_clean() && report.complete, "{report}");
}
