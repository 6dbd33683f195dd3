//! I5, I15.

use std::time::Duration;

use super::tale::{CLIENT, CLUSTER};
use super::{Invariant, Tale, broken, kept, live, secs, stale};
use crate::history::{CallKind, Fact, KeyId, Selection, Verb};

#[test]
fn i5_accepts_watch_from_store_version() {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.requested(Verb::List, None, false);
    tale.see(live(0));
    tale.requested(Verb::Watch, Some(tale.rv()), false);
    tale.put("x/a");
    tale.see(live(0));
    kept(&tale, Invariant::I5);
}

#[test]
fn i5_flags_watch_beyond_store_version() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let early = tale.see(live(0));
    let rv = tale.rv();
    tale.requested(Verb::Watch, Some(rv + 5), false);
    tale.saw(early);
    broken(&tale, Invariant::I5);
}

#[test]
fn i5_a_watch_goes_back() {
    let mut tale = Tale::new();
    tale.put("x/a");
    let rv = tale.rv();
    tale.put("x/b");
    tale.put("x/c");
    tale.see(live(0));
    tale.go(secs(200));
    tale.see(stale());
    tale.go(secs(1));
    tale.requested(Verb::Watch, Some(rv), false);
    tale.see(stale());
    broken(&tale, Invariant::I5);
}

#[test]
fn i5_accepts_watch_before_possibly_partial_rv() {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.put("x/b");
    tale.see(live(0));
    tale.go(secs(200));
    tale.see(stale());
    tale.go(secs(1));
    tale.requested(Verb::Watch, Some(tale.rv() - 1), false);
    tale.see(stale());
    kept(&tale, Invariant::I5);
}

#[test]
fn i5_from_anywhere() {
    for rv in [None, Some(0)] {
        let mut tale = Tale::new();
        tale.requested(Verb::Watch, rv, false);
        broken(&tale, Invariant::I5);
    }
    let mut tale = Tale::new();
    tale.requested(Verb::List, Some(0), false);
    broken(&tale, Invariant::I5);
    let mut tale = Tale::new();
    tale.requested(Verb::Watch, Some(0), true);
    broken(&tale, Invariant::I5);
}

fn in_a_fault(requests: u64, every: Duration, verb: Verb) -> Tale {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.see(live(0));
    tale.go(secs(100));
    let fault = tale.fault_begins(CLUSTER, 25, Some(secs(1)), secs(39), false);
    tale.go(secs(70));
    let rv = (verb == Verb::Watch).then_some(tale.rv());
    for _ in 0..requests {
        tale.requested(verb, rv, false);
        tale.go(every);
    }
    tale.go(secs(100));
    tale.record(Fact::FaultHealed { fault });
    tale.go(secs(100));
    tale.see(live(0));
    tale
}

#[test]
fn i15_few_requests_in_a_fault_that_lasts() {
    kept(&in_a_fault(4, secs(10), Verb::Watch), Invariant::I15);
    broken(&in_a_fault(12, secs(5), Verb::Watch), Invariant::I15);
    broken(&in_a_fault(5, secs(10), Verb::List), Invariant::I15);
}

/// Makes a fault with six watches and one list in each of these minutes, for each of some stores, which may be audited every ten
/// minutes.
fn seven_a_minute(stores: usize, minutes: u64, audited: bool) -> Tale {
    let mut tale = Tale::new();
    tale.history.cast.clients[0].audit_interval = audited.then(|| secs(600));
    tale.put("x/a");
    let others: Vec<_> = (1..stores).map(|_| tale.informer(CLIENT, Selection::all())).collect();
    let see = |tale: &mut Tale| {
        tale.see(live(0));
        others.iter().for_each(|other| tale.saw(tale.look(*other, live(0))));
    };
    see(&mut tale);
    tale.go(secs(100));
    let fault = tale.fault_begins(CLUSTER, 25, Some(secs(1)), secs(39), false);
    tale.go(secs(61));
    for _ in 0..minutes {
        (0..stores).for_each(|_| tale.requested(Verb::List, None, false));
        for _ in 0..6 {
            tale.go(secs(9));
            (0..stores).for_each(|_| tale.requested(Verb::Watch, Some(tale.rv()), false));
        }
        tale.go(secs(6));
    }
    tale.go(secs(100));
    tale.record(Fact::FaultHealed { fault });
    tale.go(secs(100));
    see(&mut tale);
    tale
}

#[test]
fn i15_audits_come_on_top_now_and_then() {
    for stores in 1..=3 {
        kept(&seven_a_minute(stores, 1, true), Invariant::I15);
        broken(&seven_a_minute(stores, 1, false), Invariant::I15);
        broken(&seven_a_minute(stores, 2, true), Invariant::I15);
    }
}

#[test]
fn i15_a_loop_that_spins() {
    let mut tale = Tale::new();
    for _ in 0..20 {
        tale.requested(Verb::Watch, Some(5), false);
        tale.go(Duration::from_millis(10));
    }
    broken(&tale, Invariant::I15);
}

/// Makes this many requests at this interval, from a store that is seen live.
fn asks(times: u32, every: Duration, ask: impl Fn(&mut Tale)) -> Tale {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.see(live(0));
    tale.go(secs(100));
    for _ in 0..times {
        ask(&mut tale);
        tale.go(every);
    }
    tale
}

#[test]
fn i15_probes_keep_their_pace() {
    let probe = |tale: &mut Tale| tale.requested(Verb::Probe, None, false);
    assert_eq!(asks(10, secs(24), probe).judge().violations, []);
    broken(&asks(10, secs(10), probe), Invariant::I15);
    // A call for a proof permits one.
    let called = |tale: &mut Tale| {
        tale.call(CallKind::Read { max_age: secs(0) }, secs(100));
        probe(tale);
    };
    assert_eq!(asks(10, secs(10), called).judge().violations, []);
    let in_a_fault = |every| {
        let mut tale = Tale::new();
        let fault = tale.fault_begins(CLUSTER, 25, Some(secs(1)), secs(39), false);
        for _ in 0..30 {
            probe(&mut tale);
            tale.go(every);
        }
        tale.record(Fact::FaultHealed { fault });
        tale
    };
    kept(&in_a_fault(secs(8)), Invariant::I15);
    broken(&in_a_fault(secs(1)), Invariant::I15);
}

#[test]
fn i15_single_objects_are_read_as_seldom_as_anything() {
    let get = |tale: &mut Tale| tale.requested(Verb::Get, None, false);
    kept(&asks(12, secs(10), get), Invariant::I15);
    broken(&asks(12, secs(5), get), Invariant::I15);
    let called = |tale: &mut Tale| {
        tale.call(CallKind::ReadOne { max_age: secs(0), key: KeyId(0) }, secs(100));
        get(tale);
    };
    assert_eq!(asks(12, secs(5), called).judge().violations, []);
}

#[test]
fn i15_flags_rapid_or_endless_page_retries() {
    let pages = |times, every| asks(times, every, |tale| tale.paged(7));
    kept(&pages(4, secs(2)), Invariant::I15);
    broken(&pages(4, Duration::from_millis(100)), Invariant::I15);
    broken(&pages(60, secs(2)), Invariant::I15);
    let mut tale = Tale::new();
    (0..50).for_each(|page| tale.paged(page));
    assert_eq!(tale.judge().violations, [], "each is another");
}
