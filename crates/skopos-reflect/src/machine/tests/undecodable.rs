//! Frames and objects that cannot be decoded: when they are accepted as broken, how they are read, and how long they are set
//! aside.

use skopos_wire::{BrokenFrame, Limits, ObjectKey, RawObject, WatchEvent};

use super::desk::Desk;
use super::secs;
use super::server::object;
use crate::machine::*;

pub(super) fn broken(name: &str, rv: u64) -> Input {
    let frame = BrokenFrame {
        key: Some(ObjectKey::namespaced("ns", name)),
        resource_version: Some(rv.into()),
        ..WatchEvent::parse("garbage".into(), &Limits::default()).unwrap_err()
    };
    Input::Events { id: RequestId(0), events: vec![Err(frame)] }
}

pub(super) fn to(id: RequestId, input: Input) -> Input {
    match input {
        Input::Events { events, .. } => Input::Events { id, events },
        other => other,
    }
}

#[test]
fn same_broken_frame_twice_triggers_get() {
    let (mut desk, mut watch) = Desk::watching(1);
    // Another version of the object, and another object: not the same frame.
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
    assert_eq!(desk.watches().start, WatchStart::After(11.into()));
}

/// Checks many broken frames. Each costs two streams and a read, up to a minute: a reflector that was away for long would take hours.
#[test]
fn third_consecutive_broken_frame_causes_relist() {
    for stands in [false, true] {
        let (mut desk, mut watch) = Desk::watching(1);
        for rv in 11..=13 {
            let name = format!("o{rv}");
            desk.now = desk.now + if stands { secs(10) } else { secs(9) };
            desk.give(to(watch, broken(&name, rv)));
            assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
            watch = desk.watches().id;
            desk.give(Input::Opened { id: watch });
            desk.give(to(watch, broken(&name, rv)));
            assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
            let listed = desk.machine.stats().relists == 1;
            assert_eq!(listed, !stands && rv == 13, "{rv}");
            if listed {
                assert_eq!(desk.sink.rv, Some(12), "nothing is passed before the list");
                break;
            }
            let read = desk.asks().id();
            desk.give(Input::Got { id: read, object: Ok(Some(object(&name, 2, rv))) });
            watch = desk.watches().id;
            desk.give(Input::Opened { id: watch });
        }
    }
}

#[test]
fn quarantines_newer_object_until_its_event() {
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
        assert_eq!(desk.sink.rv, Some(12), "the reflector goes on past it");
        assert!(!desk.sink.content.contains_key("b") && desk.sink.set_aside.contains("b"));
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        let degraded = Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", "b")), count: 1 };
        assert_eq!(desk.machine.state().condition, Condition::Degraded(degraded));
        // Another broken frame of the same object is skipped; a good one ends it.
        desk.give(to(watch, broken("b", 13)));
        assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(13)));
        desk.give(Input::Events { id: watch, events: vec![Ok(WatchEvent::Modified(object("b", 2, 14)))] });
        assert_eq!(desk.machine.state().condition, Condition::Watching);
    }
}

#[test]
fn relists_after_third_malformed_stream() {
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

/// Makes a desk at the read of `b`, whose frame of RV 12 came broken twice.
pub(super) fn reading_b(deletion: bool) -> (Desk, Option<RequestId>) {
    let (mut desk, mut watch) = Desk::watching(1);
    for last in [false, true] {
        let Input::Events { mut events, .. } = broken("a", 12) else { unreachable!() };
        if let Some(Err(frame)) = events.first_mut() {
            frame.event_type = deletion.then(|| "DELETED".into());
        }
        desk.give(Input::Events { id: watch, events });
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        if !last {
            watch = desk.watches().id;
            desk.give(Input::Opened { id: watch });
        }
    }
    let read = match desk.asks() {
        Action::Get(get) => Some(get.id),
        _ => None,
    };
    (desk, read)
}

#[test]
fn broken_deletion_removes_object() {
    let (desk, read) = reading_b(true);
    assert!(read.is_none() && desk.sink.content.is_empty());
    let stats = desk.machine.stats();
    assert_eq!((desk.sink.rv, stats.get_requests, stats.changes), (Some(12), 0, 1));
}

#[test]
fn third_failed_get_causes_relist() {
    let (mut desk, read) = reading_b(false);
    let mut read = read.unwrap();
    for times in 1..=3 {
        desk.fail(read, 500);
        match desk.asks() {
            Action::Get(get) if times < 3 => read = get.id,
            Action::Cancel { .. } | Action::List(_) if times == 3 => {}
            other => panic!("{times}: {other:?}"),
        }
    }
    assert_eq!(desk.machine.stats().get_requests, 3);
    assert_eq!(desk.machine.stats().relists, 1);
}

#[test]
fn retries_get_answered_with_another_object() {
    let (mut desk, read) = reading_b(false);
    // It has the very RV that is missing, but must not be taken for the missing object.
    desk.give(Input::Got { id: read.unwrap(), object: Ok(Some(object("c", 3, 12))) });
    assert_eq!((desk.sink.rv, desk.sink.content.contains_key("c")), (Some(10), false));
    let told = desk.machine.state().reason.as_ref().map(ToString::to_string);
    assert_eq!(told.as_deref(), Some("the read of ns/a was answered with ns/c"));
    let Action::Get(again) = desk.asks() else { panic!("a read") };
    desk.give(Input::Got { id: again.id, object: Ok(Some(object("a", 1, 12))) });
    assert_eq!((desk.sink.rv, desk.sink.content["a"]), (Some(12), (1, 12)));
}

#[test]
fn get_times_out_after_45s() {
    let (mut desk, read) = reading_b(false);
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), read.map(|id| Action::Cancel { id }));
    assert!(matches!(desk.asks(), Action::Get(_)));
}

#[test]
fn object_older_than_its_frame_causes_relist() {
    let (mut desk, read) = reading_b(false);
    desk.give(Input::Got { id: read.unwrap(), object: Ok(Some(object("a", 1, 11))) });
    assert_eq!((desk.sink.rv, desk.machine.stats().relists), (Some(10), 1));
}

#[test]
fn quarantines_object_broken_in_get() {
    let (mut desk, read) = reading_b(false);
    let broken = BrokenItem { key: None, reason: "no object".into() };
    desk.give(Input::Got { id: read.unwrap(), object: Err(broken) });
    assert_eq!(desk.sink.rv, Some(12));
    assert!(desk.sink.set_aside.contains("a"));
    assert_eq!(desk.sink.content["a"], (1, 9), "as it was");
    // At once, and not only when the next watch is open: the RV has moved already.
    let degraded = Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", "a")), count: 1 };
    assert_eq!(desk.sink.conditions.last(), Some(&Condition::Degraded(degraded)));
}

#[test]
fn broken_list_items_are_kept_and_counted() {
    let (mut desk, _) = Desk::watching(1);
    desk.now = desk.now + secs(120);
    desk.give(Input::Relist);
    desk.machine.poll_action();
    let list = desk.asks().id();
    desk.give(Input::Opened { id: list });
    let broken = |key| Err(BrokenItem { key, reason: "no object".into() });
    let items = vec![broken(Some(ObjectKey::namespaced("ns", "a"))), broken(None), broken(None)];
    desk.give(Input::Items { id: list, items });
    desk.give(Input::ListEnd { id: list, resource_version: Some(20.into()), continue_token: None });
    assert_eq!(desk.sink.content["a"], (1, 9));
    let commit = desk.sink.commits.last().unwrap();
    assert_eq!((commit.nameless, commit.cause, commit.gap), (2, ReplaceCause::Requested, true));
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    let degraded = Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", "a")), count: 3 };
    assert_eq!(desk.machine.state().condition, Condition::Degraded(degraded));
    assert_eq!(desk.machine.stats().undecodable, 3);
}

/// Makes a desk with an open watch, where `a` is set aside: its event of RV 12 was broken, and so was the read.
pub(super) fn without_a() -> (Desk, RequestId) {
    let (mut desk, read) = reading_b(false);
    desk.give(Input::Got { id: read.unwrap(), object: Err(unreadable(Some("a"))) });
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    assert!(matches!(desk.machine.state().condition, Condition::Degraded(_)));
    (desk, watch)
}

pub(super) fn unreadable(name: Option<&str>) -> BrokenItem {
    BrokenItem { key: name.map(|name| ObjectKey::namespaced("ns", name)), reason: "no object".into() }
}

/// Returns the next read of an object that is set aside, and the seconds until then.
pub(super) fn reads_again(desk: &mut Desk, watch: &mut RequestId) -> (GetRequest, u64) {
    let begun = desk.now;
    loop {
        match desk.acts() {
            Action::Get(get) => return (get, desk.now.since(begun).as_secs()),
            // Its `timeoutSeconds` are over.
            Action::Cancel { id } if id == *watch => {
                *watch = desk.watches().id;
                desk.give(Input::Opened { id: *watch });
            }
            // The stream was silent for long.
            Action::Watch(look) => {
                assert!(look.verification);
                desk.give(Input::Closed { id: look.id });
                assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look.id }));
                desk.bookmark(*watch, 12);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the watch gives way to a list. Its silence gets second looks until then.
fn list_is_asked_for(desk: &mut Desk, watch: RequestId) {
    loop {
        match desk.acts() {
            Action::Watch(look) if look.verification => desk.give(Input::Closed { id: look.id }),
            Action::Cancel { id } if id == watch => return,
            Action::Cancel { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Answers a list with these objects.
fn list(desk: &mut Desk, objects: Vec<Result<RawObject, BrokenItem>>, rv: u64) -> RequestId {
    let id = match desk.asks() {
        Action::List(list) => list.id,
        other => panic!("{other:?}"),
    };
    desk.give(Input::Opened { id });
    desk.give(Input::Items { id, items: objects });
    desk.give(Input::ListEnd { id, resource_version: Some(rv.into()), continue_token: None });
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    watch
}

#[test]
fn quarantined_object_is_reread_with_backoff() {
    for seed in 0..20 {
        let (mut desk, mut watch) = without_a();
        desk.machine.rng = fastrand::Rng::with_seed(seed);
        for (times, seconds) in [30, 60, 120, 240, 300, 300, 300].into_iter().enumerate() {
            let (get, after) = reads_again(&mut desk, &mut watch);
            assert_eq!(get.key, ObjectKey::namespaced("ns", "a"));
            assert!((seconds..=seconds + seconds / 10).contains(&after), "{times}: {after}");
            desk.give(Input::Got { id: get.id, object: Err(unreadable(None)) });
        }
        assert_eq!((desk.machine.stats().relists, desk.sink.rv), (0, Some(12)));
    }
}

#[test]
fn decodable_reread_causes_relist() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("a", 1, 12))) });
    assert_eq!(desk.acts(), Action::Cancel { id: watch });
    list(&mut desk, vec![Ok(object("a", 1, 12))], 15);
    assert_eq!(desk.sink.content["a"], (1, 12));
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    let commit = desk.sink.commits.last().unwrap();
    assert_eq!((commit.cause, commit.gap), (ReplaceCause::Undecodable, true));
    // There are no others.
    desk.now = desk.now + secs(80);
    assert_eq!(desk.machine.stats().get_requests, 2);
}

#[test]
fn reread_answered_with_another_object_backs_off() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("b", 1, 12))) });
    let (again, after) = reads_again(&mut desk, &mut watch);
    assert_eq!((again.key, desk.machine.stats().relists), (get.key, 0));
    assert!((60..=66).contains(&after), "{after}");
}

#[test]
fn next_reread_finds_skipped_deletion() {
    let (mut desk, mut watch) = without_a();
    // The frame does not say what happened.
    desk.give(to(watch, broken("a", 14)));
    assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(14)));
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(None) });
    assert_eq!(desk.acts(), Action::Cancel { id: watch });
    list(&mut desk, Vec::new(), 15);
    assert!(desk.sink.content.is_empty());
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn broken_deletion_removes_quarantined_object() {
    let (mut desk, watch) = without_a();
    let Input::Events { mut events, .. } = broken("a", 14) else { unreachable!() };
    if let Some(Err(frame)) = events.first_mut() {
        frame.event_type = Some("DELETED".into());
    }
    desk.give(Input::Events { id: watch, events });
    assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(14)));
    assert!(desk.sink.content.is_empty() && desk.machine.stats().changes == 1);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn reread_ahead_of_stream_waits_for_event() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("a", 1, 13))) });
    assert_eq!((desk.machine.poll_action(), desk.machine.stats().relists), (None, 0));
    desk.change(watch, 13);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn rereads_rotate_and_one_relist_heals_all() {
    let (mut desk, _) = Desk::watching(1);
    desk.now = desk.now + secs(120);
    desk.give(Input::Relist);
    desk.machine.poll_action();
    let lost = ["a", "b", "c"];
    let broken = lost.iter().map(|name| Err(unreadable(Some(name)))).collect();
    let mut watch = list(&mut desk, broken, 12);
    for name in ["a", "b", "c", "a"] {
        let (get, _) = reads_again(&mut desk, &mut watch);
        assert_eq!(get.key.name(), name);
        desk.give(Input::Got { id: get.id, object: Err(unreadable(None)) });
    }
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("b", 2, 11))) });
    assert_eq!(desk.acts(), Action::Cancel { id: watch });
    list(&mut desk, lost.iter().map(|name| Ok(object(name, 2, 11))).collect(), 15);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!((desk.machine.stats().lists, desk.machine.stats().get_requests), (3, 5));
}

#[test]
fn objects_without_names_are_looked_for_by_lists() {
    let (mut desk, _) = Desk::watching(1);
    desk.now = desk.now + secs(120);
    desk.give(Input::Relist);
    desk.machine.poll_action();
    let watch = list(&mut desk, vec![Err(unreadable(None))], 12);
    let begun = desk.now;
    assert_eq!(desk.acts(), Action::Cancel { id: watch });
    assert!((30..=33).contains(&desk.now.since(begun).as_secs()));
    list(&mut desk, vec![Ok(object("a", 1, 9))], 15);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn unanswered_reread_is_repeated_with_backoff() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    let begun = desk.now;
    assert_eq!(desk.acts(), Action::Cancel { id: get.id });
    assert_eq!(desk.now.since(begun), secs(45));
    let (again, after) = reads_again(&mut desk, &mut watch);
    assert!((60..=66).contains(&after), "{after}");
    // A failure is no answer either, and later inputs for it are ignored.
    desk.fail(again.id, 500);
    desk.give(Input::Got { id: again.id, object: Ok(None) });
    assert_eq!((desk.machine.poll_action(), desk.machine.stats().relists), (None, 0));
}

#[test]
fn retry_hint_triggers_reread_at_once() {
    let (mut desk, mut watch) = without_a();
    desk.give(Input::RetryNow);
    assert_eq!(reads_again(&mut desk, &mut watch).1, 0);
}

/// Makes a desk with an open raw watch that has skipped a change of `a`.
fn without_a_change() -> (Desk, RequestId) {
    let options = MachineOptions { content: Content::Changes, ..MachineOptions::default() };
    let mut desk = Desk::with(options, 1);
    desk.sink.changes_only = true;
    let list = desk.asks().id();
    desk.give(Input::Opened { id: list });
    desk.give(Input::ListEnd { id: list, resource_version: Some(10.into()), continue_token: None });
    for times in 1..=2 {
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        desk.give(to(watch, broken("a", 12)));
        desk.machine.poll_action();
        if times == 2 {
            let get = desk.asks().id();
            desk.give(Input::Got { id: get, object: Ok(None) });
        }
    }
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    (desk, watch)
}

#[test]
fn raw_watch_is_not_degraded_after_reread() {
    let (mut desk, mut watch) = without_a_change();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Got { id: get.id, object: Ok(None) });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!((desk.machine.poll_action(), desk.machine.stats().relists), (None, 0));
}

#[test]
fn reread_before_next_watch_does_not_report_watching() {
    let (mut desk, mut watch) = without_a_change();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.give(Input::Closed { id: watch });
    let Action::Watch(WatchRequest { id: next, .. }) = desk.acts() else { panic!("the next watch") };
    desk.give(Input::Got { id: get.id, object: Ok(None) });
    assert_ne!(desk.machine.state().condition, Condition::Watching, "it is only asked for");
    desk.give(Input::Opened { id: next });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn forbidden_reread_falls_back_to_relist() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.fail(get.id, 403);
    let refused = desk.now;
    list_is_asked_for(&mut desk, watch);
    assert!(desk.now.since(refused) >= secs(30), "no sooner than the next read would be");
    list(&mut desk, vec![Ok(object("a", 1, 12))], 12);
    assert_eq!(
        (desk.machine.state().condition.clone(), desk.sink.content["a"]),
        (Condition::Watching, (1, 12))
    );
}

#[test]
fn forbidden_reread_does_not_degrade_raw_watch() {
    let (mut desk, mut watch) = without_a_change();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.fail(get.id, 403);
    assert_eq!(
        (desk.machine.state().condition.clone(), desk.machine.stats().relists),
        (Condition::Watching, 0)
    );
}

/// Checks a frame that was damaged on its way, and may name an object that never existed.
#[test]
fn omitted_broken_change_is_read_and_relisted() {
    for read in [Ok(None), Ok(Some(object("ghost", 9, 5)))] {
        let (mut desk, watch) = Desk::watching(1);
        desk.give(to(watch, broken("ghost", 12)));
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        let mut watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        desk.change(watch, 13);
        assert_eq!(desk.machine.state().undecodable, 1, "a change may be missing below our RV");
        let (get, _) = reads_again(&mut desk, &mut watch);
        assert_eq!(get.key.name(), "ghost");
        desk.give(Input::Got { id: get.id, object: read });
        list_is_asked_for(&mut desk, watch);
        list(&mut desk, vec![Ok(object("a", 1, 13))], 13);
        let reflector = desk.machine.state();
        assert_eq!((&reflector.condition, reflector.undecodable), (&Condition::Watching, 0));
    }
}

#[test]
fn repeated_quarantine_slows_rereads() {
    let (mut desk, mut watch) = without_a();
    let mut after = Vec::new();
    for round in 0..5 {
        let (get, seconds) = reads_again(&mut desk, &mut watch);
        after.push(seconds);
        desk.give(Input::Got { id: get.id, object: Ok(Some(object("a", 1, 12))) });
        assert_eq!(desk.acts(), Action::Cancel { id: watch });
        watch = list(&mut desk, vec![Ok(object("a", 1, 12))], 12 + round);
        // Only the watch cannot deliver it.
        for times in 1..=2 {
            desk.now = desk.now + secs(20);
            desk.give(to(watch, broken("a", 13 + round)));
            assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
            if times == 1 {
                watch = desk.watches().id;
                desk.give(Input::Opened { id: watch });
            }
        }
        let read = desk.asks().id();
        desk.give(Input::Got { id: read, object: Ok(None) });
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
    }
    assert!(after[0] <= 33 && after[3] >= 240, "{after:?}");
}

#[test]
fn a_read_that_fails_otherwise_is_only_made_again() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.fail(get.id, 503);
    let (again, _) = reads_again(&mut desk, &mut watch);
    assert_eq!((again.key, desk.machine.stats().relists), (get.key, 0));
}

#[test]
fn recovery_cancels_deferred_undecodable_relist() {
    for (cause, owed) in [(ReplaceCause::Undecodable, false), (ReplaceCause::Requested, true)] {
        let (mut desk, watch) = without_a();
        (0..MAX_LISTS_PER_MINUTE).for_each(|_| desk.machine.lists.spend(desk.now));
        desk.machine.relist_when_affordable(cause, &mut desk.sink);
        desk.change(watch, 13);
        assert_eq!(desk.machine.state().condition, Condition::Watching);
        assert_eq!(desk.machine.deferred_relist.is_some(), owed, "{cause:?}");
    }
}
