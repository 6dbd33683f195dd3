//! Scenarios that the reference implementations test, at the level of informers, as far as no other test covers them.
//! docs/evidence/acceptance.md lists the test of each scenario.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::{
    Condition, Event, FactoryOptions, Freshness, HandlerOptions, Informer, InformerOptions, InitialList,
    ObjectKey, WaitError, sync_handler,
};
use skopos_testserver::{CloseMode, Fault, Match, RequestRecord, TestServer};
use support::*;
use tokio::time::Instant;

fn maps(world: &World) -> Informer<ConfigMap> {
    world.factory.informer(InformerOptions::all()).expect("an informer")
}

fn paged() -> FactoryOptions {
    let mut options = quiet();
    options.machine.initial = InitialList::Paged;
    options.machine.page_size = Some(2);
    options
}

/// Returns the lists and watches of config maps that have reached the server, without probes.
fn asked(world: &World) -> Vec<RequestRecord> {
    let of_maps = |r: &RequestRecord| r.resource.as_deref() == Some("configmaps");
    let is_probe = |r: &RequestRecord| r.query_param("limit").as_deref() == Some("1");
    world.server.requests().into_iter().filter(|r| of_maps(r) && !is_probe(r)).collect()
}

fn is_streamed_list(request: &RequestRecord) -> bool {
    request.verb == "watch" && request.query_param("sendInitialEvents").as_deref() == Some("true")
}

fn values(maps: &Informer<ConfigMap>) -> BTreeMap<String, String> {
    let value = |object: &skopos::Object<ConfigMap>| object.label("value").unwrap_or_default().to_owned();
    maps.snapshot().iter().map(|object| (object.key().to_string(), value(&object))).collect()
}

/// The content that a handler has built from its events.
#[derive(Clone, Default)]
struct Mirror(Arc<Mutex<BTreeMap<String, String>>>);

impl Mirror {
    fn new(maps: &Informer<ConfigMap>, options: HandlerOptions) -> Self {
        let mirror = Self::default();
        let held = mirror.clone();
        let handler = sync_handler(move |event: Event<ConfigMap>| {
            let key = event.key().to_string();
            if let Event::Deleted { .. } = &event {
                held.0.lock().remove(&key);
            } else {
                held.0.lock().insert(key, event.object().label("value").unwrap_or_default().to_owned());
            }
        });
        maps.add_handler(handler, options).expect("a handler");
        mirror
    }

    async fn equals(&self, maps: &Informer<ConfigMap>) {
        eventually("the handler's view equals the store", || *self.0.lock() == values(maps)).await;
    }
}

/// Covers line 7: the watch begins at the list's revision, and a streamed list needs no second request. Lines 15, 16 and
/// 17: the first list is consistent, and comes in pages.
#[tokio::test(start_paused = true)]
async fn watch_starts_at_list_revision() {
    let world = world_with(TestServer::builder(), paged()).await;
    for n in 0..5 {
        world.create("a", &format!("o{n}"), "1");
    }
    let revision = world.server.resource_version();
    let paged = maps(&world);
    paged.wait_synced(secs(5)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    let requests = asked(&world);
    let (watch, pages) = requests.split_last().unwrap();
    assert_eq!(pages.len(), 3);
    assert!(
        pages.iter().all(|page| page.verb == "list" && page.query_param("limit").as_deref() == Some("2"))
    );
    assert!(pages.iter().all(|page| page.query_param("resourceVersion").is_none()), "newest, not any");
    assert!(pages[0].query_param("continue").is_none() && pages[1].query_param("continue").is_some());
    assert_eq!(watch.query_param("resourceVersion"), Some(revision.to_string()));
    assert!(!is_streamed_list(watch));

    let streaming = support::world().await;
    streaming.create("a", "one", "1");
    let streamed = maps(&streaming);
    streamed.wait_synced(secs(5)).await.unwrap();
    let revision = streaming.put("a", "one", "2");
    streamed.wait_for(&revision.into(), secs(5)).await.unwrap();
    let requests = asked(&streaming);
    assert_eq!(requests.len(), 1);
    assert!(is_streamed_list(&requests[0]));
}

/// Covers line 8: a list that fails, a watch that fails, and then success.
#[tokio::test(start_paused = true)]
async fn recovers_from_failed_list_and_watch() {
    let world = world_with(TestServer::builder(), paged()).await;
    world.create("a", "one", "1");
    let failing = |on| world.server.faults().inject(Fault::status(500, 0)).on(on).times(1);
    let (list, watch) = (failing(Match::list()), failing(Match::watch()));
    let maps = maps(&world);
    maps.wait_synced(secs(10)).await.unwrap();
    eventually("the watch stands", || maps.state().condition == Condition::Watching).await;
    assert_eq!((list.hits(), watch.hits()), (1, 1));
    let stats = maps.stats();
    assert_eq!((stats.relists, stats.failures), (0, 2));
}

/// Covers line 10: the backoff is an option.
#[tokio::test(start_paused = true)]
async fn backoff_is_configurable() {
    let mut options = paged();
    options.machine.backoff_min = secs(20);
    options.machine.backoff_max = secs(40);
    let world = world_with(TestServer::builder(), options).await;
    let fault = world.server.faults().inject(Fault::status(503, 0)).on(Match::list());
    let maps = maps(&world);
    tokio::time::sleep(secs(300)).await;
    let times: Vec<std::time::Duration> = asked(&world).iter().map(|request| request.at).collect();
    assert!((4..=20).contains(&times.len()), "{} requests in five minutes", times.len());
    // The first retry comes soon, with any jitter; the later ones have grown to the bounds.
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[2..].iter().all(|gap| (secs(10)..=secs(60)).contains(gap)), "{gaps:?}");
    fault.heal();
    maps.wait_synced(secs(60)).await.unwrap();
}

/// Covers lines 1, 13 and 32: an ERROR event ends the stream. Its code decides: 500 is retried at the same revision, 410
/// lists.
#[tokio::test(start_paused = true)]
async fn error_event_code_selects_resume_or_relist() {
    for (code, lists) in [(500, 0), (504, 0), (429, 0), (410, 1)] {
        let world = world().await;
        world.create("a", "one", "1");
        let maps = maps(&world);
        maps.wait_synced(secs(5)).await.unwrap();
        world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
        let Fault::Status(status) = Fault::status(code, 0) else { unreachable!() };
        let error = world.server.faults().inject(Fault::ErrorEvent(status)).on(Match::watch()).times(1);
        error.wait_hits(1).await;
        let revision = world.put("a", "one", "2");
        maps.wait_for(&revision.into(), secs(30)).await.unwrap();
        eventually("live again", || maps.freshness().is_live()).await;
        assert_eq!(maps.stats().relists, lists, "{code}");
        let last = asked(&world).pop().unwrap();
        if lists == 0 {
            assert!(last.verb == "watch" && !is_streamed_list(&last), "{code}: {}", last.query);
        }
    }
}

/// Covers line 22: a watch requests an end after 5 to 10 minutes, each time a different one.
#[tokio::test(start_paused = true)]
async fn watches_end_after_random_five_to_ten_minutes() {
    let world = world_with(TestServer::builder(), paged()).await;
    let maps = maps(&world);
    maps.wait_synced(secs(5)).await.unwrap();
    tokio::time::sleep(secs(4 * 3600)).await;
    let watches: Vec<RequestRecord> = asked(&world).into_iter().filter(|r| r.verb == "watch").collect();
    let seconds: Vec<u64> =
        watches.iter().map(|watch| watch.query_param("timeoutSeconds").unwrap().parse().unwrap()).collect();
    assert!(seconds.len() >= 24, "{seconds:?}");
    assert!(seconds.iter().all(|seconds| (300..=600).contains(seconds)), "{seconds:?}");
    assert!(
        seconds.iter().collect::<std::collections::BTreeSet<_>>().len() > seconds.len() / 2,
        "{seconds:?}"
    );
    assert!(watches.iter().all(|watch| watch.query_param("allowWatchBookmarks").as_deref() == Some("true")));
    assert_eq!((maps.stats().relists, maps.stats().failures), (0, 0));
}

fn event(kind: &str, name: &str, revision: u64, value: &str) -> Value {
    let metadata = json!({
        "namespace": "a", "name": name, "uid": name, "resourceVersion": revision.to_string(),
        "labels": {"value": value},
    });
    json!({"type": kind, "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
}

fn bookmark(revision: u64, annotated: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if annotated {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
}

/// Returns a watch with these events, which then ends cleanly.
fn stream_of(events: &[Value]) -> Fault {
    let headers = vec![(header::CONTENT_TYPE, "application/json".to_owned())];
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    Fault::Answer { code: 200, headers, body: lines.concat() }
}

/// Covers lines 27 and 29: the content becomes visible with the annotated bookmark, with all earlier changes. Line 31:
/// after that a watch that ends is continued, not restarted.
#[tokio::test(start_paused = true)]
async fn streamed_list_appears_whole_at_its_bookmark() {
    let world = world().await;
    let now = world.server.resource_version();
    let stream = [
        event("ADDED", "one", 2, "old"),
        event("ADDED", "two", 3, "old"),
        event("MODIFIED", "one", now - 1, "new"),
        event("DELETED", "two", now, "old"),
        bookmark(now, true),
    ];
    let answered = world.server.faults().inject(stream_of(&stream)).on(Match::watch()).times(1);
    let maps = maps(&world);
    maps.wait_synced(secs(5)).await.unwrap();
    assert_eq!(values(&maps), BTreeMap::from([("a/one".to_owned(), "new".to_owned())]));
    assert_eq!(*maps.snapshot().resource_version(), now.into());
    assert_eq!(answered.hits(), 1);
    world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    let requests = asked(&world);
    assert!(is_streamed_list(&requests[0]) && !is_streamed_list(&requests[1]));
    assert_eq!(requests[1].query_param("resourceVersion"), Some(now.to_string()));
    assert_eq!(maps.stats().relists, 0);
}

/// Covers line 28: a bookmark without the annotation does not complete the list. Lines 23 and 30: a stream that ends too
/// early is restarted, and the revisions of its objects are ignored.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_without_its_end_is_no_list() {
    let world = world().await;
    world.create("a", "real", "1");
    let now = world.server.resource_version();
    let stream = [event("ADDED", "ghost", now, "1"), bookmark(now, false)];
    let answered = world.server.faults().inject(stream_of(&stream)).on(Match::watch()).times(2);
    let maps = maps(&world);
    answered.wait_hits(1).await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert!(!maps.has_synced() && maps.snapshot().is_empty());
    assert!(matches!(maps.freshness(), Freshness::NeverSynced { .. }));
    maps.wait_synced(secs(30)).await.unwrap();
    assert_eq!(values(&maps).into_keys().collect::<Vec<_>>(), ["a/real"]);
    let requests = asked(&world);
    assert!(requests.len() >= 2);
    let consistent = |r: &RequestRecord| is_streamed_list(r) || r.verb == "list";
    assert!(
        requests[..2].iter().all(consistent),
        "{:?}",
        requests.iter().map(|r| &r.query).collect::<Vec<_>>()
    );
    let unset = |r: &RequestRecord| r.query_param("resourceVersion").unwrap_or_default().is_empty();
    assert!(requests[..2].iter().all(unset));
}

/// Covers line 33: a throttled request (429) is retried unchanged. Lines 34 and 35: a server without streamed lists is
/// asked for ordinary ones, at once.
#[tokio::test(start_paused = true)]
async fn streamed_list_retries_on_429_or_falls_back() {
    let throttled = world().await;
    let fault = throttled.server.faults().inject(Fault::too_many_requests(1)).on(Match::watch()).times(1);
    let maps_of_throttled = maps(&throttled);
    maps_of_throttled.wait_synced(secs(10)).await.unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(asked(&throttled).iter().all(is_streamed_list));

    let old = world_with(TestServer::builder().watch_list(false), quiet()).await;
    let begun = Instant::now();
    let maps_of_old = maps(&old);
    maps_of_old.wait_synced(secs(10)).await.unwrap();
    assert!(begun.elapsed() <= secs(2), "{:?}", begun.elapsed());
    assert_eq!(asked(&old).iter().filter(|r| is_streamed_list(r)).count(), 1);
    assert_eq!(asked(&old).iter().filter(|r| r.verb == "list").count(), 1);
}

/// Covers lines 46, 58 and 59: whatever happens to the watch, a handler's events add up to the store, with and without
/// resync.
#[tokio::test(start_paused = true)]
async fn handlers_see_through_every_disruption() {
    let world = world().await;
    let maps = maps(&world);
    let plain = Mirror::new(&maps, HandlerOptions::default());
    let resynced = Mirror::new(&maps, HandlerOptions::default().resync(secs(1)));
    maps.wait_synced(secs(5)).await.unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..40 {
        match round % 4 {
            0 => drop(world.server.faults().kill_connections(CloseMode::Rst)),
            1 => world.server.close_watches(),
            2 => world.server.pause().await,
            _ => maps.relist("a test asks"),
        }
        for _ in 0..10 {
            let name = format!("o{}", rng.u8(..20));
            match world.server.get("configmaps", Some("a"), &name) {
                Ok(_) if rng.bool() => world.delete("a", &name),
                _ => drop(world.put("a", &name, &rng.u16(..).to_string())),
            }
        }
        if round % 4 == 2 {
            if round % 8 == 2 {
                world.server.compact();
            }
            world.server.resume().await.unwrap();
        }
        let revision = world.put("a", "last", &round.to_string());
        maps.wait_for(&revision.into(), secs(60)).await.unwrap();
        plain.equals(&maps).await;
        resynced.equals(&maps).await;
        // No minute has more than six requests.
        tokio::time::sleep(secs(15)).await;
    }
    let (objects, _) = world.server.list("configmaps", Some("a")).unwrap();
    assert_eq!(values(&maps).len(), objects.len());
}

/// Covers line 47: informers and handlers that are started at the same moment all get everything.
#[tokio::test(start_paused = true)]
async fn handlers_started_during_first_list_get_all_once() {
    let world = Arc::new(world_with(TestServer::builder(), paged()).await);
    for n in 0..30 {
        world.create("a", &format!("o{n}"), "1");
    }
    let slow = world.server.faults().inject(Fault::DelayHeaders(std::time::Duration::from_millis(50)));
    let _slow = slow.on(Match::list());
    let one = |n: u64| {
        let world = world.clone();
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(20 * n)).await;
            let maps = maps(&world);
            let calls = Arc::new(AtomicUsize::new(0));
            let counter = calls.clone();
            let handler = sync_handler(move |event: Event<ConfigMap>| {
                assert!(matches!(event, Event::Added { initial: true, .. }), "{event:?}");
                counter.fetch_add(1, Ordering::SeqCst);
            });
            let handle = maps.add_handler(handler, HandlerOptions::default()).unwrap();
            handle.wait_synced(PLENTY).await.unwrap();
            assert_eq!((calls.load(Ordering::SeqCst), handle.stats().panics), (30, 0));
            maps
        }
    };
    let informers = futures::future::join_all((0..50).map(one)).await;
    assert_eq!(informers.len(), 50);
    assert_eq!(world.lists("configmaps"), 15, "one list for all, in pages of two");
}

/// Covers line 55: a handler that panics again and again can be removed at any time.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_can_be_removed() {
    let world = world().await;
    world.create("a", "one", "1");
    let maps = maps(&world);
    let handler = sync_handler(|_: Event<ConfigMap>| panic!("always"));
    let options = HandlerOptions::default().retries(1_000_000, secs(10));
    let handle = maps.add_handler(handler, options).unwrap();
    eventually("it has panicked", || handle.stats().panics > 0).await;
    let begun = Instant::now();
    handle.remove(PLENTY).await.unwrap();
    assert!(begun.elapsed() <= secs(1), "{:?}", begun.elapsed());
    let panics = handle.stats().panics;
    world.put("a", "one", "2");
    tokio::time::sleep(secs(600)).await;
    assert_eq!(handle.stats().panics, panics);
}

/// Covers line 61: the store's revision is that of the last event or bookmark, also when other resources are written.
#[tokio::test(start_paused = true)]
async fn bookmarks_advance_store_revision() {
    let world = world_with(TestServer::builder().bookmark_interval(secs(5)), quiet()).await;
    let maps = maps(&world);
    maps.wait_synced(secs(5)).await.unwrap();
    let revision = world.create("a", "one", "1");
    let snapshot = maps.wait_for(&revision.into(), secs(1)).await.unwrap();
    assert_eq!(*snapshot.resource_version(), revision.into());
    world.server.create(namespace_object("elsewhere")).unwrap();
    let newest = world.server.resource_version();
    assert!(newest > revision && *maps.snapshot().resource_version() == revision.into());
    let snapshot = maps.wait_for(&newest.into(), secs(30)).await.unwrap();
    assert_eq!(*snapshot.resource_version(), newest.into());
    assert_eq!((snapshot.len(), maps.stats().events), (1, 1));
}

/// Covers lines 67 and 76: a stream of events that is not read blocks neither the store nor the shutdown.
#[tokio::test(start_paused = true)]
async fn unread_event_stream_blocks_nothing() {
    let world = world().await;
    let maps = maps(&world);
    maps.wait_synced(secs(5)).await.unwrap();
    let unread = Box::pin(maps.events().unwrap());
    let dropped = Box::pin(maps.events().unwrap());
    for n in 0..3000 {
        world.put("a", &format!("o{}", n % 700), &n.to_string());
    }
    let revision = world.put("a", "last", "1");
    maps.wait_for(&revision.into(), secs(5)).await.unwrap();
    assert_eq!(maps.snapshot().len(), 701);
    drop(dropped);
    eventually("a stream that was dropped is gone", || maps.stats().store.handlers == 1).await;
    let begun = Instant::now();
    assert!(world.factory.shutdown(secs(2)).await.complete);
    assert!(begun.elapsed() <= secs(2));
    drop(unread);
}

/// Covers line 75: a condition that is already met, one that is met later, one that never is, and the end of the factory.
/// Without a server there is no content to check, and the call ends at its deadline.
#[tokio::test(start_paused = true)]
async fn wait_until_ends_with_condition_or_deadline() {
    let world = world().await;
    world.create("default", "a", "1");
    let maps = maps(&world);
    let has = |value: &'static str| {
        move |maps: &skopos::Snapshot<ConfigMap>| maps.iter().any(|map| map.label("value") == Some(value))
    };
    // Before the first list there is no content to check: an empty content is not the answer.
    let first = maps.wait_until(|maps| maps.is_empty() || has("1")(maps), secs(30)).await.expect("met");
    assert_eq!(first.len(), 1);
    let begun = Instant::now();
    maps.wait_until(has("1"), secs(30)).await.expect("met already");
    assert_eq!(begun.elapsed(), secs(0));

    let change = async {
        tokio::time::sleep(secs(20)).await;
        world.put("default", "a", "2")
    };
    let (met, revision) = tokio::join!(maps.wait_until(has("2"), secs(30)), change);
    let met = met.expect("met");
    assert_eq!((met.resource_version().to_string(), begun.elapsed().as_secs()), (revision.to_string(), 20));

    let _dead = world.server.faults().inject(Fault::WithholdHeaders).everywhere();
    world.server.faults().kill_connections(CloseMode::Rst);
    let begun = Instant::now();
    let error = maps.wait_until(has("3"), secs(30)).await.expect_err("it never comes");
    assert!(matches!(error, WaitError::NotMet { .. }), "{error}");
    assert_eq!(begun.elapsed(), secs(30));

    let shutdown = async {
        tokio::time::sleep(secs(5)).await;
        world.factory.shutdown(secs(1)).await
    };
    let begun = Instant::now();
    let (ended, _) = tokio::join!(maps.wait_until(has("3"), std::time::Duration::MAX), shutdown);
    assert!(matches!(ended, Err(WaitError::Closed(_))));
    assert_eq!(begun.elapsed().as_secs(), 5);
}

/// Checks that `Duration::MAX` works everywhere as "no deadline".
#[tokio::test(start_paused = true)]
async fn informer_accepts_maximum_duration_everywhere() {
    const MAX: std::time::Duration = std::time::Duration::MAX;
    let options = FactoryOptions { audit_interval: Some(MAX), audit_timeout: MAX, ..quiet() };
    let world = world_with(TestServer::builder(), options).await;
    let revision = world.create("a", "one", "1");
    let maps = world.factory.informer::<ConfigMap>(InformerOptions::all()).expect("an informer");
    maps.wait_synced(MAX).await.expect("synced");
    maps.wait_for(&revision.into(), MAX).await.expect("there");
    maps.read(secs(0), MAX).await.expect("read");
    maps.read_one(&ObjectKey::namespaced("a", "one"), secs(0), MAX).await.expect("read");
    assert!(maps.audit(MAX).await.expect("audited").is_clean());
    let mut options = HandlerOptions::named("counts");
    options.resync = Some(MAX);
    let (seen, mut events) = tokio::sync::mpsc::channel(8);
    let handler = sync_handler(move |_: Event<ConfigMap>| _ = seen.try_send(()));
    let handler = maps.add_handler(handler, options).expect("a handler");
    handler.wait_synced(PLENTY).await.expect("synced");
    assert!(events.recv().await.is_some());
    assert!(world.factory.freeze(MAX).await);
    assert!(world.factory.shutdown(MAX).await.complete);
}
