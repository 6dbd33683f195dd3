//! Several changes that share an RV: I3, I4, I6, I9, I10, I11, I20, I23.

use std::time::Duration;

use super::tale::{CLUSTER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs};
use crate::history::{At, CallKind, Content, Fact, Freshness, Kind, Look, Outcome, Reason, Seen, View, Walk};

/// A history in which a, b, c and d existed and were reported; then the lease of a, b and c expired.
struct Expired {
    tale: Tale,
    before: [Seen; 4],
    gone: [Seen; 3],
}

fn expired() -> Expired {
    let mut tale = Tale::new();
    let before = ["x/a", "x/b", "x/c", "x/d"].map(|key| tale.put(key));
    before.into_iter().for_each(|object| tale.hear_initial(object));
    tale.go(secs(100));
    tale.see(live(0));
    let gone = tale.expire(["x/a", "x/b", "x/c"]);
    Expired { tale, before, gone }
}

impl Expired {
    /// Makes a look at a store at this RV that lacks these of the four.
    fn look(&self, rv: u64, without: &[usize], freshness: Freshness) -> Look {
        let there = (0..4).filter(|object| !without.contains(object)).map(|object| self.before[object]);
        let content: Content = there.collect();
        Look { views: [View { rv, content }].into(), ..self.tale.look(PODS, freshness) }
    }

    fn see(&mut self, without: &[usize]) {
        let look = self.look(self.tale.rv(), without, live(0));
        self.tale.saw(look);
    }
}

#[test]
fn i3_some_of_them_in_their_order() {
    let mut part = expired();
    part.see(&[0]);
    part.see(&[0, 1]);
    part.see(&[0, 1, 2]);
    let verdict = part.tale.judge();
    assert_eq!(verdict.parted, 2);
    kept(&part.tale, Invariant::I3);
    kept(&part.tale, Invariant::I6);
}

#[test]
fn i3_some_of_them_in_another_order() {
    let mut part = expired();
    part.see(&[1]);
    broken(&part.tale, Invariant::I3);
}

#[test]
fn i3_flags_rv_without_its_deletions() {
    let mut part = expired();
    part.see(&[]);
    broken(&part.tale, Invariant::I3);
}

#[test]
fn i3_flags_later_change_before_all_deletions() {
    let mut part = expired();
    part.see(&[0]);
    part.tale.put("y/e");
    part.see(&[0]);
    let verdict = part.tale.judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I3));
    // The RV must not advance without them either.
    let mut part = expired();
    part.see(&[0]);
    let look = part.look(part.tale.rv() + 5, &[0], live(0));
    part.tale.saw(look);
    broken(&part.tale, Invariant::I3);
}

#[test]
fn i3_changes_with_an_rv_each() {
    let mut part = expired();
    part.tale.delete("x/d");
    // All but the last of those that share the previous RV.
    part.see(&[0, 1]);
    broken(&part.tale, Invariant::I3);
}

#[test]
fn i3_one_object_of_a_part() {
    let got = |key: usize, object: Option<usize>| {
        let mut part = expired();
        let (rv, key) = (part.tale.rv(), part.before[key].key);
        let object = object.map(|object| part.before[object]);
        part.tale.record(Fact::Got { informer: PODS, rv, epoch: 0, key, object });
        part.tale
    };
    kept(&got(1, Some(1)), Invariant::I3);
    kept(&got(1, None), Invariant::I3);
    // The first of them is the reason for the RV.
    broken(&got(0, Some(0)), Invariant::I3);
    broken(&got(3, None), Invariant::I3);
}

#[test]
fn i4_flags_missing_or_reordered_deletions_of_rv() {
    let told = |which: &[usize]| {
        let Expired { mut tale, before, gone } = expired();
        which.iter().for_each(|object| tale.hear(Kind::Deleted, gone[*object], None));
        let next = tale.put("x/d");
        tale.hear(Kind::Updated, next, Some(before[3]));
        tale
    };
    kept(&told(&[0, 1, 2]), Invariant::I4);
    broken(&told(&[0, 1]), Invariant::I4);
    broken(&told(&[0, 2]), Invariant::I4);
    broken(&told(&[1, 0, 2]), Invariant::I4);
}

#[test]
fn i6_flags_return_of_deleted_object() {
    let mut part = expired();
    part.see(&[0, 1]);
    part.see(&[0]);
    broken(&part.tale, Invariant::I6);
    let mut part = expired();
    part.see(&[0, 1, 2]);
    part.see(&[0, 1]);
    broken(&part.tale, Invariant::I6);
}

#[test]
fn i9_a_list_is_whole() {
    let listed = |without: &[usize]| {
        let mut part = expired();
        let call = part.tale.call(CallKind::Read { max_age: secs(1) }, secs(5));
        let look = part.look(part.tale.rv(), without, live(0));
        part.tale.saw(Look { walk: Walk::Live(call), ..look });
        part.tale.returned(call, Outcome::Done);
        part.tale
    };
    kept(&listed(&[0, 1, 2]), Invariant::I9);
    let verdict = listed(&[0, 1]).judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I9));
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I3));
}

#[test]
fn i10_partial_store_ages_from_missing_deletions() {
    let seen = |millis| {
        let told = |age| Freshness::Stale { age: Some(Duration::from_millis(age)), reason: Reason::Link };
        let mut part = expired();
        part.tale.fault_begins(CLUSTER, 3, Some(secs(1)), secs(60), false);
        let look = part.look(part.tale.rv(), &[0, 1], told(0));
        part.tale.saw(look.clone());
        part.tale.go(secs(10));
        part.tale.saw(Look { freshness: told(millis), ..look });
        part.tale
    };
    // A reader cannot know of events that were in flight for a moment.
    kept(&seen(8_000), Invariant::I10);
    broken(&seen(7_999), Invariant::I10);
}

#[test]
fn i10_silent_partial_store_ages_from_later_rv() {
    let seen = |age| {
        let mut part = expired();
        part.tale.fault_begins(CLUSTER, 8, Some(secs(60)), secs(5), false);
        part.tale.go(secs(10));
        let look = part.look(part.tale.rv(), &[0, 1], live(0));
        part.tale.saw(look.clone());
        part.tale.put("y/e");
        part.tale.go(secs(10));
        part.tale.saw(Look { freshness: live(age), ..look });
        part.tale
    };
    kept(&seen(10_000), Invariant::I10);
    broken(&seen(9_999), Invariant::I10);
}

#[test]
fn i11_flags_missing_remaining_deletions() {
    let seen = |rest: &[usize]| {
        let mut part = expired();
        let look = part.look(part.tale.rv(), rest, live(20_000));
        part.tale.saw(look.clone());
        part.tale.go(secs(20));
        part.tale.saw(look);
        part.tale
    };
    assert_eq!(seen(&[0, 1, 2]).judge().violations, []);
    broken(&seen(&[0, 1]), Invariant::I11);
}

#[test]
fn i20_a_handler_that_begins_with_some_of_them() {
    let synced = |without: &[usize]| {
        let mut tale = Tale::new();
        let before = ["x/a", "x/b", "x/c"].map(|key| tale.put(key));
        tale.expire(["x/a", "x/b"]);
        for object in (0..3).filter(|object| !without.contains(object)) {
            tale.hear_initial(before[object]);
        }
        let content = (0..3).filter(|object| ![0].contains(object)).map(|object| before[object]).collect();
        let look = tale.look(PODS, live(0));
        tale.saw(Look { views: [View { rv: tale.rv(), content }].into(), ..look });
        // It was not there at the informer's start, which no fact mentions.
        tale.history
            .entries
            .retain(|entry| !matches!(entry.fact, Fact::InformerStarted { .. }) || entry.at != At::ZERO);
        tale.record(Fact::HandlerSynced { handler: super::tale::HEARER });
        tale
    };
    kept(&synced(&[0]), Invariant::I20);
    kept(&synced(&[0, 1]), Invariant::I20);
    broken(&synced(&[1]), Invariant::I20);
}

#[test]
fn i23_flags_missing_deletions_at_end() {
    let ended = |without: &[usize]| {
        let mut part = expired();
        part.see(without);
        for object in without {
            part.tale.hear(Kind::Deleted, part.gone[*object], None);
        }
        part.tale.settle();
        let look = part.look(part.tale.rv(), without, Freshness::Live { age: secs(125) });
        part.tale.saw(Look { walk: Walk::Last, ..look });
        part.tale
    };
    kept(&ended(&[0, 1, 2]), Invariant::I23);
    let verdict = ended(&[0, 1]).judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I23));
}
