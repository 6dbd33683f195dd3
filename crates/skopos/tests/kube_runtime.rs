//! A kube-runtime controller on an informer.
#![cfg(feature = "kube-runtime")]
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::borrow::Cow;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::controller::{Action, Config, applier, trigger_self};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde::Deserialize;
use skopos::InformerOptions;
use support::*;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn stream_matches_kube_watcher() {
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
    // A deletion in a gap, which kube-runtime's own watcher would not report.
    world.server.pause().await;
    world.delete("a", "one");
    world.server.compact();
    world.server.resume().await.unwrap();
    assert_eq!(next().await, "delete one");
    world.factory.shutdown(secs(1)).await;
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn controller_reconciles_informer_objects() {
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

/// A config map whose value must be one of the known words; there is only one.
#[derive(Clone, Deserialize)]
struct Told {
    metadata: ObjectMeta,
    #[serde(rename = "data")]
    _data: Data,
}

#[derive(Clone, Deserialize)]
struct Data {
    #[serde(rename = "value")]
    _value: Word,
}

#[derive(Clone, Deserialize)]
enum Word {
    #[serde(rename = "known")]
    Known,
}

impl kube::Resource for Told {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_state_replaces_previous_one() {
    let world = world().await;
    world.create("a", "one", "known");
    let told = world.factory.informer::<Told>(InformerOptions::all()).unwrap();
    let mut events = Box::pin(told.kube_watcher().unwrap());
    let mut next = async || match timeout(secs(60), events.next()).await.expect("an event").unwrap() {
        Ok(watcher::Event::Init) => "init".to_owned(),
        Ok(watcher::Event::InitApply(map)) => format!("init {}", map.metadata.name.unwrap()),
        Ok(watcher::Event::InitDone) => "done".to_owned(),
        Ok(watcher::Event::Apply(map)) => format!("apply {}", map.metadata.name.unwrap()),
        Ok(watcher::Event::Delete(map)) => format!("delete {}", map.metadata.name.unwrap()),
        Err(_) => "error".to_owned(),
    };
    assert_eq!([next().await, next().await, next().await], ["init", "init one", "done"]);
    world.put("a", "one", "strange");
    assert_eq!([next().await, next().await], ["delete one", "error"]);
    world.put("a", "one", "known");
    assert_eq!(next().await, "apply one");
    // Its final version does not fit, like the last one.
    world.put("a", "one", "strange");
    world.delete("a", "one");
    assert_eq!([next().await, next().await], ["delete one", "error"]);
    // An object that was never passed on is not retracted.
    world.create("a", "two", "strange");
    assert_eq!(next().await, "error");
    world.delete("a", "two");
    world.create("a", "three", "known");
    assert_eq!(next().await, "apply three");
}

#[tokio::test(start_paused = true)]
async fn a_kube_store_keeps_no_state_that_has_passed() {
    let world = world().await;
    world.create("a", "one", "known");
    world.create("a", "two", "known");
    let told = world.factory.informer::<Told>(InformerOptions::all()).unwrap();
    let store = told.kube_store().unwrap();
    timeout(secs(10), store.wait_until_ready()).await.expect("ready").unwrap();
    assert_eq!(store.state().len(), 2);
    world.put("a", "one", "strange");
    eventually("the state before is gone", || store.state().len() == 1).await;
    world.put("a", "one", "known");
    eventually("it fits again", || store.state().len() == 2).await;
    world.put("a", "one", "strange");
    world.delete("a", "one");
    world.delete("a", "two");
    eventually("both deletions arrive", || store.state().is_empty()).await;
}
