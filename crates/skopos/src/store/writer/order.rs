use std::collections::BTreeSet;

use skopos_wire::{ObjectKey, ResourceVersion};

/// The progress of a writer, and the check whether an event is in order after it.
///
/// One transaction changes many objects at one RV, and they may come in more than one batch, or after a new connection. So
/// an event's RV does not mean that everything at that RV has arrived, unlike a list's. Neither does a bookmark's, which
/// kube-apiserver may send between two of them.
pub(super) struct EventOrder {
    reached: ResourceVersion,
    /// True if everything at this RV has arrived.
    whole: bool,
    /// The objects deleted at this RV: a version of such an object at the same RV is older than the deletion.
    gone: BTreeSet<ObjectKey>,
}

impl EventOrder {
    /// Continues after content at this RV, which may lack some of the RV's changes.
    pub(super) fn after(reached: ResourceVersion) -> Self {
        Self { reached, whole: false, gone: BTreeSet::new() }
    }

    /// Continues after content that has everything up to this RV.
    pub(super) fn after_complete(reached: ResourceVersion) -> Self {
        Self { whole: true, ..Self::after(reached) }
    }

    /// Records an event or a bookmark of this RV.
    pub(super) fn reach(&mut self, rv: &ResourceVersion) {
        if *rv > self.reached {
            *self = Self::after(rv.clone());
        }
    }

    /// Returns whether an event of this RV comes too late.
    pub(super) fn is_late(&self, rv: &ResourceVersion) -> bool {
        *rv < self.reached || (*rv == self.reached && self.whole)
    }

    /// Returns whether an object of this RV belongs to a replaced history: the current one has not reached
    /// that RV.
    pub(super) fn is_beyond(&self, rv: &ResourceVersion) -> bool {
        *rv > self.reached
    }

    /// Returns whether a version with this RV, of an object that does not exist, is or may be older than its deletion.
    pub(super) fn is_past(&self, key: &ObjectKey, rv: &ResourceVersion) -> bool {
        self.is_late(rv) || (*rv == self.reached && self.gone.contains(key))
    }

    /// Records that this object was deleted at this RV.
    pub(super) fn deleted(&mut self, key: &ObjectKey, rv: &ResourceVersion) {
        if *rv == self.reached && self.gone.len() < MAX_STORED_DELETIONS {
            self.gone.insert(key.clone());
        }
    }
}

/// The number of deletions at one RV that are stored. They guard against servers that repeat an event; the reflector lets no
/// repeated event through. A server that deletes without end at one RV loses this guard.
const MAX_STORED_DELETIONS: usize = 10_000;
