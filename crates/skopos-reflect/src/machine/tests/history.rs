//! I1, I2, I4, I8 and I18 for one reflector: the deliveries between two RVs are exactly the log's entries between them, in its
//! order, and a deletion removes the very object that was there.

use std::collections::BTreeSet;

use super::server::{Content, Entry, Kind};
use crate::Change;

/// One change as the sink received it.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) name: String,
    /// `None` for a deletion that could not be decoded.
    pub(super) uid: Option<u64>,
    pub(super) rv: u64,
    pub(super) deletion: bool,
    /// The uid and RV of the previous object.
    pub(super) replaced: Option<(u64, u64)>,
}

/// Checks one `apply` or `advance` from one RV to another. `here`: the names applied at the first of them, if that may not
/// have been everything; `partly`: the second need not be complete.
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
    // An undecodable change is set aside, or comes in another way.
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

/// Makes the delivery of a change that is not applied yet.
pub(super) fn delivery(content: &Content, change: &Change, rv: u64) -> Delivery {
    let name = change.key().name();
    let (uid, deletion) = match change {
        Change::Put(object) => (object.uid().parse().ok(), false),
        Change::Deleted(object) => (object.uid().parse().ok(), true),
        Change::Gone { .. } => (None, true),
    };
    Delivery { name: name.to_owned(), uid, rv, deletion, replaced: content.get(name).copied() }
}
