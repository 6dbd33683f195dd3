//! Informers over protobuf: the same content as over JSON, from servers that have protobuf and from those that do not.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use skopos::{Encoding, FactoryOptions, InformerFactory, InformerOptions};
use skopos_testserver::{Fault, Match, TestServer};
use skopos_wire::RawObject;
use support::*;

/// Returns the values of `Accept` of this resource's lists and watches that were not probes.
fn accepted(world: &World, verb: &str, resource: &str) -> Vec<String> {
    let of = |record: &&skopos_testserver::RequestRecord| {
        record.verb == verb
            && record.resource.as_deref() == Some(resource)
            && record.query_param("limit").as_deref() != Some("1")
    };
    world.server.requests().iter().filter(of).filter_map(|record| record.accept.clone()).collect()
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json;q=0.9";

#[tokio::test(start_paused = true)]
async fn informer_in_protobuf_equals_one_in_json() {
    let world = world_with(TestServer::builder(), quiet()).await;
    world.server.load_pods(300);
    let json_options = FactoryOptions { encoding: Encoding::Json, ..quiet() };
    let json_factory = InformerFactory::new(transport_to(&world.server), json_options);
    let ours = world.factory.informer::<Pod>(InformerOptions::all()).unwrap();
    let theirs = json_factory.informer::<Pod>(InformerOptions::all()).unwrap();
    ours.wait_synced(PLENTY).await.unwrap();
    theirs.wait_synced(PLENTY).await.unwrap();
    assert!(
        accepted(&world, "watch", "pods").contains(&PROTOBUF.to_owned()),
        "{:?}",
        accepted(&world, "watch", "pods")
    );
    for round in 0..5 {
        let (pods, _) = world.server.list("pods", None).unwrap();
        for (at, mut pod) in pods.into_iter().enumerate().skip(round * 20).take(20) {
            match at % 3 {
                0 => {
                    let meta = &pod["metadata"];
                    let (namespace, name) = (meta["namespace"].as_str(), meta["name"].as_str().unwrap());
                    world.server.delete("pods", namespace, name).unwrap();
                }
                _ => {
                    pod["metadata"]["labels"]["round"] = json!(round.to_string());
                    world.server.update(pod).unwrap();
                }
            }
        }
    }
    let newest = world.server.resource_version();
    let reached = |revision: &skopos::ResourceVersion| revision.as_u64() == Some(newest);
    eventually("both have everything", || {
        reached(ours.snapshot().resource_version()) && reached(theirs.snapshot().resource_version())
    })
    .await;
    let (ours, theirs) = (ours.snapshot(), theirs.snapshot());
    assert_eq!(ours.len(), theirs.len());
    for (own, other) in ours.iter().zip(theirs.iter()) {
        assert!(own.raw().is_protobuf() && !other.raw().is_protobuf());
        assert_eq!(own.raw().key(), other.raw().key());
        let (_, theirs) = other.raw().to_message(Some(("v1", "Pod"))).unwrap();
        assert_eq!(own.raw().content(), &theirs, "{}", own.raw().key());
        assert_eq!(
            own.decode().unwrap().spec.unwrap().node_name,
            other.decode().unwrap().spec.unwrap().node_name
        );
        assert_eq!(own.raw().labels().collect::<Vec<_>>(), other.raw().labels().collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn server_without_protobuf_costs_one_request() {
    let world = world_with(TestServer::builder().watch_list(false), quiet()).await;
    world.create("a", "one", "1");
    let refusal = skopos::Status::not_acceptable(&["application/json"]);
    let _fault = world
        .server
        .faults()
        .inject(Fault::Status(refusal))
        .on(Match::list().resource("configmaps"))
        .times(1);
    let informer = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    informer.wait_synced(PLENTY).await.unwrap();
    world.create("a", "two", "2");
    eventually("the change is there", || informer.snapshot().len() == 2).await;
    assert!(informer.snapshot().iter().all(|object| !object.raw().is_protobuf()));
    let lists = accepted(&world, "list", "configmaps");
    assert_eq!(lists, [PROTOBUF, "application/json;q=0.9"], "asked again at once, and never again");
    // The first attempt at a streamed list was before.
    let watches = accepted(&world, "watch", "configmaps");
    assert_eq!(watches.last().map(String::as_str), Some("application/json"));
    // Another informer of the resource knows it already.
    world.server.clear_requests();
    let other = world.factory.informer::<ConfigMap>(InformerOptions::namespace("b")).unwrap();
    other.wait_synced(PLENTY).await.unwrap();
    let asked = [accepted(&world, "list", "configmaps"), accepted(&world, "watch", "configmaps")].concat();
    assert!(!asked.is_empty() && asked.iter().all(|accept| accept == "application/json"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn garbage_in_stream_of_protobuf_loses_nothing() {
    let world = world().await;
    world.create("a", "one", "1");
    let informer = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    informer.wait_synced(PLENTY).await.unwrap();
    for (round, fault) in [Fault::GarbageFrame, Fault::HalfFrame, Fault::DropEvents, Fault::RepeatEvents]
        .into_iter()
        .enumerate()
    {
        let guard = world.server.faults().inject(fault.clone()).on(Match::watch()).times(1);
        world.create("b", &format!("x{round}"), "x");
        world.put("a", "one", &round.to_string());
        drop(guard);
        world.create("c", &format!("y{round}"), "y");
        let expected = content(&world.server);
        eventually(&format!("{fault:?} is healed"), || in_memory(&informer) == expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn custom_resources_and_metadata_choose_their_encoding() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let world = world_with(TestServer::builder().crd(definition), quiet()).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "a"}});
    world.server.create(widget).unwrap();
    let resource = kube::core::ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let widgets = world.factory.dynamic(&resource, InformerOptions::all()).unwrap();
    widgets.wait_synced(PLENTY).await.unwrap();
    assert!(widgets.snapshot().iter().all(|object| !object.raw().is_protobuf()));
    assert!(accepted(&world, "watch", "widgets").iter().all(|accept| accept == "application/json"));
    world.create("a", "one", "1");
    let metadata = world.factory.metadata::<ConfigMap>(InformerOptions::all()).unwrap();
    metadata.wait_synced(PLENTY).await.unwrap();
    let snapshot = metadata.snapshot();
    let one = snapshot.iter().find(|object| object.raw().name() == "one").unwrap();
    assert!(one.raw().is_protobuf() && one.raw().label("value") == Some("1"));
    let json: Value = one.raw().to_value();
    assert!(json["data"].is_null() && json["metadata"]["name"] == "one", "{json}");
}

fn content(server: &TestServer) -> BTreeMap<String, String> {
    let (objects, _) = server.list("configmaps", None).unwrap();
    let entry = |object: &Value| {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])), text(&meta["resourceVersion"]))
    };
    objects.iter().map(entry).collect()
}

fn in_memory(informer: &skopos::Informer<ConfigMap>) -> BTreeMap<String, String> {
    let entry = |raw: &RawObject| (raw.key().to_string(), raw.resource_version().to_string());
    informer.snapshot().iter().map(|object| entry(object.raw())).collect()
}
