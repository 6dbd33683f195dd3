//! Tests for causes of lists (I15) and of gaps (I4).

use std::time::Duration;

use super::tale::{CLIENT, CLUSTER, HEARER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs};
use crate::history::{CallKind, Fact, Flags, Kind, Outcome, Selection, Verb};

/// Makes a store that has been live for some minutes, without any fault so far.
fn calm() -> Tale {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.requested(Verb::List, None, false);
    tale.see(live(0));
    tale.hear_initial(a);
    tale.go(secs(300));
    tale.see(live(0));
    tale
}

#[test]
fn i15_a_list_because_a_watch_was_refused() {
    for streamed in [false, true] {
        let mut tale = calm();
        tale.watch_ended(Duration::from_millis(30));
        tale.go(secs(1));
        tale.requested(if streamed { Verb::Watch } else { Verb::List }, None, streamed);
        kept(&tale, Invariant::I15);
        tale.go(secs(20));
        tale.requested(if streamed { Verb::Watch } else { Verb::List }, None, streamed);
        broken(&tale, Invariant::I15);
    }
}

#[test]
fn i15_flags_list_after_timed_out_watch() {
    for streamed in [false, true] {
        let mut tale = calm();
        tale.watch_ended(secs(300));
        tale.requested(if streamed { Verb::Watch } else { Verb::List }, None, streamed);
        broken(&tale, Invariant::I15);
    }
}

#[test]
fn i15_flags_verification_despite_bookmarks() {
    let looked = |bookmark_interval, tale: Tale| {
        let mut tale = tale;
        tale.history.cast.clusters[0].bookmark_interval = bookmark_interval;
        tale.looked_again();
        tale
    };
    broken(&looked(secs(10), calm()), Invariant::I15);
    assert_eq!(looked(secs(60), calm()).judge().violations, []);
    let mut troubled = calm();
    troubled.fault(8, Some(secs(60)), secs(39), false);
    assert_eq!(looked(secs(10), troubled).judge().violations, []);
}

#[test]
fn i15_a_list_for_a_call() {
    let mut tale = calm();
    let call = tale.call(CallKind::Read { max_age: secs(1) }, secs(5));
    tale.go(secs(1));
    tale.requested(Verb::List, None, false);
    tale.returned(call, Outcome::Done);
    assert_eq!(tale.judge().violations, []);
    tale.requested(Verb::List, None, false);
    broken(&tale, Invariant::I15);
}

#[test]
fn i15_allows_list_per_call_of_equal_informers() {
    let mut tale = calm();
    tale.history.cast.informers[PODS.index()].metadata_only = true;
    let other = tale.informer(CLIENT, Selection::all());
    let seen = tale.look(other, live(0));
    tale.saw(seen);
    let read = tale.call(CallKind::Read { max_age: secs(1) }, secs(14));
    let audit = tale.call_of(other, CallKind::Audit, secs(10));
    tale.audited();
    tale.returned(audit, Outcome::Audited { differences: 0 });
    // Later than the audit could still list.
    tale.go(secs(13));
    tale.audited();
    tale.returned(read, Outcome::Done);
    assert_eq!(tale.judge().violations, []);
    tale.audited();
    broken(&tale, Invariant::I15);
}

#[test]
fn i15_an_audit_when_it_is_due() {
    let audited = |after| {
        let mut tale = calm();
        tale.history.cast.clients[0].audit_interval = Some(secs(600));
        tale.go(secs(200));
        tale.audited();
        tale.go(secs(after));
        tale.audited();
        tale
    };
    kept(&audited(500), Invariant::I15);
    broken(&audited(400), Invariant::I15);
    let mut tale = calm();
    let call = tale.call(CallKind::Audit, secs(5));
    tale.audited();
    tale.returned(call, Outcome::Audited { differences: 0 });
    assert_eq!(tale.judge().violations, []);
    tale.go(secs(10));
    tale.audited();
    broken(&tale, Invariant::I15);
}

#[test]
fn i15_accepts_list_while_fault_effects_last() {
    let listed = |number, after| {
        let mut tale = calm();
        tale.fault(number, Some(secs(1)), secs(39), false);
        tale.go(secs(after));
        tale.see(live(0));
        tale.requested(Verb::List, None, false);
        tale
    };
    assert_eq!(listed(25, 100).judge().violations, []);
    broken(&listed(25, 120), Invariant::I15);
    assert_eq!(listed(14, 440).judge().violations, [], "what could not be decoded is read again");
    broken(&listed(14, 450), Invariant::I15);
}

#[test]
fn i4_a_gap_because_of_a_list() {
    let mut tale = calm();
    let a = tale.put("x/b");
    tale.relisted();
    tale.go(secs(1));
    tale.see(live(0));
    tale.tell(HEARER, Kind::Added, a, None, Flags { gap: true, ..Flags::default() });
    kept(&tale, Invariant::I4);
}

#[test]
fn i4_a_gap_without_a_list() {
    let mut tale = calm();
    let b = tale.put("x/b");
    tale.see(live(0));
    tale.tell(HEARER, Kind::Added, b, None, Flags { gap: true, ..Flags::default() });
    broken(&tale, Invariant::I4);
    // During a fault there are more causes than are visible from outside.
    let mut tale = calm();
    let fault = tale.fault_begins(CLUSTER, 14, Some(secs(1)), secs(39), false);
    let b = tale.put("x/b");
    tale.tell(HEARER, Kind::Added, b, None, Flags { gap: true, ..Flags::default() });
    tale.record(Fact::FaultHealed { fault });
    assert_eq!(tale.judge().violations, []);
}

#[test]
fn i4_accepts_coalescing_only_beyond_kept_history() {
    let told = |changes: u32| {
        let mut tale = calm();
        for _ in 0..changes {
            tale.put("x/b");
        }
        let b = tale.put("x/b");
        tale.see(live(0));
        tale.tell(HEARER, Kind::Added, b, None, Flags { coalesced: true, ..Flags::default() });
        tale
    };
    kept(&told(10), Invariant::I4);
    broken(&told(3), Invariant::I4);
    // A slow handler may be further behind.
    let mut tale = told(3);
    tale.history.cast.handlers[HEARER.index()].slowness = secs(1);
    assert_eq!(tale.judge().violations, []);
}
