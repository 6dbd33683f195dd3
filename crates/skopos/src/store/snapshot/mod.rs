//! Immutable content at one RV.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use skopos_wire::{LabelSelector, ObjectKey, RawObject, ResourceVersion};
use tokio::time::Instant;

use super::digest::Digest;
use super::index::{StoreIndex, UnknownIndex};
use super::object::{Object, StoredObject};
use super::tree::{self, Iter, Tree};
use crate::freshness::{Evidence, Freshness};
use crate::journal::JournalPosition;

/// The whole content of a store at one resource version. It never changes.
///
/// Taking one from a store and cloning it cost a few nanoseconds, however many objects it has. A held snapshot keeps the
/// objects alive that have changed since, so hold it for a request, not for a day.
///
/// # Example
/// ```no_run
/// # fn example(pods: &skopos::Informer<k8s_openapi::api::core::v1::Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// use skopos::LabelSelector;
///
/// let snapshot = pods.snapshot();
/// println!("in shop: {}", snapshot.in_namespace("shop").count());
/// println!("of web: {}", snapshot.select(&LabelSelector::parse("app=web")?).count());
///
/// // The informer was made with `InformerOptions::all().index("by_node", |pod: &Pod| pod.spec.as_ref()?.node_name.clone())`.
/// for pod in snapshot.by_index("by_node", "n1")? {
///     println!("{}", pod.key());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Snapshot<K = DynamicObject> {
    content: Arc<StoreContent>,
    evidence: Arc<Evidence>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Snapshot<K> {
    /// Returns the RV of the content, which is the server's at exactly this RV. `0` before the first list.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.content.rv
    }

    /// Returns the RV of one namespace's content. In informers of a set of namespaces each has its own, and
    /// [`resource_version`](Snapshot::resource_version) is the lowest.
    pub fn resource_version_in(&self, namespace: &str) -> &ResourceVersion {
        let part = self.content.parts.iter().find(|part| &*part.namespace == namespace);
        part.map_or(&self.content.rv, |part| &part.rv)
    }

    /// Returns the current freshness of this content. Its age only grows: later proofs apply to later snapshots.
    pub fn freshness(&self) -> Freshness {
        self.evidence.freshness()
    }

    /// Returns an upper bound on the age of this content; `None` if nothing is proven.
    pub fn age(&self) -> Option<Duration> {
        self.freshness().age()
    }

    /// Returns whether the content is live and proven by a consistent read that was sent after `since`. Then it holds every
    /// change that was committed before that read.
    pub fn is_proven_after(&self, since: Instant) -> bool {
        self.freshness().is_live() && self.evidence.is_proven_after(since)
    }

    /// Returns the epoch: the stretch of unbroken history that the RV belongs to. RVs of different epochs cannot be
    /// compared.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Returns whether there was a complete list yet, or whole content from a [checkpoint](crate::checkpoint). Before that,
    /// the content is empty and means nothing.
    pub fn is_synced(&self) -> bool {
        self.content.synced
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.content.objects.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of all objects in bytes, in the form in which they came (JSON or protobuf).
    pub fn json_bytes(&self) -> u64 {
        self.content.json_bytes
    }

    /// Returns the size of all objects in bytes as they are held: less than [`json_bytes`](Self::json_bytes) if they are
    /// compressed ([`InformerOptions::compact_above`](crate::InformerOptions::compact_above)).
    pub fn held_bytes(&self) -> u64 {
        self.content.held_bytes
    }

    /// Returns the digest of all objects' keys, uids and RVs. Costs nothing: it is updated with each change.
    pub fn digest(&self) -> Digest {
        self.content.digest
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        self.content.objects.get(key).cloned().map(Into::into)
    }

    /// Returns whether there is an object with this key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.content.objects.get(key).is_some()
    }

    /// Returns all objects in the order of their keys: by namespace, then name.
    pub fn iter(&self) -> Objects<'_, K> {
        Objects::new(self.content.objects.iter())
    }

    /// Returns the objects of one namespace, in the order of their names. Objects of other namespaces cost nothing.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = Object<K>> + 'a {
        let objects = self.content.objects.seek(|key| key.namespace() < Some(namespace));
        Objects::new(objects).take_while(move |object| object.namespace() == Some(namespace))
    }

    /// Returns the namespaces that have objects, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> + '_ {
        let first = self.next_namespace(None);
        std::iter::successors(first, |namespace| self.next_namespace(Some(namespace)))
    }

    /// Returns one page: at most `limit` objects whose keys are greater than `after`, in order.
    ///
    /// Pages of one snapshot are consistent. With keys from an older snapshot they are too, as seen by a reader of the
    /// newer one: an object that existed all the time is neither missed nor seen twice.
    pub fn page(&self, after: Option<&ObjectKey>, limit: usize) -> Page<K> {
        let mut rest = Objects::new(self.content.objects.seek(|key| after.is_some_and(|after| key <= after)));
        let objects: Vec<Object<K>> = rest.by_ref().take(limit).collect();
        let more = rest.next().is_some();
        let next = objects.last().filter(|_| more).map(|object| object.key().clone());
        Page { objects, next }
    }

    /// Returns the objects with this value in an index, in order.
    ///
    /// # Errors
    /// If the store has no index of this name.
    pub fn by_index<'a>(
        &'a self,
        index: &str,
        value: &str,
    ) -> Result<impl Iterator<Item = Object<K>> + use<'a, K>, UnknownIndex> {
        let keys = self.index(index)?.keys(value).map(Tree::iter);
        Ok(keys.into_iter().flatten().filter_map(|key| self.get(key)))
    }

    /// Returns all values in an index, in order, each with the number of its objects.
    ///
    /// # Errors
    /// If the store has no index of this name.
    pub fn index_values(&self, index: &str) -> Result<impl Iterator<Item = (&str, usize)>, UnknownIndex> {
        Ok(self.index(index)?.values())
    }

    /// Returns the objects that the selector matches, in order. Reads the labels of each object; for frequent selections,
    /// see [`Indexer::by_label`](super::Indexer::by_label).
    pub fn select<'a>(&'a self, selector: &'a LabelSelector) -> impl Iterator<Item = Object<K>> + 'a {
        let matching = self.content.objects.iter().filter(|entry| selector.matches(entry.raw()));
        matching.cloned().map(Into::into)
    }

    /// Returns the keys of the objects that differ from those of an `earlier` snapshot of the same store: changed, added or
    /// removed, in order.
    ///
    /// Shared parts of the two are skipped by pages, so the cost is that of the changes and not of the content.
    ///
    /// ```
    /// # fn example(informer: &skopos::Informer<k8s_openapi::api::core::v1::Pod>) {
    /// let before = informer.snapshot();
    /// // ... later
    /// let now = informer.snapshot();
    /// for key in now.changed_since(&before) {
    ///     println!("{key}: {}", if now.contains(&key) { "added or changed" } else { "removed" });
    /// }
    /// # }
    /// ```
    pub fn changed_since(&self, earlier: &Self) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        let _ = tree::diff(&earlier.content.objects, &self.content.objects, None, |old, new| {
            keys.extend(new.or(old).map(|entry| entry.raw().key().clone()));
            ControlFlow::Continue(())
        });
        keys
    }

    /// Returns the same snapshot with its objects as another type.
    pub fn cast<L>(self) -> Snapshot<L> {
        Snapshot::new(self.content, self.evidence)
    }

    /// Creates a snapshot of content with this evidence. The evidence has to be loaded before the content.
    pub(crate) fn new(content: Arc<StoreContent>, evidence: Arc<Evidence>) -> Self {
        Self { content, evidence, kind: PhantomData }
    }

    pub(crate) fn content(&self) -> &Arc<StoreContent> {
        &self.content
    }

    fn index(&self, name: &str) -> Result<&StoreIndex, UnknownIndex> {
        let known = || self.content.indexes.iter().map(|index| index.name().to_owned()).collect();
        let found = self.content.indexes.iter().find(|index| index.name() == name);
        found.ok_or_else(|| UnknownIndex { name: name.to_owned(), known: known() })
    }

    fn next_namespace(&self, after: Option<&str>) -> Option<&str> {
        self.content.objects.seek(|key| key.namespace() <= after).peek()?.raw().key().namespace()
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self::new(self.content.clone(), self.evidence.clone())
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} objects at rv={} epoch={})", self.len(), self.resource_version(), self.epoch())
    }
}

/// Some objects of a snapshot in key order, and the key after which the next ones begin.
pub struct Page<K> {
    /// The objects of this page.
    pub objects: Vec<Object<K>>,
    /// The value of `after` for the next page; `None` if this is the last one.
    pub next: Option<ObjectKey>,
}

// Neither is derived: that would require `K: Clone` and `K: Debug`, and there is no `K` in it.
impl<K> Clone for Page<K> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), next: self.next.clone() }
    }
}

impl<K> fmt::Debug for Page<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("objects", &self.objects).field("next", &self.next).finish()
    }
}

/// An iterator over objects of a snapshot in key order.
pub struct Objects<'a, K> {
    entries: Iter<'a, StoredObject>,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K> Objects<'a, K> {
    fn new(entries: Iter<'a, StoredObject>) -> Self {
        Self { entries, kind: PhantomData }
    }
}

impl<K> Iterator for Objects<'_, K> {
    type Item = Object<K>;

    fn next(&mut self) -> Option<Object<K>> {
        self.entries.next().cloned().map(Into::into)
    }
}

/// The content of a snapshot, without a type. The writer clones it (a few pointers), changes the clone and publishes that.
#[derive(Clone)]
pub(crate) struct StoreContent {
    /// The RV of the content; where there are parts, the lowest of theirs.
    pub(crate) rv: ResourceVersion,
    /// The epoch. It grows when the history of the content, or of any part of it, is broken.
    pub(crate) epoch: u64,
    /// True once there was a complete list of all of it.
    pub(crate) synced: bool,
    /// True if it is from a checkpoint, and the server has not confirmed it yet.
    pub(crate) restored: bool,
    /// The progress of each namespace of a set; empty otherwise.
    pub(crate) parts: Vec<ContentPart>,
    pub(crate) objects: Tree<StoredObject>,
    pub(crate) indexes: Vec<StoreIndex>,
    pub(crate) digest: Digest,
    pub(crate) json_bytes: u64,
    /// The size of the objects as they are held.
    pub(crate) held_bytes: u64,
    /// A hash of the content that lists have changed in objects whose versions stayed, which the digest does not show.
    /// Equal for equal changes, and 0 for none.
    pub(crate) rewritten: u64,
    /// The position in its journal, if there is one; if there are parts, each has its own.
    journal_position: Option<JournalPosition>,
}

/// The progress of one namespace's content.
#[derive(Clone)]
pub(crate) struct ContentPart {
    pub(crate) namespace: Arc<str>,
    pub(crate) rv: ResourceVersion,
    pub(crate) epoch: u64,
    pub(crate) synced: bool,
    restored: bool,
    journal_position: Option<JournalPosition>,
}

/// The position of a part of a checkpoint's content, or of the whole if it has no namespace.
pub(crate) struct RestoredPart {
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) rv: ResourceVersion,
    pub(crate) epoch: u64,
}

impl StoreContent {
    /// Creates content from a checkpoint.
    pub(crate) fn restored(parts: Vec<RestoredPart>, objects: Tree<StoredObject>) -> Self {
        let mut content = Self::unsynced_set(parts.iter().filter_map(|part| part.namespace.as_deref()));
        for (index, part) in parts.iter().enumerate() {
            content.set_listed(index, &part.rv, part.epoch);
        }
        objects.iter().for_each(|entry| content.account(None, Some(entry)));
        content.objects = objects;
        content.for_checkpoint()
    }

    /// Replaces objects by their compressed form, which `compact` returns.
    pub(crate) fn compact(&mut self, mut compact: impl FnMut(RawObject) -> RawObject) {
        let held = self.objects.clone();
        for entry in held.iter() {
            let object = compact(entry.raw().clone());
            if object.is_compact() {
                self.put(StoredObject::new(object));
            }
        }
    }

    /// Returns this content in the form of a checkpoint: not confirmed by the server, and with only the objects.
    pub(crate) fn for_checkpoint(mut self) -> Self {
        (self.restored, self.journal_position) = (true, None);
        self.parts.iter_mut().for_each(|part| (part.restored, part.journal_position) = (true, None));
        self.indexes.clear();
        self
    }

    /// Creates empty content of these namespaces, each with its own writer.
    pub(crate) fn unsynced_set<'a>(namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        let part = |namespace: &str| ContentPart {
            namespace: namespace.into(),
            rv: ResourceVersion::ZERO,
            epoch: 0,
            synced: false,
            restored: false,
            journal_position: None,
        };
        Self { parts: namespaces.into_iter().map(part).collect(), ..Self::unsynced() }
    }

    /// Returns the RV of a part, or of the whole if there are no parts.
    pub(crate) fn rv_of(&self, part: usize) -> &ResourceVersion {
        self.parts.get(part).map_or(&self.rv, |part| &part.rv)
    }

    /// Returns the epoch of a part, or of the whole if there are no parts.
    pub(crate) fn epoch_of(&self, part: usize) -> u64 {
        self.parts.get(part).map_or(self.epoch, |part| part.epoch)
    }

    /// Returns whether a part, or the whole if there are no parts, was ever listed.
    pub(crate) fn is_listed(&self, part: usize) -> bool {
        self.parts.get(part).map_or(self.synced, |part| part.synced)
    }

    /// Returns the journal position of a part, or of the whole if there are no parts.
    pub(crate) fn journal_position_of(&self, part: usize) -> Option<&JournalPosition> {
        self.parts.get(part).map_or(self.journal_position.as_ref(), |part| part.journal_position.as_ref())
    }

    /// Sets the journal position of a part, or of the whole if there are no parts.
    pub(crate) fn set_journal_position(&mut self, part: usize, journal_position: JournalPosition) {
        *self.parts.get_mut(part).map_or(&mut self.journal_position, |part| &mut part.journal_position) =
            Some(journal_position);
    }

    /// Returns whether this key belongs to the part; every key does if there are no parts.
    pub(crate) fn is_of(&self, part: usize, key: &ObjectKey) -> bool {
        self.parts.get(part).is_none_or(|part| key.namespace() == Some(&part.namespace))
    }

    /// Sets the RV of a part, or of the whole if there are no parts.
    pub(crate) fn set_rv(&mut self, part: usize, rv: &ResourceVersion) {
        match self.parts.get_mut(part) {
            None => self.rv = rv.clone(),
            Some(part) => {
                part.rv = rv.clone();
                self.rv =
                    self.parts.iter().map(|part| &part.rv).min().cloned().unwrap_or(ResourceVersion::ZERO);
            }
        }
    }

    /// Records that a part, or the whole if there are no parts, was listed.
    pub(crate) fn set_listed(&mut self, part: usize, rv: &ResourceVersion, epoch: u64) {
        match self.parts.get_mut(part) {
            None => (self.epoch, self.synced) = (epoch, true),
            Some(part) => {
                (part.epoch, part.synced) = (epoch, true);
                self.epoch = self.parts.iter().map(|part| part.epoch).sum();
                self.synced = self.parts.iter().all(|part| part.synced);
            }
        }
        self.set_rv(part, rv);
        self.set_confirmed(part);
    }

    /// Returns whether a part, or the whole if there are no parts, was restored, and the server has not confirmed it.
    pub(crate) fn is_restored(&self, part: usize) -> bool {
        self.parts.get(part).map_or(self.restored, |part| part.restored)
    }

    /// Records that the server has confirmed a part, or the whole if there are no parts.
    pub(crate) fn set_confirmed(&mut self, part: usize) {
        if let Some(part) = self.parts.get_mut(part) {
            part.restored = false;
        }
        self.restored = self.parts.iter().any(|part| part.restored);
    }

    /// Returns whether all of it is the server's, and not only restored.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.synced && !self.restored
    }

    /// Creates empty content.
    pub(crate) fn unsynced() -> Self {
        Self {
            rv: ResourceVersion::ZERO,
            epoch: 0,
            synced: false,
            restored: false,
            parts: Vec::new(),
            objects: Tree::new(),
            indexes: Vec::new(),
            digest: Digest::EMPTY,
            json_bytes: 0,
            held_bytes: 0,
            rewritten: 0,
            journal_position: None,
        }
    }

    /// Puts an object in and returns the one that it replaces.
    pub(crate) fn put(&mut self, entry: StoredObject) -> Option<StoredObject> {
        let old = self.objects.insert(entry.clone());
        self.account(old.as_ref(), Some(&entry));
        old
    }

    /// Removes an object and returns it.
    pub(crate) fn take(&mut self, key: &ObjectKey) -> Option<StoredObject> {
        let old = self.objects.remove(key)?;
        self.account(Some(&old), None);
        Some(old)
    }

    /// Updates the digest, the size and the indexes for the change of one object.
    pub(crate) fn account(&mut self, old: Option<&StoredObject>, new: Option<&StoredObject>) {
        if let Some(entry) = old {
            self.digest.remove(entry.raw().key(), entry.uid(), entry.rv());
            self.json_bytes -= entry.raw().content_len() as u64;
            self.held_bytes -= entry.raw().buffer().len() as u64;
        }
        if let Some(entry) = new {
            self.digest.add(entry.raw().key(), entry.uid(), entry.rv());
            self.json_bytes += entry.raw().content_len() as u64;
            self.held_bytes += entry.raw().buffer().len() as u64;
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.is_same_version(new)
        {
            let change = new.content_hash().wrapping_sub(old.content_hash());
            self.rewritten = self.rewritten.wrapping_add(change);
        }
        self.indexes.iter_mut().for_each(|index| index.change(old, new));
    }
}

#[cfg(test)]
mod tests;
