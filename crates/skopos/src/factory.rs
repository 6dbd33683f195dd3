//! Where informers come from, and what they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use skopos_reflect::Form;
use skopos_transport::Transport;
use skopos_wire::RawObject;
use tokio::time::Instant;

use crate::deadline;
use crate::error::{BuildError, NotSynced, Unsynced};
use crate::ground::Ground;
use crate::housekeeping;
use crate::informer::Informer;
use crate::options::{FactoryOptions, InformerOptions};
use crate::registry::Registry;
use crate::resource::ResourceId;
use crate::stats::FactoryStats;
use crate::sync::timeout_at;

/// Makes informers of one cluster, which share connections, lists/watches, stores and probes wherever they can.
///
/// ```text
///  InformerFactory ─┬─ Transport              connections, shared by all
///                   ├─ one prober for each kind of object
///                   ├─ one list/watch + store for each (kind, scope, selectors, form, transform)
///                   └─ housekeeping           audits; notices that the machine slept
/// ```
///
/// Cheap to clone. It must be made inside a tokio runtime. When all its clones and all its informers are dropped, everything
/// ends by itself; [`InformerFactory::shutdown`] also waits for it.
#[derive(Clone)]
pub struct InformerFactory {
    ground: Arc<Ground>,
    registry: Arc<Registry>,
}

/// What [`InformerFactory::shutdown`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Whether every task and, unless the transport was to be kept, every connection was gone within the limit.
    pub complete: bool,
    /// Tasks that were still running.
    pub tasks_left: usize,
    /// How long it took.
    pub took: Duration,
}

impl InformerFactory {
    /// A factory for the cluster that `transport` leads to.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(transport: Transport, options: FactoryOptions) -> Self {
        let (ground, registry) = (Arc::new(Ground::new(transport, options)), Arc::default());
        housekeeping::start(&ground, &registry);
        Self { ground, registry }
    }

    /// An informer of a type that is known when compiling, such as those of k8s-openapi.
    ///
    /// # Errors
    /// If the options make no sense for the type, or the factory was shut down.
    pub fn informer<K>(&self, options: InformerOptions) -> Result<Informer<K>, BuildError>
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let resource = ResourceId::of::<K>(&());
        options.check_scope::<K>(&resource)?;
        self.registry.informer(&self.ground, resource, Form::Full, options)
    }

    /// An informer of a type that is known when running.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn dynamic(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<DynamicObject>, BuildError> {
        self.registry.informer(&self.ground, ResourceId::from(resource), Form::Full, options)
    }

    /// An informer of the metadata of a type: much less to transfer and to keep.
    ///
    /// # Errors
    /// If the options make no sense for the type, or the factory was shut down.
    pub fn metadata<K>(&self, options: InformerOptions) -> Result<Informer<PartialObjectMeta<K>>, BuildError>
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let resource = ResourceId::of::<K>(&());
        options.check_scope::<K>(&resource)?;
        self.registry.informer(&self.ground, resource, Form::MetadataOnly, options)
    }

    /// An informer of the metadata of a type that is known when running.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn dynamic_metadata(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<PartialObjectMeta<DynamicObject>>, BuildError> {
        self.registry.informer(&self.ground, ResourceId::from(resource), Form::MetadataOnly, options)
    }

    /// An informer that never decodes anything.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn raw(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<RawObject>, BuildError> {
        self.registry.informer(&self.ground, ResourceId::from(resource), Form::Full, options)
    }

    /// Waits until all informers that there are now have synced, for at most [`FactoryOptions::sync_timeout`]. One whose last
    /// handle is dropped meanwhile is waited for no longer.
    ///
    /// # Errors
    /// When the time is over, with all that is missing and why; at once when the factory is shut down.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        self.wait_synced_within(self.ground.options.sync_timeout).await
    }

    /// Waits until all informers that there are now have synced, for at most `limit`.
    ///
    /// # Errors
    /// As [`InformerFactory::wait_synced`].
    pub async fn wait_synced_within(&self, limit: Duration) -> Result<(), NotSynced> {
        let begun = Instant::now();
        let informers = self.registry.informers();
        let waits = informers.iter().map(|informer| async move {
            let result = informer.wait_synced(limit).await;
            // One that somebody else let go meanwhile is not there any more, and nobody's to wait for.
            result.err().filter(|missing| !missing.closed || self.ground.stop.is_cancelled())
        });
        let missing = futures::future::join_all(waits).await;
        let who: Vec<Unsynced> = missing.into_iter().flatten().flat_map(|missing| missing.who).collect();
        let closed = self.ground.stop.is_cancelled();
        match who.is_empty() && !closed {
            true => Ok(()),
            false => Err(NotSynced { waited: begun.elapsed(), who, closed }),
        }
    }

    /// There is reason to think that the server is there (again): waits after failures are cut short, and ages are proven
    /// anew. No more often than the list/watch protocol's own budgets allow.
    pub fn retry_now(&self) {
        self.registry
            .informers()
            .iter()
            .flat_map(|informer| &informer.links)
            .for_each(|link| link.handle.retry_now());
        self.registry.probers().iter().for_each(|prober| prober.nudge());
    }

    /// What the cluster is, where [`FactoryOptions::cluster`] could not say it yet: it is known once the server has
    /// answered. Returns what counts: what was said first.
    pub fn identify(&self, cluster: impl Into<Arc<str>>) -> Arc<str> {
        self.ground.identify(cluster.into())
    }

    /// What the cluster is, as far as anybody has said.
    pub fn cluster(&self) -> Option<Arc<str>> {
        self.ground.cluster()
    }

    /// Figures.
    pub fn stats(&self) -> FactoryStats {
        let (informers, probers) = (self.registry.informers(), self.registry.probers());
        let contents: Vec<_> = informers.iter().map(|informer| informer.store.current()).collect();
        let probes: Vec<(u64, u64)> = probers.iter().map(|prober| prober.counts()).collect();
        FactoryStats {
            informers: informers.len(),
            synced: contents.iter().filter(|content| content.is_confirmed()).count(),
            objects: contents.iter().map(|content| content.objects.len()).sum(),
            bytes: contents.iter().map(|content| content.json_bytes).sum(),
            probers: probers.len(),
            probes: probes.iter().map(|(sent, _)| sent).sum(),
            probe_failures: probes.iter().map(|(_, failed)| failed).sum(),
            tasks: self.ground.tasks.len(),
            transport: self.ground.transport.stats(),
        }
    }

    /// The connections.
    pub fn transport(&self) -> &Transport {
        &self.ground.transport
    }

    /// Whether it was shut down.
    pub fn is_closed(&self) -> bool {
        self.ground.stop.is_cancelled()
    }

    /// Ends all informers, handlers and probes, so that nothing changes any more, and leaves the connections to others. Waits
    /// until that is so, at most for `limit`; returns whether it is. There are no new informers afterwards.
    pub async fn freeze(&self, limit: Duration) -> bool {
        self.close();
        timeout_at(deadline::after(limit), self.ground.tasks.wait()).await.is_ok()
    }

    /// Ends all informers, handlers, probes and connections, and waits until nothing is left of them, but at most for
    /// `limit` (1 s is plenty). Whatever waits in a call of this crate returns at once with a typed `Closed`, and so does
    /// every later call. What stores hold stays readable, and says that it is not kept any more.
    ///
    /// Not to be called from inside a handler: it would wait for itself, until the limit.
    ///
    /// What runs in a thread of the runtime for blocking work, such as a plugin that waits for a login or the system's resolver, cannot be
    /// stopped and is not waited for: a runtime that is dropped waits for it without a bound, so end it with
    /// [`shutdown_background`](tokio::runtime::Runtime::shutdown_background) or `shutdown_timeout`.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let begun = Instant::now();
        let deadline = deadline::from(begun, limit);
        self.close();
        let gone = timeout_at(deadline, self.ground.tasks.wait()).await.is_ok();
        let disconnected = match self.ground.options.keep_transport {
            true => true,
            false => self.ground.transport.shutdown(deadline.saturating_duration_since(Instant::now())).await,
        };
        ShutdownReport {
            complete: gone && disconnected,
            tasks_left: self.ground.tasks.len(),
            took: begun.elapsed(),
        }
    }

    fn close(&self) {
        self.ground.stop.cancel();
        self.registry.close();
        self.ground.tasks.close();
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("informers", &self.registry.informers().len())
            .finish_non_exhaustive()
    }
}
