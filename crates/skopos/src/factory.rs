//! Where informers come from, and what they share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Resource;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use skopos_reflect::{Clock, Form, InitialList, MachineOptions, Resume, Target};
use skopos_transport::Transport;
use skopos_wire::RawObject;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::audit_and_heal;
use crate::checkpoint::Identity;
use crate::deadline;
use crate::error::{BuildError, NotSynced, Unsynced};
use crate::freshness::{Basis, Common, FreshnessCell, SLEEP_WORTH_TELLING};
use crate::informer::{Informer, NextAudit, Running, Shared};
use crate::link::{self, Link, LinkParts};
use crate::live::Live;
use crate::options::{FactoryOptions, InformerOptions, ResourceId, Scope, SharingKey};
use crate::prober::{Answer, Probe, ProbeTimes, Prober};
use crate::sleep::SleepLog;
use crate::stats::FactoryStats;
use crate::store::Content;
use crate::store::{Closed, StoreCore};
use crate::sync::{Mutex, sleep, spawn, timeout_at};
use crate::unstreamed::Unstreamed;

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
    pub(crate) core: Arc<FactoryCore>,
}

/// What the factory's clones and informers share.
pub(crate) struct FactoryCore {
    pub(crate) transport: Transport,
    pub(crate) live: Live,
    pub(crate) options: FactoryOptions,
    pub(crate) common: Arc<Common>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// What list/watches have learned of the server, for those that come after them.
    pub(crate) unstreamed: Arc<Unstreamed>,
    audits: Semaphore,
    registry: Mutex<Registry>,
    /// What the cluster is, once that is known.
    cluster: Mutex<Option<Arc<str>>>,
}

struct Registry {
    informers: BTreeMap<SharingKey, Weak<Running>>,
    probers: BTreeMap<(String, String), Weak<Prober>>,
    random: fastrand::Rng,
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
        let common = Arc::new(Common {
            clock: Clock::new(),
            stale_after: options.stale_after,
            sleep: SleepLog::new(options.sleep_clock.clone()),
        });
        let random = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let core = Arc::new(FactoryCore {
            live: Live::new(transport.clone(), options.limits.clone(), &options.machine),
            transport,
            common,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            unstreamed: Arc::new(Unstreamed::new()),
            audits: Semaphore::new(AUDITS_AT_ONCE),
            registry: Mutex::new(Registry { informers: BTreeMap::new(), probers: BTreeMap::new(), random }),
            cluster: Mutex::new(options.cluster.as_deref().map(Into::into)),
            options,
        });
        spawn(&core.tasks, keep_house(Arc::downgrade(&core), core.stop.clone()));
        Self { core }
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
        self.core.informer(resource, Form::Full, options)
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
        self.core.informer(ResourceId::from(resource), Form::Full, options)
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
        self.core.informer(resource, Form::MetadataOnly, options)
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
        self.core.informer(ResourceId::from(resource), Form::MetadataOnly, options)
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
        self.core.informer(ResourceId::from(resource), Form::Full, options)
    }

    /// Waits until all informers that there are now have synced, for at most [`FactoryOptions::sync_timeout`]. One whose last
    /// handle is dropped meanwhile is waited for no longer.
    ///
    /// # Errors
    /// When the time is over, with all that is missing and why; at once when the factory is shut down.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        self.wait_synced_within(self.core.options.sync_timeout).await
    }

    /// Waits until all informers that there are now have synced, for at most `limit`.
    ///
    /// # Errors
    /// As [`InformerFactory::wait_synced`].
    pub async fn wait_synced_within(&self, limit: Duration) -> Result<(), NotSynced> {
        let begun = Instant::now();
        let informers = self.core.informers();
        let waits = informers.iter().map(|informer| async move {
            let result = informer.wait_synced(limit).await;
            // One that somebody else let go meanwhile is not there any more, and nobody's to wait for.
            result.err().filter(|missing| !missing.closed || self.core.stop.is_cancelled())
        });
        let missing = futures::future::join_all(waits).await;
        let who: Vec<Unsynced> = missing.into_iter().flatten().flat_map(|missing| missing.who).collect();
        let closed = self.core.stop.is_cancelled();
        match who.is_empty() && !closed {
            true => Ok(()),
            false => Err(NotSynced { waited: begun.elapsed(), who, closed }),
        }
    }

    /// There is reason to think that the server is there (again): waits after failures are cut short, and ages are proven
    /// anew. No more often than the list/watch protocol's own budgets allow.
    pub fn retry_now(&self) {
        self.core
            .informers()
            .iter()
            .flat_map(|informer| &informer.links)
            .for_each(|link| link.handle.retry_now());
        self.core.probers().iter().for_each(|prober| prober.nudge());
    }

    /// What the cluster is, where [`FactoryOptions::cluster`] could not say it yet: it is known once the server has
    /// answered. Returns what counts: what was said first.
    pub fn identify(&self, cluster: impl Into<Arc<str>>) -> Arc<str> {
        self.core.cluster.lock().get_or_insert(cluster.into()).clone()
    }

    /// What the cluster is, as far as anybody has said.
    pub fn cluster(&self) -> Option<Arc<str>> {
        self.core.cluster()
    }

    /// Figures.
    pub fn stats(&self) -> FactoryStats {
        self.core.stats()
    }

    /// The connections.
    pub fn transport(&self) -> &Transport {
        &self.core.transport
    }

    /// Whether it was shut down.
    pub fn is_closed(&self) -> bool {
        self.core.stop.is_cancelled()
    }

    /// Ends all informers, handlers and probes, so that nothing changes any more, and leaves the connections to others. Waits
    /// until that is so, at most for `limit`; returns whether it is. There are no new informers afterwards.
    pub async fn freeze(&self, limit: Duration) -> bool {
        self.core.close();
        timeout_at(deadline::after(limit), self.core.tasks.wait()).await.is_ok()
    }

    /// Ends all informers, handlers, probes and connections, and waits until nothing is left of them, but at most for
    /// `limit` (1 s is plenty). Whatever waits in a call of this crate returns at once with a typed `Closed`, and so does
    /// every later call. What stores hold stays readable, and says that it is not kept any more.
    ///
    /// Not to be called from inside a handler: it would wait for itself, until the limit.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let begun = Instant::now();
        let deadline = deadline::from(begun, limit);
        self.core.close();
        let gone = timeout_at(deadline, self.core.tasks.wait()).await.is_ok();
        let disconnected = match self.core.options.keep_transport {
            true => true,
            false => self.core.transport.shutdown(deadline.saturating_duration_since(Instant::now())).await,
        };
        ShutdownReport {
            complete: gone && disconnected,
            tasks_left: self.core.tasks.len(),
            took: begun.elapsed(),
        }
    }
}

impl FactoryCore {
    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.cluster.lock().clone()
    }

    /// The informer of these options: a new one, or one more handle of the one that runs.
    fn informer<K>(
        self: &Arc<Self>,
        resource: ResourceId,
        form: Form,
        options: InformerOptions,
    ) -> Result<Informer<K>, BuildError> {
        options.check()?;
        if let Some(checkpoint) = &options.restored {
            let own = Identity::of(self.cluster().as_deref(), &resource, form, &options);
            own.expect(checkpoint.identity())?;
        }
        let key = options.sharing_key(&resource, form);
        let resync = options.resync;
        let mut registry = self.registry.lock();
        // Under the lock: `close` takes it after the token fired, so that it sees whatever is started here.
        if self.stop.is_cancelled() {
            return Err(Closed.into());
        }
        let running = registry.informers.get(&key).and_then(Weak::upgrade);
        // One that panicked is nobody's any more, but of those who have it.
        if let Some(running) = running.filter(|running| !running.links.iter().any(Link::is_broken)) {
            drop(registry);
            // Those that it has already are the same: see `InformerOptions::index`.
            options.indexers.into_iter().for_each(|indexer| drop(running.store.add_indexer(indexer)));
            options.journal.into_iter().for_each(|journal| running.store.keep_journal(journal));
            return Ok(Informer::new(running, resync));
        }
        let running = Arc::new(Running::new(self.start(&mut registry, resource, form, options)));
        registry.informers.insert(key, Arc::downgrade(&running));
        Ok(Informer::new(running, resync))
    }

    fn start(
        self: &Arc<Self>,
        registry: &mut Registry,
        resource: ResourceId,
        form: Form,
        options: InformerOptions,
    ) -> Shared {
        let targets = targets(&resource, form, &options);
        let mut basis = Basis::new(self.common.clone(), targets.len());
        let restored = options.restored.as_ref();
        if let Some(checkpoint) = restored {
            let now = self.options.wall_clock.now();
            for (index, part) in basis.parts.iter_mut().enumerate() {
                part.restore(&self.common, checkpoint.age_of(index, &now), checkpoint.written_at());
            }
        }
        let content = match (restored, &options.scope) {
            (Some(checkpoint), _) => checkpoint.content().clone(),
            (None, Scope::All) => Content::unsynced(),
            (None, Scope::Namespaces(namespaces)) => {
                Content::unsynced_set(namespaces.iter().map(String::as_str))
            }
        };
        let store = StoreCore::new(content, FreshnessCell::new(basis));
        options.indexers.iter().for_each(|indexer| drop(store.add_indexer(indexer.clone())));
        options.journal.into_iter().for_each(|journal| store.keep_journal(journal));
        let stop = self.stop.child_token();
        let probes = self.prober(registry, &resource);
        let machine = self.machine_options(&resource);
        let links: Vec<Link> = targets
            .into_iter()
            .enumerate()
            .map(|(part, target)| {
                link::start(LinkParts {
                    factory: self,
                    part,
                    resource: &resource,
                    target,
                    store: &store,
                    prober: probes.clone(),
                    machine: machine.clone(),
                    transform: options.transform.clone(),
                    stop: stop.clone(),
                    seed: registry.random.u64(..),
                    resume: restored.map(|checkpoint| Resume {
                        resource_version: checkpoint.content().rv_of(part).clone(),
                        epoch: checkpoint.content().epoch_of(part),
                    }),
                })
            })
            .collect();
        let tell: Vec<_> = links.iter().map(|link| link.handle.clone()).collect();
        let clock = self.common.clock;
        let listener = Arc::new(move |probe: &Probe| {
            for link in &tell {
                link.probed(clock.at(probe.sent_at), probe.resource_version.clone());
                if link.state().condition.is_failing() {
                    link.retry_now();
                }
            }
        });
        let audit_in =
            self.options.audit_interval.map(|interval| interval.mul_f64(0.8 + registry.random.f64() / 5.0));
        // What is restored is compared with the server as soon as it can be, also if audits are made on demand only.
        let confirms = restored.is_some();
        let audit_in = if confirms { Some(Duration::ZERO) } else { audit_in };
        let next_audit = NextAudit { at: audit_in.map(deadline::after), confirms };
        Shared {
            factory: self.clone(),
            resource,
            scope: options.scope,
            probes: probes.subscribe(links[0].target.clone(), listener),
            links,
            store,
            labels: options.labels,
            fields: options.fields,
            transform: options.transform,
            stop,
            audits: Mutex::default(),
            next_audit: Mutex::new(next_audit),
            auditing: tokio::sync::Mutex::new(()),
        }
    }

    /// The prober of a kind: versions of a group share one storage, and so one prober.
    fn prober(&self, registry: &mut Registry, resource: &ResourceId) -> Arc<Prober> {
        let key = (resource.group.clone(), resource.plural.clone());
        if let Some(prober) = registry.probers.get(&key).and_then(Weak::upgrade) {
            return prober;
        }
        let times = ProbeTimes { interval: self.options.probe_interval, timeout: self.options.probe_timeout };
        let live = self.live.clone();
        let ask = Arc::new(move |target: Target| -> Answer {
            let live = live.clone();
            Box::pin(async move { live.probe(&target, times.timeout.saturating_add(GRACE)).await })
        });
        let prober = Prober::start(times, ask, &self.tasks, &self.stop, registry.random.fork());
        registry.probers.insert(key, Arc::downgrade(&prober));
        prober
    }

    /// How the machine of a new list/watch behaves: what others of this kind have learned of the server is known.
    fn machine_options(&self, resource: &ResourceId) -> MachineOptions {
        let mut options = self.options.machine.clone();
        if self.unstreamed.knows(resource) {
            options.initial = InitialList::Paged;
        }
        options
    }

    /// All informers that there are. Does not keep them running.
    pub(crate) fn informers(&self) -> Vec<Arc<Shared>> {
        self.registry
            .lock()
            .informers
            .values()
            .filter_map(|running| Some(running.upgrade()?.shared()))
            .collect()
    }

    fn probers(&self) -> Vec<Arc<Prober>> {
        self.registry.lock().probers.values().filter_map(Weak::upgrade).collect()
    }

    /// A random factor from 0.8 to 1.0.
    fn jitter(&self) -> f64 {
        0.8 + self.registry.lock().random.f64() / 5.0
    }

    fn stats(&self) -> FactoryStats {
        let (informers, probers) = (self.informers(), self.probers());
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
            tasks: self.tasks.len(),
            transport: self.transport.stats(),
        }
    }

    fn close(&self) {
        self.stop.cancel();
        self.informers().iter().for_each(|informer| informer.close());
        self.tasks.close();
    }
}

impl Drop for FactoryCore {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// So much later than the transport's own deadline for probes, which takes a silent connection out of use, as a caller's
/// deadline does not.
const GRACE: Duration = Duration::from_millis(500);

const AUDITS_AT_ONCE: usize = 2;

/// How long after an attempt to confirm a checkpoint the next one is made.
const CONFIRM_AGAIN: Duration = Duration::from_secs(10);
/// A checkpoint that so many audits could not confirm is replaced by a list.
const CONFIRMATIONS: u64 = 3;

/// Once a second: has the machine slept, whose audit is due, what has gone.
async fn keep_house(factory: Weak<FactoryCore>, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(Duration::from_secs(1))).await.is_some() {
        let Some(factory) = factory.upgrade() else { return };
        let slept = factory.common.sleep.tick();
        if slept >= SLEEP_WORTH_TELLING {
            factory.slept(slept);
        }
        factory.begin_audits();
        factory.forget_the_gone();
    }
}

impl FactoryCore {
    /// Nothing that is open is worth much now, and no age is proven: look again.
    fn slept(&self, by: Duration) {
        tracing::info!(?by, "the machine slept: every age is proven anew");
        self.informers()
            .iter()
            .flat_map(|informer| &informer.links)
            .for_each(|link| link.handle.suspended(by));
        self.probers().iter().for_each(|prober| prober.nudge());
    }

    fn begin_audits(&self) {
        let now = Instant::now();
        for informer in self.informers() {
            let restored = informer.is_restored();
            {
                let mut next = informer.next_audit.lock();
                if next.confirms && !restored {
                    // A list has done it.
                    *next = self.next_audit(&informer);
                }
                // What a checkpoint said waits until its RV was accepted.
                if next.at.is_none_or(|due| due > now) || (restored && !informer.is_watching()) {
                    continue;
                }
                // It is not due before it is done: what waits for a server cannot pile up.
                next.at = None;
            }
            let done = AuditDone(informer.clone());
            if informer.is_failing() {
                // It would be in vain. It is looked at again soon, but when the server is back, not everything is listed at once.
                drop(done);
                let mut next = informer.next_audit.lock();
                let wait = self.options.audit_interval.unwrap_or(CONFIRM_AGAIN).mul_f64(self.jitter() - 0.7);
                next.at = next.at.map(|at| at.min(deadline::after(wait)));
                continue;
            }
            let stop = informer.stop.clone();
            self.tasks.spawn(async move {
                let informer = &done.0;
                let audit = async {
                    // Each is a list of everything: not many at once.
                    let _permit = informer.factory.audits.acquire().await;
                    audit_and_heal(informer, deadline::after(informer.factory.options.audit_timeout)).await
                };
                stop.run_until_cancelled(audit).await;
                let made = {
                    let audits = informer.audits.lock();
                    audits.completed + audits.failed
                };
                if made.is_multiple_of(CONFIRMATIONS) && informer.is_restored() && informer.is_watching() {
                    informer.relist();
                }
            });
        }
    }

    /// When an informer is audited next, if it is.
    fn next_audit(&self, informer: &Shared) -> NextAudit {
        let confirms = informer.is_restored();
        let wait = if confirms { Some(CONFIRM_AGAIN) } else { self.options.audit_interval };
        let at = wait.and_then(|wait| Instant::now().checked_add(wait.mul_f64(self.jitter())));
        NextAudit { at, confirms }
    }

    fn forget_the_gone(&self) {
        let mut registry = self.registry.lock();
        registry.informers.retain(|_, informer| informer.strong_count() > 0);
        registry.probers.retain(|_, prober| prober.strong_count() > 0);
    }
}

/// An audit that is due or under way. When it is over, however it ended, the next one has its time.
struct AuditDone(Arc<Shared>);

impl Drop for AuditDone {
    fn drop(&mut self) {
        let next = self.0.factory.next_audit(&self.0);
        *self.0.next_audit.lock() = next;
    }
}

/// One target, or one for each namespace of a set.
fn targets(resource: &ResourceId, form: Form, options: &InformerOptions) -> Vec<Target> {
    let mut all = Target::new(&resource.group, &resource.version, &resource.plural)
        .with_kind(&resource.kind)
        .with_labels(&options.labels)
        .with_fields(&options.fields);
    all.form = form;
    match &options.scope {
        Scope::All => vec![all],
        Scope::Namespaces(namespaces) => {
            namespaces.iter().map(|namespace| all.clone().in_namespace(namespace)).collect()
        }
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("informers", &self.core.informers().len())
            .finish_non_exhaustive()
    }
}
