use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::DynamicObject;
use skopos_reflect::Sink;
use skopos_wire::ObjectKey;
use tokio::sync::watch;

use super::core::{DuplicateIndex, Progress, StoreCore, StoreStats};
use super::index::Indexer;
use super::object::Object;
use super::snapshot::{Snapshot, StoreContent};
use super::writer::StoreWriter;
use crate::freshness::{Freshness, FreshnessCell};
use crate::journal::Journal;

/// A reader of a store. Cheap to clone; no call waits for anything.
///
/// Two calls may see two states. For several consistent reads, take one [`snapshot`](Store::snapshot).
///
/// # Example
/// ```no_run
/// # fn example(pods: &skopos::Informer<k8s_openapi::api::core::v1::Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// use skopos::ObjectKey;
///
/// let store = pods.store();
/// if let Some(web) = store.get(&ObjectKey::namespaced("shop", "web-1")) {
///     // Decoded on demand. Metadata needs no decoding.
///     println!("{}: {:?}", web.key(), web.decode()?.status.and_then(|status| status.phase));
/// }
/// println!("{} pods, {}", store.len(), store.freshness());
/// # Ok(())
/// # }
/// ```
pub struct Store<K = DynamicObject> {
    core: Arc<StoreCore>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Store<K> {
    /// Creates a store without an informer, and the sink that writes to it. For measurements: its age is never proven.
    #[doc(hidden)]
    pub fn detached() -> (Self, impl Sink) {
        let core = StoreCore::new(StoreContent::unsynced(), FreshnessCell::standalone());
        (core.clone().into(), StoreWriter::new(core, 0, ()))
    }

    /// Returns the whole current content.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.core.snapshot()
    }

    /// Returns an upper bound on the content's age, or what is wrong.
    pub fn freshness(&self) -> Freshness {
        self.core.freshness().freshness()
    }

    /// Returns whether both read the same store.
    pub fn is_same<L>(&self, other: &Store<L>) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Returns the current version of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        self.core.peek().objects.get(key).cloned().map(Into::into)
    }

    /// Returns the current number of objects.
    pub fn len(&self) -> usize {
        self.core.peek().objects.len()
    }

    /// Returns whether there are no objects now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an index over the existing and all later objects; every later snapshot has it. Takes about a microsecond per
    /// object, in which no change is applied.
    ///
    /// # Errors
    /// If there is an index of this name.
    pub fn add_indexer(&self, indexer: Indexer) -> Result<(), DuplicateIndex> {
        self.core.add_indexer(indexer)
    }

    /// Returns a receiver of the content's progress. A slow receiver sees only the newest value.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.core.progress()
    }

    /// Returns the journal of all changes, if one is kept ([`InformerOptions::journal`](crate::InformerOptions::journal)).
    /// A set of several namespaces has one for each: [`journal_in`](Store::journal_in).
    pub fn journal(&self) -> Option<Journal<K>> {
        let content = self.core.peek();
        let is_one = content.parts.len() <= 1;
        (is_one && content.journal_position_of(0).is_some()).then(|| Journal::new(self.core.clone(), 0))
    }

    /// Returns the journal of the changes in one namespace of a set, if one is kept.
    pub fn journal_in(&self, namespace: &str) -> Option<Journal<K>> {
        let content = self.core.peek();
        let part = content.parts.iter().position(|part| &*part.namespace == namespace)?;
        content.journal_position_of(part).map(|_| Journal::new(self.core.clone(), part))
    }

    /// Returns the store's counters.
    pub fn stats(&self) -> StoreStats {
        self.core.stats()
    }

    /// Returns the same store with its objects as another type.
    pub fn cast<L>(self) -> Store<L> {
        self.core.into()
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        self.core.clone().into()
    }
}

impl<K> From<Arc<StoreCore>> for Store<K> {
    fn from(core: Arc<StoreCore>) -> Self {
        Self { core, kind: PhantomData }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({:?})", self.snapshot())
    }
}
