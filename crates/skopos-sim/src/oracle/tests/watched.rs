//! Raw watches: I1, I4, I5, I6, I11, I12, I16, I19, I23.

use std::time::Duration;

use super::tale::{CLIENT, CLUSTER};
use super::{Invariant, Tale, broken, kept, secs};
use crate::history::{CallKind, Fact, Heard, Kind, Seen, WatcherId};

/// Makes a raw watch that has begun at the server's current state.
fn begun() -> (Tale, WatcherId) {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.go(secs(10));
    let watcher = tale.watcher();
    let rv = tale.rv();
    tale.gives(watcher, Heard::Bookmark { rv });
    (tale, watcher)
}

fn added(object: Seen) -> Heard {
    Heard::Change(Kind::Added, object)
}

fn changed(object: Seen) -> Heard {
    Heard::Change(Kind::Updated, object)
}

#[test]
fn i4_each_change_in_its_order() {
    let (mut tale, watcher) = begun();
    let b = tale.put("x/b");
    tale.gives(watcher, added(b));
    let a = tale.put("x/a");
    tale.gives(watcher, changed(a));
    let gone = tale.delete("x/b");
    tale.gives(watcher, Heard::Change(Kind::Deleted, gone));
    tale.go(secs(60));
    tale.gives(watcher, Heard::Bookmark { rv: gone.rv });
    tale.settle();
    kept(&tale, Invariant::I4);
    kept(&tale, Invariant::I23);
}

#[test]
fn i4_a_change_is_left_out() {
    let (mut tale, watcher) = begun();
    tale.put("x/b");
    let c = tale.put("x/c");
    tale.gives(watcher, added(c));
    broken(&tale, Invariant::I4);
}

#[test]
fn i4_a_change_that_never_was() {
    let (mut tale, watcher) = begun();
    let b = tale.put("x/b");
    tale.gives(watcher, changed(b));
    broken(&tale, Invariant::I4);
}

#[test]
fn i4_accepts_newer_read_of_damaged_object() {
    let (mut tale, watcher) = begun();
    tale.fault(15, Some(secs(5)), secs(10), false);
    let b = tale.put("x/b");
    tale.gives(watcher, changed(b));
    kept(&tale, Invariant::I4);
}

#[test]
fn i4_flags_unreadable_object_without_damage() {
    let unreadable = |damaged: bool| {
        let (mut tale, watcher) = begun();
        if damaged {
            tale.fault(15, Some(secs(5)), secs(10), false);
        }
        let b = tale.put("x/b");
        tale.gives(watcher, Heard::Unreadable { key: b.key, rv: b.rv });
        let gone = tale.delete("x/b");
        tale.gives(watcher, Heard::Gone { key: gone.key, rv: gone.rv });
        tale
    };
    kept(&unreadable(true), Invariant::I4);
    broken(&unreadable(false), Invariant::I4);
}

#[test]
fn i4_flags_skip_without_cause() {
    let skipped = |refused: bool| {
        let (mut tale, watcher) = begun();
        let since = tale.rv();
        tale.put("x/b");
        let to = tale.put("x/c").rv;
        if refused {
            tale.watch_ended(secs(0));
        }
        tale.go(secs(1));
        tale.gives(watcher, Heard::Skipped { since, to });
        let d = tale.put("x/d");
        tale.gives(watcher, added(d));
        tale.settle();
        tale
    };
    kept(&skipped(true), Invariant::I4);
    broken(&skipped(false), Invariant::I4);
}

#[test]
fn i1_flags_repeated_change() {
    let (mut tale, watcher) = begun();
    let b = tale.put("x/b");
    tale.gives(watcher, added(b));
    tale.gives(watcher, added(b));
    broken(&tale, Invariant::I1);
}

#[test]
fn i5_flags_bookmark_older_than_start() {
    let (mut tale, _) = begun();
    tale.put("x/b");
    let rv = tale.rv();
    tale.go(secs(1));
    let late = tale.watcher();
    tale.gives(late, Heard::Bookmark { rv: rv - 1 });
    broken(&tale, Invariant::I5);
}

#[test]
fn i6_flags_bookmark_past_undelivered_change() {
    let (mut tale, watcher) = begun();
    let rv = tale.put("x/b").rv;
    tale.gives(watcher, Heard::Bookmark { rv });
    broken(&tale, Invariant::I6);
}

#[test]
fn i6_accepts_changes_of_rv_after_its_bookmark() {
    let (mut tale, watcher) = begun();
    let b = tale.put("x/b");
    tale.gives(watcher, added(b));
    let gone = tale.expire(["x/a", "x/b"]);
    for gone in gone {
        tale.gives(watcher, Heard::Change(Kind::Deleted, gone));
        tale.gives(watcher, Heard::Bookmark { rv: gone.rv });
    }
    tale.settle();
    kept(&tale, Invariant::I6);
}

#[test]
fn i11_a_silent_stream_is_not_called_well() {
    let silent = |noticed: bool, spares_lists: bool| {
        let (mut tale, watcher) = begun();
        tale.record(Fact::WatcherStands { watcher, well: true });
        let fault = tale.fault_begins(CLUSTER, 8, Some(secs(60)), secs(10), false);
        tale.confine(|_, spares| *spares = spares_lists);
        let b = tale.put("x/b");
        tale.go(secs(50));
        if noticed {
            tale.record(Fact::WatcherStands { watcher, well: false });
        }
        tale.go(secs(100));
        tale.record(Fact::FaultHealed { fault });
        tale.record(Fact::WatcherStands { watcher, well: true });
        tale.gives(watcher, added(b));
        tale
    };
    kept(&silent(true, true), Invariant::I11);
    broken(&silent(false, true), Invariant::I11);
    assert_eq!(silent(false, false).judge().violations, [], "no probe shows it");
}

#[test]
fn i12_a_change_comes_late() {
    let late = |faulty: bool| {
        let (mut tale, watcher) = begun();
        if faulty {
            tale.fault(1, Some(secs(15)), secs(30), false);
        }
        let b = tale.put("x/b");
        tale.go(secs(40));
        tale.gives(watcher, added(b));
        tale
    };
    kept(&late(true), Invariant::I12);
    broken(&late(false), Invariant::I12);
}

#[test]
fn i16_it_ends_with_its_transport() {
    let ended = |shut: bool, by_itself: bool| {
        let (mut tale, watcher) = begun();
        if shut {
            tale.call(CallKind::Shutdown, secs(1));
            tale.record(Fact::Shutdown { client: CLIENT, tasks: 0, connections: 0 });
        }
        tale.go(secs(10));
        tale.record(Fact::WatcherEnded { watcher, by_itself });
        let broken = tale.judge().violations;
        broken.iter().any(|violation| violation.invariant == Invariant::I16)
    };
    assert!(!ended(true, true));
    assert!(!ended(false, false), "who leaves drops it");
    assert!(ended(true, false), "it goes on without its transport");
    assert!(ended(false, true));
}

#[test]
fn i19_a_history_that_is_no_more() {
    let stands = |noticed: bool| {
        let (mut tale, watcher) = begun();
        let since = tale.put("x/b");
        tale.gives(watcher, added(since));
        let cut = since.rv - 1;
        tale.go(secs(1));
        tale.fault(32, Some(secs(60)), secs(60), false);
        tale.roll_back(cut, &["x/b"]);
        tale.go(secs(40));
        if noticed {
            tale.gives(watcher, Heard::Skipped { since: since.rv, to: cut });
        }
        tale.settle();
        tale
    };
    broken(&stands(false), Invariant::I19);
    kept(&stands(true), Invariant::I23);
}

/// Makes a raw watch at an RV that a rollback undoes. After this time it gets an event that came beyond its RV.
fn overtaken(after: Duration, otherwise: impl FnOnce(&mut Tale, WatcherId)) -> Tale {
    let (mut tale, watcher) = begun();
    let b = tale.put("x/b");
    tale.gives(watcher, added(b));
    tale.go(secs(1));
    tale.fault(32, Some(secs(60)), secs(60), false);
    tale.roll_back(b.rv - 1, &["x/b"]);
    otherwise(&mut tale, watcher);
    tale.go(after);
    tale.put("x/c");
    let d = tale.put("x/d");
    tale.gives(watcher, added(d));
    tale.settle();
    tale
}

#[test]
fn i19_flags_overtaken_rollback_noticed_late() {
    let soon = overtaken(secs(20), |_, _| {});
    assert_eq!(soon.judge().violations, [], "nobody could notice");
    broken(&overtaken(secs(120), |_, _| {}), Invariant::I19);
    let troubled = overtaken(secs(120), |tale, _| tale.fault(1, Some(secs(15)), secs(30), false));
    assert_eq!(troubled.judge().violations, [], "no probe may have come through");
    let noticed = |after: u64| {
        overtaken(secs(120 - after), |tale, watcher| {
            tale.go(secs(after));
            let cut = tale.rv();
            tale.gives(watcher, Heard::Skipped { since: cut + 1, to: cut });
        })
    };
    let told =
        |tale: Tale| tale.judge().violations.iter().any(|violation| violation.invariant == Invariant::I19);
    assert!(!told(noticed(40)));
    assert!(told(noticed(100)), "it was noticed late");
}

#[test]
fn i19_flags_ended_watcher_that_missed_rollback() {
    let left = |after: u64| {
        let (mut tale, watcher) = begun();
        let b = tale.put("x/b");
        tale.gives(watcher, added(b));
        tale.fault(32, Some(secs(60)), secs(60), false);
        tale.roll_back(b.rv - 1, &["x/b"]);
        tale.go(secs(after));
        tale.record(Fact::WatcherEnded { watcher, by_itself: false });
        tale
    };
    assert_eq!(left(20).judge().violations, []);
    broken(&left(120), Invariant::I19);
}

#[test]
fn i23_flags_undelivered_change_at_end() {
    let (mut tale, _) = begun();
    tale.put("x/b");
    tale.settle();
    broken(&tale, Invariant::I23);
}

#[test]
fn lying_stream_is_excused_until_skip() {
    let (mut tale, watcher) = begun();
    tale.fault(47, None, secs(10), true);
    tale.put("x/b");
    let c = tale.put("x/c");
    tale.gives(watcher, added(c));
    assert_eq!(tale.judge().violations, []);
    tale.go(secs(60));
    tale.gives(watcher, Heard::Skipped { since: c.rv, to: c.rv });
    tale.put("x/d");
    let e = tale.put("x/e");
    tale.gives(watcher, added(e));
    broken(&tale, Invariant::I4);
}

#[test]
fn lying_stream_is_excused_until_later_change() {
    let told = |late: bool, rest: bool| {
        let (mut tale, watcher) = begun();
        tale.fault(47, None, secs(10), true);
        tale.put("x/b");
        if late {
            tale.go(secs(60));
        }
        let c = tale.put("x/c");
        tale.gives(watcher, added(c));
        tale.go(secs(60));
        let d = tale.put("x/d");
        if rest {
            tale.gives(watcher, added(d));
        }
        let e = tale.put("x/e");
        tale.gives(watcher, added(e));
        tale
    };
    assert_eq!(told(true, true).judge().violations, [], "what was lost may show late");
    broken(&told(true, false), Invariant::I4);
    assert_eq!(told(false, false).judge().violations, [], "nothing of later was told before");
}
