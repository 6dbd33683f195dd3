//! A broken frame whose object is not known yet, and objects that are set aside: their report, and their end.

use skopos_wire::{ObjectKey, WatchEvent};

use super::desk::Desk;
use super::secs;
use super::server::object;
use super::undecodable::{broken, reads_again, to, unreadable, without_a};
use crate::machine::*;

fn lacks(name: &str, count: usize) -> Condition {
    Condition::Degraded(Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", name)), count })
}

/// Makes a desk where this frame came broken, and the watch is open again at the RV before it.
fn after_a_broken(name: &str, rv: u64) -> (Desk, RequestId) {
    let (mut desk, watch) = Desk::watching(1);
    desk.give(to(watch, broken(name, rv)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    (desk, watch)
}

/// Makes a desk with an open watch after a list of these broken objects only.
fn without(broken: Vec<Option<&str>>) -> (Desk, RequestId) {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(120);
    desk.give(Input::Relist);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let list = desk.asks().id();
    desk.list(list, broken.into_iter().map(|name| Err(unreadable(name))).collect(), 12);
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    (desk, watch)
}

#[test]
fn undecodable_change_degrades_until_good_event() {
    let (mut desk, watch) = after_a_broken("b", 12);
    assert_eq!(desk.machine.state().condition, lacks("b", 1));
    desk.change(watch, 11);
    assert_eq!(desk.machine.state().condition, lacks("b", 1), "another object is no answer");
    desk.give(Input::Events { id: watch, events: vec![Ok(WatchEvent::Added(object("b", 2, 12)))] });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!(desk.sink.content["b"], (2, 12));
}

#[test]
fn degraded_count_includes_change_broken_once() {
    let (mut desk, watch) = without_a();
    desk.give(to(watch, broken("b", 14)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    assert_eq!(desk.machine.state().condition, lacks("a", 2));
}

#[test]
fn skips_undecodable_frame_below_current_version() {
    let (mut desk, watch) = Desk::watching(1);
    desk.change(watch, 15);
    desk.give(to(watch, broken("a", 12)));
    assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(15)));
    let stats = desk.machine.stats();
    assert_eq!((stats.duplicates, stats.undecodable), (1, 1));
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn third_broken_frame_without_version_causes_relist() {
    let (mut desk, mut watch) = Desk::watching(1);
    for times in 1..=3 {
        let Input::Events { mut events, .. } = broken("b", 12) else { unreachable!() };
        if let Some(Err(frame)) = events.first_mut() {
            frame.resource_version = None;
        }
        desk.give(Input::Events { id: watch, events });
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        if times == 3 {
            break;
        }
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        assert_eq!(
            desk.machine.state().condition,
            Condition::Watching,
            "which change is missing is not known"
        );
    }
    desk.acts();
    assert!(matches!(desk.asks(), Action::List(_)));
}

#[test]
fn event_of_quarantined_object_cancels_its_get() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.change(watch, 14);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: get.id }));
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    // Then nothing is read or listed any more.
    for rv in 15..19 {
        assert_eq!(desk.due(), desk.now + secs(90));
        desk.now = desk.now + secs(60);
        desk.bookmark(watch, rv);
    }
    assert_eq!(desk.machine.poll_action(), None);
}

#[test]
fn get_of_recovered_object_causes_no_relist() {
    let (mut desk, mut watch) = without(vec![Some("a"), Some("b")]);
    let (get, _) = reads_again(&mut desk, &mut watch);
    assert_eq!(get.key.name(), "a");
    desk.change(watch, 14);
    assert_eq!(desk.machine.state().condition, lacks("b", 1));
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("a", 1, 14))) });
    assert_eq!(reads_again(&mut desk, &mut watch).0.key.name(), "b", "no list would help");
    assert_eq!(desk.machine.stats().relists, 1);
}

#[test]
fn nameless_broken_items_are_relisted_not_read() {
    let (mut desk, watch) = without(vec![Some("a"), None]);
    assert_eq!(desk.machine.state().condition, lacks("a", 2));
    assert_eq!(desk.acts(), Action::Cancel { id: watch });
    assert!(matches!(desk.asks(), Action::List(_)));
    assert_eq!(desk.machine.stats().get_requests, 0);
}

#[test]
fn repair_by_get_counts_as_one_change() {
    let (mut desk, watch) = after_a_broken("b", 12);
    desk.give(to(watch, broken("b", 12)));
    desk.machine.poll_action();
    let get = desk.asks().id();
    desk.give(Input::Got { id: get, object: Ok(Some(object("b", 2, 12))) });
    assert_eq!((desk.machine.stats().changes, desk.sink.batches), (1, 1));
}
