//! Objects that a list/watch could not read: they are known to differ between store and server.

use std::collections::BTreeSet;

use skopos_wire::ObjectKey;

use crate::sync::Mutex;

/// The record of one list/watch's unreadable objects. Its sink writes it, audits read it.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<UnreadableObjects>);

/// Objects that could not be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadableObjects {
    pub(crate) keys: BTreeSet<ObjectKey>,
    /// The number of objects in the last list that have no readable name.
    pub(crate) nameless: usize,
}

impl Quarantine {
    /// Replaces the record, after a list, with the objects that the list could not read.
    pub(crate) fn replace(&self, unreadable: UnreadableObjects) {
        *self.0.lock() = unreadable;
    }

    /// Records that a change of this object could not be read.
    pub(crate) fn add(&self, key: &ObjectKey) {
        self.0.lock().keys.insert(key.clone());
    }

    /// Removes objects whose newest version could be read.
    pub(crate) fn remove<'a>(&self, keys: impl Iterator<Item = &'a ObjectKey>) {
        let mut unreadable = self.0.lock();
        if !unreadable.keys.is_empty() {
            for key in keys {
                unreadable.keys.remove(key);
            }
        }
    }

    pub(crate) fn unreadable(&self) -> UnreadableObjects {
        self.0.lock().clone()
    }
}

impl UnreadableObjects {
    /// Returns the objects that could not be read at either of two moments.
    pub(crate) fn or(mut self, other: Self) -> Self {
        self.keys.extend(other.keys);
        self.nameless = self.nameless.max(other.nameless);
        self
    }
}
