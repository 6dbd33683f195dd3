//! The counters: each event is counted once, where it happened.

use skopos_wire::WatchEvent;

use super::desk::{Desk, at};
use super::server::object;
use super::undecodable::{broken, to};
use crate::machine::*;

#[test]
fn lists_watches_and_looks_are_counted() {
    let mut desk = Desk::new(1);
    for (number, token) in [(1, Some("next")), (2, None)] {
        let page = desk.asks().id();
        assert_eq!(desk.machine.stats().list_requests, number);
        desk.give(Input::Opened { id: page });
        let continue_token = token.map(Into::into);
        desk.give(Input::ListEnd { id: page, resource_version: Some(10.into()), continue_token });
    }
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    desk.bookmark(watch, 11);
    let stats = *desk.machine.stats();
    assert_eq!((stats.lists, stats.watch_requests, stats.bookmarks), (1, 1, 1));

    desk.at(20);
    desk.probe(19, 20);
    let look = desk.looks(35);
    desk.bookmark(look, 20);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    let stats = *desk.machine.stats();
    assert_eq!((stats.verification_watches, stats.watch_requests, stats.bookmarks), (1, 2, 2));

    desk.at(60);
    desk.probe(59, 30);
    let look = desk.looks(75);
    desk.change(look, 30);
    desk.at(77);
    desk.give(Input::Timeout);
    let stats = *desk.machine.stats();
    assert_eq!((stats.verification_watches, stats.stalls, stats.failures), (2, 1, 1));
    assert_eq!((stats.relists, stats.changes, stats.undecodable), (0, 0, 0));
}

#[test]
fn streamed_lists_are_counted_as_watches() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    assert_eq!((desk.machine.stats().watch_requests, desk.machine.stats().list_requests), (1, 0));
    desk.give(Input::Opened { id: stream });
    let bookmark = |rv: u64, initial_events_end| WatchEvent::Bookmark {
        resource_version: rv.into(),
        initial_events_end,
    };
    desk.give(Input::Events { id: stream, events: vec![Ok(bookmark(8, false))] });
    assert_eq!(desk.machine.stats().bookmarks, 1);
    desk.give(to(stream, broken("b", 7)));
    desk.give(Input::Events {
        id: stream,
        events: vec![Ok(WatchEvent::Added(object("a", 1, 5))), Ok(bookmark(10, true))],
    });
    let stats = *desk.machine.stats();
    assert_eq!((stats.lists, stats.bookmarks, stats.undecodable, stats.changes), (1, 2, 1, 0));
}

#[test]
fn a_streamed_list_without_an_end_is_a_failure() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    desk.give(Input::Opened { id: stream });
    desk.at(10);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    assert_eq!((desk.machine.stats().failures, desk.now), (1, at(10)));
}
