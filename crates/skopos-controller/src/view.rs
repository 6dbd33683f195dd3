//! The informers of a controller, of any type.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos::{Freshness, Informer, ResourceVersion, Snapshot, WaitError};

use crate::own_writes::Moment;

/// An informer of any type.
pub(crate) trait View: Send + Sync {
    /// Returns the resource, for messages.
    fn resource(&self) -> String;

    /// Returns the type of the objects.
    fn object_type(&self) -> TypeId;

    /// Returns the content now.
    fn look(&self) -> Seen;

    /// Returns the age of the content now.
    fn freshness(&self) -> Freshness;

    /// Waits until the content has reached a version.
    fn wait_for<'a>(
        &'a self,
        version: &'a ResourceVersion,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), WaitError>>;
}

/// The content of one informer at one moment.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) object_type: TypeId,
    pub(crate) freshness: Freshness,
    pub(crate) moment: Moment,
    /// A `Snapshot` of the objects' type.
    content: Arc<dyn Any + Send + Sync>,
}

impl Seen {
    pub(crate) fn new(
        object_type: TypeId,
        freshness: Freshness,
        moment: Moment,
        content: impl Any + Send + Sync,
    ) -> Self {
        Self { object_type, freshness, moment, content: Arc::new(content) }
    }

    /// Returns the content, if its objects have this type.
    pub(crate) fn snapshot<K: 'static>(&self) -> Option<&Snapshot<K>> {
        self.content.downcast_ref()
    }
}

impl<K: 'static> View for Informer<K> {
    fn resource(&self) -> String {
        self.resource().to_string()
    }

    fn object_type(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn look(&self) -> Seen {
        let snapshot = self.snapshot();
        let moment = (snapshot.epoch(), snapshot.resource_version().clone());
        Seen::new(TypeId::of::<K>(), snapshot.freshness(), moment, snapshot)
    }

    fn freshness(&self) -> Freshness {
        self.freshness()
    }

    fn wait_for<'a>(
        &'a self,
        version: &'a ResourceVersion,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), WaitError>> {
        Box::pin(async move { self.wait_for(version, limit).await.map(drop) })
    }
}
