//! Changes that share one RV, as the deletions of all keys of an expired lease do: none is lost, wherever a stream ends.

use skopos_wire::{BrokenFrame, WatchEvent};

use super::desk::{Desk, at};
use super::server::object;
use super::undecodable::{broken, to};
use crate::machine::*;

/// Makes a desk with an open watch at RV 10, where there are three objects.
fn watching() -> (Desk, RequestId) {
    let mut desk = Desk::new(1);
    let list = desk.asks().id();
    desk.list(list, [("a", 7), ("b", 8), ("c", 9)].map(|(name, rv)| Ok(object(name, rv, rv))).into(), 10);
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    (desk, watch)
}

fn deleted(name: &str, uid: u64) -> Result<WatchEvent, BrokenFrame> {
    Ok(WatchEvent::Deleted(object(name, uid, 11)))
}

fn names(desk: &Desk) -> Vec<&str> {
    desk.sink.content.keys().map(String::as_str).collect()
}

#[test]
fn next_stream_delivers_remaining_changes_of_version() {
    let (mut desk, watch) = watching();
    desk.give(Input::Events { id: watch, events: vec![deleted("a", 7)] });
    desk.lose(watch);
    let again = desk.watches();
    assert_eq!(again.start, WatchStart::After(10.into()));
    desk.give(Input::Opened { id: again.id });
    desk.give(Input::Events { id: again.id, events: vec![deleted("a", 7), deleted("b", 8)] });
    assert_eq!((names(&desk), desk.sink.rv), (vec!["c"], Some(11)));
    assert_eq!((desk.machine.stats().duplicates, desk.machine.stats().disordered), (1, 0));
    // A bookmark at it may come between two of them, and one beyond it may come before the first at its own RV.
    desk.bookmark(again.id, 11);
    desk.give(Input::Events { id: again.id, events: vec![deleted("c", 9)] });
    assert_eq!(names(&desk), Vec::<&str>::new());
    desk.bookmark(again.id, 15);
    desk.lose(again.id);
    assert_eq!(desk.watches().start, WatchStart::After(14.into()));
}

#[test]
fn restored_content_resumes_one_version_back() {
    let resume = Some(Resume { resource_version: 11.into(), epoch: 0 });
    let mut desk = Desk::with(MachineOptions { resume, ..MachineOptions::default() }, 1);
    desk.sink.rv = Some(11);
    let watch = desk.watches();
    assert_eq!(watch.start, WatchStart::After(10.into()));
    desk.give(Input::Opened { id: watch.id });
    desk.give(Input::Events { id: watch.id, events: vec![deleted("a", 7), deleted("b", 8)] });
    assert_eq!(desk.machine.stats().changes, 2);
    // A caller that follows changes alone states its own position.
    let resume = Some(Resume { resource_version: 11.into(), epoch: 0 });
    let options = MachineOptions { resume, content: Content::Changes, ..MachineOptions::default() };
    assert_eq!(Desk::with(options, 1).watches().start, WatchStart::After(11.into()));
}

#[test]
fn change_behind_broken_frame_is_delivered() {
    let (mut desk, mut watch) = watching();
    for _ in 0..2 {
        let Input::Events { events: mut frames, .. } = to(watch, broken("a", 11)) else { unreachable!() };
        frames[0].as_mut().unwrap_err().event_type = Some("DELETED".into());
        frames.push(deleted("b", 8));
        desk.give(Input::Events { id: watch, events: frames });
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
    }
    assert_eq!(names(&desk), ["b", "c"], "the deletion of a is believed");
    let Input::Events { events: mut frames, .. } = to(watch, broken("a", 11)) else { unreachable!() };
    frames.push(deleted("b", 8));
    desk.give(Input::Events { id: watch, events: frames });
    assert_eq!(names(&desk), ["c"]);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn verification_watch_shows_undelivered_changes() {
    let (mut desk, watch) = watching();
    desk.give(Input::Events { id: watch, events: vec![deleted("a", 7)] });
    desk.at(20);
    desk.probe(19, 20);
    assert_eq!(desk.due(), at(35));
    let look = desk.watches();
    assert_eq!((look.verification, &look.start), (true, &WatchStart::After(10.into())));
    desk.give(Input::Opened { id: look.id });
    desk.give(Input::Events { id: look.id, events: vec![deleted("a", 7), deleted("b", 8)] });
    desk.bookmark(look.id, 25);
    // A change shown by the look counts as missing until the stream brings it.
    desk.give(Input::Events { id: watch, events: vec![deleted("b", 8)] });
    assert_eq!(names(&desk), ["c"]);
}

#[test]
fn probe_proves_nothing_after_partial_stream_is_lost() {
    let (mut desk, watch) = watching();
    desk.at(20);
    desk.give(Input::Events { id: watch, events: vec![deleted("a", 7)] });
    desk.probe(20, 11);
    assert_eq!(desk.sink.fresh, Some(at(20)), "what the stream owes is on its way");
    desk.lose(watch);
    desk.at(25);
    desk.probe(24, 11);
    assert_eq!(desk.sink.fresh, Some(at(20)));
    let again = desk.watches();
    desk.at(30);
    desk.give(Input::Opened { id: again.id });
    desk.probe(30, 11);
    assert_eq!((desk.sink.fresh, desk.due()), (Some(at(20)), at(31)));
    // The changes due at that RV come at once.
    desk.give(Input::Events { id: again.id, events: vec![deleted("a", 7), deleted("b", 8)] });
    assert_eq!(desk.sink.fresh, Some(at(20)));
    desk.at(31);
    desk.give(Input::Timeout);
    assert_eq!((desk.sink.fresh, desk.machine.poll_action()), (Some(at(30)), None));
    desk.probe(31, 11);
    assert_eq!(desk.sink.fresh, Some(at(31)));
}

#[test]
fn clean_close_proves_last_version_complete() {
    for (ends, lost, proven) in [(22, false, true), (22, true, false), (20, false, false)] {
        let (mut desk, watch) = watching();
        desk.at(20);
        desk.bookmark(watch, 11);
        desk.at(ends);
        if lost {
            desk.lose(watch)
        } else {
            desk.give(Input::Closed { id: watch })
        }
        // Some proxies hold the response to the next one back until there is an event.
        assert_eq!(desk.watches().start, WatchStart::After(10.into()), "it is not known either way");
        desk.at(60);
        desk.probe(50, 11);
        assert_eq!(desk.sink.fresh == Some(at(50)), proven, "{ends} {lost}");
    }
}

#[test]
fn expired_verification_watch_causes_relist() {
    let (mut desk, watch) = watching();
    desk.give(Input::Events { id: watch, events: vec![deleted("a", 7)] });
    desk.at(20);
    desk.probe(19, 20);
    assert_eq!(desk.due(), at(35));
    let look = desk.watches();
    desk.give(Input::Opened { id: look.id });
    let gone = skopos_wire::Status::too_old_resource_version(10, 11);
    desk.give(Input::Events { id: look.id, events: vec![Ok(WatchEvent::Error(Box::new(gone)))] });
    assert!(matches!(desk.acts(), Action::Cancel { .. }));
    assert!(!desk.machine.state().condition.is_watching());
}

/// Checks that memory, and the time per change, are bounded whatever a server sends.
#[test]
fn too_many_changes_at_one_version_cause_relist() {
    let (mut desk, watch) = watching();
    let mut names = 0..;
    for _ in 0..1_000 {
        let events = names.by_ref().take(100).map(|n| deleted(&format!("x{n}"), 1000 + n)).collect();
        desk.give(Input::Events { id: watch, events });
        if let Some(action) = desk.machine.poll_action() {
            assert_eq!(action, Action::Cancel { id: watch });
            break;
        }
    }
    assert_eq!((desk.machine.stats().changes, names.start), (10_000, 10_000));
    let list = desk.asks().id();
    desk.list(list, vec![Ok(object("a", 7, 7))], 11);
    assert_eq!((self::names(&desk), desk.sink.rv), (vec!["a"], Some(11)));
    assert_eq!(desk.watches().start, WatchStart::After(11.into()), "a list has all of it");
}
