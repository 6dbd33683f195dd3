use std::fmt;

use kube::core::DynamicObject;
use skopos_wire::{ObjectKey, ResourceVersion};

use crate::store::object::{Object, StoredObject};
use crate::store::tree::TreeItem;

/// One change of one object, as stored in a journal.
///
/// If another object (a new uid) takes over a name, that is two changes: deleted, then added.
pub struct Change<K = DynamicObject> {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The RV that the content reached with this change: the object's own, or that of the deletion.
    pub resource_version: ResourceVersion,
    /// True if this change was found by comparing two states: there may have been other changes before it, of this object
    /// and of objects that came and went.
    pub gap: bool,
    /// True if an earlier change or bookmark already reached this RV. A reader of the content at this RV, or a watch that
    /// stopped at it, may lack this change.
    pub further: bool,
    /// The object before the change; `None` if it was added.
    pub old: Option<Object<K>>,
    /// The object after the change; `None` if it was deleted.
    pub new: Option<Object<K>>,
    /// The final state of a deleted object, with the RV of the deletion in it; `None` if the server did not report it.
    pub last: Option<Object<K>>,
}

/// The kinds of changes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The object is new.
    Added,
    /// The object has a new version.
    Modified,
    /// The object is gone.
    Deleted,
}

impl<K> Change<K> {
    /// Returns the key of the object.
    ///
    /// # Panics
    /// If both `old` and `new` were taken out.
    pub fn key(&self) -> &ObjectKey {
        let object = self.new.as_ref().or(self.old.as_ref());
        object.expect("a change has an object before or after it").key()
    }

    /// Returns the event that this change is for a watch with a selector, like the API server's: an object that enters the
    /// selection is added, one that leaves it is deleted. `None`: no event.
    ///
    /// The object of a deletion is the final state if it is known (of the object itself), and otherwise the state before.
    /// The latter carries an older RV than [`resource_version`](Change::resource_version); a watch must send the change's
    /// RV in its place.
    pub fn seen_by(&self, selects: impl Fn(&Object<K>) -> bool) -> Option<(ChangeKind, &Object<K>)> {
        let before = self.old.as_ref().filter(|old| selects(old));
        let after = self.new.as_ref().filter(|new| selects(new));
        match (before, after) {
            (None, None) => None,
            (None, Some(new)) => Some((ChangeKind::Added, new)),
            (Some(_), Some(new)) => Some((ChangeKind::Modified, new)),
            (Some(old), None) => Some((ChangeKind::Deleted, self.last.as_ref().unwrap_or(old))),
        }
    }
}

/// A change as stored in the ring.
pub(crate) struct ChangeRecord {
    pub(crate) kind: ChangeKind,
    pub(crate) resource_version: ResourceVersion,
    pub(crate) gap: bool,
    pub(crate) further: bool,
    pub(crate) old: Option<StoredObject>,
    pub(crate) new: Option<StoredObject>,
    pub(crate) last: Option<StoredObject>,
}

impl ChangeRecord {
    /// Makes the record of a new object or a new version.
    pub(crate) fn put(old: Option<StoredObject>, new: StoredObject) -> Self {
        let kind = if old.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        let resource_version = new.rv().clone();
        Self { kind, resource_version, gap: false, further: false, old, new: Some(new), last: None }
    }

    /// Makes the record of a deletion.
    pub(crate) fn deleted(old: StoredObject, last: Option<StoredObject>, at: ResourceVersion) -> Self {
        let kind = ChangeKind::Deleted;
        Self { kind, resource_version: at, gap: false, further: false, old: Some(old), new: None, last }
    }

    pub(crate) fn in_gap(self) -> Self {
        Self { gap: true, ..self }
    }

    /// Returns the bytes that the record keeps alive and the store does not. The store holds the new version; once it does
    /// not, that is the old version of another record.
    pub(super) fn bytes(&self) -> u64 {
        let kept = [&self.old, &self.last].into_iter().flatten();
        RECORD_OVERHEAD + kept.map(|entry| RECORD_OVERHEAD + entry.raw().buffer().len() as u64).sum::<u64>()
    }

    pub(super) fn change<K>(&self) -> Change<K> {
        let object = |entry: &Option<StoredObject>| entry.clone().map(Object::from);
        Change {
            kind: self.kind,
            resource_version: self.resource_version.clone(),
            gap: self.gap,
            further: self.further,
            old: object(&self.old),
            new: object(&self.new),
            last: object(&self.last),
        }
    }
}

/// The bytes of a record, and of an object in addition to its JSON.
const RECORD_OVERHEAD: u64 = 128;

// Neither is derived: that would require `K: Clone` and `K: Debug`, and there is no `K` in it.
impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            resource_version: self.resource_version.clone(),
            gap: self.gap,
            further: self.further,
            old: self.old.clone(),
            new: self.new.clone(),
            last: self.last.clone(),
        }
    }
}

impl<K> fmt::Debug for Change<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.new.as_ref().or(self.last.as_ref()).or(self.old.as_ref());
        let gap = if self.gap { ", gap" } else { "" };
        let further = if self.further { ", further" } else { "" };
        match object {
            Some(object) => {
                write!(f, "{:?}({object:?} at {}{gap}{further})", self.kind, self.resource_version)
            }
            None => write!(f, "{:?}(at {}{gap}{further})", self.kind, self.resource_version),
        }
    }
}

impl fmt::Debug for ChangeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.new.as_ref().or(self.old.as_ref()).map(TreeItem::key);
        write!(f, "{:?}({key:?} at {})", self.kind, self.resource_version)
    }
}
