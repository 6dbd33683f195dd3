//! I24, I25: one visitor and a gateway with two members.

use super::{Invariant, Tale, broken, kept, secs};
use crate::history::{
    Answer, Asked, AtGateway, ClusterId, Fact, KeyId, Member, MemberId, Seen, Shown, VisitId, Visitor,
    VisitorId,
};

/// Two members, each with its own cluster; the name of the second begins with that of the first.
const PROD: MemberId = MemberId(0);
const PROD_2: MemberId = MemberId(1);

struct Gateway {
    tale: Tale,
    visits: u32,
}

impl Gateway {
    fn new() -> Self {
        let mut tale = Tale::new();
        tale.cluster();
        let named = [("prod", ClusterId(0)), ("prod-2", ClusterId(1))];
        tale.history.cast.members.extend(named.map(|(name, cluster)| {
            let name = name.to_owned();
            Member { context: name.clone(), name, cluster }
        }));
        let names = ["visitor-0", "visitor-1"];
        tale.history.cast.visitors.extend(names.map(|name| Visitor { name: name.to_owned() }));
        Self { tale, visits: 0 }
    }

    fn ask(&mut self, visitor: u8, member: Option<MemberId>, what: Asked) -> VisitId {
        let visit = VisitId(self.visits);
        self.visits += 1;
        let visitor = VisitorId(visitor);
        self.tale.record(Fact::Gateway(AtGateway::Asked { visit, visitor, member, what }));
        visit
    }

    fn answer(&mut self, visit: VisitId, answer: Answer) {
        self.tale.record(Fact::Gateway(AtGateway::Answered { visit, answer: Box::new(answer) }));
        self.tale.go(secs(1));
    }

    /// Adds an acknowledged write through the gateway.
    fn put(&mut self, visitor: u8, member: MemberId) -> Seen {
        let key = self.tale.key("a/x");
        let visit = self.ask(visitor, Some(member), Asked::Update { key, stamp: self.tale.next_stamp() });
        let object = self.tale.put_in(ClusterId(member.0), "a/x", &[]);
        self.answer(visit, answer(200, &[shown(member, object)]));
        object
    }

    fn delete(&mut self, visitor: u8) {
        let key = self.tale.key("a/x");
        let visit = self.ask(visitor, Some(PROD), Asked::Delete { key });
        self.tale.delete("a/x");
        self.answer(visit, answer(200, &[]));
    }

    /// Adds a read, and its answer.
    fn read(&mut self, member: Option<MemberId>, what: Asked, answer: Answer) {
        let visit = self.ask(0, member, what);
        self.answer(visit, answer);
    }

    fn key(&mut self) -> KeyId {
        self.tale.key("a/x")
    }
}

const LIST: Asked = Asked::List { namespace: None };
const WATCH: Asked = Asked::Watch { namespace: None };

fn answer(code: u16, shown: &[Shown]) -> Answer {
    Answer { code, shown: shown.into(), ..Answer::default() }
}

fn missing() -> Answer {
    Answer { code: 404, missing: true, ..Answer::default() }
}

fn shown(member: MemberId, object: Seen) -> Shown {
    Shown { member: Some(member), home: Some(member), gone: false, object }
}

/// Returns each way to read, with its member.
fn reads(gateway: &mut Gateway) -> [(Option<MemberId>, Asked); 5] {
    let get = Asked::Get { key: gateway.key(), of: PROD };
    [(Some(PROD), get), (Some(PROD), LIST), (Some(PROD), WATCH), (None, LIST), (None, get)]
}

#[test]
fn i24_accepts_own_write_or_later_one() {
    for read in 0..5 {
        let mut gateway = Gateway::new();
        let (member, what) = reads(&mut gateway)[read];
        let own = gateway.put(0, PROD);
        gateway.read(member, what, answer(200, &[shown(PROD, own)]));
        let later = gateway.put(1, PROD);
        gateway.read(member, what, answer(200, &[shown(PROD, later)]));
        gateway.read(member, what, answer(504, &[]));
        kept(&gateway.tale, Invariant::I24);
    }
}

#[test]
fn i24_a_read_shows_an_older_version() {
    for read in 0..5 {
        let mut gateway = Gateway::new();
        let (member, what) = reads(&mut gateway)[read];
        let older = gateway.put(0, PROD);
        gateway.put(0, PROD);
        gateway.read(member, what, answer(200, &[shown(PROD, older)]));
        broken(&gateway.tale, Invariant::I24);
    }
}

#[test]
fn i24_flags_read_without_own_write() {
    for read in 0..5 {
        let mut gateway = Gateway::new();
        let (member, what) = reads(&mut gateway)[read];
        gateway.put(0, PROD);
        let nothing = if matches!(what, Asked::Get { .. }) { missing() } else { answer(200, &[]) };
        gateway.read(member, what, nothing);
        broken(&gateway.tale, Invariant::I24);
    }
}

#[test]
fn i24_accepts_absence_of_object_deleted_since() {
    let mut gateway = Gateway::new();
    gateway.put(0, PROD);
    gateway.delete(1);
    gateway.read(Some(PROD), LIST, answer(200, &[]));
    kept(&gateway.tale, Invariant::I24);
}

#[test]
fn i24_flags_object_deleted_by_reader() {
    let mut gateway = Gateway::new();
    let gone = gateway.put(0, PROD);
    gateway.delete(0);
    gateway.read(Some(PROD), LIST, answer(200, &[]));
    // Another object of the same name.
    let other = gateway.put(1, PROD);
    gateway.read(None, LIST, answer(200, &[shown(PROD, other)]));
    kept(&gateway.tale, Invariant::I24);
    gateway.read(None, LIST, answer(200, &[shown(PROD, gone)]));
    broken(&gateway.tale, Invariant::I24);
}

#[test]
fn i24_flags_watch_that_begins_before_own_write() {
    let mut gateway = Gateway::new();
    let gone = gateway.put(1, PROD);
    gateway.delete(1);
    let own = gateway.put(0, PROD);
    let deletion = Shown { gone: true, ..shown(PROD, gone) };
    gateway.read(Some(PROD), WATCH, answer(200, &[deletion, shown(PROD, own)]));
    broken(&gateway.tale, Invariant::I24);
}

#[test]
fn i24_only_unreachable_cluster_may_show_old_state() {
    let away = |members: &[MemberId]| Answer { away: members.into(), ..answer(200, &[]) };
    let mut gateway = Gateway::new();
    let own = gateway.put(0, PROD);
    gateway.read(Some(PROD), LIST, away(&[PROD]));
    gateway.read(None, LIST, away(&[PROD, PROD_2]));
    gateway.read(Some(PROD), LIST, answer(200, &[shown(PROD, own)]));
    kept(&gateway.tale, Invariant::I24);
    gateway.read(None, LIST, away(&[PROD_2]));
    broken(&gateway.tale, Invariant::I24);
}

#[test]
fn i24_demands_only_writes_before_request() {
    let mut gateway = Gateway::new();
    let older = gateway.put(0, PROD);
    let visit = gateway.ask(0, Some(PROD), LIST);
    gateway.put(0, PROD);
    gateway.answer(visit, answer(200, &[shown(PROD, older)]));
    kept(&gateway.tale, Invariant::I24);
    // Objects that another visitor wrote, or that were written elsewhere.
    let other = gateway.put(1, PROD_2);
    gateway.read(Some(PROD_2), LIST, answer(200, &[]));
    gateway.read(Some(PROD_2), LIST, answer(200, &[shown(PROD_2, other)]));
    assert_eq!(gateway.tale.judge().violations, []);
}

#[test]
fn i24_a_write_is_acknowledged_and_never_made() {
    let mut gateway = Gateway::new();
    let key = gateway.key();
    let visit = gateway.ask(0, Some(PROD), Asked::Create { key, stamp: 77 });
    gateway.answer(visit, answer(201, &[]));
    broken(&gateway.tale, Invariant::I24);
}

#[test]
fn i24_history_goes_back_on_a_write() {
    let mut gateway = Gateway::new();
    let rv = gateway.tale.rv();
    gateway.put(0, PROD);
    gateway.tale.roll_back(rv, &["a/x"]);
    gateway.read(Some(PROD), LIST, answer(200, &[]));
    let verdict = gateway.tale.judge();
    assert!(verdict.violations.iter().all(|violation| violation.invariant != Invariant::I24), "{verdict:?}");
}

#[test]
fn i25_accepts_objects_of_named_cluster() {
    let mut gateway = Gateway::new();
    let (one, other) = (gateway.put(0, PROD), gateway.put(0, PROD_2));
    gateway.read(Some(PROD_2), LIST, answer(200, &[shown(PROD_2, other)]));
    gateway.read(None, LIST, answer(200, &[shown(PROD, one), shown(PROD_2, other)]));
    kept(&gateway.tale, Invariant::I25);
}

#[test]
fn i25_an_object_is_shown_of_another_cluster() {
    for (member, home) in [(Some(PROD), Some(PROD_2)), (None, Some(PROD)), (Some(PROD), None)] {
        let mut gateway = Gateway::new();
        let own = gateway.put(0, PROD);
        let strange = Shown { member, home, ..shown(PROD, own) };
        gateway.read(None, LIST, answer(200, &[shown(PROD, own), strange]));
        broken(&gateway.tale, Invariant::I25);
    }
}

#[test]
fn i25_a_write_comes_to_another_cluster() {
    let mut gateway = Gateway::new();
    let key = gateway.key();
    let visit = gateway.ask(0, Some(PROD_2), Asked::Create { key, stamp: gateway.tale.next_stamp() });
    gateway.tale.put_in(ClusterId(0), "a/x", &[]);
    gateway.answer(visit, answer(201, &[]));
    broken(&gateway.tale, Invariant::I25);
}

#[test]
fn i25_a_deletion_comes_to_another_cluster() {
    let mut gateway = Gateway::new();
    gateway.put(0, PROD);
    gateway.put(0, PROD_2);
    let key = gateway.key();
    let visit = gateway.ask(0, Some(PROD_2), Asked::Delete { key });
    gateway.tale.delete("a/x");
    gateway.answer(visit, answer(200, &[]));
    broken(&gateway.tale, Invariant::I25);
}
