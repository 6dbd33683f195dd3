//! Changes of a member between the position that an earlier process recorded and now.

use std::collections::BTreeMap;

use skopos::journal::{Change, Cursor, Journal};
use skopos_wire::{RawObject, ResourceVersion};

use super::resume_state::MemberState;

/// A member's content at the recorded position, and the changes since.
pub(crate) struct MissedChanges {
    /// The objects, sorted by key.
    pub(crate) objects: Vec<RawObject>,
    pub(crate) changes: Vec<Change<RawObject>>,
    pub(crate) reached: ResourceVersion,
    /// The cursor for the changes that follow.
    pub(crate) cursor: Cursor<RawObject>,
}

/// Changes per read of the journal.
const BATCH_SIZE: usize = 256;

impl MissedChanges {
    /// Returns the changes since `saved`. `now` is the member's current content, or that of a moment ago. Returns
    /// `None` if the journal does not reach back that far.
    pub(crate) fn since(
        saved: &MemberState,
        journal: &Journal<RawObject>,
        now: Vec<RawObject>,
    ) -> Option<Self> {
        let mut cursor = journal.after(&saved.to).ok()?;
        let mut changes = Vec::new();
        loop {
            let batch = cursor.read(BATCH_SIZE).ok().filter(|batch| batch.epoch == saved.epoch)?;
            changes.extend(batch.changes);
            if let Some(reached) = batch.reached {
                return Some(Self { objects: before(now, &changes), changes, reached, cursor });
            }
        }
    }
}

/// Returns the content before `changes`, from the content after all or some of them. The first change of each object has
/// its state before.
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
