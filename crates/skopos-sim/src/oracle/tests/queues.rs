//! I17, I22.

use super::tale::HEARER;
use super::{Invariant, Tale, broken, kept};
use crate::history::{Fact, KeyId, QueueId};

#[test]
fn i17_a_queue_has_a_bound() {
    let deep = |deepest| {
        let mut tale = Tale::new();
        tale.record(Fact::HandlerStats { handler: HEARER, deepest, overflows: 1, panics: 0, poisoned: 0 });
        tale
    };
    kept(&deep(10), Invariant::I17);
    broken(&deep(1000), Invariant::I17);
}

fn queue() -> (Tale, QueueId, KeyId) {
    let mut tale = Tale::new();
    let queue = tale.queue();
    let key = tale.key("x/a");
    tale.record(Fact::QueueAdded { queue, key });
    tale.record(Fact::QueueTaken { queue, worker: 0, key });
    (tale, queue, key)
}

#[test]
fn i22_accepts_return_of_key_added_during_work() {
    let (mut tale, queue, key) = queue();
    tale.record(Fact::QueueAdded { queue, key });
    tale.record(Fact::QueueDone { queue, worker: 0, key, again: false });
    tale.record(Fact::QueueTaken { queue, worker: 1, key });
    tale.record(Fact::QueueDone { queue, worker: 1, key, again: false });
    tale.record(Fact::QueueClosed { queue, drains: true });
    tale.record(Fact::QueueEnded { queue });
    kept(&tale, Invariant::I22);
}

#[test]
fn i22_a_key_is_in_two_workers() {
    let (mut tale, queue, key) = queue();
    tale.record(Fact::QueueAdded { queue, key });
    tale.record(Fact::QueueTaken { queue, worker: 1, key });
    broken(&tale, Invariant::I22);
}

#[test]
fn i22_a_key_is_lost() {
    let (mut tale, queue, key) = queue();
    tale.record(Fact::QueueAdded { queue, key });
    tale.record(Fact::QueueDone { queue, worker: 0, key, again: false });
    tale.settle();
    broken(&tale, Invariant::I22);
}

#[test]
fn i22_a_drain_leaves_something_or_never_ends() {
    let (mut tale, queue, key) = queue();
    tale.record(Fact::QueueAdded { queue, key });
    tale.record(Fact::QueueDone { queue, worker: 0, key, again: false });
    tale.record(Fact::QueueClosed { queue, drains: true });
    broken(&tale, Invariant::I22);
    tale.record(Fact::QueueEnded { queue });
    broken(&tale, Invariant::I22);
}

#[test]
fn i22_flags_key_never_added() {
    let (mut tale, queue, key) = queue();
    tale.record(Fact::QueueDone { queue, worker: 0, key, again: false });
    tale.record(Fact::QueueTaken { queue, worker: 0, key });
    broken(&tale, Invariant::I22);
}
