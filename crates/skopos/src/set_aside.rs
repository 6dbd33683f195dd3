//! Objects that a list/watch could not read: they are known to differ between store and server.

use std::collections::BTreeSet;

use skopos_wire::ObjectKey;

use crate::sync::Mutex;

/// The record of one list/watch's unreadable objects. Its sink writes it, audits read it.
#[derive(Debug, Default)]
pub(crate) struct SetAside(Mutex<Unread>);

/// Objects that could not be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    pub(crate) keys: BTreeSet<ObjectKey>,
    /// The number of objects in the last list that have no readable name.
    pub(crate) nameless: usize,
}

impl SetAside {
    /// Replaces the record, after a list, with the objects that the list could not read.
    pub(crate) fn listed(&self, unread: Unread) {
        *self.0.lock() = unread;
    }

    /// Records that a change of this object could not be read.
    pub(crate) fn passed_over(&self, key: &ObjectKey) {
        self.0.lock().keys.insert(key.clone());
    }

    /// Removes objects whose newest version could be read.
    pub(crate) fn read<'a>(&self, keys: impl Iterator<Item = &'a ObjectKey>) {
        let mut unread = self.0.lock();
        if !unread.keys.is_empty() {
            for key in keys {
                unread.keys.remove(key);
            }
        }
    }

    pub(crate) fn unread(&self) -> Unread {
        self.0.lock().clone()
    }
}

impl Unread {
    /// Returns the objects that could not be read at either of two moments.
    pub(crate) fn or(mut self, other: Self) -> Self {
        self.keys.extend(other.keys);
        self.nameless = self.nameless.max(other.nameless);
        self
    }
}
