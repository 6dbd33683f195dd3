//! States of a cluster: a healthy one has no trouble, and doubts are reported at once.

use serde_json::json;
use skopos::ResourceId;
use skopos_fleet::{ClusterId, ClusterOptions, ClusterSpec, Condition, StopReason};
use skopos_testserver::{Connections, Direction, Fault, Match, User};
use tokio::time::Instant;

use crate::support::*;

fn things() -> ResourceId {
    let (group, version) = ("x.example".into(), "v1".into());
    ResourceId { group, version, plural: "things".into(), kind: "Thing".into() }
}

fn definition() -> serde_json::Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.example"},
        "spec": {"group": "x.example", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

#[tokio::test(start_paused = true)]
async fn deleted_definition_ends_resource_without_trouble() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    server.create(definition()).unwrap();
    let kind = cluster.kind(&things(), secs(5)).await.unwrap();
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    server.delete("customresourcedefinitions", None, "things.x.example").unwrap();
    let ended = tokio::time::timeout(secs(60), kind.ended()).await.expect("it ends");
    assert_eq!(ended, StopReason::NotServed);
    assert!(cluster.cached(&things()).is_none());
    for _ in 0..600 {
        tokio::time::sleep(secs(1)).await;
        assert_eq!(cluster.state().condition, Condition::Live, "{}", cluster.state());
    }
    // Once defined again, it is served again.
    server.create(definition()).unwrap();
    tokio::time::sleep(secs(15)).await;
    assert!(cluster.kind(&things(), secs(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn unserved_configured_resource_is_no_trouble() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_with(ClusterOptions { kinds: vec![things(), config_maps()], ..options() });
    let cluster = join(&fleet, "a");
    until_condition(&cluster, Condition::Live).await;
    for _ in 0..120 {
        tokio::time::sleep(secs(1)).await;
        assert_eq!(cluster.state().condition, Condition::Live, "{}", cluster.state());
    }
    server.create(definition()).unwrap();
    eventually("it is kept when it is served", || {
        cluster.cached(&things()).is_some_and(|kind| kind.has_content())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unanswered_ping_degrades_frozen_server() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    tokio::time::sleep(secs(60)).await;
    world.hole("a");
    let frozen = Instant::now();
    let _hole = server.faults().black_hole(Connections::All, Direction::ToClient);
    until_condition(&cluster, Condition::Degraded).await;
    assert!(frozen.elapsed() <= secs(14), "{:?}", frozen.elapsed());
    assert!(cluster.state().reason.as_ref().unwrap().contains("PING"), "{}", cluster.state());
    until_condition(&cluster, Condition::Unreachable).await;
    assert!(frozen.elapsed() <= secs(35), "{:?}", frozen.elapsed());
}

#[tokio::test(start_paused = true)]
async fn quiet_healthy_server_stays_live() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    let mut states = cluster.states();
    states.mark_unchanged();
    for _ in 0..3600 {
        tokio::time::sleep(secs(1)).await;
        assert_eq!(cluster.state().condition, Condition::Live, "{}", cluster.state());
    }
}

#[tokio::test(start_paused = true)]
async fn failing_watch_is_reported_for_its_resource() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let pods = resource("pods", "Pod");
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    cluster.kind(&pods, secs(5)).await.unwrap();
    until_condition(&cluster, Condition::Live).await;
    let fails = server.faults().inject(Fault::status(500, 0)).on(Match::watch().resource("pods"));
    server.close_watches();
    until_condition(&cluster, Condition::Degraded).await;
    assert_eq!(cluster.state().kind, Some(pods), "{}", cluster.state());
    fails.heal();
    until_condition(&cluster, Condition::Live).await;
    assert_eq!(cluster.state().kind, None);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_not_accepted_are_a_reason() {
    let world = World::default();
    let server = world.server("a");
    server.auth().add_token("another", User::new("another"));
    let mut config = kube::Config::new("http://a".parse().unwrap());
    config.auth_info.token = Some("wrong".to_owned().into());
    let fleet = world.fleet_with(ClusterOptions { prefetch_documents: true, ..options() });
    let cluster = fleet.join(ClusterId::new("a").unwrap(), ClusterSpec::from_config(config)).unwrap();
    until_condition(&cluster, Condition::Degraded).await;
    assert!(cluster.state().reason.as_ref().unwrap().contains("401"), "{}", cluster.state());
    server.auth().add_token("wrong", User::new("right"));
    until_condition(&cluster, Condition::Live).await;
}

/// Checks a failing plugin, which is a process, so this takes real time.
#[tokio::test]
async fn a_credential_plugin_that_fails_is_a_reason() {
    let world = World::default();
    world.server("a");
    let mut config = kube::Config::new("http://a".parse().unwrap());
    config.auth_info.exec = serde_json::from_value(json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", "echo please log in >&2; exit 3"],
    }))
    .unwrap();
    let fleet = world.fleet_with(ClusterOptions { prefetch_documents: true, ..options() });
    let cluster = fleet.join(ClusterId::new("a").unwrap(), ClusterSpec::from_config(config)).unwrap();
    until_condition(&cluster, Condition::Unreachable).await;
    assert!(cluster.state().reason.as_ref().unwrap().contains("please log in"), "{}", cluster.state());
}
