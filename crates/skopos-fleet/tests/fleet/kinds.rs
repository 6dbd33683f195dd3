//! Cached resources of a cluster: started on first use, stopped when idle, within a budget.

use serde_json::json;
use skopos_fleet::{ClusterOptions, Condition, StopReason};
use skopos_testserver::{Fault, Match};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn stops_idle_resource_but_not_held_one() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_with(ClusterOptions { idle_stop: Some(secs(60)), ..options() });
    let cluster = join(&fleet, "a");
    let held = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    let pods = resource("pods", "Pod");
    drop(cluster.kind(&pods, secs(5)).await.unwrap());
    tokio::time::sleep(secs(50)).await;
    drop(cluster.cached(&pods).unwrap());
    tokio::time::sleep(secs(50)).await;
    assert!(cluster.stats().kinds.len() == 2, "used within the minute");
    tokio::time::sleep(secs(20)).await;
    assert!(cluster.cached(&pods).is_none() && held.end_reason().is_none());
    eventually("the watch ends", || server.open_watches() == 1).await;
    drop(held);
    tokio::time::sleep(secs(70)).await;
    eventually("no watch is left", || server.open_watches() == 0).await;
    // And again at the next use.
    assert!(cluster.kind(&pods, secs(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn idle_stop_spares_resource_of_dead_cluster() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_with(ClusterOptions { idle_stop: Some(secs(60)), ..options() });
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    server.pause().await;
    until_condition(&cluster, Condition::Unreachable).await;
    tokio::time::sleep(secs(3600)).await;
    // Reading statistics is no use.
    let freshness = cluster.stats().kinds[0].informer.freshness.clone();
    assert!(!freshness.is_live() && freshness.age().unwrap() >= secs(3600), "{freshness}");
    server.resume().await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    tokio::time::sleep(secs(50)).await;
    assert!(cluster.cached(&config_maps()).is_some(), "the time of its death was no idle time");
    tokio::time::sleep(secs(70)).await;
    assert!(cluster.cached(&config_maps()).is_none());
}

#[tokio::test(start_paused = true)]
async fn memory_pressure_evicts_coldest_resource() {
    let world = World::default();
    let server = world.server("a");
    let large = "x".repeat(40_000);
    for n in 0..10 {
        let name = format!("large-{n}");
        server
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": {"large": large}}))
            .unwrap();
        server
            .create(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "default"}, "stringData": {"large": large}}))
            .unwrap();
    }
    let fleet = world.fleet_with(ClusterOptions { memory_budget: Some(800_000), ..options() });
    let cluster = join(&fleet, "a");
    let cold = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    let watcher = cold.clone();
    let ended = async move { watcher.ended().await };
    drop(cold);
    tokio::time::sleep(secs(5)).await;
    let warm = cluster.kind(&resource("secrets", "Secret"), secs(5)).await.unwrap();
    // Both are in use, so one has to be evicted: the less recently used one.
    assert_eq!(ended.await, StopReason::Evicted);
    assert!(warm.end_reason().is_none());
    assert_eq!(cluster.stats().evictions, 1);
    let error = cluster.kind(&config_maps(), secs(5)).await.unwrap_err();
    assert_eq!(error.as_str(), "budget", "{error}");
    // Once there is room, it is retried.
    for n in 0..10 {
        server.delete("secrets", Some("default"), &format!("large-{n}")).unwrap();
    }
    eventually("the Secrets are gone", || warm.informer().snapshot().is_empty()).await;
    assert!(cluster.kind(&config_maps(), secs(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn number_of_resources_is_bounded() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet_with(ClusterOptions { max_kinds: 2, ..options() });
    let cluster = join(&fleet, "a");
    let first = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    drop(cluster.kind(&resource("pods", "Pod"), secs(5)).await.unwrap());
    let second = cluster.kind(&resource("services", "Service"), secs(5)).await.unwrap();
    assert!(cluster.cached(&resource("pods", "Pod")).is_none());
    let error = cluster.kind(&resource("pods", "Pod"), secs(5)).await.unwrap_err();
    assert_eq!(error.as_str(), "budget");
    drop((first, second));
    assert!(cluster.kind(&resource("pods", "Pod"), secs(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn server_refusal_is_not_retried_immediately() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let unknown = resource("unicorns", "Unicorn");
    let begun = tokio::time::Instant::now();
    let error = cluster.kind(&unknown, secs(30)).await.unwrap_err();
    assert!(matches!(error, skopos_fleet::FleetError::Refused { code: 404, .. }), "{error}");
    assert!(begun.elapsed() < secs(1), "at once");
    server.clear_requests();
    for _ in 0..100 {
        assert_eq!(cluster.kind(&unknown, secs(30)).await.unwrap_err().as_str(), "refused");
    }
    assert_eq!(server.requests().len(), 0);
    assert!(cluster.kinds().is_empty(), "it takes no place");
    tokio::time::sleep(secs(11)).await;
    assert_eq!(cluster.kind(&unknown, secs(30)).await.unwrap_err().as_str(), "refused");
    assert!(!server.requests().is_empty());
}

/// Checks a resource whose server fails as for an aggregated API with its server down.
#[tokio::test(start_paused = true)]
async fn resource_with_failing_list_is_not_awaited() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let fails = server.faults().inject(Fault::status(503, 0)).on(Match::any().resource("configmaps"));
    let begun = tokio::time::Instant::now();
    let error = cluster.kind(&config_maps(), secs(60)).await.unwrap_err();
    assert!(matches!(error, skopos_fleet::FleetError::Failing { attempts: 3, .. }), "{error}");
    assert!((secs(1)..secs(10)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    assert_eq!(cluster.kind(&config_maps(), secs(60)).await.unwrap_err().as_str(), "failing");
    assert_eq!(begun.elapsed(), secs(0), "it is known by now");
    drop(fails);
    eventually("it is tried on", || cluster.cached(&config_maps()).is_some_and(|kind| kind.has_content()))
        .await;
    assert!(cluster.kind(&config_maps(), secs(60)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_waited_out() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let _fails =
        server.faults().inject(Fault::status(503, 0)).on(Match::any().resource("configmaps")).times(2);
    assert!(cluster.kind(&config_maps(), secs(60)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn configured_kinds_start_by_themselves_and_stay() {
    let world = World::default();
    world.server("a");
    let kinds = vec![config_maps()];
    let fleet = world.fleet_with(ClusterOptions { kinds, idle_stop: Some(secs(10)), ..options() });
    let cluster = join(&fleet, "a");
    until_condition(&cluster, Condition::Live).await;
    eventually("the kind is there", || cluster.cached(&config_maps()).is_some_and(|kind| kind.has_content()))
        .await;
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(names(&cluster, &config_maps()), ["a"]);
}
