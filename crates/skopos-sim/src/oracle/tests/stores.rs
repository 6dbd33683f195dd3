//! I3, I6, I7, I9, I10, I19.

use std::time::Duration;

use super::tale::{CLIENT, PODS};
use super::{Invariant, Tale, broken, kept, live, secs, stale};
use crate::history::{CallKind, Content, Fact, Look, Outcome, Selection, Term, View, Walk};

#[test]
fn i3_accepts_states_of_server() {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.see(live(0));
    tale.put("x/b");
    tale.see(live(0));
    kept(&tale, Invariant::I3);
}

#[test]
fn i3_half_a_list() {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.put("x/b");
    let look = tale.look(PODS, live(0));
    let half = View { content: [a].into_iter().collect(), ..look.views[0] };
    tale.saw(Look { views: [half].into(), ..look });
    broken(&tale, Invariant::I3);
}

#[test]
fn i3_flags_rv_ahead_of_content() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let look = tale.look(PODS, live(0));
    tale.put("x/b");
    let ahead = View { rv: tale.rv(), ..look.views[0] };
    tale.saw(Look { views: [ahead].into(), ..look });
    broken(&tale, Invariant::I3);
}

#[test]
fn i3_excuses_damaged_object_if_store_is_stale() {
    let seen = |freshness| {
        let mut tale = Tale::new();
        tale.put("x/a");
        tale.fault_begins(super::tale::CLUSTER, 15, Some(secs(1)), secs(5), false);
        let look = tale.look(PODS, freshness);
        tale.put("x/b");
        let ahead = View { rv: tale.rv(), ..look.views[0] };
        tale.saw(Look { views: [ahead].into(), ..look });
        tale
    };
    assert_eq!(seen(stale()).judge().violations, []);
    broken(&seen(live(0)), Invariant::I3);
}

#[test]
fn i3_excuses_damaged_object_until_store_has_it() {
    let seen = |after: Duration| {
        let mut tale = Tale::new();
        tale.put("x/a");
        let fault = tale.fault_begins(super::tale::CLUSTER, 15, Some(secs(1)), secs(5), false);
        let look = tale.look(PODS, stale());
        tale.put("x/b");
        let lacking = View { rv: tale.rv(), ..look.views[0] };
        let lacking = Look { views: [lacking].into(), ..look };
        tale.record(Fact::FaultHealed { fault });
        tale.go(secs(1));
        tale.saw(lacking.clone());
        tale.see(live(0));
        tale.go(after);
        tale.saw(lacking);
        tale
    };
    assert_eq!(seen(Duration::ZERO).judge().violations, [], "nobody can tell before from after");
    broken(&seen(secs(1)), Invariant::I3);
}

#[test]
fn i3_one_object_of_a_snapshot() {
    let got = |right: bool| {
        let mut tale = Tale::new();
        let a = tale.put("x/a");
        let rv = tale.rv();
        tale.put("x/a");
        let rv = if right { rv } else { tale.rv() };
        tale.record(Fact::Got { informer: PODS, rv, epoch: 0, key: a.key, object: Some(a) });
        tale
    };
    assert_eq!(got(true).judge().violations, []);
    broken(&got(false), Invariant::I3);
}

#[test]
fn i6_flags_rv_going_back() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let early = tale.look(PODS, live(0));
    tale.put("x/b");
    tale.see(live(0));
    tale.saw(early);
    broken(&tale, Invariant::I6);
}

#[test]
fn i6_flags_two_contents_at_one_rv() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let look = tale.see(live(0));
    // It is excused from being right, but not from two contents at one RV, as there was no lie before.
    let empty = View { content: Content::EMPTY, ..look.views[0] };
    tale.saw(Look { views: [empty].into(), ..look });
    let verdict = tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I6));
}

#[test]
fn i6_rvs_grow() {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.see(live(0));
    tale.see(live(0));
    tale.put("x/a");
    tale.see(live(0));
    kept(&tale, Invariant::I6);
}

#[test]
fn i7_flags_unselected_object_in_store() {
    let listed = |app: &str| {
        let mut tale = Tale::new();
        let labels = vec![Term::Is("app".to_owned(), "web".to_owned())];
        let web = tale.informer(CLIENT, Selection { labels, ..Selection::all() });
        let a = tale.put_with("x/a", &[("app", app)]);
        tale.record(Fact::Listed { informer: web, objects: [a].into() });
        tale
    };
    assert_eq!(listed("web").judge().violations, []);
    broken(&listed("db"), Invariant::I7);
}

#[test]
fn i9_a_wait_ends_too_soon() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let early = tale.look(PODS, live(0));
    tale.put("x/b");
    let call = tale.call(CallKind::WaitFor { rv: tale.rv() }, secs(5));
    tale.saw(Look { walk: Walk::Answer(call), ..early });
    tale.returned(call, Outcome::Done);
    broken(&tale, Invariant::I9);
}

#[test]
fn i9_a_wait_is_given_up_at_once() {
    let given_up = |after| {
        let mut tale = Tale::new();
        tale.put("x/a");
        let call = tale.call(CallKind::WaitFor { rv: 1000 }, secs(5));
        tale.go(secs(after));
        tale.returned(call, Outcome::NotInTime { named: true });
        tale
    };
    kept(&given_up(5), Invariant::I9);
    broken(&given_up(1), Invariant::I9);
}

#[test]
fn i9_flags_answer_older_than_max_age() {
    let read = |age| {
        let mut tale = Tale::new();
        tale.put("x/a");
        let call = tale.call(CallKind::Read { max_age: secs(1) }, secs(5));
        tale.answer(call, live(age));
        tale
    };
    kept(&read(1000), Invariant::I9);
    broken(&read(2000), Invariant::I9);
}

#[test]
fn i9_flags_answer_that_is_no_server_state() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let call = tale.call(CallKind::Read { max_age: secs(1) }, secs(5));
    let look = tale.look(PODS, live(0));
    let empty = View { content: Content::EMPTY, ..look.views[0] };
    tale.saw(Look { walk: Walk::Live(call), views: [empty].into(), ..look });
    tale.returned(call, Outcome::Done);
    let verdict = tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I9));
}

#[test]
fn i10_flags_understated_age() {
    let seen = |age| {
        let mut tale = Tale::new();
        tale.put("x/a");
        let look = tale.look(PODS, live(age));
        tale.fault_begins(super::tale::CLUSTER, 8, Some(secs(60)), secs(5), false);
        tale.put("x/b");
        tale.go(secs(10));
        tale.saw(look);
        tale
    };
    kept(&seen(10_000), Invariant::I10);
    broken(&seen(9_999), Invariant::I10);
}

#[test]
fn i10_unselected_changes_add_no_age() {
    let mut tale = Tale::new();
    let labels = vec![Term::Is("app".to_owned(), "web".to_owned())];
    let web = tale.informer(CLIENT, Selection { labels, ..Selection::all() });
    let look = tale.look(web, live(5));
    tale.put_with("x/b", &[("app", "db")]);
    tale.go(secs(1));
    tale.saw(look);
    assert_eq!(tale.judge().violations, []);
}

#[test]
fn i10_content_of_undone_history() {
    let seen = |age| {
        let mut tale = Tale::new();
        tale.put("x/a");
        let rv = tale.rv();
        tale.put("x/b");
        let look = tale.look(PODS, live(age));
        tale.roll_back(rv, &["x/b"]);
        tale.go(secs(1));
        tale.saw(look);
        tale
    };
    // It is excused until the store had the time to detect it, and no longer.
    assert_eq!(seen(0).judge().violations, []);
    assert_eq!(seen(1000).judge().violations, []);
}

#[test]
fn i10_an_object_that_was_otherwise() {
    let found = |age| {
        let mut tale = Tale::new();
        let a = tale.put("x/a");
        tale.go(secs(5));
        tale.put("x/a");
        tale.go(secs(5));
        let call = tale.call(CallKind::ReadOne { max_age: secs(10), key: a.key }, secs(1));
        tale.returned(call, Outcome::Found { object: Some(a), age: Duration::from_secs(age) });
        tale
    };
    kept(&found(6), Invariant::I10);
    broken(&found(4), Invariant::I10);
}

#[test]
fn i10_an_object_that_changes_at_that_moment() {
    let found = |later| {
        let mut tale = Tale::new();
        let a = tale.put("x/a");
        tale.go(secs(5));
        let call = tale.call(CallKind::ReadOne { max_age: secs(10), key: a.key }, secs(1));
        tale.put("x/a");
        tale.go(secs(later));
        tale.returned(call, Outcome::Found { object: Some(a), age: Duration::ZERO });
        tale
    };
    kept(&found(0), Invariant::I10);
    broken(&found(1), Invariant::I10);
}

/// Makes history go back by this many writes, and a look at the store `after` this time, in this epoch.
fn rolled_back(epoch: u32, after: u64) -> Tale {
    let mut tale = Tale::new();
    tale.put("x/a");
    let rv = tale.rv();
    tale.put("x/b");
    tale.go(secs(100));
    tale.see(live(0));
    tale.go(secs(1));
    tale.roll_back(rv, &["x/b"]);
    tale.go(secs(after));
    let look = tale.look(PODS, live(0));
    tale.saw(Look { epoch, ..look });
    tale.go(secs(100));
    let look = tale.look(PODS, live(0));
    tale.saw(Look { epoch, ..look });
    tale
}

#[test]
fn i19_a_rollback_begins_an_epoch_in_time() {
    kept(&rolled_back(1, 20), Invariant::I19);
    broken(&rolled_back(1, 60), Invariant::I19);
    let verdict = rolled_back(0, 20).judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I19));
}

#[test]
fn i19_an_epoch_without_a_rollback() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let look = tale.look(PODS, live(0));
    tale.saw(Look { epoch: 1, ..look });
    let verdict = tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I19));
}
