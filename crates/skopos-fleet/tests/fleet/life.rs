//! Pause, resume, redirect, removal and end of clusters.

use std::time::Duration;

use skopos_fleet::{
    CachedKind, ClusterOptions, Condition, DocumentRequest, FleetChange, FleetOptions, Paused, PausedBy,
    StopReason,
};
use tokio::time::Instant;

use crate::support::*;

fn scaled_down() -> Paused {
    Paused { by: PausedBy::ScaledDown, since: None }
}

/// Returns the reason why the copy ended, within a minute.
async fn ended(kind: &CachedKind) -> StopReason {
    tokio::time::timeout(secs(60), kind.ended()).await.expect("it ends")
}

#[tokio::test(start_paused = true)]
async fn paused_cluster_is_live_within_2s_of_return() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_with(ClusterOptions { prefetch_documents: true, ..options() });
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    server.pause().await;
    cluster.pause(scaled_down());
    assert_eq!(cluster.state().condition, Condition::Paused);
    let dials = world.dials_of("a");
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(world.dials_of("a"), dials, "nothing is tried");
    assert_eq!(cluster.state().condition, Condition::Paused, "and that is no error");

    let kind = cluster.kind(&config_maps(), Duration::ZERO).await.unwrap();
    let age = kind.informer().freshness().age().unwrap();
    assert!(age >= secs(3600), "what was there is there, with its age: {age:?}");
    let begun = Instant::now();
    assert_eq!(cluster.kind(&resource("pods", "Pod"), secs(5)).await.unwrap_err().as_str(), "paused");
    let request = http::Request::get("/api/v1/pods").body(kube::client::Body::empty()).unwrap();
    assert_eq!(cluster.request(request, secs(5)).await.unwrap_err().as_str(), "paused");
    assert_eq!(begun.elapsed(), Duration::ZERO, "at once");

    // It is switched on, but its server takes a while.
    let _ = server.delete("configmaps", Some("default"), "a");
    server.create(config_map("b")).unwrap();
    server.resume().await.unwrap();
    let ready = Instant::now();
    cluster.resume();
    eventually("live", || kind.informer().freshness().is_live()).await;
    assert!(ready.elapsed() <= secs(2), "{:?}", ready.elapsed());
    eventually("up to date", || names(&cluster, &config_maps()) == ["b"]).await;
    until_condition(&cluster, Condition::Live).await;
    assert!(ready.elapsed() <= secs(2), "{:?}", ready.elapsed());
}

#[tokio::test(start_paused = true)]
async fn server_refusing_new_connections_is_degraded() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let kind = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    eventually("it is watched", || server.open_watches() == 1).await;
    tokio::time::sleep(secs(40)).await;
    world.hole("a");
    let watched = server.requests().into_iter().find(|request| request.is_open_watch()).unwrap().connection;
    for other in server.faults().connections().into_iter().filter(|connection| *connection != watched) {
        server.faults().kill_connection(other, skopos_testserver::CloseMode::Fin);
    }
    until_condition(&cluster, Condition::Degraded).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(cluster.state().condition, Condition::Degraded, "{}", cluster.state());
    server.create(config_map("b")).unwrap();
    eventually("its watch goes on", || kind.informer().snapshot().len() == 2).await;
    server.faults().kill_connection(watched, skopos_testserver::CloseMode::Fin);
    until_condition(&cluster, Condition::Unreachable).await;
}

#[tokio::test(start_paused = true)]
async fn a_way_that_changes_takes_every_kind_with_it() {
    let world = World::default();
    let old = world.server("a");
    world.server("b");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let kind = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    let before = cluster.clone();
    fleet.join(id("a"), spec("b")).unwrap();
    assert!(fleet.cluster("a").unwrap() == before, "the same member");
    assert_eq!(ended(&kind).await, StopReason::Reconnected);
    assert_eq!(names(&cluster, &config_maps()), ["b"]);
    assert_eq!(kind.informer().snapshot().len(), 1, "who holds the old copy can read it");
    drop(kind);
    eventually("the old connections end", || old.connections() == 0).await;
    until_condition(&cluster, Condition::Live).await;
    // The same spec again changes nothing.
    let connects = world.connects.load(std::sync::atomic::Ordering::SeqCst);
    fleet.join(id("a"), spec("b")).unwrap();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(world.connects.load(std::sync::atomic::Ordering::SeqCst), connects);
}

#[tokio::test(start_paused = true)]
async fn redirect_to_nowhere_keeps_old_content() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    fleet.join(id("a"), spec("nowhere")).unwrap();
    tokio::time::sleep(secs(120)).await;
    let kind = cluster.kind(&config_maps(), Duration::ZERO).await.unwrap();
    assert_eq!(names(&cluster, &config_maps()), ["a"]);
    assert!(kind.informer().freshness().age().unwrap() >= secs(80), "{}", kind.informer().freshness());
    assert_eq!(cluster.state().condition, Condition::Unreachable);
    fleet.join(id("a"), spec("a")).unwrap();
    until_condition(&cluster, Condition::Live).await;
    assert_eq!(ended(&kind).await, StopReason::Reconnected);
}

#[tokio::test(start_paused = true)]
async fn removed_cluster_stays_readable_during_retention() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_of(FleetOptions {
        cluster: options(),
        retain_removed: secs(300),
        ..FleetOptions::default()
    });
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    let mut changes = fleet.changes();
    assert!(matches!(changes.next().await, Some(FleetChange::Added(_))));
    assert!(fleet.leave(&id("a"), "sold"));
    assert!(!fleet.leave(&id("a"), "sold"));
    while !matches!(changes.next().await.unwrap(), FleetChange::Removed(_)) {}
    let left = fleet.cluster("a").unwrap();
    assert_eq!((left.state().condition, left.state().reason.as_deref()), (Condition::Removed, Some("sold")));
    eventually("no connection is left", || server.connections() == 0).await;
    let kind = left.kind(&config_maps(), Duration::ZERO).await.unwrap();
    assert_eq!((kind.informer().snapshot().len(), kind.end_reason()), (1, Some(StopReason::Removed)));
    assert_eq!(left.kind(&resource("pods", "Pod"), secs(5)).await.unwrap_err().as_str(), "removed");

    // A new cluster of the same name is another one.
    join(&fleet, "a").kind(&config_maps(), secs(5)).await.unwrap();
    assert!(matches!(changes.next().await, Some(FleetChange::Forgotten(gone)) if gone == left));
    assert!(matches!(changes.next().await, Some(FleetChange::Added(new)) if new != left));
    tokio::time::sleep(secs(400)).await;
    assert!(fleet.get("a").is_some(), "the end of the first does not end the second");

    fleet.leave(&id("a"), "sold");
    tokio::time::sleep(secs(301)).await;
    assert!(fleet.get("a").is_none());
    assert_eq!(fleet.cluster("a").unwrap_err().as_str(), "unknown-cluster");
    assert_eq!(fleet.stats().clusters.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_bounded_and_wakes_waiters() {
    let world = World::default();
    let servers: Vec<_> = ["a", "b"].map(|name| world.server(name)).into();
    world.hole("hole");
    let fleet = world.fleet();
    for name in ["a", "b"] {
        join(&fleet, name).kind(&config_maps(), secs(5)).await.unwrap();
    }
    let hole = join(&fleet, "hole");
    let mut changes = fleet.changes();
    let waiting = async {
        let kind = hole.kind(&config_maps(), secs(3600)).await;
        while changes.next().await.is_some() {}
        kind
    };
    let begun = Instant::now();
    let (ended, kind) = tokio::join!(
        async {
            tokio::time::sleep(secs(1)).await;
            fleet.shutdown(secs(5)).await
        },
        waiting
    );
    assert!(ended && begun.elapsed() <= secs(3), "{:?}", begun.elapsed());
    assert_eq!(kind.unwrap_err().as_str(), "closed");
    assert!(servers.iter().all(|server| server.connections() == 0));
    assert_eq!(fleet.join(id("c"), spec("c")).unwrap_err().as_str(), "closed");
    let held = fleet.cluster("a").unwrap().kind(&config_maps(), Duration::ZERO).await.unwrap();
    assert_eq!(held.end_reason(), Some(StopReason::Closed));
}

#[tokio::test(start_paused = true)]
async fn dropping_fleet_closes_connections() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    drop(fleet);
    eventually("no connection is left", || server.connections() == 0).await;
    assert_eq!(cluster.kind(&resource("pods", "Pod"), secs(5)).await.unwrap_err().as_str(), "closed");
}

#[tokio::test(start_paused = true)]
async fn accepts_infinite_timeouts() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), Duration::MAX).await.unwrap();
    let version = DocumentRequest::new("/version", "application/json").unwrap();
    cluster.document(&version, Duration::MAX).await.unwrap();
    cluster.client("default", Duration::MAX).await.unwrap();
    let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
    cluster.request(request, Duration::MAX).await.unwrap();
    assert_eq!(fleet.unread_sources(Duration::MAX).await, 0);
    assert!(fleet.shutdown(Duration::MAX).await);
}
