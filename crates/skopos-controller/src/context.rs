//! The view of one reconciliation.

use std::any::TypeId;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use skopos::wire::InvalidResourceVersion;
use skopos::{Freshness, Indexer, Object, ObjectKey, ResourceVersion, Snapshot};
use skopos_lease::Term;
use tokio::time::Instant;

use crate::error::ReconcileError;
use crate::own_writes::{OwnWrite, OwnWrites};
use crate::view::Seen;

/// The view of one reconciliation: a key, and the content of all informers of the controller at one moment. Cheap to clone.
#[derive(Clone)]
pub struct Context<K> {
    pub(crate) inner: Arc<Inner<K>>,
}

pub(crate) struct Inner<K> {
    pub(crate) key: ObjectKey,
    pub(crate) primary: Snapshot<K>,
    /// The first is that of `primary`.
    pub(crate) seen: Vec<Seen>,
    pub(crate) gap: bool,
    pub(crate) failures: u32,
    pub(crate) deadline: Instant,
    pub(crate) term: Option<Term>,
    pub(crate) own_writes: Arc<OwnWrites>,
    /// The field manager for server-side apply.
    pub(crate) manager: String,
}

impl<K: 'static> Context<K> {
    /// Returns the key to reconcile.
    pub fn key(&self) -> &ObjectKey {
        &self.inner.key
    }

    /// Returns the object of the key; `None` if it is gone.
    pub fn object(&self) -> Option<Object<K>> {
        self.inner.primary.get(&self.inner.key)
    }

    /// Returns the content of the informer of this type at the start of the reconciliation; `None` if the controller has no
    /// such informer. With several of one type, the one given first.
    pub fn snapshot<O: 'static>(&self) -> Option<&Snapshot<O>> {
        self.inner.seen.iter().find_map(Seen::snapshot)
    }

    /// Returns the objects of a type given to [`owns`](crate::Controller::owns) whose owner is the object of the key, in key
    /// order. Owners are identified by their uid. Empty if the object is gone: the server deletes its children.
    pub fn children<O: 'static>(&self) -> Vec<Object<O>> {
        let (Some(object), Some(snapshot)) = (self.object(), self.snapshot::<O>()) else { return Vec::new() };
        match snapshot.by_index(Indexer::OWNER_UID, object.uid()) {
            Ok(children) => children.collect(),
            // Not given to `owns`, but to `watches`.
            Err(_) => Vec::new(),
        }
    }

    /// Returns the maximum age of the view. It is at most [`max_age`](crate::ControllerOptions::max_age).
    pub fn age(&self) -> Duration {
        self.inner.seen.iter().filter_map(|seen| seen.freshness.age()).max().unwrap_or_default()
    }

    /// Returns the freshness of the informer of this type at the start of the reconciliation.
    pub fn freshness<O: 'static>(&self) -> Option<&Freshness> {
        self.inner.seen.iter().find(|seen| seen.object_type == TypeId::of::<O>()).map(|seen| &seen.freshness)
    }

    /// Returns whether changes of the key may have been missed since its last successful reconciliation: a relist found some,
    /// or events were merged.
    pub fn gap(&self) -> bool {
        self.inner.gap
    }

    /// Returns the number of this attempt, from 1, since the last success.
    pub fn attempt(&self) -> u32 {
        self.inner.failures.saturating_add(1)
    }

    /// Returns the time at which the reconciliation is dropped.
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// Returns the term in which the reconciliation runs; `None` without an election.
    pub fn term(&self) -> Option<&Term> {
        self.inner.term.as_ref()
    }

    /// Applies an object server-side, as the field manager of the controller's name, and records the write. Fields of other
    /// managers that this object sets become the controller's, as the API guidelines require of controllers.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn apply<O>(&self, api: &Api<O>, object: &O) -> Result<O, ReconcileError>
    where
        O: Resource + Clone + Debug + Serialize + DeserializeOwned + 'static,
    {
        let manager = PatchParams::apply(&self.inner.manager).force();
        let written = api.patch(&object.name_any(), &manager, &Patch::Apply(object)).await?;
        self.wrote(&written)?;
        Ok(written)
    }

    /// Records an object that this reconciliation has written, as the server returned it. The next reconciliation of the key
    /// sees this version of it, or a later one. Objects of types without an informer of the controller are ignored.
    ///
    /// # Errors
    /// When the object has no resource version, so it is not what a server returned.
    pub fn wrote<O: ResourceExt + 'static>(&self, written: &O) -> Result<(), InvalidResourceVersion> {
        let version: ResourceVersion = written.resource_version().unwrap_or_default().parse()?;
        let object_type = TypeId::of::<O>();
        if let Some(seen) = self.inner.seen.iter().find(|seen| seen.object_type == object_type) {
            let write = OwnWrite { object_type, moment: (seen.moment.0, version) };
            self.inner.own_writes.record(&self.inner.key, write);
        }
        Ok(())
    }
}
