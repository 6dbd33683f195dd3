//! The fleet: clusters that join and leave.
//!
//! ```text
//!  sources ──▶ ClusterSink ──▶ Registry: listed clusters, names ──▶ members (one atomic pointer) ──▶ readers, without a lock
//!                                    │                             │
//!                                    └── problems                  └── each with a ClusterInner of its own
//! ```

mod changes;
mod checkpoint_task;
mod core;
mod registry;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos::LabelSelector;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::changes::{Changes, FleetChange};
pub use self::checkpoint_task::Keeper;
pub use self::core::Members;
use self::core::{CHECKPOINT_END_TIMEOUT, Core, Unread};
pub use self::registry::SourceProblem;
use crate::cluster::{Cluster, ClusterOptions, ClusterStats, Connector, Persistence};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::incident::IncidentStats;
use crate::source::{ClusterSink, DiscoveredCluster, KubeconfigFile, Source};
use crate::spec::ClusterSpec;

/// A set of clusters, each with its own connections, informers, budget and state, so that none can hold up another.
///
/// Cheap to clone. It must be created inside a tokio runtime. It shuts down when its last handle is dropped;
/// [`Fleet::shutdown`] also waits for that.
///
/// # Example
/// ```no_run
/// # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use skopos_fleet::{ClusterId, ClusterSpec, Fleet, FleetOptions};
///
/// let fleet = Fleet::new(FleetOptions::default());
/// fleet.join(ClusterId::new("paris")?, ClusterSpec::from_config(config))?;
/// println!("{}", fleet.cluster("paris")?.id());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fleet {
    core: Arc<Core>,
    /// Absent in the handles of the fleet's own tasks.
    _guard: Option<Arc<DropGuard>>,
}

/// Options of a fleet.
#[derive(Clone)]
pub struct FleetOptions {
    /// The options of each cluster.
    pub cluster: ClusterOptions,
    /// The factory of transports. Default: TCP and TLS.
    pub connector: Connector,
    /// The persistence of cluster content over restarts. Default: none.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Time for which the data of a cluster that left stays readable. Default 10 min.
    pub retain_removed: Duration,
}

/// Statistics of a fleet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetStats {
    /// The clusters, by name.
    pub clusters: Vec<ClusterStats>,
    /// Unusable entries of sources.
    pub problems: usize,
}

/// Time for which the names of later sources wait until a source has listed its clusters.
const NAMES_TIMEOUT: Duration = Duration::from_secs(10);

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            cluster: ClusterOptions::default(),
            connector: Connector::tcp(),
            keeper: None,
            retain_removed: Duration::from_secs(600),
        }
    }
}

impl Fleet {
    /// Creates a fleet without clusters.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: FleetOptions) -> Self {
        let all = CancellationToken::new();
        let FleetOptions { cluster, connector, keeper, retain_removed } = options;
        let persistence = keeper.clone().map(|keeper| keeper as Arc<dyn Persistence>);
        let core = Arc::new(Core::new(cluster, connector, persistence, retain_removed, &all));
        if let Some(keeper) = keeper {
            let inner = Self { core: core.clone(), _guard: None };
            core.checkpoint_tasks.spawn(keeper.run(inner, core.checkpoint_stop.clone()));
        }
        Self { core, _guard: Some(Arc::new(all.drop_guard())) }
    }

    /// Returns the cluster of this name. Takes no lock.
    pub fn get(&self, name: &str) -> Option<Cluster> {
        self.core.members.load().get(name).cloned()
    }

    /// Returns the cluster of this name. Takes no lock.
    ///
    /// # Errors
    /// If there is none.
    pub fn cluster(&self, name: &str) -> Result<Cluster, FleetError> {
        self.get(name).ok_or_else(|| FleetError::UnknownCluster { name: name.chars().take(253).collect() })
    }

    /// Returns the cluster of this name, if it is listed by a trusted source ([`Source::is_trusted`]) or was joined by
    /// this process.
    pub fn trusted(&self, name: &str) -> Option<Cluster> {
        // While the lock is held, the members match the registry.
        let registry = self.core.registry.lock();
        self.get(name).filter(|cluster| registry.is_trusted(cluster.id()))
    }

    /// Returns all clusters at one moment. Takes no lock.
    pub fn members(&self) -> Arc<Members> {
        self.core.members.load_full()
    }

    /// Returns the clusters whose labels match, by name.
    pub fn select(&self, selector: &LabelSelector) -> Vec<Cluster> {
        let members = self.members();
        members.values().filter(|cluster| cluster.matches(selector)).cloned().collect()
    }

    /// Adds a cluster under a name that this process chooses; it takes precedence over clusters from sources. If this
    /// process joined a cluster of this name before, that one is redirected to the new spec.
    ///
    /// # Errors
    /// If the fleet was shut down.
    pub fn join(&self, id: ClusterId, spec: ClusterSpec) -> Result<Cluster, FleetError> {
        self.core.change(|registry| registry.list_own(id.clone(), DiscoveredCluster::up(spec)))?;
        self.cluster(id.as_str())
    }

    /// Adds a cluster under a name that this process chooses, connected as a context of a kubeconfig file says. It
    /// takes precedence over clusters from sources. The file is followed as [`KubeconfigFile`] is, and later changes
    /// are applied. Until the file can be read, the cluster is a member that cannot be reached; so join it before
    /// following sources that may list its name.
    ///
    /// # Errors
    /// If the fleet was shut down. Problems of the file are a [`SourceProblem`].
    pub async fn join_context(
        &self,
        id: ClusterId,
        file: KubeconfigFile,
        context: &str,
    ) -> Result<Cluster, FleetError> {
        let file = file.own(id.clone(), context);
        let listed = file.now().await;
        self.core.change(|registry| registry.list_own(id.clone(), listed))?;
        self.follow(file);
        self.cluster(id.as_str())
    }

    /// Removes a cluster that was added by [`Fleet::join`]; returns whether there was one. Its data stays readable for
    /// [`FleetOptions::retain_removed`].
    pub fn leave(&self, id: &ClusterId, reason: impl Into<Arc<str>>) -> bool {
        let mut was_there = false;
        let left = self.core.change(|registry| {
            let steps = registry.unlist_own(id, reason.into());
            was_there = steps.is_some();
            steps.unwrap_or_default()
        });
        left.is_ok() && was_there
    }

    /// Follows a source of clusters until the fleet is shut down. If two sources list the same name, the cluster of the
    /// source that was followed first has it. The other gets a hash of its origin appended. A cluster keeps its name
    /// while it is listed. If a name later belongs to another cluster, or to another place of its source
    /// ([`DiscoveredCluster::origin`]), no data of the earlier cluster is shown as its own ([`Cluster::is_replacement`]).
    pub fn follow(&self, source: impl Source) {
        let core = &self.core;
        let number = {
            let mut registry = core.registry.lock();
            let number = registry.add_source(source.name(), source.is_trusted());
            core.unread.send_replace(Unread { count: registry.unread(), since: Instant::now() });
            number
        };
        let sink = ClusterSink::new(Arc::<Core>::downgrade(core), number);
        let running = Box::new(source).run(sink, core.sources_stop.clone());
        let stop = core.sources_stop.clone();
        core.sources.spawn(async move {
            stop.run_until_cancelled(running).await;
        });
        let (core, stop) = (Arc::downgrade(core), core.sources_stop.clone());
        self.core.sources.spawn(async move {
            let waited = stop.run_until_cancelled(tokio::time::sleep(NAMES_TIMEOUT)).await;
            if let (Some(()), Some(core)) = (waited, core.upgrade()) {
                // Fails only at shutdown.
                let _ = core.change(|registry| registry.stop_waiting(number));
            }
        });
    }

    /// Returns the number of sources that have never listed their clusters. While it is not zero, clusters may be
    /// missing, and an unknown name does not prove that there is no such cluster. Waits for them up to `limit`,
    /// counted from when the latest one was followed.
    pub async fn unread_sources(&self, limit: Duration) -> usize {
        let mut unread = self.core.unread.subscribe();
        let left = limit.saturating_sub(unread.borrow().since.elapsed());
        let _ = timeout(left, unread.wait_for(|unread| unread.count == 0)).await;
        unread.borrow().count
    }

    /// Returns a stream of changes, beginning with the present clusters.
    pub fn changes(&self) -> Changes {
        Changes::new(self.core.clone())
    }

    /// Returns unusable entries of sources, and sources that cannot list their clusters.
    pub fn problems(&self) -> Vec<SourceProblem> {
        self.core.registry.lock().problems()
    }

    /// Returns the figures about incidents, by cause: the [`label`](skopos::transport::TransportErrorKind::label) of a
    /// connection's error, or one of the causes in docs/reference/metrics.md.
    pub fn incidents(&self) -> BTreeMap<&'static str, IncidentStats> {
        self.core.incidents.stats()
    }

    /// Returns statistics.
    pub fn stats(&self) -> FleetStats {
        let clusters = self.members().values().map(Cluster::stats).collect();
        FleetStats { clusters, problems: self.problems().len() }
    }

    /// Returns whether the fleet was shut down.
    pub fn is_closed(&self) -> bool {
        self.core.stop.is_cancelled()
    }

    /// Stops all lists and watches, so that nothing in memory changes any more: watchers then see the last state of
    /// this process. Requests are still passed through. Servers whose watchers resume after a restart call this before
    /// [`Fleet::shutdown`]. Returns whether it completed within `limit`.
    pub async fn freeze(&self, limit: Duration) -> bool {
        let members = self.members();
        let freezes = members.values().map(|cluster| cluster.inner.freeze(limit));
        futures::future::join_all(freezes).await.into_iter().all(|frozen| frozen)
    }

    /// Shuts everything down: sources, then all clusters at once, then the keeper's final work (at most 10 s). Returns
    /// whether nothing was left after `limit`. Cached data stays readable through existing handles.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        let began = Instant::now();
        let left = || limit.saturating_sub(began.elapsed());
        let core = &self.core;
        core.sources_stop.cancel();
        core.sources.close();
        let mut complete = timeout(left(), core.sources.wait()).await.is_ok();
        core.stop.cancel();
        core.tasks.close();
        let members = self.members();
        let ends = members.values().map(|cluster| cluster.inner.shutdown(left()));
        complete &= futures::future::join_all(ends).await.into_iter().all(|complete| complete);
        complete &= timeout(left(), core.tasks.wait()).await.is_ok();
        // Nothing changes any more: the keeper saves the last state that any watcher has seen.
        core.checkpoint_stop.cancel();
        core.checkpoint_tasks.close();
        complete &= timeout(left().min(CHECKPOINT_END_TIMEOUT), core.checkpoint_tasks.wait()).await.is_ok();
        core.changes.notify();
        complete
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("clusters", &self.members().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for FleetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetOptions")
            .field("cluster", &self.cluster)
            .field("keeper", &self.keeper.is_some())
            .field("retain_removed", &self.retain_removed)
            .finish_non_exhaustive()
    }
}
