//! The informer factory, and the resources that its informers share.

pub(crate) mod connect;
pub(crate) mod context;
mod maintenance;
mod registry;
#[cfg(feature = "testserver")]
pub(crate) mod test_server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use skopos_reflect::Form;
use skopos_transport::Transport;
use skopos_wire::RawObject;
use tokio::time::Instant;

use self::context::FactoryContext;
use self::registry::InformerRegistry;
use crate::error::{BuildError, NotSynced, Unsynced};
use crate::informer::Informer;
use crate::informer::options::{FactoryOptions, InformerOptions};
use crate::informer::resource::ResourceId;
use crate::informer::stats::FactoryStats;
use crate::sync::{deadline, timeout_at};

/// A factory of informers of one cluster, which share connections, lists/watches, stores and probes wherever they can.
///
/// ```text
///  InformerFactory ─┬─ Transport              connections, shared by all
///                   ├─ one prober for each kind of object
///                   ├─ one list/watch + store for each (kind, scope, selectors, form, transform)
///                   └─ maintenance            audits; notices that the machine slept
/// ```
///
/// Cheap to clone. It must be made inside a tokio runtime. When all its clones and all its informers are dropped, all its
/// tasks end; [`InformerFactory::shutdown`] also waits for them.
///
/// # Example
/// ```no_run
/// # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use k8s_openapi::api::apps::v1::Deployment;
/// use skopos::{FactoryOptions, InformerFactory, InformerOptions, Transport, TransportOptions};
///
/// let transport = Transport::from_config(config, TransportOptions::default())?;
/// let factory = InformerFactory::new(transport, FactoryOptions::default());
/// let deployments = factory.informer::<Deployment>(InformerOptions::all())?;
/// factory.wait_synced(Duration::from_secs(30)).await?;
/// println!("{} deployments", deployments.store().len());
/// factory.shutdown(Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InformerFactory {
    context: Arc<FactoryContext>,
    registry: Arc<InformerRegistry>,
}

/// The result of [`InformerFactory::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// True if every task and, unless the transport was to be kept, every connection was gone within the limit.
    pub complete: bool,
    /// The number of tasks that were still running.
    pub tasks_left: usize,
    /// The duration of the shutdown.
    pub took: Duration,
}

impl InformerFactory {
    /// Creates a factory for the cluster that `transport` connects to.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(transport: Transport, options: FactoryOptions) -> Self {
        let (context, registry) = (Arc::new(FactoryContext::new(transport, options)), Arc::default());
        maintenance::start(&context, &registry);
        Self { context, registry }
    }

    /// Creates an informer of a type that is known at compile time, such as those of k8s-openapi.
    ///
    /// # Errors
    /// If the options make no sense for the type, or the factory was shut down.
    pub fn informer<K>(&self, options: InformerOptions) -> Result<Informer<K>, BuildError>
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let resource = ResourceId::from_type::<K>(&());
        options.check_scope::<K>(&resource)?;
        self.registry.informer(&self.context, resource, Form::Full, options)
    }

    /// Creates an informer of a type that is known at run time.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn dynamic(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<DynamicObject>, BuildError> {
        self.registry.informer(&self.context, ResourceId::from(resource), Form::Full, options)
    }

    /// Creates an informer of the metadata of a type: much less to transfer and to store.
    ///
    /// # Errors
    /// If the options make no sense for the type, or the factory was shut down.
    pub fn metadata<K>(&self, options: InformerOptions) -> Result<Informer<PartialObjectMeta<K>>, BuildError>
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let resource = ResourceId::from_type::<K>(&());
        options.check_scope::<K>(&resource)?;
        self.registry.informer(&self.context, resource, Form::MetadataOnly, options)
    }

    /// Creates an informer of the metadata of a type that is known at run time.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn dynamic_metadata(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<PartialObjectMeta<DynamicObject>>, BuildError> {
        self.registry.informer(&self.context, ResourceId::from(resource), Form::MetadataOnly, options)
    }

    /// Creates an informer that never decodes anything.
    ///
    /// # Errors
    /// If the options make no sense, or the factory was shut down.
    pub fn raw(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<Informer<RawObject>, BuildError> {
        self.registry.informer(&self.context, ResourceId::from(resource), Form::Full, options)
    }

    /// Waits until all informers that exist now have synced, for at most `limit`. Does not wait for an informer whose last handle
    /// is dropped meanwhile.
    ///
    /// # Errors
    /// At the deadline, with all that is missing and why; at once when the factory is shut down.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        let begun = Instant::now();
        let informers = self.registry.informers();
        let waits = informers.iter().map(|informer| async move {
            let result = informer.wait_synced(limit).await;
            // An informer whose last handle was dropped meanwhile no longer exists: do not wait for it.
            result.err().filter(|missing| !missing.closed || self.context.stop.is_cancelled())
        });
        let missing = futures::future::join_all(waits).await;
        let who: Vec<Unsynced> = missing.into_iter().flatten().flat_map(|missing| missing.who).collect();
        let closed = self.context.stop.is_cancelled();
        match who.is_empty() && !closed {
            true => Ok(()),
            false => Err(NotSynced { waited: begun.elapsed(), who, closed }),
        }
    }

    /// Makes list/watches and probers retry now, because the caller believes that the server is reachable (again). Cuts
    /// waits after failures short, and has ages proven by new probes. Never exceeds the list/watch protocol's own budgets.
    pub fn retry_now(&self) {
        self.registry
            .informers()
            .iter()
            .flat_map(|informer| &informer.reflectors)
            .for_each(|reflector| reflector.handle.retry_now());
        self.registry.probers().iter().for_each(|prober| prober.request_probe());
    }

    /// Sets the cluster's name, if [`FactoryOptions::cluster`] could not yet: it is known once the server has answered. The
    /// first name counts; returns it.
    pub fn set_cluster(&self, cluster: impl Into<Arc<str>>) -> Arc<str> {
        self.context.set_cluster(cluster.into())
    }

    /// Returns the cluster's name, if it was set.
    pub fn cluster(&self) -> Option<Arc<str>> {
        self.context.cluster()
    }

    /// Returns the factory's statistics.
    pub fn stats(&self) -> FactoryStats {
        let (informers, probers) = (self.registry.informers(), self.registry.probers());
        let contents: Vec<_> = informers.iter().map(|informer| informer.store.current()).collect();
        let probes: Vec<(u64, u64)> = probers.iter().map(|prober| prober.counts()).collect();
        FactoryStats {
            informers: informers.len(),
            synced: contents.iter().filter(|content| content.is_confirmed()).count(),
            objects: contents.iter().map(|content| content.objects.len()).sum(),
            bytes: contents.iter().map(|content| content.held_bytes).sum(),
            probers: probers.len(),
            probes: probes.iter().map(|(sent, _)| sent).sum(),
            probe_failures: probes.iter().map(|(_, failed)| failed).sum(),
            tasks: self.context.tasks.len(),
            transport: self.context.transport.stats(),
        }
    }

    /// Returns the transport.
    pub fn transport(&self) -> &Transport {
        &self.context.transport
    }

    /// Returns whether the factory was shut down.
    pub fn is_closed(&self) -> bool {
        self.context.stop.is_cancelled()
    }

    /// Stops all informers, handlers and probes, so that nothing changes any more, and leaves the connections open. Waits
    /// until they have ended, for at most `limit`; returns whether they have. No new informers can be created afterwards.
    pub async fn freeze(&self, limit: Duration) -> bool {
        self.close();
        timeout_at(deadline::after(limit), self.context.tasks.wait()).await.is_ok()
    }

    /// Stops all informers, handlers, probes and connections, and waits until they have ended, for at most `limit` (1 s is
    /// plenty). Every waiting call of this crate returns at once with a typed `Closed`, and so does every later call.
    /// Stores stay readable, and report that they are no longer updated.
    ///
    /// Do not call it from inside a handler: it would wait for itself, until the limit.
    ///
    /// Work in the runtime's threads for blocking calls, such as a plugin that waits for a login or the system's resolver,
    /// cannot be stopped, and this call does not wait for it. Dropping the runtime would wait for it without a bound; end
    /// the runtime with [`shutdown_background`](tokio::runtime::Runtime::shutdown_background) or `shutdown_timeout`
    /// instead.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let begun = Instant::now();
        let deadline = deadline::from(begun, limit);
        self.close();
        let gone = timeout_at(deadline, self.context.tasks.wait()).await.is_ok();
        let disconnected = match self.context.options.keep_transport {
            true => true,
            false => {
                self.context.transport.shutdown(deadline.saturating_duration_since(Instant::now())).await
            }
        };
        ShutdownReport {
            complete: gone && disconnected,
            tasks_left: self.context.tasks.len(),
            took: begun.elapsed(),
        }
    }

    fn close(&self) {
        self.context.stop.cancel();
        self.registry.close();
        self.context.tasks.close();
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("informers", &self.registry.informers().len())
            .finish_non_exhaustive()
    }
}
