//! I1, I2, I4, I8 and I18 for one link: what was delivered between two RVs is what the log has between them, no more, no
//! less, in its order, and a deletion takes away the very object that was there.

use std::collections::BTreeSet;

use super::server::{Content, Entry, Kind};
use crate::Change;

/// One change as the sink was given it.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) name: String,
    /// None for a deletion that could not be decoded.
    pub(super) uid: Option<u64>,
    pub(super) rv: u64,
    pub(super) deletion: bool,
    /// What was there before: uid and RV.
    pub(super) replaced: Option<(u64, u64)>,
}

/// One `apply` or `advance` has led from one RV to another. `here`: the names of what was applied at the first of them, if that
/// may not have been everything; `partly`: not everything at the second needs to be there.
pub(super) fn check_step(
    (from, here): (u64, Option<BTreeSet<String>>),
    (to, partly): (u64, bool),
    deliveries: &[Delivery],
    log: &[Entry],
) {
    let is_owed = |entry: &&Entry| {
        from < entry.rv || here.as_ref().is_some_and(|here| from == entry.rv && !here.contains(&entry.name))
    };
    let begin = log.partition_point(|entry| entry.rv < from);
    let end = log.partition_point(|entry| entry.rv <= to);
    let owed: Vec<&Entry> = log[begin..end].iter().filter(is_owed).collect();
    // What cannot be decoded is set aside, or comes by another way.
    let doubtful: BTreeSet<&str> =
        log.iter().filter(|entry| entry.poisoned).map(|entry| entry.name.as_str()).collect();
    let certain = |name: &str| !doubtful.contains(name);

    let mut wanted = owed.iter().copied().filter(|entry| !entry.poisoned);
    for delivery in
        deliveries.iter().filter(|delivery| !owed.iter().any(|e| e.poisoned && is_same(e, delivery)))
    {
        let next = wanted.next();
        assert!(
            next.is_some_and(|entry| is_same(entry, delivery)),
            "between {from} and {to} {delivery:?} was delivered, where {next:?} was due"
        );
    }
    let missing = wanted.find(|entry| !partly || entry.rv < to);
    assert!(missing.is_none(), "between {from} and {to} {missing:?} was not delivered");

    for delivery in deliveries.iter().filter(|delivery| certain(&delivery.name)) {
        let Delivery { name, uid, deletion, replaced, .. } = delivery;
        match replaced {
            Some((held, rv)) => {
                assert_eq!(uid.unwrap_or(*held), *held, "{name} changed its uid without a deletion");
                assert!(*rv < delivery.rv, "{name} was at {rv} already: {delivery:?}");
            }
            None => assert!(!deletion, "{name} was not there: {delivery:?}"),
        }
    }
}

fn is_same(entry: &Entry, delivery: &Delivery) -> bool {
    entry.rv == delivery.rv
        && entry.name == delivery.name
        && delivery.uid.is_none_or(|uid| uid == entry.uid)
        && delivery.deletion == (entry.kind == Kind::Deleted)
}

/// A change, before it is made.
pub(super) fn delivery(content: &Content, change: &Change, rv: u64) -> Delivery {
    let name = change.key().name();
    let (uid, deletion) = match change {
        Change::Put(object) => (object.uid().parse().ok(), false),
        Change::Deleted(object) => (object.uid().parse().ok(), true),
        Change::Gone { .. } => (None, true),
    };
    Delivery { name: name.to_owned(), uid, rv, deletion, replaced: content.get(name).copied() }
}
