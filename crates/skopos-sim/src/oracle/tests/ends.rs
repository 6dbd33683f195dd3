//! I23, and the part of I21 that a panic does not affect other handlers.

use super::tale::{CLUSTER, HEARER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs, stale};
use crate::history::{Flags, Kind, Look, Seen, Walk};

/// Makes a quiet history whose handler got the only object.
fn quiet() -> (Tale, Seen) {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.see(live(0));
    tale.hear_initial(a);
    (tale, a)
}

#[test]
fn i23_everything_is_equal() {
    let (mut tale, _) = quiet();
    tale.settle();
    tale.look_last();
    kept(&tale, Invariant::I23);
}

#[test]
fn i23_flags_store_that_differs_from_server() {
    let (mut tale, _) = quiet();
    let look = tale.look(PODS, live(0));
    tale.fault(1, None, secs(2), false);
    tale.put("x/b");
    tale.saw(Look { freshness: stale(), ..look.clone() });
    tale.settle();
    tale.saw(Look { walk: Walk::Last, freshness: stale(), ..look });
    let verdict = tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I23));
}

#[test]
fn i23_a_store_is_not_live() {
    let (mut tale, _) = quiet();
    tale.settle();
    let look = tale.look(PODS, stale());
    tale.saw(Look { walk: Walk::Last, ..look });
    broken(&tale, Invariant::I23);
}

#[test]
fn i23_flags_handler_without_last_change() {
    let (mut tale, _) = quiet();
    tale.put("x/b");
    tale.see(live(0));
    tale.settle();
    tale.look_last();
    broken(&tale, Invariant::I23);
}

#[test]
fn i23_excuses_permanent_loss() {
    let (mut tale, _) = quiet();
    let look = tale.look(PODS, live(0));
    tale.fault_begins(CLUSTER, 47, None, secs(600), true);
    tale.put("x/b");
    tale.settle();
    tale.saw(Look { walk: Walk::Last, ..look });
    assert_eq!(tale.judge().violations, []);
}

#[test]
fn i21_flags_change_lost_to_other_handlers_panic() {
    let (mut tale, a) = quiet();
    let other = tale.handler(PODS);
    let initial = Flags { initial: true, ..Flags::default() };
    tale.tell(other, Kind::Added, a, None, initial);
    let b = tale.put("x/b");
    tale.see(live(0));
    tale.hear(Kind::Added, b, None);
    tale.panics(HEARER);
    tale.hear(Kind::Added, b, None);
    tale.settle();
    tale.look_last();
    broken(&tale, Invariant::I21);
}
