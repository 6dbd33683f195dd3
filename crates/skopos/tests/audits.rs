//! What audits make of objects that are known to be unreadable.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{Condition, DifferenceKind, Informer, InformerOptions};
use skopos_testserver::{Damage, Fault, Match};
use support::*;

/// An informer of one object, which it cannot read for a while.
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
async fn what_could_not_be_read_is_known_to_differ() {
    let (_world, maps) = unreadable(|world, _| {
        world.put("a", "one", "2");
    })
    .await;
    let lists = maps.stats().store.lists;
    let report = maps.audit(secs(10)).await.unwrap();
    assert!(report.is_clean() && report.complete && maps.stats().store.lists == lists, "{report}");
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_not_taken_for_what_could_not_be_read() {
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
    // There was a list just now, and only so many are made in a minute.
    eventually_within(secs(120), "it is listed again", || maps.snapshot().len() == 3).await;
}
