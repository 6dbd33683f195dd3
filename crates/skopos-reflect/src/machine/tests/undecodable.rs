//! What cannot be decoded: believed when, read how, set aside until when.

use skopos_wire::{BrokenFrame, Limits, ObjectKey, WatchEvent};

use super::desk::Desk;
use super::secs;
use super::server::object;
use crate::machine::*;

fn broken(name: &str, rv: u64) -> Input {
    let frame = BrokenFrame {
        key: Some(ObjectKey::namespaced("ns", name)),
        resource_version: Some(rv.into()),
        ..WatchEvent::parse("garbage".into(), &Limits::default()).unwrap_err()
    };
    Input::Events { id: RequestId(0), events: vec![Err(frame)] }
}

fn to(id: RequestId, input: Input) -> Input {
    match input {
        Input::Events { events, .. } => Input::Events { id, events },
        other => other,
    }
}

#[test]
fn a_broken_frame_is_believed_when_the_same_comes_again() {
    let (mut desk, mut watch) = Desk::watching(1);
    // Another version of the object, and another object: not the same.
    for (name, rv) in [("a", 11), ("a", 12), ("b", 12)] {
        desk.give(to(watch, broken(name, rv)));
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
    }
    desk.give(to(watch, broken("b", 12)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let Action::Get(get) = desk.asks() else { panic!("a read of b") };
    assert_eq!(get.key, ObjectKey::namespaced("ns", "b"));
    let begun = desk.now;
    assert_eq!(desk.due(), begun + secs(45));
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("b", 2, 12))) });
    assert_eq!((desk.sink.rv, desk.sink.content["b"]), (Some(12), (2, 12)));
    assert_eq!(desk.watches().start, WatchStart::After(12.into()));
}

#[test]
fn an_object_that_is_newer_than_its_broken_frame_is_set_aside_until_its_event() {
    for object_now in [Ok(None), Ok(Some(object("b", 2, 14)))] {
        let (mut desk, watch) = Desk::watching(1);
        desk.give(to(watch, broken("b", 12)));
        desk.machine.poll_action();
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        desk.give(to(watch, broken("b", 12)));
        desk.machine.poll_action();
        let get = desk.asks().id();
        desk.give(Input::Got { id: get, object: object_now });
        assert_eq!(desk.sink.rv, Some(12), "the link goes on past it");
        assert!(!desk.sink.content.contains_key("b") && desk.sink.set_aside.contains("b"));
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        let degraded = Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", "b")), count: 1 };
        assert_eq!(desk.machine.state().condition, Condition::Degraded(degraded));
        // Another broken one of the same object is passed over; a good one ends it.
        desk.give(to(watch, broken("b", 13)));
        assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(13)));
        desk.give(Input::Events { id: watch, events: vec![Ok(WatchEvent::Modified(object("b", 2, 14)))] });
        assert_eq!(desk.machine.state().condition, Condition::Watching);
    }
}

#[test]
fn an_unreadable_stream_is_opened_again_twice_then_all_is_listed_in_pages() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let mut watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    let end = WatchEvent::Bookmark { resource_version: 10.into(), initial_events_end: true };
    desk.give(Input::Events { id: watch, events: vec![Ok(end)] });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    for times in 1..=3 {
        desk.now = desk.now + secs(61);
        desk.give(Input::Failed { id: watch, failure: Failure::Malformed { reason: "no JSON".into() } });
        assert_eq!(desk.machine.state().reason.as_deref(), Some("no JSON"));
        let action = match desk.asks() {
            Action::Cancel { .. } => desk.asks(),
            other => other,
        };
        match action {
            Action::Watch(again) if times < 3 => {
                assert_eq!(again.start, WatchStart::After(10.into()));
                watch = again.id;
                desk.give(Input::Opened { id: watch });
            }
            Action::List(list) if times == 3 => assert_eq!(list.limit, Some(500)),
            other => panic!("{times}: {other:?}"),
        }
    }
    assert_eq!(RequestId(7).to_string(), "#7");
}
