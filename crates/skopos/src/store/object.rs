//! An object of a store: the JSON as the server sent it, and a typed view on request.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use skopos_wire::{DecodeError, ObjectKey, RawObject, ResourceVersion};

use super::tree::TreeItem;

/// One version of a Kubernetes object, shared between the store, its snapshots, handlers and callers.
///
/// It holds the raw JSON and the metadata that a cache needs; nothing is decoded before it is requested. `K` is the type
/// that [`typed`](Object::typed) and [`decode`](Object::decode) return: a k8s-openapi type, your own
/// `#[derive(CustomResource)]`, [`DynamicObject`], `PartialObjectMeta<K>`, or any `Deserialize` type with just the fields
/// you read. Cloning copies a pointer. The content never changes: a newer version is another `Object`.
pub struct Object<K = DynamicObject> {
    entry: StoredObject,
    kind: PhantomData<fn() -> K>,
}

impl<K> Object<K> {
    /// Creates an object outside of any store.
    pub fn new(raw: RawObject) -> Self {
        StoredObject::new(raw).into()
    }

    /// Returns namespace and name.
    pub fn key(&self) -> &ObjectKey {
        self.raw().key()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.key().namespace()
    }

    /// Returns the uid, which distinguishes two successive objects with the same name.
    pub fn uid(&self) -> &str {
        self.raw().uid()
    }

    /// Returns the version of this object: the RV of its last change.
    pub fn resource_version(&self) -> &ResourceVersion {
        self.raw().resource_version()
    }

    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.raw().label(name)
    }

    /// Returns the raw object: its JSON bytes and the scanned metadata.
    pub fn raw(&self) -> &RawObject {
        self.entry.raw()
    }

    /// Returns whether both are the same version of the same object. A list may return the same version with other content,
    /// where the server was upgraded or has a new default for it.
    pub fn same_version<L>(&self, other: &Object<L>) -> bool {
        self.entry.is_same(&other.entry) || self.entry.is_same_version(&other.entry)
    }

    /// Returns the same object as another type. Costs nothing and checks nothing: a mismatch is found when the object is
    /// decoded.
    pub fn cast<L>(self) -> Object<L> {
        self.entry.into()
    }

    #[cfg(test)]
    pub(crate) fn entry(&self) -> &StoredObject {
        &self.entry
    }
}

impl<K: DeserializeOwned> Object<K> {
    /// Decodes the object, without caching the result.
    ///
    /// Right for code that reads each version once, such as most handlers: memory stays at the raw JSON.
    ///
    /// # Errors
    /// If the JSON does not fit `K`: the type is another version than what the server serves, or the server is at fault.
    pub fn decode(&self) -> Result<K, DecodeError> {
        self.raw().decode()
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Object<K> {
    /// Returns the decoded object. Decodes on the first call, and caches the result for all holders of this version, for as
    /// long as the store or a caller holds it.
    ///
    /// Right for objects that are read again and again. It costs the memory of the decoded value in addition to the raw
    /// one; see [`decode`](Object::decode). One type is cached per version: calls with another type decode each time.
    ///
    /// # Errors
    /// As [`decode`](Object::decode).
    pub fn typed(&self) -> Result<Arc<K>, DecodeError> {
        let typed = &self.entry.0.typed;
        if let Some(Ok(known)) = typed.get().map(|known| Arc::downcast::<K>(known.clone())) {
            return Ok(known);
        }
        let value = Arc::new(self.decode()?);
        // The second caller with the same type gets the value of the first, so that all share one.
        let kept = typed.get_or_init(|| value.clone());
        Ok(Arc::downcast::<K>(kept.clone()).unwrap_or(value))
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        self.entry.clone().into()
    }
}

impl<K> From<StoredObject> for Object<K> {
    fn from(entry: StoredObject) -> Self {
        Self { entry, kind: PhantomData }
    }
}

impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} uid={} rv={})", self.key(), self.uid(), self.resource_version())
    }
}

/// An object as held by stores, without its type: one store serves readers of different types, and its code is compiled
/// once.
#[derive(Clone)]
pub(crate) struct StoredObject(Arc<StoredObjectInner>);

/// The fields that look-ups compare come first, to be in as few cache lines as possible, beside the counts that a clone
/// changes.
#[repr(C)]
struct StoredObjectInner {
    /// The key of `raw`, one pointer nearer.
    key: ObjectKey,
    /// The beginning of the key; most keys fit as a whole.
    head: [u8; HEAD],
    raw: RawObject,
    typed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// The size of the key's beginning. With it an entry takes two cache lines.
const HEAD: usize = 64;

impl StoredObject {
    pub(crate) fn new(raw: RawObject) -> Self {
        let key = raw.key().clone();
        let mut head = [0; HEAD];
        head.iter_mut().zip(key.sort_bytes()).for_each(|(own, byte)| *own = *byte);
        Self(Arc::new(StoredObjectInner { key, head, raw, typed: OnceLock::new() }))
    }

    pub(crate) fn raw(&self) -> &RawObject {
        &self.0.raw
    }

    pub(crate) fn uid(&self) -> &str {
        self.0.raw.uid()
    }

    pub(crate) fn rv(&self) -> &ResourceVersion {
        self.0.raw.resource_version()
    }

    /// Returns whether uid and RV are equal. Then the content is probably equal, but not certainly: a server may come to
    /// decode its stored data differently.
    pub(crate) fn is_same_version(&self, other: &StoredObject) -> bool {
        self.rv() == other.rv() && self.uid() == other.uid()
    }

    /// Returns whether the content is the same, apart from `kind` and `apiVersion`, which items of lists may lack.
    pub(crate) fn has_content_of(&self, other: &RawObject) -> bool {
        let own = self.raw();
        own.is_same_content(other) || {
            // A transform may have moved them from the beginning.
            own.resource_version() == other.resource_version()
                && own.kind().is_some() != other.kind().is_some()
                && {
                    let (own, other) = (own.json(), other.json());
                    members(&own).is_some_and(|of_own| members(&other) == Some(of_own))
                }
        }
    }

    /// Returns whether one is the other, compressed: no change.
    fn is_compressed_form_of(&self, other: &StoredObject) -> bool {
        self.raw().is_compact() != other.raw().is_compact()
            && self.is_same_version(other)
            && self.has_content_of(other.raw())
    }

    /// Returns a hash that distinguishes contents, within one process.
    pub(crate) fn content_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key(), self.raw().content()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the members of an object other than `kind` and `apiVersion`, each as its text.
fn members(json: &[u8]) -> Option<BTreeMap<String, &str>> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(json).ok()?;
    let members = members.into_iter().filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion"));
    Some(members.map(|(name, value)| (name, value.get())).collect())
}

impl TreeItem for StoredObject {
    type Key = ObjectKey;

    fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    fn has_key(&self, bytes: &[u8]) -> bool {
        // The key's length is stored with the pointer to it.
        let own = self.0.key.sort_bytes();
        own.len() == bytes.len()
            && match self.0.head.get(..bytes.len()) {
                Some(whole) => whole == bytes,
                None => own == bytes,
            }
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.is_compressed_form_of(other)
    }

    fn touch(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.rv())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn entry_matches_only_its_exact_key() {
        for len in [1, HEAD - 4, HEAD - 3, HEAD - 2, HEAD, 2 * HEAD] {
            let name = "x".repeat(len);
            let entry = StoredObject::new(object("ns", &name, "u", 1));
            let like = [
                format!("{name}x"),
                "x".repeat(len - 1),
                format!("{}y", "x".repeat(len - 1)),
                format!("y{}", "x".repeat(len - 1)),
            ];
            let key = |name: &str| ObjectKey::namespaced("ns", name);
            assert!(entry.has_key(key(&name).sort_bytes()), "{len}");
            assert!(like.iter().all(|other| !entry.has_key(key(other).sort_bytes())), "{len}");
        }
    }
}
