//! The five reports from the field that this project starts from, R1 to R5, each as a test that fails without its fix.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, PostParams};
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::wire::WatchEvent;
use skopos::{
    AuditError, BuildError, Condition, Event, HandlerOptions, Informer, InformerFactory, InformerOptions,
    NotSynced, RawWatch, RawWatchItem, ReadError, Target, Transport, TransportOptions, WaitError,
    sync_handler,
};
use skopos_testserver::{CloseMode, Connections, Direction, Fault, Match, TestServer};
use support::*;
use tokio::time::{Instant, timeout};

/// The time that calls may take beyond their deadline.
const SLACK: Duration = Duration::from_millis(50);

/// The time in virtual time after which a call counts as hanging.
const HANGING: Duration = Duration::from_secs(600);

fn config_maps(factory: &InformerFactory) -> Informer<ConfigMap> {
    factory.informer(InformerOptions::all()).unwrap()
}

/// Reproduces R1: a service of many clusters waited for a paused one, without a bound, and hung for all of them.
#[tokio::test(start_paused = true)]
async fn r1_a_paused_cluster_cannot_hold_anybody_up() {
    let (well, paused) = (world().await, world().await);
    well.create("a", "one", "1");
    paused.create("a", "one", "1");
    paused.server.pause().await;

    // One request of the service after another: each asks both clusters.
    let (ours, theirs) = (config_maps(&well.factory), config_maps(&paused.factory));
    for _ in 0..3 {
        let begun = Instant::now();
        let both = async { tokio::join!(ours.wait_synced(secs(5)), theirs.wait_synced(secs(5))) };
        let (ours_synced, theirs_synced) = timeout(HANGING, both).await.expect("a bounded call hangs");
        assert!(begun.elapsed() <= secs(5) + SLACK, "{:?}", begun.elapsed());
        ours_synced.unwrap();
        let error: NotSynced = theirs_synced.unwrap_err();
        let who = &error.who[0];
        assert_eq!(who.state.condition, Condition::Unreachable, "{error}");
        assert!(who.attempts > 0 && who.reason.contains("refused"), "{error}");

        let begun = Instant::now();
        assert_eq!(ours.read(secs(30), secs(5)).await.unwrap().snapshot.len(), 1);
        assert!(begun.elapsed() <= SLACK, "one cluster's trouble is not another's");
        assert_eq!(theirs.snapshot().len(), 0);
        assert!(!theirs.snapshot().is_synced() && !theirs.freshness().is_live());
        let begun = Instant::now();
        let read = timeout(HANGING, theirs.read(secs(30), secs(2))).await.expect("a bounded call hangs");
        assert!(matches!(read, Err(ReadError::TooOld { .. })), "{read:?}");
        assert!(begun.elapsed() <= secs(2) + SLACK);
    }

    // The informer recovers without help.
    paused.server.resume().await.unwrap();
    theirs.wait_synced(secs(2)).await.unwrap();
    assert_eq!(theirs.snapshot().len(), 1);
}

/// Reproduces R2: after a restart of the API server, dead connections stayed in the pool, and every cache was frozen
/// forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_recovers_from_ten_rst_and_fin_restarts() {
    let server = TestServer::builder().tls(true).start().await.unwrap();
    server.create(namespace_object("a")).unwrap();
    let config = kube_config(&server).await;
    let transport = Transport::from_config(config, TransportOptions::default()).unwrap();
    let factory = InformerFactory::new(transport, quiet());
    let maps = config_maps(&factory);
    let services = factory.informer::<Service>(InformerOptions::all()).unwrap();
    let secrets = factory.metadata::<Secret>(InformerOptions::namespace("a")).unwrap();
    factory.wait_synced(Duration::from_secs(30)).await.unwrap();
    server.wait_for(|server| server.open_watches() == 3).await.unwrap();
    let lists = factory_lists(&factory, &maps, &services);

    for round in 0..10 {
        let how = if round % 2 == 0 { CloseMode::Rst } else { CloseMode::Fin };
        server.pause_with(how).await;
        // Sometimes long enough for several dials to fail.
        tokio::time::sleep(Duration::from_millis([0, 100, 1200][round % 3])).await;
        let revision = server.create(config_map("a", &format!("while-down-{round}"), "1")).unwrap();
        server.resume().await.unwrap();
        let back = Instant::now();
        maps.wait_for(&support::revision(&revision).into(), secs(5)).await.unwrap();
        let live =
            || maps.freshness().is_live() && services.freshness().is_live() && secrets.freshness().is_live();
        eventually_within(secs(5), "all informers are live", live).await;
        assert!(back.elapsed() <= secs(2), "round {round}, {how:?}: live after {:?}", back.elapsed());
    }
    assert_eq!(
        factory_lists(&factory, &maps, &services),
        lists,
        "the revision was served all the time: no list again"
    );
    assert_eq!(maps.snapshot().len(), 10);
    assert!(factory.shutdown(secs(1)).await.complete);
}

fn factory_lists(_: &InformerFactory, maps: &Informer<ConfigMap>, services: &Informer<Service>) -> u64 {
    let lists = |stats: skopos::InformerStats| stats.lists_sent + stats.relists + stats.store.lists;
    lists(maps.stats()) + lists(services.stats())
}

async fn kube_config(server: &TestServer) -> kube::Config {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
        .await
        .unwrap()
}

/// Reproduces R2 with a server whose machine is gone: the old connections are neither closed nor reset, but silent.
#[tokio::test(start_paused = true)]
async fn r2_ten_restarts_with_old_connections_black_holed() {
    let server = Arc::new(TestServer::builder().start().await.unwrap());
    server.create(namespace_object("a")).unwrap();
    let reachable = Arc::new(AtomicBool::new(true));
    let factory = InformerFactory::new(gated_transport(&server, &reachable), quiet());
    let maps = config_maps(&factory);
    let services = factory.informer::<Service>(InformerOptions::all()).unwrap();
    factory.wait_synced(Duration::from_secs(30)).await.unwrap();
    server.wait_for(|server| server.open_watches() == 2).await.unwrap();
    let lists = factory_lists(&factory, &maps, &services);

    for round in 0..10 {
        let hole = server.faults().black_hole(Connections::Existing, Direction::Both);
        reachable.store(false, Ordering::SeqCst);
        let gone = Instant::now();
        tokio::time::sleep(secs([1, 20, 30][round % 3])).await;
        let revision = server.create(config_map("a", &format!("while-down-{round}"), "1")).unwrap();
        reachable.store(true, Ordering::SeqCst);
        let back = Instant::now();
        maps.wait_for(&support::revision(&revision).into(), secs(60)).await.unwrap();
        eventually("all informers are live", || maps.freshness().is_live() && services.freshness().is_live())
            .await;
        // A silent connection is detected within 15 s, and a server that is back within 2 s.
        let bound = (gone + secs(15)).max(back) + secs(2);
        assert!(Instant::now() <= bound, "round {round}: live {:?} after the return", back.elapsed());
        hole.heal();
        // Until the age of the quiet resource is proven again, too: its watch learns only by a verification that revisions
        // of other resources do not concern it.
        tokio::time::sleep(secs(60)).await;
    }
    assert_eq!(
        factory_lists(&factory, &maps, &services),
        lists,
        "the revision was served all the time: no list again"
    );
    assert_eq!(maps.snapshot().len(), 10);
}

/// Makes a transport over connections in memory, which can be refused while old ones stay.
fn gated_transport(server: &Arc<TestServer>, reachable: &Arc<AtomicBool>) -> Transport {
    let (server, reachable) = (server.clone(), reachable.clone());
    let dialer = dialer_fn(move |attempt| {
        let (server, reachable) = (server.clone(), reachable.clone());
        async move {
            // A machine that is gone does not refuse: packets vanish, and are sent again as in the transport's own dialer.
            while !reachable.load(Ordering::SeqCst) {
                tokio::time::sleep(attempt.rhythm()).await;
            }
            let stream =
                server.connect().map_err(|error| TransportErrorKind::Reset(error.to_string().into()))?;
            Ok(Dialed::new(stream, Protocol::Http2))
        }
    });
    let config = kube::Config::new("http://memory.test".parse().unwrap());
    Transport::with_dialer(config, TransportOptions { seed: Some(7), ..Default::default() }, dialer).unwrap()
}

/// Reproduces R3, 1: waiting to sync with an unreachable server, for each way of being unreachable.
#[tokio::test(start_paused = true)]
async fn r3_wait_for_unreachable_server_ends_with_reason() {
    let refused = || async {
        Err::<Dialed, _>(TransportErrorKind::Refused { to: "10.0.0.1:443".into(), reason: "nobody".into() })
    };
    let unknown = || async {
        Err(TransportErrorKind::Dns { host: "gone.example".into(), reason: "no such host".into() })
    };
    let silent = || std::future::pending::<Result<Dialed, TransportErrorKind>>();
    let cases = [
        (dialer_fn(move |_| refused()), "refused"),
        (dialer_fn(move |_| unknown()), "gone.example"),
        (dialer_fn(move |_| silent()), "no connection within"),
    ];
    for (dialer, reason) in cases {
        let config = kube::Config::new("http://memory.test".parse().unwrap());
        let transport = Transport::with_dialer(config, TransportOptions::default(), dialer).unwrap();
        let factory = InformerFactory::new(transport, quiet());
        let maps = config_maps(&factory);
        let begun = Instant::now();
        let error = timeout(HANGING, maps.wait_synced(secs(30))).await.expect("hangs").unwrap_err();
        assert!(begun.elapsed() <= secs(30) + SLACK);
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains("configmaps") && !error.to_string().contains('\n'), "{error}");
        assert!(error.who[0].attempts > 0 && !error.closed);
        let all =
            timeout(HANGING, factory.wait_synced(Duration::from_secs(30))).await.expect("hangs").unwrap_err();
        assert_eq!(all.who.len(), 1);
        assert!(factory.shutdown(secs(1)).await.complete);
    }
}

/// Reproduces R3, 2: every call after a shutdown, and every call that waits during one.
#[tokio::test(start_paused = true)]
async fn r3_requests_after_shutdown_are_refused_as_closed() {
    let world = world().await;
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    let client = world.factory.transport().client("a");
    let never = 1_000_000.into();
    let waiting = maps.wait_for(&never, secs(300));
    let begun = Instant::now();
    let stop = async {
        tokio::time::sleep(secs(1)).await;
        world.factory.shutdown(secs(1)).await
    };
    let (waited, report) = timeout(HANGING, async { tokio::join!(waiting, stop) }).await.expect("hangs");
    assert!(matches!(waited, Err(WaitError::Closed(_))), "{waited:?}");
    assert!(report.complete && report.took <= secs(1), "{report:?}");
    assert!(begun.elapsed() <= secs(2) + SLACK);

    let begun = Instant::now();
    assert!(matches!(maps.read(secs(1000), secs(5)).await, Err(ReadError::Closed(_))));
    assert!(matches!(maps.wait_for(&never, secs(5)).await, Err(WaitError::Closed(_))));
    assert!(matches!(maps.audit(secs(5)).await, Err(AuditError::Closed(_))));
    assert!(maps.wait_synced(secs(5)).await.is_err_and(|error| error.closed));
    assert!(maps.add_handler(sync_handler(|_| {}), HandlerOptions::default()).is_err());
    assert!(maps.events().is_err());
    let again = world.factory.informer::<ConfigMap>(InformerOptions::all());
    assert!(matches!(again, Err(BuildError::Closed(_))));
    let created =
        Api::<ConfigMap>::namespaced(client, "a").create(&PostParams::default(), &new_map("x")).await;
    assert!(created.unwrap_err().to_string().contains("shut down"));
    assert_eq!(begun.elapsed(), Duration::ZERO, "none of them waits");
    world.factory.shutdown(secs(1)).await;
}

/// Reproduces R3, 3: a shutdown when the server is gone, or silent, or in the middle of something.
#[tokio::test(start_paused = true)]
async fn r3_shutdown_after_a_disconnect_leaves_nothing() {
    for case in ["closed", "silent", "first list under way", "backing off"] {
        let world = world().await;
        let maps = config_maps(&world.factory);
        let handler = maps.add_handler(sync_handler(|_| {}), HandlerOptions::default()).unwrap();
        let mut hole = None;
        if case == "first list under way" {
            hole = Some(world.server.faults().black_hole(Connections::All, Direction::Both));
            assert!(maps.wait_synced(secs(1)).await.is_err());
        } else {
            maps.wait_synced(secs(5)).await.unwrap();
        }
        match case {
            "closed" => world.server.pause_with(CloseMode::Rst).await,
            "silent" => hole = Some(world.server.faults().black_hole(Connections::All, Direction::Both)),
            "backing off" => {
                world.server.pause().await;
                tokio::time::sleep(secs(100)).await;
            }
            _ => {}
        }
        let report = world.factory.shutdown(secs(1)).await;
        assert!(report.complete && report.took <= secs(1), "{case}: {report:?}");
        assert_eq!((report.tasks_left, world.factory.stats().tasks), (0, 0), "{case}");
        assert!(world.factory.transport().stats().connections.is_empty(), "{case}");
        assert!(handler.stats().ended, "{case}");
        drop(hole);
    }
}

/// Reproduces R3, 4: a create while the server is gone, and after it has come back.
#[tokio::test(start_paused = true)]
async fn r3_create_after_disconnect_fails_in_time() {
    let world = world().await;
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    let api = Api::<ConfigMap>::namespaced(world.factory.transport().client("a"), "a");
    world.server.pause_with(CloseMode::Rst).await;
    let begun = Instant::now();
    let params = PostParams::default();
    let created = timeout(HANGING, api.create(&params, &new_map("x"))).await.expect("hangs");
    assert!(begun.elapsed() <= secs(10) + SLACK, "{:?}", begun.elapsed());
    let error = created.unwrap_err().to_string();
    assert!(error.contains("refused") || error.contains("not connected"), "{error}");

    world.server.resume().await.unwrap();
    let begun = Instant::now();
    let created = loop {
        match api.create(&params, &new_map("x")).await {
            Ok(created) => break created,
            Err(error) => assert!(begun.elapsed() <= secs(2), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let revision = created.metadata.resource_version.unwrap().parse().unwrap();
    let snapshot = maps.wait_for(&revision, secs(2)).await.unwrap();
    assert_eq!(snapshot.len(), 1, "our own write is read");
}

fn new_map(name: &str) -> ConfigMap {
    serde_json::from_value(config_map("a", name, "1")).unwrap()
}

/// The way in which the deletion escapes the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    /// It does not: the watch resumes at its last revision, and delivers the deletion.
    Resumed,
    /// The server has compacted the events in between: only a list remains.
    Compacted,
    /// The event is lost on the way: the next one of that name is about another object.
    EventLost,
}

/// Reproduces R4: an object that was deleted and created again under the same name during a disconnect arrived as an
/// update.
#[tokio::test(start_paused = true)]
async fn r4_recreated_object_is_deletion_and_addition() {
    for escape in [Escape::Resumed, Escape::Compacted, Escape::EventLost] {
        let world = world().await;
        world.create("a", "same-name", "before");
        world.create("a", "stays", "1");
        let maps = config_maps(&world.factory);
        let mut events = Box::pin(maps.events().unwrap());
        maps.wait_synced(secs(5)).await.unwrap();
        let first = events.next().await.unwrap().object().clone();
        events.next().await.unwrap();
        world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();

        let revision = match escape {
            Escape::EventLost => {
                let lost = world.server.faults().inject(Fault::DropEvents).on(Match::watch());
                world.delete("a", "same-name");
                lost.wait_hits(1).await;
                lost.heal();
                world.create("a", "same-name", "after")
            }
            _ => {
                world.server.pause().await;
                world.delete("a", "same-name");
                world.create("a", "same-name", "after")
            }
        };
        if escape == Escape::Compacted {
            world.server.compact();
        }
        world.server.resume().await.unwrap();
        maps.wait_for(&revision.into(), secs(60)).await.unwrap();

        let gap = escape == Escape::Compacted;
        match events.next().await.unwrap() {
            Event::Deleted { object, final_state_known, flags, .. } => {
                assert_eq!(object.uid(), first.uid());
                assert_eq!((final_state_known, flags.gap), (escape == Escape::Resumed, gap), "{escape:?}");
            }
            other => panic!("{escape:?}: {other:?}"),
        }
        match events.next().await.unwrap() {
            Event::Added { object, initial, flags, .. } => {
                assert_ne!(object.uid(), first.uid());
                assert_eq!(object.label("value"), Some("after"));
                assert_eq!((initial, flags.gap), (false, gap), "{escape:?}");
            }
            other => panic!("{escape:?}: {other:?}"),
        }
        let more = timeout(secs(30), events.next()).await;
        assert!(more.is_err(), "what did not change is not told: {more:?}");
    }
}

/// Reproduces R5: a raw watch ends when the server closes it. A loop that then returned lost all later events; a loop that
/// continued was spinning on a closed channel.
#[tokio::test(start_paused = true)]
async fn r5_raw_watch_survives_quiet_hours_and_closes() {
    let world = world().await;
    let target = Target::new("", "v1", "configmaps");
    let transport = world.factory.transport().clone();
    let mut watch = RawWatch::builder(transport.clone(), target).from_now();
    let quiet = timeout(secs(3 * 3600), next_change(&mut watch)).await;
    assert!(quiet.is_err(), "nothing has happened: {quiet:?}");
    let quiet = world.requests("watch", "configmaps");
    assert!(
        (3 * 5..3 * 15).contains(&quiet),
        "the server has ended many a watch, and it did not spin: {quiet}"
    );
    for (name, trouble) in ["closed", "reset", "restarted", "killed"].into_iter().zip(0..) {
        match trouble {
            0 => world.server.close_watches(),
            1 => drop(world.server.faults().inject(Fault::Reset).on(Match::watch()).times(1)),
            2 => world.server.restart(CloseMode::Rst).await.unwrap(),
            _ => drop(world.server.faults().kill_connections(CloseMode::Fin)),
        }
        world.create("a", name, "1");
        let seen = timeout(secs(10), next_change(&mut watch)).await.expect("the event is not lost");
        tokio::time::sleep(secs(60)).await;
        assert_eq!(seen, name);
    }
    let watches = world.requests("watch", "configmaps") - quiet;
    assert!(watches <= 4 * 3, "{watches} watches for four troubles");

    for start in ["", "0", "x"] {
        let watch = RawWatch::builder(transport.clone(), Target::new("", "v1", "configmaps")).from(start);
        assert!(watch.is_err(), "{start:?} is no place to go on from");
    }
    world.factory.shutdown(secs(1)).await;
    assert!(timeout(secs(1), watch.next()).await.expect("it ends with the transport").is_none());
}

async fn next_change(watch: &mut RawWatch) -> String {
    loop {
        match watch.next().await.expect("it goes on") {
            RawWatchItem::Event(WatchEvent::Added(object)) => return object.name().to_owned(),
            RawWatchItem::Event(WatchEvent::Bookmark { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
