//! The registry of a factory's running informers, which lets equal ones share a list/watch, and of the probers that they
//! share.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use skopos_reflect::{Form, Target};

use super::context::FactoryContext;
use crate::error::BuildError;
use crate::freshness::prober::{ProbeFuture, ProbeTimes, Prober};
use crate::informer::assembly::{assemble, store_for};
use crate::informer::compaction::Compaction;
use crate::informer::options::{InformerOptions, SharingKey};
use crate::informer::reflector::Reflector;
use crate::informer::resource::ResourceId;
use crate::informer::{Informer, InformerGuard, InformerInner};
use crate::store::Closed;
use crate::sync::Mutex;

/// The registry. It keeps no informer running.
#[derive(Default)]
pub(crate) struct InformerRegistry {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    informers: BTreeMap<SharingKey, InformerEntry>,
    /// Informers that panicked and were replaced. Callers that hold one may still wait for it.
    replaced: Vec<InformerEntry>,
    probers: BTreeMap<(String, String), Weak<Prober>>,
}

/// An informer. Looking at it must not keep it running, not even for a moment: the last user's drop ends it.
struct InformerEntry {
    guard: Weak<InformerGuard>,
    inner: Weak<InformerInner>,
}

impl InformerRegistry {
    /// Returns the informer of these options: a new one, or another handle of the running one.
    pub(crate) fn informer<K>(
        &self,
        context: &Arc<FactoryContext>,
        resource: ResourceId,
        form: Form,
        options: InformerOptions,
    ) -> Result<Informer<K>, BuildError> {
        options.check()?;
        options.check_indexers(&resource, form)?;
        if let Some(checkpoint) = &options.restored {
            let own = options.identity(context.cluster().as_deref(), &resource, form);
            own.expect(checkpoint.identity())?;
        }
        let key = options.sharing_key(&resource, form);
        let running = self.entries.lock().running(context, &key)?;
        if let Some(running) = running {
            return Ok(new_handle(running, options));
        }
        // Not under the lock: the user's functions compute the indexes.
        let mut compaction = Compaction::new(&resource, options.compact_above);
        let store = store_for(context, &options, &mut compaction);
        let mut entries = self.entries.lock();
        // Another caller may have been quicker.
        if let Some(running) = entries.running(context, &key)? {
            drop(entries);
            return Ok(new_handle(running, options));
        }
        let resync = options.resync;
        let prober = entries.prober(context, &resource);
        let informer = assemble(context, &prober, store, resource, form, &compaction, options);
        let running = Arc::new(InformerGuard::new(informer));
        let replaced = entries.informers.insert(key, InformerEntry::new(&running));
        entries.replaced.extend(replaced.filter(InformerEntry::is_held));
        Ok(Informer::new(running, resync))
    }

    /// Returns all existing informers. Does not keep them running.
    pub(crate) fn informers(&self) -> Vec<Arc<InformerInner>> {
        self.entries.lock().informers.values().filter_map(InformerEntry::inner).collect()
    }

    /// Ends all informers, including replaced ones.
    pub(crate) fn close(&self) {
        let all: Vec<_> = {
            let entries = self.entries.lock();
            entries.informers.values().chain(&entries.replaced).filter_map(InformerEntry::inner).collect()
        };
        all.iter().for_each(|informer| informer.close());
    }

    pub(crate) fn probers(&self) -> Vec<Arc<Prober>> {
        self.entries.lock().probers.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn prune(&self) {
        let mut entries = self.entries.lock();
        entries.informers.retain(|_, informer| informer.is_held());
        entries.replaced.retain(InformerEntry::is_held);
        entries.probers.retain(|_, prober| prober.strong_count() > 0);
    }
}

/// Returns another handle of a running informer.
fn new_handle<K>(running: Arc<InformerGuard>, options: InformerOptions) -> Informer<K> {
    // Existing indexes of the same name are the same: see `InformerOptions::index`.
    options.indexers.into_iter().for_each(|indexer| drop(running.store.add_indexer(indexer)));
    options.journal.into_iter().for_each(|journal| running.store.keep_journal(journal));
    Informer::new(running, options.resync)
}

impl Entries {
    /// Returns the running informer of these options. One that panicked is left to its holders.
    fn running(
        &self,
        context: &FactoryContext,
        key: &SharingKey,
    ) -> Result<Option<Arc<InformerGuard>>, Closed> {
        // Under the lock: a shutdown takes it after the token fired, so it sees every informer that is started here.
        if context.stop.is_cancelled() {
            return Err(Closed);
        }
        let entry = self.informers.get(key).filter(|entry| !entry.has_panicked());
        Ok(entry.and_then(|entry| entry.guard.upgrade()))
    }

    /// Returns the prober of a resource: versions of a group share one storage, and so one prober.
    fn prober(&mut self, context: &FactoryContext, resource: &ResourceId) -> Arc<Prober> {
        let key = (resource.group.clone(), resource.plural.clone());
        if let Some(prober) = self.probers.get(&key).and_then(Weak::upgrade) {
            return prober;
        }
        let options = &context.options;
        let times = ProbeTimes { interval: options.probe_interval, timeout: options.probe_timeout };
        let live = context.live.clone();
        let ask = Arc::new(move |target: Target| -> ProbeFuture {
            let live = live.clone();
            Box::pin(async move { live.probe(&target, times.timeout.saturating_add(PROBE_GRACE)).await })
        });
        let prober = Prober::start(times, ask, &context.tasks, &context.stop, context.random());
        self.probers.insert(key, Arc::downgrade(&prober));
        prober
    }
}

impl InformerEntry {
    fn new(guard: &Arc<InformerGuard>) -> Self {
        Self { guard: Arc::downgrade(guard), inner: Arc::downgrade(&guard.inner()) }
    }

    fn is_held(&self) -> bool {
        self.guard.strong_count() > 0
    }

    fn has_panicked(&self) -> bool {
        self.inner().is_some_and(|informer| informer.reflectors.iter().any(Reflector::has_panicked))
    }

    fn inner(&self) -> Option<Arc<InformerInner>> {
        if self.is_held() { self.inner.upgrade() } else { None }
    }
}

/// The margin of a probe's own deadline over the transport's deadline for probes. The transport's deadline takes a silent
/// connection out of use; a caller's does not.
const PROBE_GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use k8s_openapi::api::core::v1::ConfigMap;
    use skopos_transport::{Transport, TransportOptions, dialer_fn};

    use super::*;
    use crate::error::WaitError;
    use crate::{FactoryOptions, InformerFactory};

    /// Creates a factory that never gets a connection.
    fn factory() -> InformerFactory {
        let config = kube::Config::new("http://nowhere.test".parse().unwrap());
        let dialer = dialer_fn(|_| pending());
        let transport = Transport::with_dialer(config, TransportOptions::default(), dialer).unwrap();
        InformerFactory::new(transport, FactoryOptions { audit_interval: None, ..FactoryOptions::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_wait_on_broken_informer() {
        let factory = factory();
        let [broken, anew] = [(); 2].map(|()| {
            let informer = factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
            informer.shared.reflectors[0].simulate_panic();
            informer
        });
        assert!(!Arc::ptr_eq(&broken.shared, &anew.shared), "no handle holds it any more");
        factory.shutdown(Duration::from_secs(1)).await;
        for informer in [broken, anew] {
            let waited = informer.wait_for(&1.into(), Duration::from_secs(60)).await;
            assert!(matches!(waited, Err(WaitError::Closed(_))), "{waited:?}");
        }
    }
}
