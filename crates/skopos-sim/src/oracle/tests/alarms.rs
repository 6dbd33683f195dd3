//! I26.

use super::tale::CLUSTER;
use super::{Invariant, Tale, broken, kept, live, secs, stale};

const NO_BOOKMARKS: u8 = 36;

/// Makes a quiet informer of a server that sends no bookmarks.
fn quiet() -> Tale {
    let mut tale = Tale::new();
    tale.fault_begins(CLUSTER, NO_BOOKMARKS, None, secs(60), false);
    tale.see(live(0));
    tale.go(secs(300));
    tale
}

#[test]
fn i26_a_server_without_bookmarks_is_live() {
    let mut tale = quiet();
    tale.see(live(30_000));
    kept(&tale, Invariant::I26);
}

#[test]
fn i26_a_server_without_bookmarks_is_called_stale() {
    let mut tale = quiet();
    tale.see(stale());
    broken(&tale, Invariant::I26);
}

#[test]
fn i26_a_server_that_is_well_is_called_degraded() {
    let mut tale = Tale::new();
    tale.see(live(0));
    tale.go(secs(300));
    let mut look = tale.look(super::tale::PODS, live(0));
    look.standing.condition = "degraded";
    tale.saw(look);
    broken(&tale, Invariant::I26);
}

#[test]
fn i26_accepts_trouble_until_recovery_is_due() {
    let mut tale = Tale::new();
    tale.see(live(0));
    tale.go(secs(120));
    tale.fault(1, Some(secs(15)), secs(2), false);
    tale.go(secs(1));
    tale.see(stale());
    tale.go(secs(9));
    tale.see(live(0));
    assert_eq!(tale.judge().counts(Invariant::I26).checked, 0);
    assert_eq!(tale.judge().violations, []);
}
