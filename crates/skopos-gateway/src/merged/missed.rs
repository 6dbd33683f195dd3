//! What changed of a member between where an earlier process left it and now.

use std::collections::BTreeMap;

use skopos::journal::{Change, Cursor, Journal};
use skopos_wire::{RawObject, ResourceVersion};

use super::restart::Stand;

/// What a member had where it was left, and what has changed since.
pub(crate) struct Missed {
    /// In the order of their keys.
    pub(crate) objects: Vec<RawObject>,
    pub(crate) changes: Vec<Change<RawObject>>,
    pub(crate) reached: ResourceVersion,
    /// What follows.
    pub(crate) cursor: Cursor<RawObject>,
}

/// How many changes are read in one go.
const BATCH: usize = 256;

impl Missed {
    /// `now`: what the member has, or had a moment ago. `None` where the journal does not reach back so far.
    pub(crate) fn since(left: &Stand, journal: &Journal<RawObject>, now: Vec<RawObject>) -> Option<Self> {
        let mut cursor = journal.after(&left.to).ok()?;
        let mut changes = Vec::new();
        loop {
            let batch = cursor.read(BATCH).ok().filter(|batch| batch.epoch == left.epoch)?;
            changes.extend(batch.changes);
            if let Some(reached) = batch.reached {
                return Some(Self { objects: before(now, &changes), changes, reached, cursor });
            }
        }
    }
}

/// The content before these changes, made of what it is after them or some of them: of each object that was changed it is known
/// what it was before its first change.
fn before(after: Vec<RawObject>, changes: &[Change<RawObject>]) -> Vec<RawObject> {
    let mut objects: BTreeMap<_, _> =
        after.into_iter().map(|object| (object.key().clone(), object)).collect();
    for change in changes.iter().rev() {
        match &change.old {
            Some(old) => drop(objects.insert(old.key().clone(), old.raw().clone())),
            None => drop(objects.remove(change.key())),
        }
    }
    objects.into_values().collect()
}
