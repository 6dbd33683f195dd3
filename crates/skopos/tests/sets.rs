//! Informers of a set of namespaces: what troubles one namespace is not another's.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{Condition, FactoryOptions, Informer, InformerOptions};
use skopos_testserver::{ForbiddenGuard, Match, RequestRecord, TestServer};
use support::*;

const OF_A: &str = "/api/v1/namespaces/a/";
const OF_C: &str = "/api/v1/namespaces/c/";

/// An informer of two namespaces, of which the first may not be read any more.
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

fn is_probe(request: &RequestRecord, path: &str) -> bool {
    request.path.starts_with(path) && request.query_param("limit").as_deref() == Some("1")
}

#[tokio::test(start_paused = true)]
async fn while_one_namespace_is_forbidden_the_age_of_another_is_proven() {
    let (world, _maps, _forbidden) = half_forbidden(quiet()).await;
    world.server.clear_requests();
    tokio::time::sleep(secs(600)).await;
    let probes = |path| world.server.requests().iter().filter(|request| is_probe(request, path)).count();
    let (of_a, of_c) = (probes(OF_A), probes(OF_C));
    assert!(of_a <= 1 && (20..=26).contains(&of_c), "{of_a} of what is forbidden, {of_c} of what is not");
}
