//! Which objects a list/watch could not read: of them the store is known to differ from the server.

use std::collections::BTreeSet;

use skopos_wire::ObjectKey;

use crate::sync::Mutex;

/// What one list/watch could not read. Its sink notes it, audits look at it.
#[derive(Debug, Default)]
pub(crate) struct SetAside(Mutex<Unread>);

/// What could not be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    pub(crate) keys: BTreeSet<ObjectKey>,
    /// Objects of the last list that cannot even be named.
    pub(crate) nameless: usize,
}

impl SetAside {
    /// A list has replaced everything, and this is what it could not read.
    pub(crate) fn listed(&self, unread: Unread) {
        *self.0.lock() = unread;
    }

    /// A change of this object could not be read.
    pub(crate) fn passed_over(&self, key: &ObjectKey) {
        self.0.lock().keys.insert(key.clone());
    }

    /// What is the newest of these could be read.
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
    /// What could not be read at one of two moments.
    pub(crate) fn or(mut self, other: Self) -> Self {
        self.keys.extend(other.keys);
        self.nameless = self.nameless.max(other.nameless);
        self
    }
}
