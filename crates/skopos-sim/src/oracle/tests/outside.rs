//! N1 to N8: two processes, one Service with a slice, its name outside, and a receiver of messages.

use std::time::Duration;

use super::{Invariant, Tale, broken, kept, secs};
use crate::history::{
    Address, AtOutside, Fact, KeyId, MessageId, ObjectState, Process, ProcessId, Ready, Record, Seen, Step,
    TargetId, Trouble, UidId, Verb, Written,
};

const ONE: ProcessId = ProcessId(0);
const OTHER: ProcessId = ProcessId(1);
/// The uid of the Service.
const OWNER: UidId = UidId(500);
const A: Address = Address(1);
const B: Address = Address(2);

struct Outside {
    tale: Tale,
    name: KeyId,
    rv: u64,
    messages: u32,
    there: Option<Record>,
    leader: Option<(ProcessId, u64)>,
}

fn ours(values: &[Address]) -> Option<Record> {
    (!values.is_empty()).then(|| Record { owner: Some(OWNER), values: values.into() })
}

fn foreign() -> Option<Record> {
    Some(Record { owner: None, values: [Address(9)].into() })
}

impl Outside {
    /// Makes a Service whose slice has these endpoints, and a working process.
    fn new(ready: &[Address]) -> Self {
        let mut tale = Tale::new();
        let cluster = super::tale::CLUSTER;
        let names = ["process-0", "process-1"];
        tale.history.cast.processes.extend(names.map(|name| Process { name: name.to_owned(), cluster }));
        let name = tale.key("a/s");
        let mut outside = Self { tale, name, rv: 100, messages: 0, there: None, leader: None };
        outside.began(ONE, 1);
        outside.service(true, false);
        outside.slice(ready, true);
        outside
    }

    fn record(&mut self, fact: AtOutside) {
        self.tale.record(Fact::Outside(fact));
    }

    fn go(&mut self, time: Duration) {
        self.tale.go(time);
    }

    fn seen(&mut self, key: &str) -> Seen {
        self.rv += 1;
        Seen { key: self.tale.key(key), uid: OWNER, rv: self.rv, stamp: 0 }
    }

    fn service(&mut self, asks: bool, gone: bool) {
        self.changes(asks, gone);
        if self.leader.is_some() {
            self.reports(self.rv, !asks);
        }
    }

    /// Changes the Service, without a message.
    fn changes(&mut self, asks: bool, gone: bool) {
        let object = self.seen("a/s");
        self.record(AtOutside::Service { cluster: super::tale::CLUSTER, object, asks, gone });
    }

    fn state(&mut self, rv: u64, gone: bool) -> ObjectState {
        ObjectState { key: self.tale.key("a/s"), uid: OWNER, rv, stamp: 0, epoch: 0, gone }
    }

    /// Sends a message about the Service, which is acknowledged.
    fn reports(&mut self, rv: u64, gone: bool) {
        let state = self.state(rv, gone);
        let message = self.notified(state);
        self.record(AtOutside::Received { message, state });
        self.record(AtOutside::Answered { message, outcome: Written::Done });
    }

    fn notified(&mut self, state: ObjectState) -> MessageId {
        let (process, term) = self.leader.expect("a leader");
        let message = self.next_message();
        self.record(AtOutside::Notified { message, process, term, state });
        message
    }

    fn next_message(&mut self) -> MessageId {
        self.messages += 1;
        MessageId(self.messages - 1)
    }

    fn slice(&mut self, ready: &[Address], asks: bool) {
        let (object, service) = (self.seen("a/s-0"), self.name);
        let endpoints = ready.iter().map(|value| (*value, Ready::Yes)).collect();
        let cluster = super::tale::CLUSTER;
        self.record(AtOutside::Slice { cluster, object, service, endpoints, asks, gone: false });
    }

    fn began(&mut self, process: ProcessId, term: u64) {
        self.leader = Some((process, term));
        self.record(AtOutside::Began { process, term });
    }

    fn ended(&mut self, process: ProcessId, term: u64) {
        self.leader = None;
        self.record(AtOutside::Ended { process, term });
    }

    fn sent(&mut self, (process, term): (ProcessId, u64), after: Option<Record>) -> MessageId {
        let message = self.next_message();
        let (name, step) = (self.name, Box::new(Step { before: self.there.clone(), after }));
        self.record(AtOutside::Sent { message, process, term, name, step });
        message
    }

    fn applied(&mut self, message: MessageId, after: Option<Record>) {
        let (name, before) = (self.name, std::mem::replace(&mut self.there, after.clone()));
        self.record(AtOutside::Applied { message, name, before, after });
        self.record(AtOutside::Answered { message, outcome: Written::Done });
    }

    /// Executes a write.
    fn writes(&mut self, values: &[Address]) {
        let message = self.sent((ONE, 1), ours(values));
        self.applied(message, ours(values));
        self.go(secs(1));
    }

    fn edited(&mut self, after: Option<Record>) {
        let name = self.name;
        self.there = after.clone();
        self.record(AtOutside::Edited { name, after });
    }

    fn requested(&mut self, process: ProcessId) {
        self.record(AtOutside::Requested { process, connection: 7, verb: Verb::Get, target: TargetId(0) });
    }

    fn read(&mut self) {
        self.record(AtOutside::Read { process: ONE, whole: true });
    }

    fn reported(&mut self, pending: u32) {
        self.record(AtOutside::Reported { process: ONE, pending, wanted: 1, outside: 1 });
    }
}

#[test]
fn n1_accepts_untouched_foreign_record() {
    let mut outside = Outside::new(&[A]);
    outside.edited(foreign());
    outside.read();
    kept(&outside.tale, Invariant::N1);
}

#[test]
fn n1_a_foreign_record_is_overwritten() {
    let mut outside = Outside::new(&[A]);
    outside.edited(foreign());
    outside.writes(&[A]);
    broken(&outside.tale, Invariant::N1);
}

#[test]
fn n2_accepts_removal_of_deleted_endpoint() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.go(secs(60));
    outside.slice(&[A], true);
    outside.writes(&[A]);
    kept(&outside.tale, Invariant::N2);
}

#[test]
fn n2_flags_removal_of_wanted_endpoint() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.go(secs(60));
    outside.writes(&[A]);
    broken(&outside.tale, Invariant::N2);
}

#[test]
fn n2_a_view_may_be_half_a_minute_old() {
    let mut outside = Outside::new(&[A]);
    outside.writes(&[A]);
    outside.writes(&[A, B]);
    outside.go(secs(60));
    outside.slice(&[A, B], true);
    outside.go(secs(20));
    outside.writes(&[A]);
    kept(&outside.tale, Invariant::N2);
}

#[test]
fn n2_removal_of_deselected_service_waits_for_list() {
    for (waits, holds) in [(40, true), (10, false)] {
        let mut outside = Outside::new(&[A]);
        outside.writes(&[A]);
        outside.go(secs(60));
        outside.service(false, false);
        outside.slice(&[], false);
        outside.go(secs(waits));
        outside.writes(&[]);
        if holds {
            kept(&outside.tale, Invariant::N2);
        } else {
            broken(&outside.tale, Invariant::N2);
        }
    }
}

#[test]
fn n2_removal_of_missed_deletion_waits_for_list() {
    for (waits, holds) in [(40, true), (10, false)] {
        let mut outside = Outside::new(&[A, B]);
        outside.writes(&[A, B]);
        outside.ended(ONE, 1);
        outside.slice(&[A], true);
        outside.go(secs(60));
        outside.began(OTHER, 2);
        outside.go(secs(waits));
        let message = outside.sent((OTHER, 2), ours(&[A]));
        outside.applied(message, ours(&[A]));
        if holds {
            kept(&outside.tale, Invariant::N2);
        } else {
            broken(&outside.tale, Invariant::N2);
        }
    }
}

#[test]
fn n2_accepts_removal_of_all_with_deleted_service() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.ended(ONE, 1);
    outside.slice(&[A], true);
    outside.go(secs(60));
    outside.began(OTHER, 2);
    outside.go(secs(10));
    outside.service(false, true);
    outside.slice(&[], true);
    let message = outside.sent((OTHER, 2), None);
    outside.applied(message, None);
    kept(&outside.tale, Invariant::N2);
}

#[test]
fn n2_grants_time_to_notice_rollback() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.go(secs(60));
    let rv = outside.rv;
    outside.slice(&[A], true);
    outside.go(secs(60));
    outside.tale.roll_back(rv, &[]);
    outside.go(secs(40));
    outside.writes(&[A]);
    let found = outside.tale.judge().violations;
    assert!(found.iter().all(|violation| violation.invariant != Invariant::N2), "{found:?}");
    outside.go(secs(60));
    outside.writes(&[A, B]);
    outside.writes(&[A]);
    let found = outside.tale.judge().violations;
    assert!(found.iter().any(|violation| violation.invariant == Invariant::N2), "{found:?}");
}

#[test]
fn n3_accepts_outside_equal_to_desired() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.go(secs(300));
    outside.read();
    kept(&outside.tale, Invariant::N3);
}

#[test]
fn n3_a_value_is_missing_or_too_many() {
    for values in [&[A][..], &[A, B, Address(3)], &[]] {
        let mut outside = Outside::new(&[A, B]);
        outside.writes(values);
        outside.go(secs(300));
        outside.read();
        broken(&outside.tale, Invariant::N3);
    }
}

#[test]
fn n3_a_name_stays_that_is_not_wanted() {
    let mut outside = Outside::new(&[A]);
    outside.writes(&[A]);
    outside.service(false, true);
    outside.slice(&[], false);
    outside.go(secs(300));
    outside.read();
    broken(&outside.tale, Invariant::N3);
}

#[test]
fn n3_skips_sink_in_trouble_or_without_leader() {
    let mut outside = Outside::new(&[A]);
    outside.record(AtOutside::TroubleBegan { what: Trouble::Down });
    outside.go(secs(300));
    outside.read();
    outside.ended(ONE, 1);
    outside.record(AtOutside::TroubleEnded { what: Trouble::Down });
    outside.go(secs(300));
    outside.read();
    let verdict = outside.tale.judge();
    assert_eq!(verdict.counts(Invariant::N3).checked, 0);
    assert_eq!(verdict.violations, []);
}

#[test]
fn n3_flags_missing_leader() {
    for works in [true, false] {
        let mut outside = Outside::new(&[]);
        if !works {
            outside.ended(ONE, 1);
        }
        for _ in 0..30 {
            outside.go(secs(10));
            outside.requested(OTHER);
        }
        if works {
            kept(&outside.tale, Invariant::N3);
        } else {
            broken(&outside.tale, Invariant::N3);
        }
    }
}

#[test]
fn n3_a_foreign_record_is_no_fault() {
    let mut outside = Outside::new(&[A]);
    outside.edited(foreign());
    outside.go(secs(300));
    outside.read();
    assert_eq!(outside.tale.judge().violations, []);
}

#[test]
fn n4_accepts_acknowledged_state() {
    let mut outside = Outside::new(&[A]);
    outside.writes(&[A]);
    outside.go(secs(300));
    outside.read();
    kept(&outside.tale, Invariant::N4);
}

#[test]
fn n4_flags_state_that_is_not_acknowledged() {
    let unsent = |_: &mut Outside| {};
    let unanswered = |outside: &mut Outside| {
        let state = outside.state(outside.rv, true);
        let message = outside.notified(state);
        outside.record(AtOutside::Received { message, state });
    };
    let not_received = |outside: &mut Outside| {
        let state = outside.state(outside.rv, true);
        let message = outside.notified(state);
        outside.record(AtOutside::Answered { message, outcome: Written::Done });
    };
    for reports in [unsent, unanswered, not_received] {
        let mut outside = Outside::new(&[]);
        outside.changes(false, true);
        reports(&mut outside);
        outside.go(secs(300));
        outside.read();
        broken(&outside.tale, Invariant::N4);
    }
}

#[test]
fn n4_flags_older_state_that_arrives_last() {
    let mut outside = Outside::new(&[]);
    let state = outside.state(outside.rv, false);
    let late = outside.notified(state);
    outside.service(false, true);
    outside.record(AtOutside::Received { message: late, state });
    outside.go(secs(300));
    outside.read();
    broken(&outside.tale, Invariant::N4);
}

#[test]
fn n5_accepts_newer_states_and_repeats() {
    let mut outside = Outside::new(&[]);
    let rv = outside.rv;
    outside.service(true, false);
    outside.reports(outside.rv, false);
    kept(&outside.tale, Invariant::N5);
    // In another epoch versions are not comparable.
    let state = ObjectState { epoch: 1, ..outside.state(rv, false) };
    outside.notified(state);
    kept(&outside.tale, Invariant::N5);
}

#[test]
fn n5_flags_older_state_after_newer_one() {
    let mut outside = Outside::new(&[]);
    outside.service(true, false);
    outside.reports(outside.rv - 1, false);
    broken(&outside.tale, Invariant::N5);
}

#[test]
fn n2_flags_message_of_deletion_of_living_object() {
    for (age, holds) in [(20, true), (60, false)] {
        let mut outside = Outside::new(&[]);
        outside.go(secs(60));
        outside.service(false, true);
        outside.service(true, false);
        outside.go(secs(age));
        outside.reports(outside.rv, true);
        if holds {
            kept(&outside.tale, Invariant::N2);
        } else {
            broken(&outside.tale, Invariant::N2);
        }
    }
}

#[test]
fn n6_accepts_successive_terms() {
    let mut outside = Outside::new(&[A]);
    outside.writes(&[A]);
    outside.ended(ONE, 1);
    outside.began(OTHER, 2);
    outside.sent((OTHER, 2), ours(&[A]));
    kept(&outside.tale, Invariant::N6);
}

#[test]
fn n6_two_have_a_term() {
    let mut outside = Outside::new(&[A]);
    outside.began(OTHER, 2);
    broken(&outside.tale, Invariant::N6);
}

#[test]
fn n6_flags_write_after_term() {
    let mut outside = Outside::new(&[A]);
    outside.ended(ONE, 1);
    outside.sent((ONE, 1), ours(&[A]));
    broken(&outside.tale, Invariant::N6);
    let mut outside = Outside::new(&[A]);
    outside.sent((ONE, 7), ours(&[A]));
    broken(&outside.tale, Invariant::N6);
}

#[test]
fn n7_last_value_stays_while_service_lives() {
    let mut outside = Outside::new(&[A, B]);
    outside.writes(&[A, B]);
    outside.go(secs(60));
    outside.slice(&[], true);
    outside.writes(&[B]);
    kept(&outside.tale, Invariant::N7);
    outside.go(secs(60));
    outside.writes(&[]);
    broken(&outside.tale, Invariant::N7);
}

#[test]
fn n7_accepts_removal_of_all_with_service() {
    let mut outside = Outside::new(&[A]);
    outside.writes(&[A]);
    outside.go(secs(60));
    outside.service(false, true);
    outside.slice(&[], true);
    outside.writes(&[]);
    assert_eq!(outside.tale.judge().violations, []);
}

#[test]
fn n8_flags_rapid_retries_of_down_sink() {
    for (pause, holds) in [(10_000, true), (500, false)] {
        let mut outside = Outside::new(&[A]);
        outside.record(AtOutside::TroubleBegan { what: Trouble::Down });
        for _ in 0..400_000 / pause {
            outside.record(AtOutside::Read { process: ONE, whole: false });
            outside.go(Duration::from_millis(pause));
        }
        outside.record(AtOutside::TroubleEnded { what: Trouble::Down });
        if holds {
            kept(&outside.tale, Invariant::N8);
        } else {
            broken(&outside.tale, Invariant::N8);
        }
    }
}

#[test]
fn n8_expects_one_write_after_trouble() {
    for (writes, holds) in [(1, true), (12, false)] {
        let mut outside = Outside::new(&[A]);
        outside.writes(&[A]);
        outside.record(AtOutside::TroubleBegan { what: Trouble::Down });
        for _ in 0..12 {
            outside.slice(&[A, B], true);
            outside.go(secs(10));
            outside.slice(&[A], true);
            outside.go(secs(10));
        }
        outside.record(AtOutside::TroubleEnded { what: Trouble::Down });
        for _ in 0..writes {
            outside.go(secs(1));
            outside.writes(&[A]);
        }
        if holds {
            kept(&outside.tale, Invariant::N8);
        } else {
            broken(&outside.tale, Invariant::N8);
        }
    }
}

#[test]
fn n8_more_waits_than_there_are_names() {
    let mut outside = Outside::new(&[A]);
    outside.record(AtOutside::TroubleBegan { what: Trouble::Down });
    outside.reported(2);
    assert_eq!(outside.tale.judge().violations, []);
    outside.reported(3);
    broken(&outside.tale, Invariant::N8);
}

#[test]
fn without_notifiers_nothing_is_judged() {
    let verdict = Tale::new().judge();
    assert_eq!(verdict.counts(Invariant::N3).checked, 0);
    assert_eq!(verdict.violations, []);
}
