//! The controller's own writes, which the next reconciliation of a key has to see.

use std::any::TypeId;
use std::collections::HashMap;

use parking_lot::Mutex;
use skopos::{ObjectKey, ResourceVersion};

/// The versions that the views have to reach before a key is reconciled.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    awaited: Mutex<HashMap<ObjectKey, Vec<(TypeId, ResourceVersion)>>>,
}

impl OwnWrites {
    /// Records a write. Of each type the highest version counts.
    pub(crate) fn record(&self, key: &ObjectKey, object_type: TypeId, version: ResourceVersion) {
        let mut awaited = self.awaited.lock();
        let of_key = awaited.entry(key.clone()).or_default();
        match of_key.iter_mut().find(|(known, _)| *known == object_type) {
            Some((_, known)) if *known < version => *known = version,
            Some(_) => {}
            None => of_key.push((object_type, version)),
        }
    }

    /// Returns the versions that a reconciliation of the key has to see.
    pub(crate) fn of(&self, key: &ObjectKey) -> Vec<(TypeId, ResourceVersion)> {
        self.awaited.lock().get(key).cloned().unwrap_or_default()
    }

    /// Forgets those of a key up to the versions that were seen.
    pub(crate) fn seen(&self, key: &ObjectKey, versions: &[(TypeId, ResourceVersion)]) {
        let mut awaited = self.awaited.lock();
        let Some(of_key) = awaited.get_mut(key) else { return };
        of_key.retain(|(awaited, version)| {
            !versions.iter().any(|(seen, reached)| seen == awaited && version <= reached)
        });
        if of_key.is_empty() {
            awaited.remove(key);
        }
    }
}
