//! Scenarios of the reference implementations' retrying watcher that the other tests do not cover; docs/evidence/acceptance.md says
//! which test covers which.

mod support;

use std::sync::Arc;

use futures::StreamExt as _;
use skopos_reflect::{RawWatch, RawWatchItem, ReplaceCause, Target};
use skopos_testserver::{Fault, Match, TestServer};
use skopos_transport::Transport;
use skopos_wire::WatchEvent;
use support::*;

async fn watching() -> (Arc<TestServer>, Transport, RawWatch) {
    let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
    let start = put(&server, "old", "0").to_string();
    let transport = transport_to(&server);
    let target = Target::new("", "v1", "configmaps");
    let watch = RawWatch::builder(transport.clone(), target).seed(5).from(&start).expect("a valid RV");
    (server, transport, watch)
}

/// Returns the next item that is no bookmark.
async fn next(watch: &mut RawWatch) -> RawWatchItem {
    loop {
        let item = tokio::time::timeout(secs(120), watch.next()).await;
        match item.expect("an item in time").expect("no end") {
            RawWatchItem::Event(WatchEvent::Bookmark { .. }) => {}
            other => return other,
        }
    }
}

/// Returns the RV of the next item, which must be a change.
async fn change(watch: &mut RawWatch) -> Option<u64> {
    match next(watch).await {
        RawWatchItem::Event(event) => event.resource_version().and_then(|rv| rv.as_u64()),
        other => panic!("{other:?}"),
    }
}

/// Checks lines 64 and 65: after any refusal of a watch, each change has come exactly once.
#[tokio::test(start_paused = true)]
async fn refused_watch_resumes_at_its_position() {
    let (server, _transport, mut watch) = watching().await;
    for code in [400, 401, 403, 404, 418, 422, 429, 500, 502, 503, 504, 599] {
        for event in [false, true] {
            let Fault::Status(status) = Fault::status(code, 0) else { unreachable!() };
            let fault = if event { Fault::ErrorEvent(status) } else { Fault::Status(status) };
            let guard = server.faults().inject(fault).on(Match::watch()).times(2);
            if !event {
                server.close_watches();
            }
            let rv = put(&server, "o", &format!("{code}-{event}"));
            assert_eq!(change(&mut watch).await, Some(rv), "{code} {event}");
            guard.heal();
        }
    }
}

/// Checks lines 64 and 65: a 410 instead of a watch, or in it, is reported as a skip, and events continue after it.
#[tokio::test(start_paused = true)]
async fn expiry_as_status_or_event_reports_skip() {
    for event in [false, true] {
        let (server, _transport, mut watch) = watching().await;
        let rv = put(&server, "o", "seen");
        assert_eq!(change(&mut watch).await, Some(rv));
        let Fault::Status(status) = Fault::status(410, 0) else { unreachable!() };
        let fault = if event { Fault::ErrorEvent(status) } else { Fault::Status(status) };
        let _gone = server.faults().inject(fault).on(Match::watch()).times(1);
        server.close_watches();
        match next(&mut watch).await {
            RawWatchItem::Skipped { since, to, reason } => {
                assert_eq!(since.as_u64(), Some(rv));
                assert!(to >= since);
                assert_eq!(reason, ReplaceCause::Expired);
            }
            other => panic!("{other:?}"),
        }
        let rv = put(&server, "o", "again");
        assert_eq!(change(&mut watch).await, Some(rv));
    }
}

/// Checks line 67: a watch that is dropped with unread events leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn dropped_watch_with_unread_events_is_closed() {
    let (server, transport, mut watch) = watching().await;
    let rv = put(&server, "first", "1");
    assert_eq!(change(&mut watch).await, Some(rv));
    for n in 0..500 {
        put(&server, &format!("o{n}"), &"x".repeat(60));
    }
    tokio::time::sleep(secs(60)).await;
    drop(watch);
    server.wait_for(|server| server.open_watches() == 0).await.expect("the watch is closed");
    assert!(transport.shutdown(secs(1)).await, "nothing is left");
}
