//! The driver against the test server, over HTTP/2 in memory and in virtual time.

mod support;

use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::{
    Clock, Condition, Driver, DriverHandle, DriverOptions, InitialList, MachineOptions, ReplaceCause, Target,
    probe,
};
use skopos_testserver::{CloseMode, Connections, Damage, Direction, Fault, Match, TestServer};
use skopos_transport::Transport;
use support::*;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A server, a driver that follows its config maps, and a prober.
struct World {
    server: Arc<TestServer>,
    transport: Transport,
    map: SharedMap,
    handle: DriverHandle,
    clock: Clock,
    stop: CancellationToken,
    driver: JoinHandle<SharedMap>,
}

fn target() -> Target {
    Target::new("", "v1", "configmaps").with_kind("ConfigMap")
}

async fn world(initial: InitialList) -> World {
    let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
    world_on(server, initial, refused)
}

fn world_on(server: Arc<TestServer>, initial: InitialList, away: Away) -> World {
    let transport = transport_past(&server, away);
    let clock = Clock::new();
    let machine = MachineOptions { initial, page_size: Some(7), ..MachineOptions::default() };
    let options = DriverOptions { machine, clock, seed: Some(3), ..DriverOptions::default() };
    let driver = Driver::new(transport.clone(), target(), options);
    let (handle, stop, map, tasks) =
        (driver.handle(), CancellationToken::new(), SharedMap::default(), TaskTracker::new());
    let driver = tasks.spawn(driver.run(map.clone(), stop.clone()));
    let (prober, probed) = (transport.clone(), handle.clone());
    tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(secs(30)).await;
            let sent_at = clock.now();
            if let Ok(resource_version) = probe(&prober, &target(), secs(10)).await {
                probed.probed(sent_at, resource_version);
            }
        }
    }));
    World { server, transport, map, handle, clock, stop, driver }
}

/// Makes a synced world with twenty objects.
async fn synced(initial: InitialList) -> World {
    filled(world(initial).await).await
}

async fn filled(world: World) -> World {
    for n in 0..20 {
        put(&world.server, &format!("o{n}"), "0");
    }
    world.equal(secs(30)).await;
    world
}

impl World {
    async fn equal(&self, limit: Duration) -> Duration {
        eventually(limit, "the map equals the server", || self.map.equals(&self.server)).await
    }

    async fn watching(&self, limit: Duration) -> Duration {
        eventually(limit, "watching", || self.handle.state().condition == Condition::Watching).await
    }

    async fn end(self) {
        self.stop.cancel();
        let begun = self.clock.now();
        let map = self.driver.await.expect("the driver ends");
        assert!(self.clock.now().since(begun) <= secs(1));
        assert_eq!(map.0.lock().states.last().map(|state| state.condition.clone()), Some(Condition::Stopped));
        assert!(self.transport.shutdown(secs(1)).await, "nothing is left");
    }
}

const BOTH: [InitialList; 2] = [InitialList::Streamed, InitialList::Paged];

#[tokio::test(start_paused = true)]
async fn follows_a_collection() {
    for initial in BOTH {
        let world = world(initial).await;
        for n in 0..50 {
            put(&world.server, &format!("o{n}"), "0");
        }
        world.equal(secs(5)).await;
        for n in 0..30 {
            put(&world.server, &format!("o{n}"), "1");
            if n % 3 == 0 {
                delete(&world.server, &format!("o{n}"));
            }
        }
        assert!(world.equal(secs(5)).await <= secs(1));
        assert_eq!(world.map.lists(), 1);
        // An hour of bookmarks, probes and watches that end normally.
        tokio::time::sleep(secs(3600)).await;
        assert_eq!(world.map.lists(), 1);
        assert_eq!(world.handle.stats().failures, 0);
        assert!(world.map.age(&world.clock).expect("proven") <= secs(60));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_connections_never_cause_a_list() {
    for mode in [CloseMode::Rst, CloseMode::Fin] {
        let world = synced(InitialList::Paged).await;
        let lists = world.map.lists();
        for n in 0..10 {
            world.server.faults().kill_connections(mode);
            put(&world.server, "o1", &n.to_string());
            assert!(world.equal(secs(60)).await <= secs(2));
            // No minute has more than six requests.
            tokio::time::sleep(secs(20)).await;
        }
        assert_eq!(world.map.lists(), lists);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_restarts_never_cause_a_list() {
    for away in [refused as Away, hung_up] {
        let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
        let world = filled(world_on(server, InitialList::Streamed, away)).await;
        let lists = world.map.lists();
        for n in 0..10 {
            world.server.pause().await;
            tokio::time::sleep(secs(5)).await;
            assert_eq!(world.handle.state().condition, Condition::Unreachable);
            world.server.resume().await.expect("resumes");
            put(&world.server, "o1", &n.to_string());
            let took = world.equal(secs(60)).await;
            assert!(took <= secs(2), "restart {n}: {took:?}");
        }
        assert_eq!(world.map.lists(), lists);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn black_holes_are_noticed() {
    let world = synced(InitialList::Paged).await;
    let lists = world.map.lists();
    let hole = world.server.faults().black_hole(Connections::Existing, Direction::Both);
    put(&world.server, "o1", "dark");
    let took = world.equal(secs(120)).await;
    assert!(took <= secs(20), "{took:?}");
    assert_eq!(world.map.lists(), lists);
    hole.heal();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn verification_watch_detects_stalled_stream() {
    let world = synced(InitialList::Paged).await;
    let lists = world.map.lists();
    world.watching(secs(10)).await;
    let open = world.server.open_watches();
    assert_eq!(open, 1);
    let stalled = world.server.faults().inject(Fault::Stall).on(Match::watch()).times(1);
    put(&world.server, "o1", "stalled");
    let took = world.equal(secs(600)).await;
    assert!(took <= secs(60), "{took:?}");
    assert_eq!(world.handle.stats().stalls, 1);
    assert_eq!(world.map.lists(), lists);
    stalled.heal();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn content_converges_after_any_stream_fault() {
    let faults = [
        Fault::Close,
        Fault::Reset,
        Fault::HalfFrame,
        Fault::GarbageFrame,
        Fault::RepeatEvents,
        Fault::Undecodable(Damage::Labels),
        Fault::KillConnection(CloseMode::Rst),
        Fault::GoAway,
    ];
    for fault in faults {
        let world = synced(InitialList::Paged).await;
        let name = format!("{fault:?}");
        let guard = world.server.faults().inject(fault).on(Match::watch().resource("configmaps")).times(2);
        for n in 0..5 {
            put(&world.server, "o1", &n.to_string());
            put(&world.server, &format!("new{n}"), &n.to_string());
            tokio::time::sleep(secs(1)).await;
        }
        guard.heal();
        eventually(secs(45), &name, || world.map.equals(&world.server)).await;
        eventually(secs(45), &name, || world.handle.state().condition == Condition::Watching).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_wrong_kind_in_list_watch_and_get() {
    let refused = "asked for v1 ConfigMap, got v1 Nonsense";
    let world = synced(InitialList::Paged).await;
    world.watching(secs(10)).await;
    let damage = |damage, which: Match| {
        world.server.faults().inject(Fault::Undecodable(damage)).on(which.resource("configmaps"))
    };
    let says =
        |words: &str| world.handle.state().reason.is_some_and(|reason| reason.to_string().contains(words));

    // Earlier reasons must not count for the next case.
    let well = || world.map.equals(&world.server) && world.handle.state().reason.is_none();

    let stream = damage(Damage::Kind, Match::watch());
    put(&world.server, "o1", "another");
    eventually(secs(10), "the stream is refused", || says(refused)).await;
    assert_eq!(world.handle.state().condition, Condition::ServerError);
    stream.heal();
    eventually(secs(45), "all is well", well).await;
    assert_eq!(world.map.lists(), 1);

    let (stream, read) = (damage(Damage::Labels, Match::watch()), damage(Damage::Kind, Match::get()));
    put(&world.server, "o1", "broken");
    eventually(secs(60), "the read is refused", || says(refused)).await;
    stream.heal();
    read.heal();
    eventually(secs(90), "all is well", well).await;

    let list = damage(Damage::Kind, Match::list());
    world.handle.relist();
    // Items of a list do not state their version.
    eventually(secs(90), "the list is refused", || says("asked for v1 ConfigMap, got Nonsense")).await;
    list.heal();
    eventually(secs(90), "all is well", well).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn refusals_map_to_conditions_without_relist() {
    let cases = [
        (401, Condition::Unauthorized),
        (403, Condition::Forbidden),
        (404, Condition::NotServed),
        (429, Condition::Throttled),
        (500, Condition::ServerError),
        (503, Condition::ServerError),
    ];
    for (code, condition) in cases {
        let world = synced(InitialList::Paged).await;
        let lists = world.map.lists();
        let refused =
            world.server.faults().inject(Fault::status(code, 0)).on(Match::any().resource("configmaps"));
        world.server.faults().kill_connections(CloseMode::Rst);
        eventually(secs(20), condition.as_str(), || world.handle.state().condition == condition).await;
        put(&world.server, "o1", "refused");
        refused.heal();
        world.equal(secs(45)).await;
        assert_eq!(world.map.lists(), lists);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn forgotten_history_is_listed_again_as_a_gap() {
    for initial in BOTH {
        let world = synced(initial).await;
        world.server.pause().await;
        put(&world.server, "o1", "unseen");
        delete(&world.server, "o2");
        world.server.compact();
        world.server.resume().await.expect("resumes");
        world.equal(secs(30)).await;
        assert_eq!(world.map.0.lock().causes.last(), Some(&ReplaceCause::Expired));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rolled_back_history_begins_an_epoch() {
    let world = synced(InitialList::Paged).await;
    let before = world.server.resource_version();
    for n in 0..40 {
        put(&world.server, "o1", &n.to_string());
    }
    world.equal(secs(5)).await;
    tokio::time::sleep(secs(1)).await;
    world.server.roll_back(before).expect("rolls back");
    let took = eventually(secs(120), "a new epoch", || world.map.0.lock().epoch == 1).await;
    assert!(took <= secs(40), "{took:?}");
    world.equal(secs(5)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn streamed_list_without_end_falls_back() {
    let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
    put(&server, "o1", "0");
    let withheld = server.faults().inject(Fault::WithholdBookmarks).on(Match::watch());
    let world = world_on(server, InitialList::Streamed, refused);
    let took = world.equal(secs(120)).await;
    assert!(took <= secs(15), "{took:?}");
    assert!(world.map.0.lock().watch_list_unsupported);
    withheld.heal();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_is_immediate_while_server_is_unreachable() {
    let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
    server.pause().await;
    let world = world_on(server, InitialList::Streamed, refused);
    eventually(secs(5), "unreachable", || world.handle.state().condition == Condition::Unreachable).await;
    let state = world.handle.state();
    assert!(state.reason.is_some() && state.attempts > 0, "{state}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn closed_transport_ends_driver() {
    let world = synced(InitialList::Paged).await;
    assert!(world.transport.shutdown(secs(1)).await);
    let ended =
        tokio::time::timeout(secs(5), world.driver).await.expect("ends by itself").expect("without a panic");
    let last = ended.0.lock().states.last().cloned().expect("a state");
    assert_eq!(last.condition, Condition::Stopped);
    assert!(last.reason.is_some());
}
