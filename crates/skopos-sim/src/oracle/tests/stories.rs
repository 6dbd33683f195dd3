//! I1, I2, I4, I7, I8, I8b, I18, I20, I21.

use super::tale::{CLIENT, HEARER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs};
use crate::history::{Fact, Flags, HandlerId, Kind, Seen, Selection, Term};

/// Makes an initial object, and a handler that knows it.
fn begun() -> (Tale, Seen) {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.see(live(0));
    tale.hear_initial(a);
    tale.record(Fact::HandlerSynced { handler: HEARER });
    (tale, a)
}

#[test]
fn accepts_events_that_match_log() {
    let (mut tale, a) = begun();
    let newer = tale.put("x/a");
    tale.hear(Kind::Updated, newer, Some(a));
    let gone = tale.delete("x/a");
    tale.hear(Kind::Deleted, gone, None);
    let again = tale.put("x/a");
    tale.hear(Kind::Added, again, None);
    for invariant in [
        Invariant::I1,
        Invariant::I2,
        Invariant::I4,
        Invariant::I8,
        Invariant::I8b,
        Invariant::I18,
        Invariant::I20,
    ] {
        kept(&tale, invariant);
    }
}

#[test]
fn gap_may_omit_object_that_came_and_went() {
    let (mut tale, a) = begun();
    tale.put("x/a");
    tale.put("x/b");
    tale.delete("x/b");
    let newest = tale.put("x/a");
    tale.hear_gap(Kind::Updated, newest, Some(a));
    let next = tale.put("x/a");
    tale.hear(Kind::Updated, next, Some(newest));
    kept(&tale, Invariant::I4);
}

#[test]
fn flags_object_still_undelivered_after_gap() {
    let (mut tale, a) = begun();
    tale.put("x/b");
    let newest = tale.put("x/a");
    tale.hear_gap(Kind::Updated, newest, Some(a));
    let next = tale.put("x/a");
    tale.hear(Kind::Updated, next, Some(newest));
    broken(&tale, Invariant::I4);
}

#[test]
fn i1_an_rv_goes_back() {
    let (mut tale, a) = begun();
    let newer = tale.put("x/a");
    let newest = tale.put("x/a");
    tale.hear_gap(Kind::Updated, newest, Some(a));
    tale.hear_gap(Kind::Updated, newer, Some(newest));
    broken(&tale, Invariant::I1);
}

#[test]
fn i1_accepts_lower_rvs_after_neutral_rollback() {
    let told = |on_its_way: bool| {
        let (mut tale, _) = begun();
        let b = tale.put("x/b");
        tale.hear(Kind::Added, b, None);
        let c = tale.put("x/c");
        tale.hear(Kind::Added, c, None);
        let (rv, gone) = (tale.rv(), tale.delete("x/c"));
        if on_its_way {
            tale.roll_back(rv - 1, &["x/c"]);
            tale.go(secs(1));
        }
        tale.hear(Kind::Deleted, gone, None);
        tale.go(secs(1));
        if !on_its_way {
            tale.roll_back(rv - 1, &["x/c"]);
        }
        tale.go(secs(1));
        let newer = tale.put("x/b");
        tale.hear(Kind::Updated, newer, Some(b));
        tale
    };
    kept(&told(false), Invariant::I1);
    kept(&told(true), Invariant::I1);
}

#[test]
fn i1_flags_two_objects_in_wrong_rv_order() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    tale.hear(Kind::Added, b, None);
    let verdict = tale.judge();
    assert!(
        verdict.violations.iter().any(|violation| violation.invariant == Invariant::I1),
        "{:?}",
        verdict.violations
    );
}

#[test]
fn i1_accepts_rollback_only_with_gap() {
    let told = |gap: bool| {
        let (mut tale, a) = begun();
        let rv = tale.rv();
        let undone = tale.put("x/a");
        tale.hear(Kind::Updated, undone, Some(a));
        tale.roll_back(rv, &[]);
        tale.go(secs(1));
        tale.relisted();
        tale.tell(HEARER, Kind::Updated, a, Some(undone), Flags { gap, ..Flags::default() });
        tale
    };
    kept(&told(true), Invariant::I1);
    let verdict = told(false).judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I1));
}

#[test]
fn i2_flags_duplicate_event() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    tale.hear(Kind::Added, b, None);
    tale.hear(Kind::Added, b, None);
    let verdict = tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I2));
}

#[test]
fn i4_an_event_is_left_out() {
    let (mut tale, _) = begun();
    tale.put("x/b");
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    broken(&tale, Invariant::I4);
}

#[test]
fn i4_an_event_is_made_up() {
    let (mut tale, a) = begun();
    tale.hear(Kind::Updated, Seen { rv: a.rv + 1, ..a }, Some(a));
    broken(&tale, Invariant::I4);
}

#[test]
fn i4_an_old_state_under_a_new_rv() {
    let (mut tale, a) = begun();
    let newer = tale.put("x/a");
    tale.hear(Kind::Updated, Seen { stamp: a.stamp, ..newer }, Some(a));
    broken(&tale, Invariant::I4);
}

#[test]
fn i4_reports_mistake_once_and_resumes_after_repair() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    let d = tale.put("x/d");
    tale.hear(Kind::Added, d, None);
    assert_eq!(tale.judge().violations.len(), 1);
    tale.hear_gap(Kind::Added, b, None);
    let e = tale.put("x/e");
    tale.hear(Kind::Added, e, None);
    tale.put("x/f");
    let g = tale.put("x/g");
    tale.hear(Kind::Added, g, None);
    assert_eq!(tale.judge().violations.len(), 2);
}

#[test]
fn i4_excuses_changes_lost_to_lying_stream() {
    let (mut tale, _) = begun();
    tale.fault_begins(super::tale::CLUSTER, 47, None, secs(600), true);
    tale.put("x/b");
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    assert_eq!(tale.judge().violations, []);
}

fn of_app() -> (Tale, HandlerId) {
    let mut tale = Tale::new();
    let labels = vec![Term::Is("app".to_owned(), "web".to_owned())];
    let web = tale.informer(CLIENT, Selection { labels, ..Selection::all() });
    let handler = tale.handler(web);
    (tale, handler)
}

#[test]
fn scope_entry_is_add_and_exit_is_delete() {
    let (mut tale, handler) = of_app();
    tale.put_with("x/a", &[("app", "db")]);
    let inside = tale.put_with("x/a", &[("app", "web")]);
    tale.tell(handler, Kind::Added, inside, None, Flags::default());
    let outside = tale.put_with("x/a", &[("app", "db")]);
    let left = Seen { rv: outside.rv, ..inside };
    tale.tell(handler, Kind::Deleted, left, None, Flags::default());
    kept(&tale, Invariant::I4);
    kept(&tale, Invariant::I7);
    kept(&tale, Invariant::I8b);
}

#[test]
fn i7_an_object_that_is_not_selected() {
    let (mut tale, handler) = of_app();
    let other = tale.put_with("x/a", &[("app", "db")]);
    tale.tell(handler, Kind::Added, other, None, Flags { gap: true, ..Flags::default() });
    broken(&tale, Invariant::I7);
}

#[test]
fn i8_flags_old_that_was_not_given_last() {
    let (mut tale, _) = begun();
    let newer = tale.put("x/a");
    let newest = tale.put("x/a");
    tale.hear_gap(Kind::Updated, newest, Some(newer));
    broken(&tale, Invariant::I8);
}

#[test]
fn i8_added_though_it_is_known() {
    let (mut tale, _) = begun();
    let newer = tale.put("x/a");
    tale.hear_gap(Kind::Added, newer, None);
    broken(&tale, Invariant::I8);
}

#[test]
fn i8_deleted_though_it_is_not_known() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    tale.hear_gap(Kind::Deleted, b, None);
    broken(&tale, Invariant::I8);
}

#[test]
fn i8b_flags_add_that_is_update_in_log() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let newer = tale.put("x/a");
    tale.see(live(0));
    tale.hear(Kind::Added, newer, None);
    broken(&tale, Invariant::I8b);
}

#[test]
fn i18_an_update_spans_two_uids() {
    let (mut tale, a) = begun();
    tale.delete("x/a");
    let other = tale.put("x/a");
    tale.hear_gap(Kind::Updated, other, Some(a));
    broken(&tale, Invariant::I18);
}

#[test]
fn i18_accepts_recreated_object_as_delete_and_add() {
    let (mut tale, a) = begun();
    tale.delete("x/a");
    let other = tale.put("x/a");
    let flags = Flags { gap: true, last_state_unknown: true, ..Flags::default() };
    tale.relisted();
    tale.tell(HEARER, Kind::Deleted, a, None, flags);
    tale.hear_gap(Kind::Added, other, None);
    kept(&tale, Invariant::I18);
}

#[test]
fn i20_flags_sync_before_all_initial_events() {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.put("x/b");
    tale.see(live(0));
    tale.hear_initial(a);
    tale.record(Fact::HandlerSynced { handler: HEARER });
    broken(&tale, Invariant::I20);
}

#[test]
fn i20_flags_sync_with_object_deleted_before_list() {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.delete("x/a");
    tale.see(live(0));
    tale.hear_initial(a);
    tale.record(Fact::HandlerSynced { handler: HEARER });
    broken(&tale, Invariant::I20);
}

#[test]
fn i20_accepts_sync_after_first_live_event() {
    let mut tale = Tale::new();
    tale.go(secs(1));
    let a = tale.put("x/a");
    tale.hear_initial(a);
    let b = tale.put("x/b");
    tale.put("x/c");
    tale.see(live(0));
    tale.hear(Kind::Added, b, None);
    tale.record(Fact::HandlerSynced { handler: HEARER });
    kept(&tale, Invariant::I20);
}

#[test]
fn i21_accepts_redelivery_after_panic() {
    let (mut tale, _) = begun();
    let other = tale.handler(PODS);
    let b = tale.put("x/b");
    tale.hear(Kind::Added, b, None);
    tale.panics(HEARER);
    tale.go(secs(1));
    tale.hear(Kind::Added, b, None);
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    kept(&tale, Invariant::I21);
    let _ = other;
}

#[test]
fn i21_an_event_is_given_up_at_once() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    tale.hear(Kind::Added, b, None);
    tale.panics(HEARER);
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    broken(&tale, Invariant::I21);
}

#[test]
fn i21_accepts_resync_of_abandoned_event() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    tale.hear(Kind::Added, b, None);
    let resync = Flags { resync: true, ..Flags::default() };
    for _ in 0..8 {
        tale.tell(HEARER, Kind::Updated, b, Some(b), resync);
        tale.panics(HEARER);
    }
    tale.tell(HEARER, Kind::Updated, b, Some(b), resync);
    kept(&tale, Invariant::I21);
    tale.panics(HEARER);
    let c = tale.put("x/c");
    tale.hear(Kind::Added, c, None);
    broken(&tale, Invariant::I21);
}

#[test]
fn i21_an_event_is_never_given_up() {
    let (mut tale, _) = begun();
    let b = tale.put("x/b");
    for _ in 0..6 {
        tale.hear(Kind::Added, b, None);
        tale.panics(HEARER);
    }
    broken(&tale, Invariant::I21);
}
