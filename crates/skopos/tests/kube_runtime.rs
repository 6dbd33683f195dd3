//! A kube-runtime controller on an informer.
#![cfg(feature = "kube-runtime")]
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{Action, Config, applier, trigger_self};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use skopos::InformerOptions;
use support::*;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn the_stream_is_that_of_a_watcher() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let mut events = Box::pin(maps.kube_watcher().unwrap());
    let mut next = async || match timeout(secs(60), events.next()).await.expect("an event").unwrap().unwrap()
    {
        watcher::Event::Init => "init".to_owned(),
        watcher::Event::InitApply(map) => format!("init {}", map.metadata.name.unwrap()),
        watcher::Event::InitDone => "done".to_owned(),
        watcher::Event::Apply(map) => format!("apply {}", map.metadata.name.unwrap()),
        watcher::Event::Delete(map) => format!("delete {}", map.metadata.name.unwrap()),
    };
    assert_eq!([next().await, next().await, next().await], ["init", "init one", "done"]);
    world.create("a", "two", "1");
    assert_eq!(next().await, "apply two");
    // A deletion in a gap, of which kube-runtime's own watcher would say nothing.
    world.server.pause().await;
    world.delete("a", "one");
    world.server.compact();
    world.server.resume().await.unwrap();
    assert_eq!(next().await, "delete one");
    world.factory.shutdown(secs(1)).await;
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_what_an_informer_sees() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, maps.kube_watcher().unwrap()).applied_objects();
    let (seen, mut reconciled) = mpsc::channel(16);
    let reconcile = |map: Arc<ConfigMap>, seen: Arc<mpsc::Sender<String>>| {
        Box::pin(async move {
            let _ = seen.send(map.metadata.name.clone().unwrap()).await;
            Ok::<_, std::convert::Infallible>(Action::await_change())
        })
    };
    let policy = |_, _: &std::convert::Infallible, _| Action::await_change();
    let controller =
        applier(reconcile, policy, Arc::new(seen), reader, trigger_self(stream, ()), Config::default());
    let run = controller.for_each(|_| async {});
    let drive = async {
        assert_eq!(reconciled.recv().await.as_deref(), Some("one"));
        world.create("b", "two", "2");
        assert_eq!(reconciled.recv().await.as_deref(), Some("two"));
    };
    timeout(secs(60), async {
        tokio::select! { () = run => panic!("the controller ended"), () = drive => {} }
    })
    .await
    .expect("it reconciles");
}

#[tokio::test(start_paused = true)]
async fn a_kube_store_is_kept_in_step() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let store = maps.kube_store().unwrap();
    timeout(secs(10), store.wait_until_ready()).await.expect("ready").unwrap();
    assert_eq!(store.state().len(), 1);
    world.delete("a", "one");
    eventually("the deletion arrives", || store.state().is_empty()).await;
    drop((store, maps));
    eventually("only housekeeping is left", || world.factory.stats().tasks == 1).await;
}
