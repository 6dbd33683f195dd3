//! The raw watch against the test server (report R5): it survives every end of a stream, delivers each change once, and
//! reports skipped changes.

mod support;

use std::sync::Arc;

use futures::StreamExt as _;
use skopos_reflect::{
    Condition, RawWatch, RawWatchItem, RawWatchState, ReflectorState, ReplaceCause, Target,
};
use skopos_testserver::{CloseMode, Fault, Match, TestServer};
use skopos_wire::WatchEvent;
use support::*;

struct World {
    server: Arc<TestServer>,
    watch: RawWatch,
    start: u64,
}

async fn world() -> World {
    let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
    let start = put(&server, "old", "0");
    let transport = transport_to(&server);
    let target = Target::new("", "v1", "configmaps");
    let watch = RawWatch::builder(transport, target).seed(5).from(&start.to_string()).expect("a valid RV");
    World { server, watch, start }
}

impl World {
    async fn item(&mut self) -> RawWatchItem {
        let item = tokio::time::timeout(secs(120), self.watch.next()).await;
        item.expect("an item in time").expect("no end")
    }

    /// Returns the RV of the next change, without bookmarks.
    async fn change(&mut self) -> u64 {
        loop {
            match self.item().await {
                RawWatchItem::Event(WatchEvent::Bookmark { .. }) => {}
                RawWatchItem::Event(event) => {
                    return event.resource_version().and_then(|rv| rv.as_u64()).expect("a change");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delivers_each_change_once_after_stream_faults() {
    let faults = [
        Fault::Close,
        Fault::Reset,
        Fault::HalfFrame,
        Fault::GarbageFrame,
        Fault::RepeatEvents,
        Fault::KillConnection(CloseMode::Fin),
        Fault::status(500, 0),
        Fault::too_many_requests(2),
    ];
    let mut world = world().await;
    for fault in faults {
        let guard = world.server.faults().inject(fault).on(Match::watch()).times(2);
        for n in 0..4 {
            let rv = put(&world.server, "o", &n.to_string());
            assert_eq!(world.change().await, rv);
            if n == 1 {
                world.server.close_watches();
            }
        }
        guard.heal();
    }
}

#[tokio::test(start_paused = true)]
async fn survives_thirty_quiet_minutes_and_closed_watches() {
    let mut world = world().await;
    for n in 0..5 {
        // The watch is not polled meanwhile; the server ends it.
        tokio::time::sleep(secs(1800)).await;
        world.server.close_watches();
        let rv = put(&world.server, "o", &n.to_string());
        assert_eq!(world.change().await, rv);
    }
    let lists = world.server.requests().iter().filter(|r| r.verb == "list").count();
    let watches = world.server.requests().iter().filter(|r| r.verb == "watch").count();
    assert!(watches < 60, "{watches} watches, {lists} lists");
}

#[tokio::test(start_paused = true)]
async fn reports_skipped_range_after_compaction() {
    let mut world = world().await;
    let first = put(&world.server, "o", "seen");
    assert_eq!(world.change().await, first);
    world.server.pause().await;
    put(&world.server, "o", "unseen");
    world.server.compact();
    world.server.resume().await.expect("resumes");
    let now = world.server.resource_version();
    let skipped = loop {
        match world.item().await {
            RawWatchItem::Event(WatchEvent::Bookmark { .. }) => {}
            other => break other,
        }
    };
    let RawWatchItem::Skipped { since, to, reason } = skipped else { panic!("{skipped:?}") };
    assert!(since.as_u64() >= Some(first), "{since}");
    assert!(to.as_u64() >= Some(now), "{to} {now}");
    assert_eq!(reason, ReplaceCause::Expired);
    let rv = put(&world.server, "o", "again");
    assert_eq!(world.change().await, rv);
}

#[tokio::test(start_paused = true)]
async fn begins_now_with_a_bookmark() {
    let World { server, start, .. } = world().await;
    let target = Target::new("", "v1", "configmaps");
    let mut watch = RawWatch::builder(transport_to(&server), target).from_now();
    let Some(RawWatchItem::Event(WatchEvent::Bookmark { resource_version, .. })) = watch.next().await else {
        panic!()
    };
    assert!(resource_version.as_u64() >= Some(start));
    let rv = put(&server, "new", "1");
    let Some(RawWatchItem::Event(WatchEvent::Added(object))) = watch.next().await else { panic!() };
    assert_eq!(object.resource_version().as_u64(), Some(rv));
}

#[tokio::test(start_paused = true)]
async fn refuses_versions_that_mean_any() {
    let World { server, .. } = world().await;
    for text in ["", "0", "x", "-1"] {
        let builder = RawWatch::builder(transport_to(&server), Target::new("", "v1", "configmaps"));
        assert!(builder.from(text).is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn raw_watch_ends_on_transport_shutdown() {
    let World { server, start, .. } = world().await;
    let transport = transport_to(&server);
    let target = Target::new("", "v1", "configmaps");
    let mut watch =
        RawWatch::builder(transport.clone(), target).from(&start.to_string()).expect("a valid RV");
    put(&server, "o", "1");
    assert!(watch.next().await.is_some());
    transport.shutdown(secs(1)).await;
    while tokio::time::timeout(secs(10), watch.next()).await.expect("in time").is_some() {}
}

#[tokio::test(start_paused = true)]
async fn state_reports_refusal_and_recovery() {
    let mut world = world().await;
    let mut state = world.watch.state();
    assert_eq!(state.get().condition, Condition::Connecting);
    for (code, condition) in
        [(401, Condition::Unauthorized), (403, Condition::Forbidden), (503, Condition::ServerError)]
    {
        until(&mut world, &mut state, Condition::Watching).await;
        let refused = world.server.faults().inject(Fault::status(code, 0)).everywhere();
        world.server.close_watches();
        let told = until(&mut world, &mut state, condition).await;
        assert!(told.attempts > 0 && told.retry_at.is_some());
        assert!(told.reason.is_some_and(|reason| reason.contains(&code.to_string())));
        refused.heal();
    }
    drop(world);
    while state.changed().await.is_some() {}
}

/// Polls the watch, which has no items, until its reflector has this condition.
async fn until(world: &mut World, state: &mut RawWatchState, condition: Condition) -> ReflectorState {
    let told = async {
        while state.get().condition != condition {
            state.changed().await.expect("the watch is there");
        }
        state.get()
    };
    let passing = async {
        loop {
            let item = world.item().await;
            assert!(matches!(item, RawWatchItem::Event(WatchEvent::Bookmark { .. })), "{item:?}");
        }
    };
    tokio::select! {
        told = tokio::time::timeout(secs(100), told) => told.expect("told in time"),
        () = passing => unreachable!("it does not end"),
    }
}
