//! Compressed objects: informers read and tell the same as without compression, in less memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::io::Cursor;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::json;
use skopos::checkpoint::{Checkpoint, CheckpointLimits};
use skopos::{Encoding, FactoryOptions, Informer, InformerFactory, InformerOptions, ResourceVersion};
use skopos_testserver::TestServer;
use support::*;

/// Waits until the informer has everything of the server.
async fn catches_up<K: Clone + Send + Sync + 'static>(informer: &Informer<K>, server: &TestServer) {
    let newest: ResourceVersion = server.resource_version().to_string().parse().unwrap();
    eventually("it has everything", || *informer.snapshot().resource_version() == newest).await;
}

#[tokio::test(start_paused = true)]
async fn compressed_informer_equals_plain_one() {
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        let world = world_with(TestServer::builder(), FactoryOptions { encoding, ..quiet() }).await;
        world.server.load_pods(1_000);
        let plain_factory =
            InformerFactory::new(transport_to(&world.server), FactoryOptions { encoding, ..quiet() });
        let options = InformerOptions::all().compact_above(100_000);
        let ours = world.factory.informer::<Pod>(options).unwrap();
        let theirs = plain_factory.informer::<Pod>(InformerOptions::all()).unwrap();
        ours.wait_synced(PLENTY).await.unwrap();
        theirs.wait_synced(PLENTY).await.unwrap();
        for (at, mut pod) in world.server.list("pods", None).unwrap().0.into_iter().enumerate().take(60) {
            let meta = &pod["metadata"];
            match at % 3 {
                0 => {
                    let (namespace, name) = (meta["namespace"].as_str(), meta["name"].as_str().unwrap());
                    world.server.delete("pods", namespace, name).unwrap();
                }
                _ => {
                    pod["metadata"]["labels"]["changed"] = json!("yes");
                    world.server.update(pod).unwrap();
                }
            }
        }
        catches_up(&ours, &world.server).await;
        catches_up(&theirs, &world.server).await;
        let (ours, theirs) = (ours.snapshot(), theirs.snapshot());
        assert_eq!((ours.digest(), ours.json_bytes()), (theirs.digest(), theirs.json_bytes()));
        assert!(ours.held_bytes() * 2 < ours.json_bytes(), "{} of {}", ours.held_bytes(), ours.json_bytes());
        assert_eq!(theirs.held_bytes(), theirs.json_bytes());
        for (own, other) in ours.iter().zip(theirs.iter()) {
            assert_eq!((own.raw().json(), own.raw().uid()), (other.raw().json(), other.raw().uid()));
            assert_eq!(own.decode().unwrap(), other.decode().unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn restored_content_is_compressed_too() {
    let world = world_with(TestServer::builder(), quiet()).await;
    world.server.load_pods(1_000);
    let informer = world.factory.informer::<Pod>(InformerOptions::all()).unwrap();
    informer.wait_synced(PLENTY).await.unwrap();
    let mut bytes = Vec::new();
    informer.checkpoint().unwrap().write_to(&mut bytes).unwrap();
    let checkpoint = Checkpoint::read_from(Cursor::new(bytes), &CheckpointLimits::default()).unwrap();
    let again = InformerFactory::new(transport_to(&world.server), quiet());
    let options = InformerOptions::all().restored(checkpoint).compact_above(100_000);
    let restored = again.informer::<Pod>(options).unwrap();
    let (own, before) = (restored.snapshot(), informer.snapshot());
    assert_eq!((own.digest(), own.json_bytes()), (before.digest(), before.json_bytes()));
    assert!(own.held_bytes() * 2 < own.json_bytes(), "{} of {}", own.held_bytes(), own.json_bytes());
    // Its own checkpoint is as the first was, and has nothing that only this process could read.
    restored.wait_synced(PLENTY).await.unwrap();
    let mut bytes = Vec::new();
    restored.checkpoint().unwrap().write_to(&mut bytes).unwrap();
    let checkpoint = Checkpoint::read_from(Cursor::new(bytes), &CheckpointLimits::default()).unwrap();
    assert_eq!(checkpoint.json_bytes(), before.json_bytes());
}

#[tokio::test(start_paused = true)]
async fn secrets_are_never_compressed() {
    let world = world_with(TestServer::builder(), quiet()).await;
    for kind in ["Secret", "ConfigMap"] {
        for number in 0..400 {
            let object = json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": format!("o{number}"), "namespace": "default", "labels": {"n": number.to_string()}},
                "data": {"user": "YWRtaW4=", "password": format!("c2VjcmV0LW51bWJlci{}=", number % 10)}});
            world.server.create(object).unwrap();
        }
    }
    let compact = || InformerOptions::all().compact_above(0);
    let secrets = world.factory.informer::<Secret>(compact()).unwrap();
    let maps = world.factory.informer::<ConfigMap>(compact()).unwrap();
    secrets.wait_synced(PLENTY).await.unwrap();
    maps.wait_synced(PLENTY).await.unwrap();
    assert!(secrets.snapshot().iter().all(|secret| !secret.raw().is_compact()));
    assert!(maps.snapshot().iter().any(|map| map.raw().is_compact()));
}

#[tokio::test(start_paused = true)]
async fn dictionary_of_one_cluster_serves_no_other() {
    let new = || world_with(TestServer::builder(), quiet());
    let [many, few] = [new().await, new().await];
    many.server.load_pods(1_000);
    // Fewer than a dictionary is trained on.
    few.server.load_pods(60);
    let held = async |world: &World| {
        let informer = world.factory.informer::<Pod>(InformerOptions::all().compact_above(0)).unwrap();
        informer.wait_synced(PLENTY).await.unwrap();
        let pods = informer.snapshot();
        pods.iter().filter(|pod| pod.raw().is_compact()).count()
    };
    assert!(held(&many).await > 800);
    assert_eq!(held(&few).await, 0);
}
