//! Indexes: maps from a value to the keys of the objects that have it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use skopos_wire::ObjectKey;

use super::object::{Object, StoredObject};
use super::tree::{Tree, TreeItem};
use crate::informer::resource::ResourceId;

/// A named function from an object to the values under which it can be found.
///
/// An object may have none, one or many values. The function is called for every version of every object, in the task that
/// writes to the store, so it must be quick; it must return the same values for the same version each time. If it panics,
/// the object has no values in this index.
#[derive(Clone)]
pub struct Indexer {
    name: Arc<str>,
    values: Arc<ValuesOf>,
    /// The resource whose whole objects the function reads; `None` if it reads any object.
    resource: Option<Arc<ResourceId>>,
}

type ValuesOf = dyn Fn(&StoredObject) -> Vec<String> + Send + Sync;

impl Indexer {
    /// Creates an index of this name over the function's values.
    pub fn new<K: 'static, V, I>(
        name: impl AsRef<str>,
        values: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = V>,
        V: Into<String>,
    {
        let values =
            move |entry: &StoredObject| values(&entry.clone().into()).into_iter().map(Into::into).collect();
        Self { name: name.as_ref().into(), values: Arc::new(values), resource: None }
    }

    /// Creates an index of this name over the function's values of the decoded object. A misspelled field does not compile, and
    /// the options of an informer of another resource, or of metadata, are refused with the index. Each version is decoded when it
    /// comes and when it goes; [`new`](Indexer::new) with [`RawObject::field`](skopos_wire::RawObject::field) scans instead.
    ///
    /// An object that does not fit the type has no values.
    pub fn typed<K, V, I>(name: impl AsRef<str>, values: impl Fn(&K) -> I + Send + Sync + 'static) -> Self
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
        V: Into<String>,
    {
        let values = move |object: &Object<K>| -> Vec<String> {
            object
                .decode()
                .map_or_else(|_| Vec::new(), |value| values(&value).into_iter().map(Into::into).collect())
        };
        Self { resource: Some(Arc::new(ResourceId::from_type::<K>(&()))), ..Self::new(name, values) }
    }

    /// Creates an index over the values of one label; its name is `label:` and the label.
    pub fn by_label(label: impl Into<String>) -> Self {
        let label = label.into();
        let name = format!("label:{label}");
        Self::new(name, move |object: &Object| object.label(&label).map(str::to_owned))
    }

    /// Creates an index over the uids of an object's owners, [`Indexer::OWNER_UID`].
    pub fn by_owner_uid() -> Self {
        Self::new(Self::OWNER_UID, |object: &Object| {
            let owners = object.raw().decode::<Owned>().map(|owned| owned.metadata.owner_references);
            owners.unwrap_or_default().into_iter().map(|owner| owner.uid)
        })
    }

    /// The name of the index of [`by_owner_uid`](Indexer::by_owner_uid).
    pub const OWNER_UID: &'static str = "owner-uid";

    /// Returns the resource whose whole objects the index reads, if it reads no others.
    pub(crate) fn resource(&self) -> Option<&ResourceId> {
        self.resource.as_deref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the values of an object, each once.
    fn values(&self, entry: &StoredObject) -> Vec<String> {
        let mut values = catch_unwind(AssertUnwindSafe(|| (self.values)(entry))).unwrap_or_else(|_| {
            tracing::error!(index = %self.name, object = %entry.key(), "an indexer panicked: the object is not in this index");
            Vec::new()
        });
        values.sort_unstable();
        values.dedup();
        values
    }
}

impl fmt::Debug for Indexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Indexer").field(&self.name).finish()
    }
}

#[derive(Deserialize)]
struct Owned {
    metadata: OwnedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMeta {
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    uid: String,
}

/// A read named an index that the store does not have: the caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has no index {name:?}: give it one with `Store::add_indexer` (it has: {known:?})")]
pub struct UnknownIndex {
    /// The requested name.
    pub name: String,
    /// The names of the store's indexes.
    pub known: Vec<String>,
}

/// One index of one snapshot. It holds keys, not objects: a change of an object that does not change its values costs an
/// index nothing.
#[derive(Clone)]
pub(crate) struct StoreIndex {
    indexer: Indexer,
    buckets: Tree<IndexBucket>,
}

impl StoreIndex {
    pub(crate) fn new(indexer: Indexer, objects: &Tree<StoredObject>) -> Self {
        let mut index = Self { indexer, buckets: Tree::new() };
        objects.iter().for_each(|entry| index.change(None, Some(entry)));
        index
    }

    /// Returns an empty index with the same function.
    pub(crate) fn cleared(&self) -> Self {
        Self { indexer: self.indexer.clone(), buckets: Tree::new() }
    }

    pub(crate) fn name(&self) -> &str {
        self.indexer.name()
    }

    /// Updates the index for the change of one object from `old` to `new`.
    pub(crate) fn change(&mut self, old: Option<&StoredObject>, new: Option<&StoredObject>) {
        let before = old.map(|entry| self.indexer.values(entry)).unwrap_or_default();
        let after = new.map(|entry| self.indexer.values(entry)).unwrap_or_default();
        if let Some(entry) = old {
            before
                .iter()
                .filter(|value| !after.contains(value))
                .for_each(|value| self.remove(value, entry.key()));
        }
        if let Some(entry) = new {
            after
                .into_iter()
                .filter(|value| !before.contains(value))
                .for_each(|value| self.insert(value, entry.key()));
        }
    }

    /// Returns the keys of the objects with this value.
    pub(crate) fn keys(&self, value: &str) -> Option<&Tree<ObjectKey>> {
        self.buckets.get(value).map(|bucket| &bucket.keys)
    }

    /// Returns the values of all objects, in order, each with the number of its objects.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, usize)> {
        self.buckets.iter().map(|bucket| (&*bucket.value, bucket.keys.len()))
    }

    fn insert(&mut self, value: String, key: &ObjectKey) {
        if let Some(bucket) = self.buckets.get_mut(value.as_str()) {
            bucket.keys.insert(key.clone());
        } else {
            let keys = Tree::from_sorted(vec![key.clone()]);
            self.buckets.insert(IndexBucket { value: value.into(), keys });
        }
    }

    fn remove(&mut self, value: &str, key: &ObjectKey) {
        if let Some(bucket) = self.buckets.get_mut(value) {
            bucket.keys.remove(key);
            if bucket.keys.len() == 0 {
                self.buckets.remove(value);
            }
        }
    }
}

#[derive(Clone)]
struct IndexBucket {
    value: Arc<str>,
    keys: Tree<ObjectKey>,
}

impl TreeItem for IndexBucket {
    type Key = Arc<str>;

    fn key(&self) -> &Arc<str> {
        &self.value
    }
}

impl TreeItem for ObjectKey {
    type Key = ObjectKey;

    fn key(&self) -> &ObjectKey {
        self
    }
}
