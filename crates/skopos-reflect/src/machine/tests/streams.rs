//! Streamed lists that fail or never end.

use skopos_wire::{Status, WatchEvent};

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use crate::machine::*;

fn streaming() -> (Desk, RequestId) {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    desk.give(Input::Opened { id: stream });
    desk.give(Input::Events { id: stream, events: vec![Ok(WatchEvent::Added(object("a", 1, 5)))] });
    assert!(desk.sink.is_staging());
    (desk, stream)
}

fn end(rv: u64) -> WatchEvent {
    WatchEvent::Bookmark { resource_version: rv.into(), initial_events_end: true }
}

#[test]
fn truncated_streamed_list_is_paged_elsewhere() {
    let (mut desk, stream) = streaming();
    desk.give(Input::Closed { id: stream });
    assert!(!desk.sink.is_staging() && desk.sink.rv.is_none(), "half a list is none");
    let state = desk.machine.state();
    assert_eq!((&state.condition, state.attempts), (&Condition::Retrying, 1));
    assert!(state.reason.as_ref().is_some_and(|reason| reason.contains("before it was complete")));
    let Action::List(list) = desk.asks() else { panic!("a list") };
    assert_eq!(list.avoid, Some(stream));
    assert!(desk.now <= at(2));
    assert!(desk.machine.watch_list_supported(), "one that was cut says nothing about the server");
}

#[test]
fn stop_discards_partial_streamed_list() {
    let (mut desk, stream) = streaming();
    desk.give(Input::Stop);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    assert!(!desk.sink.is_staging() && desk.machine.is_stopped());
}

#[test]
fn events_after_rejected_streamed_list_are_ignored() {
    let (mut desk, stream) = streaming();
    desk.give(Input::Events { id: stream, events: vec![Ok(end(10))] });
    desk.now = desk.now + secs(100);
    desk.give(Input::Relist);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    let again = desk.watches().id;
    desk.give(Input::Opened { id: again });
    let later = WatchEvent::Bookmark { resource_version: 12.into(), initial_events_end: false };
    let events = vec![Ok(end(8)), Ok(WatchEvent::Added(object("b", 1, 11))), Ok(later)];
    desk.give(Input::Events { id: again, events });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: again }));
    assert_eq!((desk.sink.rv, desk.machine.stats().regressed_lists), (Some(10), 1));
    assert_eq!(desk.sink.content.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn error_event_cancels_streamed_list() {
    let (mut desk, stream) = streaming();
    let status = Status::internal_error("no");
    desk.give(Input::Events { id: stream, events: vec![Ok(WatchEvent::Error(Box::new(status)))] });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    assert!(!desk.sink.is_staging());
}

/// Checks a proxy that holds streams back, or a role that may list but not watch.
#[test]
fn failed_streamed_list_falls_back_to_pages() {
    for code in [401, 403, 429, 500, 502, 504] {
        let mut desk = Desk::with(MachineOptions::default(), 1);
        let stream = desk.watches().id;
        desk.fail(stream, code);
        let next = desk.asks();
        assert_eq!(matches!(next, Action::List(_)), !matches!(code, 401 | 429), "{code}: {next:?}");
        assert!(desk.machine.watch_list_supported());
    }
    let mut desk = Desk::with(MachineOptions::default(), 1);
    desk.watches();
    assert_eq!(desk.due(), at(25), "no headers");
    assert!(matches!(desk.acts(), Action::Cancel { .. }));
    assert!(matches!(desk.acts(), Action::List(_)));
    assert!(desk.now < at(28), "within the thirty seconds of a first sync");
}

/// Checks a limit that is one of watches only.
#[test]
fn third_throttled_stream_falls_back_to_pages() {
    for (code, gives_way) in [(429, true), (401, false)] {
        let mut desk = Desk::with(MachineOptions::default(), 1);
        for _ in 0..3 {
            let stream = desk.watches().id;
            desk.fail(stream, code);
        }
        let next = desk.asks();
        assert_eq!(matches!(next, Action::List(_)), gives_way, "{code}: {next:?}");
        assert!(desk.machine.watch_list_supported());
    }
}
