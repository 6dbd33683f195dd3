//! I13, I16, and the part of I20 that a failed sync names its cause.

use std::time::Duration;

use super::tale::{CLIENT, HEARER};
use super::{Invariant, Tale, broken, kept, live, secs};
use crate::history::{CallKind, Fact, Kind, Outcome, Verb};

#[test]
fn i13_a_call_returns_in_time() {
    let waited = |millis| {
        let mut tale = Tale::new();
        let call = tale.call(CallKind::WaitSynced, secs(5));
        tale.go(Duration::from_millis(millis));
        tale.returned(call, Outcome::NotInTime { named: true });
        tale
    };
    kept(&waited(5050), Invariant::I13);
    broken(&waited(5051), Invariant::I13);
}

#[test]
fn i13_a_call_never_returns() {
    let mut tale = Tale::new();
    tale.call(CallKind::WaitSynced, secs(5));
    tale.go(secs(4));
    tale.record(Fact::Quiet);
    assert_eq!(tale.judge().violations, [], "there is time still");
    tale.go(secs(4));
    tale.record(Fact::Settled);
    broken(&tale, Invariant::I13);
}

#[test]
fn i20_flags_failed_sync_without_cause() {
    let failed = |named| {
        let mut tale = Tale::new();
        let call = tale.call(CallKind::WaitSynced, secs(5));
        tale.go(secs(5));
        tale.returned(call, Outcome::NotInTime { named });
        tale
    };
    kept(&failed(true), Invariant::I20);
    broken(&failed(false), Invariant::I20);
}

#[test]
fn i16_nothing_is_left() {
    let shut = |tasks, connections| {
        let mut tale = Tale::new();
        tale.record(Fact::Shutdown { client: CLIENT, tasks, connections });
        tale
    };
    kept(&shut(0, 0), Invariant::I16);
    broken(&shut(1, 0), Invariant::I16);
    broken(&shut(0, 1), Invariant::I16);
}

#[test]
fn i16_flags_call_after_handler_removal() {
    let mut tale = Tale::new();
    let a = tale.put("x/a");
    tale.see(live(0));
    tale.record(Fact::HandlerRemoved { handler: HEARER });
    tale.go(secs(1));
    tale.hear(Kind::Added, a, None);
    broken(&tale, Invariant::I16);
}

#[test]
fn i16_flags_request_after_shutdown() {
    let mut tale = Tale::new();
    tale.record(Fact::Shutdown { client: CLIENT, tasks: 0, connections: 0 });
    tale.go(secs(10));
    tale.requested(Verb::List, None, false);
    broken(&tale, Invariant::I16);
}

#[test]
fn i16_call_after_shutdown_fails_at_once() {
    let called = |millis, outcome| {
        let mut tale = Tale::new();
        tale.record(Fact::Shutdown { client: CLIENT, tasks: 0, connections: 0 });
        tale.go(secs(1));
        let call = tale.call(CallKind::WaitSynced, secs(5));
        tale.go(Duration::from_millis(millis));
        tale.returned(call, outcome);
        tale
    };
    kept(&called(0, Outcome::Closed), Invariant::I16);
    broken(&called(5000, Outcome::NotInTime { named: true }), Invariant::I16);
}

#[test]
fn i16_pending_call_ends_with_shutdown() {
    let ends = |after| {
        let mut tale = Tale::new();
        let call = tale.call(CallKind::WaitSynced, secs(20));
        tale.go(secs(1));
        tale.record(Fact::Shutdown { client: CLIENT, tasks: 0, connections: 0 });
        tale.go(Duration::from_millis(after));
        tale.returned(call, Outcome::Closed);
        tale
    };
    kept(&ends(50), Invariant::I16);
    broken(&ends(51), Invariant::I16);
}

#[test]
fn i19_history_that_is_said_to_be_broken() {
    let told = |went_back: bool| {
        let mut tale = Tale::new();
        tale.put("x/a");
        tale.put("x/b");
        let call = tale.call(CallKind::WaitFor { rv: 100 }, secs(5));
        if went_back {
            tale.roll_back(11, &["x/b"]);
        }
        tale.returned(call, Outcome::HistoryBroken);
        tale
    };
    kept(&told(true), Invariant::I19);
    broken(&told(false), Invariant::I19);
}
