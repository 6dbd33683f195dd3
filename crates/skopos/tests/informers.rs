//! Informers from start to shutdown, in virtual time.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use skopos::workqueue::{WorkQueue, WorkQueueOptions};
use skopos::{
    BuildError, Event, FactoryOptions, Freshness, HandlerOptions, Indexer, Informer, InformerOptions,
    ObjectKey, ReadError, ReadOneError, SleepClock, Source, StaleReason, Transform, sync_handler,
};
use skopos_testserver::{Connections, Direction, Fault, Match, TestServer};
use support::*;
use tokio::time::Instant;

fn names(informer: &Informer<ConfigMap>) -> Vec<String> {
    informer.snapshot().iter().map(|object| object.key().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn first_light() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    assert!(matches!(maps.freshness(), Freshness::NeverSynced { .. }));
    maps.wait_synced(secs(5)).await.unwrap();
    assert_eq!(names(&maps), ["a/one"]);
    assert!(maps.freshness().is_live(), "{}", maps.freshness());

    let mut events = Box::pin(maps.events().unwrap());
    assert!(matches!(events.next().await.unwrap(), Event::Added { initial: true, .. }));
    let revision = world.create("b", "two", "2");
    let snapshot = maps.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert_eq!(snapshot.len(), 2);
    assert!(matches!(events.next().await.unwrap(), Event::Added { initial: false, .. }));
    let two = maps.store().get(&ObjectKey::namespaced("b", "two")).unwrap();
    assert_eq!(two.typed().unwrap().data.as_ref().unwrap()["value"], "2");
    world.put("b", "two", "3");
    match events.next().await.unwrap() {
        Event::Updated { old, new, .. } => {
            assert_eq!((old.label("value"), new.label("value")), (Some("2"), Some("3")))
        }
        other => panic!("{other:?}"),
    }
    world.delete("a", "one");
    assert!(matches!(events.next().await.unwrap(), Event::Deleted { final_state_known: true, .. }));
    assert_eq!(names(&maps), ["b/two"]);

    let report = world.factory.shutdown(secs(1)).await;
    assert!(report.complete, "{report:?}");
    assert!(events.next().await.is_none());
    assert!(matches!(maps.freshness(), Freshness::Stopped { .. }));
    assert_eq!(names(&maps), ["b/two"], "the content stays readable");
}

#[tokio::test(start_paused = true)]
async fn equal_informers_share_until_last_handle_drops() {
    let world = world().await;
    let first = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let indexed = InformerOptions::all()
        .index("value", |map: &ConfigMap| map.metadata.labels.as_ref()?.get("value").cloned());
    let second = world.factory.informer::<ConfigMap>(indexed).unwrap();
    first.wait_synced(secs(5)).await.unwrap();
    second.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    assert_eq!(world.factory.stats().informers, 1);
    let revision = world.create("a", "one", "x");
    let snapshot = second.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert_eq!(
        snapshot.by_index("value", "x").unwrap().count(),
        1,
        "an index can be added to a store that runs"
    );

    let other =
        world.factory.informer::<ConfigMap>(InformerOptions::all().labels("value=x").unwrap()).unwrap();
    other.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 2).await.unwrap();
    drop(other);
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();

    let handler = second.add_handler(sync_handler(|_| {}), HandlerOptions::default()).unwrap();
    let store = second.store();
    drop((first, second));
    let revision = world.create("a", "two", "y");
    eventually("a handler keeps its informer running", || {
        *store.snapshot().resource_version() >= revision.into()
    })
    .await;
    handler.remove(PLENTY).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 0).await.unwrap();
    assert!(matches!(store.freshness(), Freshness::Stopped { .. }));
    eventually("only housekeeping is left", || world.factory.stats().tasks == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_of_namespaces_syncs_each_on_its_own() {
    let world = world().await;
    world.create("a", "one", "1");
    world.create("b", "two", "2");
    world.create("c", "three", "3");
    let fault = world.server.faults().inject(Fault::status(403, 0)).on(Match::any().namespace("b"));
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::namespaces(["b", "a"])).unwrap();
    let mut events = Box::pin(maps.events().unwrap());
    let error = maps.wait_synced(secs(10)).await.unwrap_err();
    assert_eq!(error.who.len(), 1);
    assert_eq!(error.who[0].namespace.as_deref(), Some("b"));
    assert!(error.to_string().contains("configmaps in namespace b"), "{error}");
    assert!(!error.to_string().contains('\n'));
    assert_eq!(names(&maps), ["a/one"], "what is there can be read");
    assert!(matches!(events.next().await.unwrap(), Event::Added { initial: true, .. }));
    let late = maps.add_handler(sync_handler(|_| {}), HandlerOptions::default()).unwrap();

    fault.heal();
    maps.wait_synced(secs(60)).await.unwrap();
    assert_eq!(names(&maps), ["a/one", "b/two"]);
    let two = events.next().await.unwrap();
    assert_eq!(two.key().to_string(), "b/two");
    late.wait_synced(PLENTY).await.unwrap();
    eventually("the late handler has both", || late.stats().handled == 2).await;
    let revision = world.put("a", "one", "9");
    let snapshot = maps.wait_for(&revision.into(), PLENTY * 3).await.unwrap();
    assert!(*snapshot.resource_version_in("a") >= revision.into());
    assert!(maps.freshness().is_live(), "{}", maps.freshness());
    assert_eq!(maps.states().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn metadata_dynamic_raw_and_transformed() {
    let world = world().await;
    world.create("a", "one", "1");
    let meta = world.factory.metadata::<ConfigMap>(InformerOptions::all()).unwrap();
    let resource = kube::core::ApiResource::erase::<ConfigMap>(&());
    let dynamic = world.factory.dynamic(&resource, InformerOptions::all()).unwrap();
    let raw =
        world.factory.raw(&resource, InformerOptions::all().transform(Transform::DropManagedFields)).unwrap();
    world.factory.wait_synced(secs(30)).await.unwrap();
    assert_eq!(world.factory.stats().informers, 3);
    let key = ObjectKey::namespaced("a", "one");
    let object = meta.store().get(&key).unwrap();
    assert!(object.raw().to_value()["data"].is_null());
    assert_eq!(object.typed().unwrap().metadata.name.as_deref(), Some("one"));
    assert_eq!(dynamic.store().get(&key).unwrap().typed().unwrap().data["data"]["value"], "1");
    assert!(raw.store().get(&key).unwrap().raw().to_value()["metadata"]["managedFields"].is_null());
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_are_refused() {
    let world = world().await;
    let refused = |options| world.factory.informer::<ConfigMap>(options).unwrap_err();
    assert!(matches!(refused(InformerOptions::namespaces(Vec::<String>::new())), BuildError::NoNamespaces));
    assert!(matches!(refused(InformerOptions::namespace("a/../b")), BuildError::InvalidNamespace { .. }));
    let nodes = world.factory.informer::<Node>(InformerOptions::namespace("a")).unwrap_err();
    assert!(matches!(nodes, BuildError::ClusterScoped { .. }), "{nodes}");
    let by_node =
        || InformerOptions::all().index("by_node", |pod: &Pod| pod.spec.as_ref()?.node_name.clone());
    let index = refused(by_node());
    assert_eq!(
        index.to_string(),
        "the index \"by_node\" reads whole pods, and the informer has configmaps: use Indexer::new for any object"
    );
    let metadata = world.factory.metadata::<Pod>(by_node()).unwrap_err();
    assert!(metadata.to_string().contains("only the metadata of pods"), "{metadata}");
    assert!(InformerOptions::all().labels("a==b==c").is_err());
    world.factory.shutdown(secs(1)).await;
    assert!(matches!(refused(InformerOptions::all()), BuildError::Closed(_)));
}

#[tokio::test(start_paused = true)]
async fn full_queue_loses_no_key_of_its_informer() {
    let world = world().await;
    let names: BTreeSet<_> = (0..5).map(|number| format!("map-{number}")).collect();
    for name in &names {
        world.create("a", name, "1");
    }
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let queue = WorkQueue::new(WorkQueueOptions::named("maps").capacity(1));
    let handler = queue.fed_by(&maps, |event| [event.key().name().to_owned()]).unwrap();
    assert_eq!(handler.name(), "maps");
    // No worker takes a key for several of the intervals after which the wait is logged.
    tokio::time::sleep(secs(200)).await;
    let mut seen = BTreeSet::new();
    while seen != names {
        let item = tokio::time::timeout(PLENTY, queue.get()).await.expect("a key").unwrap();
        seen.insert(String::clone(&item));
        item.done();
    }
    world.put("a", "map-0", "2");
    world.put("a", "map-1", "2");
    tokio::time::sleep(secs(1)).await;
    queue.shut_down();
    handler.remove(secs(1)).await.expect("no wait outlives its queue");
}

#[tokio::test(start_paused = true)]
async fn an_age_is_proven_by_probes() {
    let world = world().await;
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    for _ in 0..30 {
        tokio::time::sleep(secs(10)).await;
        let freshness = maps.freshness();
        assert!(freshness.is_within(secs(36)), "{freshness}");
    }
    assert_eq!(
        world.requests("watch", "configmaps"),
        world.factory.stats().informers,
        "one watch all the time"
    );
}

#[tokio::test(start_paused = true)]
async fn many_that_are_forbidden_do_not_make_another_stale() {
    let world = world().await;
    let forbidden = Match::any().path_prefix("/api/v1/namespaces/forbidden-");
    let _forbidden = world.server.auth().forbid(forbidden);
    let of = |namespace: String| -> Informer<ConfigMap> {
        world.factory.informer(InformerOptions::namespace(namespace)).unwrap()
    };
    let mut all: Vec<_> = (0..200).map(|n| of(format!("forbidden-{n}"))).collect();
    let maps = of("read".to_owned());
    maps.wait_synced(secs(5)).await.unwrap();
    for _ in 0..300 {
        tokio::time::sleep(secs(1)).await;
        assert!(maps.freshness().is_live(), "{}", maps.freshness());
        all.pop();
    }
}

#[tokio::test(start_paused = true)]
async fn single_name_permission_still_proves_age() {
    let world = world().await;
    let early = world.create("a", "one", "1");
    world.put("a", "one", "2");
    let nameless = Match::list().resource("configmaps").query("fieldSelector", "");
    let fault = world.server.faults().inject(Fault::status(403, 0)).on(nameless);
    let one = InformerOptions::namespace("a").fields("metadata.name=one").unwrap();
    let maps: Informer<ConfigMap> = world.factory.informer(one).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    for _ in 0..30 {
        tokio::time::sleep(secs(10)).await;
        assert!(maps.freshness().is_live(), "{}", maps.freshness());
    }
    // History that went back is noticed, too.
    world.server.roll_back(early).unwrap();
    eventually_within(secs(40), "the rollback is found", || maps.snapshot().epoch() > 0).await;
    assert_eq!(fault.hits(), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_meet_requested_freshness_or_fail() {
    let world = world().await;
    world.create("a", "one", "1");
    let options = InformerOptions::all().indexer(Indexer::by_label("value"));
    let maps = world.factory.informer::<ConfigMap>(options).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let read = maps.read(secs(30), secs(1)).await.unwrap();
    assert_eq!(read.source, Source::Cache);
    let probes = world.factory.stats().probes;

    // Fresher than the cache: one probe, for all concurrent callers.
    tokio::time::sleep(secs(2)).await;
    let reads = futures::future::join_all((0..20).map(|_| maps.read(secs(0), secs(3)))).await;
    // A cache cannot provide an age of zero: the answer takes some time to arrive.
    assert!(reads.iter().all(|read| read.is_err() || read.as_ref().unwrap().snapshot.len() == 1));
    tokio::time::sleep(secs(2)).await;
    let reads = futures::future::join_all((0..20).map(|_| maps.read(secs(1), secs(3)))).await;
    assert!(reads.iter().all(|read| read.as_ref().unwrap().source == Source::Cache));
    assert!(world.factory.stats().probes <= probes + 3, "{}", world.factory.stats().probes);

    // The stream is stalled: the cache cannot catch up, so the read goes to the server.
    let stall = world.server.faults().inject(Fault::Stall).on(Match::watch());
    world.put("a", "one", "2");
    tokio::time::sleep(secs(2)).await;
    let read = maps.read(secs(1), secs(3)).await.unwrap();
    assert_eq!(read.source, Source::Live);
    assert_eq!(read.snapshot.iter().next().unwrap().label("value"), Some("2"));
    assert_eq!(read.snapshot.by_index("label:value", "2").unwrap().count(), 1, "indexes are there, too");
    assert!(read.freshness().is_within(secs(1)));
    let one = maps.read_one(&ObjectKey::namespaced("a", "one"), secs(1), secs(3)).await.unwrap();
    assert_eq!((one.source, one.object.unwrap().label("value")), (Source::Live, Some("2")));
    stall.heal();

    // The server does not answer: an error in time, with the reason.
    let dead = world.server.faults().inject(Fault::WithholdHeaders).everywhere();
    until_nothing_is_of_this_moment().await;
    let begun = Instant::now();
    let error = maps.read(secs(0), secs(2)).await.unwrap_err();
    assert!(begun.elapsed() <= secs(2) + std::time::Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(error.to_string().contains("tried for 2.0s"), "{error}");
    dead.heal();
}

#[tokio::test(start_paused = true)]
async fn consistent_reads_include_earlier_commits() {
    let world = world().await;
    world.create("a", "one", "0");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let value_now = async || {
        let read = maps.read_since(Instant::now(), secs(3)).await.unwrap();
        let value = read.snapshot.iter().next().unwrap().label("value").unwrap().to_owned();
        (value, read.source)
    };
    // The clock does not advance between a write and the read after it, so that the two have the same time.
    for round in 1..20 {
        world.put("a", "one", &round.to_string());
        assert_eq!(value_now().await, (round.to_string(), Source::Cache));
    }
    // One probe is enough for all waiting callers.
    let probes = world.factory.stats().probes;
    let reads = futures::future::join_all((0..50).map(|_| maps.read_since(Instant::now(), secs(3)))).await;
    assert!(reads.iter().all(|read| read.as_ref().unwrap().source == Source::Cache));
    assert!(world.factory.stats().probes <= probes + 2);
    // Content that is proven already costs nothing.
    let (since, probes) = (Instant::now(), world.factory.stats().probes);
    tokio::time::sleep(secs(40)).await;
    let scheduled = world.factory.stats().probes;
    assert!(scheduled > probes);
    assert_eq!(maps.read_since(since, secs(3)).await.unwrap().source, Source::Cache);
    assert_eq!(world.factory.stats().probes, scheduled);

    // A stream that is late, held back, or cut.
    for fault in [Fault::Stall, Fault::HoldUntilEnd, Fault::DropEvents] {
        let fault = world.server.faults().inject(fault).on(Match::watch());
        world.put("a", "one", "late");
        assert_eq!(value_now().await, ("late".to_owned(), Source::Live));
        world.put("a", "one", "later");
        assert_eq!(value_now().await, ("later".to_owned(), Source::Live));
        fault.heal();
        maps.relist("the next fault begins with a stream that is well");
        tokio::time::sleep(secs(60)).await;
    }
    let dead = world.server.faults().inject(Fault::WithholdHeaders).everywhere();
    let begun = Instant::now();
    let error = maps.read_since(begun, secs(2)).await.unwrap_err();
    assert!(matches!(error, ReadError::TooOld { .. }), "{error}");
    assert!(begun.elapsed() <= secs(2) + std::time::Duration::from_millis(50), "{:?}", begun.elapsed());
    dead.heal();
}

/// Simulates a kube-apiserver with Events, for which it has no watch cache.
#[tokio::test(start_paused = true)]
async fn quiet_resource_without_bookmarks_stays_live() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let _none =
        world.server.faults().inject(Fault::WithholdBookmarks).on(Match::watch().resource("configmaps"));
    world.server.clear_requests();
    for second in 0..3600 {
        tokio::time::sleep(secs(1)).await;
        world.server.create(namespace_object(&format!("busy-{second}"))).unwrap();
        let freshness = maps.freshness();
        assert!(freshness.is_live(), "after {second} s: {freshness}");
        if second % 600 == 599 {
            // Changes arrive as usual, also those of an object that is created and deleted at once.
            world.put("a", "one", &second.to_string());
        }
    }
    let requests = world.server.requests();
    let lists =
        requests.iter().filter(|r| r.verb == "list" && r.query_param("limit").as_deref() != Some("1"));
    let lists = lists.filter(|r| r.resource.as_deref() == Some("configmaps")).count();
    assert!((30..=70).contains(&lists), "about one a minute: {lists}");
    assert_eq!(maps.stats().relists, 0);
    let value = || maps.snapshot().iter().next().unwrap().label("value").map(str::to_owned);
    eventually("the last change is told", || value().as_deref() == Some("3599")).await;

    // A stalled stream is detected all the same.
    let stall = world.server.faults().inject(Fault::Stall).on(Match::watch().resource("configmaps"));
    world.put("a", "one", "stalled");
    let begun = Instant::now();
    eventually_within(secs(120), "it is found", || {
        !maps.freshness().is_live() || value().as_deref() == Some("stalled")
    })
    .await;
    stall.heal();
    eventually_within(secs(120), "it is healed", || {
        maps.freshness().is_live() && value().as_deref() == Some("stalled")
    })
    .await;
    assert!(begun.elapsed() < secs(240));
}

/// Checks that reads do not wait for the watch: it does not report changes elsewhere, which move the revision that a probe
/// sees.
#[tokio::test(start_paused = true)]
async fn consistent_reads_do_not_wait_for_bookmark() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    for busy in 0..5 {
        world.server.create(namespace_object(&format!("busy-{busy}"))).unwrap();
        let begun = Instant::now();
        let read = maps.read_since(begun, secs(3)).await.unwrap();
        assert_eq!((read.source, read.snapshot.len()), (Source::Live, 1));
        assert!(begun.elapsed() <= std::time::Duration::from_millis(60), "{:?}", begun.elapsed());
    }
}

/// Checks that the server applies the field selector: metadata have no spec, so only the server knows an object's fields.
#[tokio::test(start_paused = true)]
async fn live_metadata_read_applies_field_selector() {
    let world = world().await;
    for (name, node) in [("here", "n1"), ("there", "n2")] {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]},
        });
        world.server.create(pod).unwrap();
    }
    let options = InformerOptions::all().fields("spec.nodeName!=n1").unwrap();
    let pods = world.factory.metadata::<Pod>(options).unwrap();
    // Not synced yet: the read goes to the server.
    let (here, there) = (ObjectKey::namespaced("a", "here"), ObjectKey::namespaced("a", "there"));
    let read = |key| pods.read_one(key, secs(1), secs(3));
    let (here, there) = futures::future::try_join(read(&here), read(&there)).await.unwrap();
    assert_eq!((here.source, here.object.is_some()), (Source::Live, false));
    assert_eq!((there.source, there.object.is_some()), (Source::Live, true));
}

#[tokio::test(start_paused = true)]
async fn panicking_transform_leaves_watch_live() {
    let world = world().await;
    world.create("a", "odd", "1");
    let apply: skopos::TransformFn = std::sync::Arc::new(|json: &[u8]| {
        assert!(!json.windows(5).any(|text| text == b"\"odd\""), "an odd object");
        json.to_vec().into()
    });
    let odd = Transform::Custom { name: "even-only".to_owned(), apply };
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all().transform(odd)).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    world.put("a", "odd", "2");
    let last = world.create("a", "two", "2");
    maps.wait_for(&last.into(), secs(5)).await.unwrap();
    assert_eq!(names(&maps), ["a/odd", "a/two"]);
    assert!(maps.freshness().is_live(), "{}", maps.freshness());
}

#[tokio::test(start_paused = true)]
async fn no_patience_is_too_long() {
    let mut options = quiet();
    options.probe_interval = Duration::MAX;
    let machine = &mut options.machine;
    for span in [
        &mut machine.backoff_max,
        &mut machine.initial_events_timeout,
        &mut machine.probe_grace,
        &mut machine.stall_limit,
        &mut machine.list_timeout,
        &mut machine.watch_headers_timeout,
        &mut machine.quiet_limit,
        &mut machine.retry_after_max,
    ] {
        *span = Duration::MAX;
    }
    let world = world_with(TestServer::builder(), options).await;
    let fault = world.server.faults().inject(Fault::status(503, 0)).on(Match::list().query("limit", "500"));
    let streams = world.server.faults().inject(Fault::status(503, 0)).on(Match::watch());
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).unwrap();
    let error = maps.wait_synced(secs(1)).await.unwrap_err();
    assert!(error.to_string().contains("HTTP 503"), "{error}");
    fault.heal();
    streams.heal();
    maps.wait_synced(PLENTY).await.unwrap();
    assert!(world.factory.shutdown(secs(1)).await.complete);
}

#[tokio::test(start_paused = true)]
async fn factory_wait_ignores_dropped_informer() {
    let world = world().await;
    let fault = world.server.faults().inject(Fault::status(503, 0)).on(Match::any().resource("pods"));
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).unwrap();
    let pods: Informer<Pod> = world.factory.informer(InformerOptions::all()).unwrap();
    let mut wait = Box::pin(world.factory.wait_synced(secs(30)));
    assert!(tokio::time::timeout(secs(1), &mut wait).await.is_err(), "there are no pods yet");
    drop(pods);
    tokio::time::timeout(secs(1), wait).await.unwrap().unwrap();
    assert!(maps.has_synced());
    // A factory that is shut down is different.
    let pods: Informer<Pod> = world.factory.informer(InformerOptions::all()).unwrap();
    let mut wait = Box::pin(world.factory.wait_synced(secs(30)));
    assert!(tokio::time::timeout(secs(1), &mut wait).await.is_err());
    world.factory.shutdown(secs(1)).await;
    assert!(wait.await.unwrap_err().closed);
    drop((pods, fault));
}

#[tokio::test(start_paused = true)]
async fn an_audit_finds_a_lost_event_and_heals_it() {
    let world = world().await;
    world.create("a", "one", "1");
    world.create("a", "two", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    assert!(maps.audit(secs(5)).await.unwrap().is_clean());

    let lost = world.server.faults().inject(Fault::DropEvents).on(Match::watch());
    world.put("a", "one", "2");
    world.delete("a", "two");
    world.create("a", "three", "1");
    tokio::time::sleep(secs(1)).await;
    lost.heal();
    let revision = world.create("a", "four", "1");
    maps.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert_eq!(names(&maps), ["a/four", "a/one", "a/two"], "the loss went unnoticed");
    assert!(maps.freshness().is_live());

    let mut events = Box::pin(maps.events().unwrap());
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    let report = maps.audit(secs(5)).await.unwrap();
    assert_eq!(report.differences, 3, "{report}");
    let freshness = maps.freshness();
    assert!(
        matches!(freshness.reason(), Some(StaleReason::AuditMismatch { .. } | StaleReason::Reflector(_))),
        "{freshness}"
    );
    for _ in 0..3 {
        let event = events.next().await.unwrap();
        assert!(event.flags().gap, "{event:?}");
    }
    assert_eq!(names(&maps), ["a/four", "a/one", "a/three"]);
    eventually("live again", || maps.freshness().is_live()).await;
    assert!(maps.audit(secs(5)).await.unwrap().is_clean());
    assert_eq!(maps.stats().audits.mismatches, 1);
}

#[tokio::test(start_paused = true)]
async fn a_periodic_audit_heals_without_being_asked() {
    let options = FactoryOptions { audit_interval: Some(secs(600)), ..quiet() };
    let world = world_with(TestServer::builder(), options).await;
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    let lost = world.server.faults().inject(Fault::DropEvents).on(Match::watch());
    world.create("a", "lost", "1");
    tokio::time::sleep(secs(1)).await;
    lost.heal();
    let revision = world.create("a", "seen", "1");
    maps.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert_eq!(names(&maps), ["a/seen"]);
    tokio::time::sleep(secs(665)).await;
    assert_eq!(names(&maps), ["a/lost", "a/seen"]);
    assert!(maps.freshness().is_live());
}

#[tokio::test(start_paused = true)]
async fn audits_do_not_pile_up_during_outage() {
    let options = FactoryOptions { audit_interval: Some(secs(60)), ..quiet() };
    let world = world_with(TestServer::builder(), options).await;
    let informers: Vec<Informer<ConfigMap>> = (0..60)
        .map(|n| {
            let options = InformerOptions::all().labels(&format!("value!={n}")).unwrap();
            world.factory.informer(options).unwrap()
        })
        .collect();
    world.factory.wait_synced(secs(30)).await.unwrap();
    let hole = world.server.faults().black_hole(Connections::All, Direction::Both);
    let before = world.factory.stats().tasks;
    for _ in 0..20 {
        tokio::time::sleep(secs(60)).await;
        let tasks = world.factory.stats().tasks;
        assert!(tasks <= before + informers.len(), "{tasks} tasks, {before} before");
    }
    let audits = |world: &World| world.lists("configmaps");
    world.server.clear_requests();
    hole.heal();
    eventually_within(secs(60), "all are live", || informers.iter().all(|maps| maps.freshness().is_live()))
        .await;
    tokio::time::sleep(secs(60)).await;
    let (asked, informers) = (audits(&world), informers.len());
    assert!(
        (1..=3 * informers).contains(&asked),
        "{asked} lists by {informers} informers in two minutes at most"
    );
}

/// Runs in a separate thread: a loop that never waits can only be given up from outside.
#[test]
fn a_resync_period_of_zero_is_never() {
    let (told, resyncs) = std::sync::mpsc::sync_channel(1);
    let run = async move {
        let world = world().await;
        let every_second =
            world.factory.informer::<ConfigMap>(InformerOptions::all().resync(secs(1))).unwrap();
        let never = InformerOptions::namespace("a").resync(Duration::ZERO);
        let never = world.factory.informer::<ConfigMap>(never).unwrap();
        let add =
            |maps: &Informer<ConfigMap>, options| maps.add_handler(sync_handler(|_| ()), options).unwrap();
        let handlers = [
            add(&every_second, HandlerOptions::default()),
            add(&every_second, HandlerOptions::default().resync(Duration::ZERO)),
            add(&never, HandlerOptions::default()),
        ];
        tokio::time::sleep(secs(60)).await;
        told.send(handlers.map(|handler| handler.stats().resyncs)).unwrap();
    };
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(run);
    });
    let [every_second, handler, informer] = resyncs.recv_timeout(secs(10)).unwrap();
    assert!((50..=60).contains(&every_second) && (handler, informer) == (0, 0));
}

/// Returns a clock that simulates a suspend of the stored number of nanoseconds, and options with it.
fn sleepy() -> (Arc<AtomicI64>, FactoryOptions) {
    let slept = Arc::new(AtomicI64::new(0));
    let lead = slept.clone();
    let sleep_clock = SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into());
    (slept, FactoryOptions { sleep_clock, ..quiet() })
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_trusts_no_age() {
    let (slept, options) = sleepy();
    let world = world_with(TestServer::builder(), options).await;
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    tokio::time::sleep(secs(40)).await;
    assert!(maps.freshness().is_live());
    slept.store(3_600_000_000_000, Ordering::SeqCst);
    let freshness = maps.freshness();
    assert!(matches!(freshness.reason(), Some(StaleReason::ClockSuspended { .. })), "{freshness}");
    assert!(freshness.age().unwrap() >= secs(3600));
    tokio::time::sleep(secs(5)).await;
    assert!(maps.freshness().is_within(secs(5)), "looked again at once: {}", maps.freshness());
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_during_suspend_are_resent() {
    let (slept, options) = sleepy();
    let world = world_with(TestServer::builder(), options).await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    until_nothing_is_of_this_moment().await;
    let _slow = world.server.faults().inject(Fault::DelayHeaders(secs(2))).everywhere();
    let key = ObjectKey::namespaced("a", "one");
    // As fresh as required: a response from before the suspend is not, nor one that took two seconds.
    let sleep = async |verb: &str, until: i64| {
        world.server.clear_requests();
        world.server.wait_for(|server| server.requests().iter().any(|r| r.verb == verb)).await.unwrap();
        slept.store(until, Ordering::SeqCst);
    };
    let one = maps.read_one(&key, Duration::ZERO, secs(30));
    let (read, ()) = tokio::join!(one, sleep("get", 60_000_000_000));
    let read = read.unwrap();
    assert!(read.object.is_some() && read.source == Source::Live);
    assert_eq!(read.age, secs(2));
    let all = maps.read(Duration::ZERO, secs(30));
    let (read, ()) = tokio::join!(all, sleep("list", 120_000_000_000));
    let read = read.unwrap();
    assert!(read.snapshot.len() == 1 && read.source == Source::Live);
    assert_eq!(read.snapshot.freshness().age(), Some(secs(2)));
    // If there is no time for that, the error says so.
    let late = maps.read_one(&key, Duration::ZERO, secs(3));
    let (late, ()) = tokio::join!(late, sleep("get", 180_000_000_000));
    assert!(matches!(late, Err(ReadOneError::Read(ReadError::TooOld { .. }))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn sequential_clock_reads_are_no_suspend() {
    let lead = AtomicI64::new(0);
    let sleep_clock = SleepClock::from_fn(move || lead.fetch_add(1_000, Ordering::SeqCst).into());
    let world = world_with(TestServer::builder(), FactoryOptions { sleep_clock, ..quiet() }).await;
    world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    until_nothing_is_of_this_moment().await;
    world.server.clear_requests();
    let read = maps.read_one(&ObjectKey::namespaced("a", "one"), Duration::ZERO, secs(5)).await.unwrap();
    assert!(read.object.is_some() && read.source == Source::Live);
    let asked = world.server.requests().iter().filter(|request| request.verb == "get").count();
    assert_eq!(asked, 1);
}

#[tokio::test(start_paused = true)]
async fn missing_watch_list_support_is_cached_for_hour() {
    let world = world().await;
    world.create("a", "one", "1");
    let swallowed = world.server.faults().inject(Fault::WithholdBookmarks).on(Match::watch());
    let streams = || {
        let requests = world.server.requests();
        requests.iter().filter(|r| r.query_param("sendInitialEvents").as_deref() == Some("true")).count()
    };
    // A new informer each time: no handle keeps the last one running.
    let synced_within = async |limit| {
        let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
        maps.wait_synced(limit).await.unwrap();
        drop(maps);
        eventually("it is gone", || world.factory.stats().informers == 0).await;
    };
    synced_within(secs(15)).await;
    assert_eq!(streams(), 1, "it did not end, and pages came in its place");
    let learned = Instant::now();
    synced_within(secs(1)).await;
    assert_eq!(streams(), 1);
    // This is known for this resource only.
    let secrets = world.factory.informer::<Secret>(InformerOptions::all()).unwrap();
    secrets.wait_synced(secs(15)).await.unwrap();
    drop(secrets);
    assert_eq!(streams(), 2);
    swallowed.heal();
    tokio::time::sleep_until(learned + secs(3_500)).await;
    synced_within(secs(1)).await;
    assert_eq!(streams(), 2);
    tokio::time::sleep_until(learned + secs(3_600)).await;
    for tries in 1..=2 {
        synced_within(secs(1)).await;
        assert_eq!(streams(), 2 + tries, "the server streams lists again");
    }
}
