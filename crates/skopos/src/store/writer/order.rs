use std::collections::BTreeSet;

use skopos_wire::{ObjectKey, ResourceVersion};

/// How far a writer has come, and what is in order after that.
///
/// One transaction changes many objects at one RV, and they may come in more than one batch, or after a new connection. So
/// with the RV of an event not everything at that RV is there, as it is with that of a list; nor is it with that of a bookmark,
/// which kube-apiserver may send between two of them.
pub(super) struct Order {
    reached: ResourceVersion,
    /// Whether everything at this RV was told.
    whole: bool,
    /// What was deleted at this RV: a state of it from the same RV is of before.
    gone: BTreeSet<ObjectKey>,
}

impl Order {
    /// Goes on from content at this RV, of which it is not known whether all of the RV is in it.
    pub(super) fn after(reached: ResourceVersion) -> Self {
        Self { reached, whole: false, gone: BTreeSet::new() }
    }

    /// Goes on from content that has everything up to this RV.
    pub(super) fn after_all_of(reached: ResourceVersion) -> Self {
        Self { whole: true, ..Self::after(reached) }
    }

    /// An event of this RV has come, or a bookmark.
    pub(super) fn reach(&mut self, rv: &ResourceVersion) {
        if *rv > self.reached {
            *self = Self::after(rv.clone());
        }
    }

    /// Whether what comes with this RV comes too late.
    pub(super) fn is_late(&self, rv: &ResourceVersion) -> bool {
        *rv < self.reached || (*rv == self.reached && self.whole)
    }

    /// Whether an object of this RV is of a history that was given up: this one has not come so far.
    pub(super) fn is_beyond(&self, rv: &ResourceVersion) -> bool {
        *rv > self.reached
    }

    /// Whether a state with this RV, of an object that is not there, is of before its deletion, or may be.
    pub(super) fn is_past(&self, key: &ObjectKey, rv: &ResourceVersion) -> bool {
        self.is_late(rv) || (*rv == self.reached && self.gone.contains(key))
    }

    /// This object was deleted at this RV.
    pub(super) fn deleted(&mut self, key: &ObjectKey, rv: &ResourceVersion) {
        if *rv == self.reached && self.gone.len() < REMEMBERED {
            self.gone.insert(key.clone());
        }
    }
}

/// So many deletions of one RV are remembered. They guard against servers that send an event again, of which the link lets none
/// through; and who deletes at one RV without end has no claim to it.
const REMEMBERED: usize = 10_000;
