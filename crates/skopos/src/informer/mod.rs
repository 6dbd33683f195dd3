//! The informer of one resource, kept in step with the server.

#[cfg(feature = "kube-runtime")]
pub(crate) mod adapters;
pub(crate) mod assembly;
pub(crate) mod compaction;
pub(crate) mod encodings;
pub(crate) mod options;
pub(crate) mod quarantine;
pub(crate) mod reflector;
pub(crate) mod resource;
pub(crate) mod stats;
pub(crate) mod transform;
pub(crate) mod watch_list_support;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use skopos_reflect::{Condition, ReflectorState};
use skopos_wire::{FieldSelector, LabelSelector, ObjectKey};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::reflector::Reflector;
use self::resource::{ResourceId, Scope};
use self::stats::{AuditStats, InformerStats, ReflectorStats};
use self::transform::Transform;
use crate::error::{NotSynced, Unsynced};
use crate::factory::context::FactoryContext;
use crate::freshness::prober::Subscription;
use crate::freshness::{Freshness, FreshnessCell};
use crate::handler::{self, Event, EventHandler, HandlerHandle, HandlerOptions};
use crate::store::{Closed, Snapshot, Store, StoreCore};
use crate::sync::{Mutex, timeout};

/// A live copy of one resource's objects, with a known age.
///
/// Cheap to clone. Informers with the same options share one list/watch and one store; they run until the last handle is
/// dropped and the last handler is removed, or the factory is shut down. Get one from an
/// [`InformerFactory`](crate::InformerFactory).
///
/// # Example
/// ```no_run
/// # async fn example(factory: skopos::InformerFactory) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Pod;
/// use skopos::{Event, HandlerOptions, InformerOptions, sync_handler};
///
/// let pods = factory.informer::<Pod>(InformerOptions::namespace("shop").labels("app=web")?)?;
/// let print = sync_handler(|event: Event<Pod>| println!("{}", event.key()));
/// let handler = pods.add_handler(print, HandlerOptions::default())?;
/// pods.wait_synced(Duration::from_secs(30)).await?;
/// println!("{} pods, {}", pods.snapshot().len(), pods.freshness());
///
/// // After this returns, no callback runs any more.
/// handler.remove(Duration::from_secs(1)).await?;
/// # Ok(())
/// # }
/// ```
pub struct Informer<K> {
    pub(crate) shared: Arc<InformerGuard>,
    resync: Option<Duration>,
    kind: PhantomData<fn() -> K>,
}

/// The guard shared by handles and handlers: when the last of them is dropped, the list/watch ends.
pub(crate) struct InformerGuard(Arc<InformerInner>);

/// State shared by informers with the same options. Tasks may hold it without keeping the list/watch running.
pub(crate) struct InformerInner {
    pub(crate) context: Arc<FactoryContext>,
    pub(crate) resource: ResourceId,
    pub(crate) scope: Scope,
    /// The only reflector, or one for each namespace of a set.
    pub(crate) reflectors: Vec<Reflector>,
    pub(crate) store: Arc<StoreCore>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) transform: Transform,
    pub(crate) probes: Subscription,
    pub(crate) stop: CancellationToken,
    pub(crate) audits: Mutex<AuditStats>,
    /// The next audit; `None` while one is in progress.
    pub(crate) next_audit: Mutex<Option<NextAudit>>,
    /// The lock that allows one audit at a time.
    pub(crate) auditing: tokio::sync::Mutex<()>,
}

/// The next audit of an informer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextAudit {
    /// The time at which it is due, if it is scheduled.
    pub(crate) at: Option<Instant>,
    /// The earliest time of an audit that confirms restored content.
    pub(crate) confirms_at: Instant,
}

impl<K> Informer<K> {
    pub(crate) fn new(shared: Arc<InformerGuard>, resync: Option<Duration>) -> Self {
        Self { shared, resync, kind: PhantomData }
    }

    /// Waits until everything was listed once, for at most `limit`. Restored content counts once the server has confirmed
    /// it; see [`checkpoint`](crate::checkpoint).
    ///
    /// # Errors
    /// At the deadline, with what is missing and why; at once when the factory is shut down.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        self.shared.wait_synced(limit).await
    }

    /// Returns whether everything was listed once. Restored content counts once the server has confirmed it;
    /// [`Snapshot::is_synced`] tells whether there is any content.
    pub fn has_synced(&self) -> bool {
        self.shared.store.peek().is_confirmed()
    }

    /// Returns an upper bound on the content's age, or what is wrong.
    pub fn freshness(&self) -> Freshness {
        self.shared.freshness().freshness()
    }

    /// Returns the state of the list/watch; of a set of namespaces, the worst.
    pub fn state(&self) -> ReflectorState {
        let evidence = self.shared.freshness().evidence();
        let worst = evidence.parts.iter().max_by_key(|part| {
            let condition = &part.reflector.condition;
            (condition.is_failing(), !condition.is_watching(), part.reflector.attempts)
        });
        // An informer has at least one part.
        worst.map_or_else(
            || evidence.parts[0].reflector.as_ref().clone(),
            |part| part.reflector.as_ref().clone(),
        )
    }

    /// Returns for how long the list/watch has been in the condition of [`Informer::state`].
    pub fn state_for(&self) -> Duration {
        let since = self.shared.context.freshness.clock.instant(self.state().since);
        since.elapsed()
    }

    /// Returns the state of each list/watch, with its namespace if it has one.
    pub fn states(&self) -> Vec<(Option<String>, ReflectorState)> {
        let evidence = self.shared.freshness().evidence();
        let namespaces = self.shared.reflectors.iter().map(|reflector| reflector.target.namespace.clone());
        namespaces.zip(evidence.parts.iter().map(|part| part.reflector.as_ref().clone())).collect()
    }

    /// Returns the resource.
    pub fn resource(&self) -> &ResourceId {
        &self.shared.resource
    }

    /// Returns the name of the content's cluster, if it was set
    /// ([`FactoryOptions::cluster`](crate::FactoryOptions::cluster)): resource versions mean nothing in another cluster.
    pub fn cluster(&self) -> Option<Arc<str>> {
        self.shared.context.cluster()
    }

    /// Returns the namespaces that the informer covers.
    pub fn scope(&self) -> &Scope {
        &self.shared.scope
    }

    /// Returns the store, for reading. Reading never waits, whatever the network does; see [`Informer::read`] for reads
    /// with a bound on the age.
    pub fn store(&self) -> Store<K> {
        self.shared.store.clone().into()
    }

    /// Returns the whole current content.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.store().snapshot()
    }

    /// Calls `handler` for every existing object and every later change.
    ///
    /// The informer runs at least until the handler is removed, also when all its handles are dropped.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn add_handler<H>(&self, handler: H, mut options: HandlerOptions) -> Result<HandlerHandle, Closed>
    where
        K: 'static,
        H: EventHandler<K>,
    {
        options.resync = options.resync.or(self.resync);
        let handler = KeepAlive { handler, _guard: self.shared.clone() };
        let context = &self.shared.context;
        handler::add(&self.shared.store, handler, options, &context.tasks, &context.stop)
    }

    /// Returns a stream of the existing objects and every later change: a convenience over [`Informer::add_handler`], with
    /// the same guarantees. It ends when the factory is shut down.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn events(&self) -> Result<impl Stream<Item = Event<K>> + Send + use<K>, Closed>
    where
        K: 'static,
    {
        let (sender, receiver) = mpsc::channel(EVENTS_CAPACITY);
        let handler = move |event| {
            let sender = sender.clone();
            async move {
                // The receiver is gone: the handler is being removed.
                let _ = sender.send(event).await;
            }
        };
        let handle = self.add_handler(handler, HandlerOptions::named("events"))?;
        let events = (receiver, RemoveOnDrop(handle));
        Ok(futures::stream::unfold(events, |(mut receiver, handle)| async move {
            receiver.recv().await.map(|event| (event, (receiver, handle)))
        }))
    }

    /// Lists everything again, at the caller's request. The resulting changes are marked as a gap. The content stays until
    /// the new list is complete.
    pub fn relist(&self, reason: &str) {
        tracing::info!(resource = %self.shared.resource, reason, "listing again as asked");
        self.shared.relist();
    }

    /// Returns the informer's statistics.
    pub fn stats(&self) -> InformerStats {
        self.shared.stats()
    }
}

/// The capacity of the channel of [`Informer::events`], in addition to the handler's queue.
pub(crate) const EVENTS_CAPACITY: usize = 64;

/// A handler that keeps its informer running.
struct KeepAlive<H> {
    handler: H,
    _guard: Arc<InformerGuard>,
}

impl<K, H: EventHandler<K>> EventHandler<K> for KeepAlive<H> {
    fn handle(&self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self.handler.handle(event)
    }
}

/// A guard that ends a handler when it is dropped.
pub(crate) struct RemoveOnDrop(pub(crate) HandlerHandle);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl InformerGuard {
    pub(crate) fn new(inner: InformerInner) -> Self {
        Self(Arc::new(inner))
    }

    pub(crate) fn inner(&self) -> Arc<InformerInner> {
        self.0.clone()
    }
}

impl Deref for InformerGuard {
    type Target = InformerInner;

    fn deref(&self) -> &InformerInner {
        &self.0
    }
}

impl Drop for InformerGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl InformerInner {
    pub(crate) fn freshness(&self) -> &FreshnessCell {
        self.store.freshness()
    }

    pub(crate) async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        let mut progress = self.store.progress();
        let waited = Instant::now();
        let settled = progress.wait_for(|progress| progress.confirmed || progress.closed);
        let in_time = timeout(limit, settled).await.is_ok();
        match (in_time, self.is_closed()) {
            (true, false) => Ok(()),
            (_, closed) => Err(NotSynced { waited: waited.elapsed(), who: self.unsynced(), closed }),
        }
    }

    /// Returns the list/watches that have not synced, and why.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        let evidence = self.freshness().evidence();
        let parts = self.reflectors.iter().zip(&evidence.parts).filter(|(_, part)| !part.is_confirmed());
        let unsynced = parts.map(|(reflector, part)| Unsynced {
            resource: self.resource.clone(),
            namespace: reflector.target.namespace.clone(),
            since: evidence.started(),
            attempts: part.reflector.attempts,
            state: part.reflector.as_ref().clone(),
            reason: part
                .reflector
                .reason
                .clone()
                .unwrap_or_else(|| part.reflector.condition.to_string().into()),
        });
        unsynced.collect()
    }

    pub(crate) fn relist(&self) {
        self.reflectors.iter().for_each(|reflector| reflector.handle.relist());
    }

    /// Returns the parts that an audit can usefully compare: their list/watch is not waiting after a failed attempt.
    pub(crate) fn auditable(&self) -> Vec<usize> {
        self.parts_where(|part, condition| !self.store.peek().is_restored(part) && !condition.is_failing())
    }

    /// Returns the restored parts that an audit can confirm: the server has accepted their RV.
    pub(crate) fn confirmable(&self) -> Vec<usize> {
        self.parts_where(|part, condition| self.store.peek().is_restored(part) && condition.is_watching())
    }

    /// Returns the parts that need a comparison with a list, because nothing else can tell whether anything is missing.
    pub(crate) fn parts_needing_comparison(&self) -> Vec<usize> {
        self.auditable().into_iter().filter(|part| self.reflectors[*part].needs_comparison()).collect()
    }

    fn parts_where(&self, are: impl Fn(usize, &Condition) -> bool) -> Vec<usize> {
        let evidence = self.freshness().evidence();
        let parts = evidence.parts.iter().enumerate();
        parts
            .filter(|(part, evidence)| are(*part, &evidence.reflector.condition))
            .map(|(part, _)| part)
            .collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ends the list/watch. The content stays readable, and reports that it is no longer updated.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        self.freshness().stop();
        self.store.close();
    }

    pub(crate) fn reflector_for(&self, key: &ObjectKey) -> Option<&Reflector> {
        self.part_of(key).map(|part| &self.reflectors[part])
    }

    /// Returns the part of the content that an object belongs to.
    pub(crate) fn part_of(&self, key: &ObjectKey) -> Option<usize> {
        self.reflectors.iter().position(|reflector| match &reflector.target.namespace {
            None => true,
            Some(namespace) => key.namespace() == Some(namespace),
        })
    }

    pub(crate) fn stats(&self) -> InformerStats {
        let evidence = self.freshness().evidence();
        let content = self.store.current();
        let store = self.store.stats();
        let reflectors: Vec<ReflectorStats> = self
            .reflectors
            .iter()
            .zip(&evidence.parts)
            .map(|(reflector, part)| reflector.stats(part))
            .collect();
        let sum = |figure: fn(&skopos_reflect::MachineStats) -> u64| {
            reflectors.iter().map(|reflector| figure(&reflector.machine)).sum()
        };
        InformerStats {
            resource: self.resource.clone(),
            freshness: evidence.freshness(),
            objects: content.objects.len(),
            bytes: content.held_bytes,
            resource_version: content.rv.clone(),
            epoch: content.epoch,
            events: store.applied,
            relists: sum(|machine| machine.relists),
            failures: sum(|machine| machine.failures),
            duplicates: sum(|machine| machine.duplicates) + store.duplicates,
            undecodable: sum(|machine| machine.undecodable),
            lists_sent: sum(|machine| machine.list_requests),
            watches_sent: sum(|machine| machine.watch_requests),
            last_trouble: reflectors
                .iter()
                .filter_map(|reflector| reflector.last_trouble.clone())
                .max_by_key(|trouble| trouble.began),
            reflectors,
            store,
            audits: self.audits.lock().clone(),
        }
    }
}

impl Reflector {
    fn stats(&self, part: &crate::freshness::PartEvidence) -> ReflectorStats {
        ReflectorStats {
            namespace: self.target.namespace.clone(),
            state: part.reflector.as_ref().clone(),
            machine: self.handle.stats(),
            last_trouble: self.troubles.last(),
        }
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone(), self.resync)
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({}, {})", self.shared.resource, self.freshness())
    }
}
