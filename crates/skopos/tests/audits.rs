//! Audits of objects that are known to be unreadable, and audits and reads of changes that share a revision.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{Condition, DifferenceKind, Informer, InformerOptions, Source};
use skopos_testserver::{Damage, Fault, Match, TestServer};
use support::*;

/// Creates an informer of one object, which it cannot read for a while.
async fn unreadable(trouble: impl FnOnce(&World, &Informer<ConfigMap>)) -> (World, Informer<ConfigMap>) {
    let world = world().await;
    world.create("a", "one", "1");
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    let fault = world.server.faults().inject(Fault::Undecodable(Damage::Labels)).everywhere();
    trouble(&world, &maps);
    eventually("it is set aside", || matches!(maps.state().condition, Condition::Degraded(_))).await;
    fault.heal();
    (world, maps)
}

#[tokio::test(start_paused = true)]
async fn audit_excuses_unreadable_objects() {
    let (_world, maps) = unreadable(|world, _| {
        world.put("a", "one", "2");
    })
    .await;
    let lists = maps.stats().store.lists;
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && report.complete && maps.stats().store.lists == lists, "{report}");
}

#[tokio::test(start_paused = true)]
async fn audit_reports_lost_object_beside_unreadable_one() {
    let (world, maps) = unreadable(|_, maps| maps.relist("its list cannot be read")).await;
    let lost = world.server.faults().inject(Fault::DropEvents).on(Match::watch());
    world.create("a", "two", "1");
    lost.wait_hits(1).await;
    lost.heal();
    let revision = world.create("a", "three", "1");
    maps.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert!(matches!(maps.state().condition, Condition::Degraded(_)), "{:?}", maps.state());
    let report = maps.audit(secs(10)).await.unwrap();
    let found: Vec<_> = report.examples.iter().map(|found| (found.key.name(), found.kind)).collect();
    assert_eq!((report.differences, found), (1, vec![("two", DifferenceKind::Missing)]), "{report}");
    // There has just been a list, and the number of lists in a minute is limited.
    eventually_within(secs(120), "it is listed again", || maps.snapshot().len() == 3).await;
}

/// Creates an informer that has just received the first of two deletions of one revision.
async fn parted() -> (World, Informer<ConfigMap>) {
    let server = TestServer::builder().pause_within_revision(secs(1) / 2);
    let world = world_with(server, quiet()).await;
    for name in ["one", "two"] {
        world.create("a", name, "1");
    }
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    until_nothing_is_of_this_moment().await;
    world.server.expire(["one", "two"].map(|name| ("configmaps", Some("a"), name))).unwrap();
    eventually("one of them has come", || maps.snapshot().len() < 2).await;
    assert_eq!(maps.snapshot().len(), 1);
    (world, maps)
}

#[tokio::test(start_paused = true)]
async fn audit_excuses_rest_of_revision_in_flight() {
    let (world, maps) = parted().await;
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && report.complete, "{report}");
    assert_eq!((maps.snapshot().len(), maps.stats().relists), (0, 0));
    let revision = world.create("a", "three", "1");
    maps.wait_for(&revision.into(), secs(5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn audit_claims_nothing_for_revision_of_lost_stream() {
    let (world, maps) = parted().await;
    let watches = world.server.faults().inject(Fault::WithholdHeaders).on(Match::watch());
    world.server.close_watches();
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && !report.complete, "{report}");
    watches.heal();
    eventually("the rest has come", || maps.snapshot().is_empty()).await;
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && report.complete && maps.stats().relists == 0, "{report}");
}

#[tokio::test(start_paused = true)]
async fn read_does_not_accept_partial_revision() {
    let (world, maps) = parted().await;
    let watches = world.server.faults().inject(Fault::WithholdHeaders).on(Match::watch());
    world.server.close_watches();
    until_nothing_is_of_this_moment().await;
    let read = maps.read(secs(1) / 2, secs(10)).await.unwrap();
    assert_eq!((read.snapshot.len(), read.source, maps.snapshot().len()), (0, Source::Live, 1));
    watches.heal();
    eventually("the rest has come", || maps.snapshot().is_empty()).await;
    until_nothing_is_of_this_moment().await;
    let read = maps.read(secs(1) / 2, secs(10)).await.unwrap();
    assert_eq!((read.snapshot.len(), read.source), (0, Source::Cache));
}
