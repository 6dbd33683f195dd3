//! The controller's own writes, which the next reconciliation of a key must see.

use std::any::TypeId;
use std::collections::HashMap;

use parking_lot::Mutex;
use skopos::{ObjectKey, ResourceVersion};

/// The writes that the views must show before a key is reconciled.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    awaited: Mutex<HashMap<ObjectKey, Vec<OwnWrite>>>,
}

/// A write that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnWrite {
    pub(crate) object_type: TypeId,
    pub(crate) moment: Moment,
}

/// A moment of a view: its epoch, and the version in it. A later epoch is after all versions of an earlier one: their history is over.
pub(crate) type Moment = (u64, ResourceVersion);

impl OwnWrites {
    /// Records a write. Of each type the last version counts.
    pub(crate) fn record(&self, key: &ObjectKey, write: OwnWrite) {
        let mut awaited = self.awaited.lock();
        let of_key = awaited.entry(key.clone()).or_default();
        match of_key.iter_mut().find(|known| known.object_type == write.object_type) {
            Some(known) if known.moment < write.moment => *known = write,
            Some(_) => {}
            None => of_key.push(write),
        }
    }

    /// Returns the writes that a reconciliation of the key must see.
    pub(crate) fn awaited_by(&self, key: &ObjectKey) -> Vec<OwnWrite> {
        self.awaited.lock().get(key).cloned().unwrap_or_default()
    }

    /// Removes writes of a key that were seen, and keeps later ones.
    pub(crate) fn seen(&self, key: &ObjectKey, seen: &[OwnWrite]) {
        let mut awaited = self.awaited.lock();
        let Some(of_key) = awaited.get_mut(key) else { return };
        of_key.retain(|write| !seen.contains(write));
        if of_key.is_empty() {
            awaited.remove(key);
        }
    }
}
