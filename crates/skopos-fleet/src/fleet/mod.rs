//! The fleet: clusters that join and leave.
//!
//! ```text
//!  sources ──▶ Roster ──▶ Ledger: listed clusters, names ──▶ members (one atomic pointer) ──▶ readers, without a lock
//!                                    │                             │
//!                                    └── problems                  └── each a Unit of its own
//! ```

mod changes;
mod ledger;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use skopos::LabelSelector;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use self::changes::{Changes, FleetChange};
pub(crate) use self::ledger::SourceNumber;
pub use self::ledger::SourceProblem;
use self::ledger::{Ledger, Step};
use crate::cluster::{
    Cluster, ClusterOptions, ClusterStats, Connector, Ended, ListedAs, Unit, UnitParts, Ways,
};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::keeper::Keeper;
use crate::news::News;
use crate::source::{KubeconfigFile, Listed, Roster, Source, Standing};
use crate::spec::ClusterSpec;

/// A set of clusters, each with its own connections, informers, budget and state, so that none can hold up another.
///
/// Cheap to clone. It must be created inside a tokio runtime. It shuts down when its last handle is dropped;
/// [`Fleet::shutdown`] also waits for that.
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

/// Members of a fleet at one moment, by name. Clusters that have left are included while their data is retained.
#[derive(Clone, Debug, Default)]
pub struct Members(BTreeMap<ClusterId, Cluster>);

/// Statistics of a fleet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetStats {
    /// The clusters, by name.
    pub clusters: Vec<ClusterStats>,
    /// Unusable entries of sources.
    pub problems: usize,
}

/// State shared by the handles and tasks of a fleet.
pub(crate) struct Core {
    options: FleetOptions,
    /// The options of every cluster.
    cluster: Arc<ClusterOptions>,
    members: ArcSwap<Members>,
    /// The registry. Its lock is held while members change, and never across an await.
    ledger: Mutex<Ledger>,
    unread: watch::Sender<Unread>,
    /// Numbers of the links to all its clusters.
    ways: Ways,
    news: News,
    /// Cancelled to stop the sources.
    sources_stop: CancellationToken,
    /// Cancelled to stop the keeper.
    keeper_stop: CancellationToken,
    /// Cancelled to stop the clusters.
    stop: CancellationToken,
    sources: TaskTracker,
    keepers: TaskTracker,
    tasks: TaskTracker,
}

/// The sources that have never listed their clusters.
struct Unread {
    count: usize,
    /// The time at which the latest source was added.
    since: Instant,
}

/// Time for which the names of later sources wait until a source has listed its clusters.
const NAMES_WAIT: Duration = Duration::from_secs(10);

/// Limit on the keeper's final work.
const KEEPER_END: Duration = Duration::from_secs(10);

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
        let core = Arc::new(Core {
            cluster: Arc::new(options.cluster.clone()),
            options,
            members: ArcSwap::default(),
            ledger: Mutex::default(),
            unread: watch::Sender::new(Unread { count: 0, since: Instant::now() }),
            ways: Ways::default(),
            news: News::new(),
            sources_stop: all.child_token(),
            keeper_stop: all.child_token(),
            stop: all.child_token(),
            sources: TaskTracker::new(),
            keepers: TaskTracker::new(),
            tasks: TaskTracker::new(),
        });
        if let Some(keeper) = core.options.keeper.clone() {
            let inner = Self { core: core.clone(), _guard: None };
            core.keepers.spawn(keeper.run(inner, core.keeper_stop.clone()));
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
        let ledger = self.core.ledger.lock();
        self.get(name).filter(|cluster| ledger.is_trusted(cluster.id()))
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
        self.core.change(|ledger| ledger.list_own(id.clone(), Listed::up(spec)))?;
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
        self.core.change(|ledger| ledger.list_own(id.clone(), listed))?;
        self.follow(file);
        self.cluster(id.as_str())
    }

    /// Removes a cluster that was added by [`Fleet::join`]; returns whether there was one. Its data stays readable for
    /// [`FleetOptions::retain_removed`].
    pub fn leave(&self, id: &ClusterId, reason: impl Into<Arc<str>>) -> bool {
        let mut was_there = false;
        let left = self.core.change(|ledger| {
            let steps = ledger.unlist_own(id, reason.into());
            was_there = steps.is_some();
            steps.unwrap_or_default()
        });
        left.is_ok() && was_there
    }

    /// Follows a source of clusters until the fleet is shut down. If two sources list the same name, the cluster of the
    /// source that was followed first has it. The other gets a hash of its origin appended. A cluster keeps its name
    /// while it is listed. If a name later belongs to another cluster, or to another place of its source
    /// ([`Listed::origin`]), no data of the earlier cluster is shown as its own ([`Cluster::replaces`]).
    pub fn follow(&self, source: impl Source) {
        let core = &self.core;
        let number = {
            let mut ledger = core.ledger.lock();
            let number = ledger.add_source(source.name(), source.is_trusted());
            core.unread.send_replace(Unread { count: ledger.unread(), since: Instant::now() });
            number
        };
        let roster = Roster::new(Arc::downgrade(core), number);
        let running = Box::new(source).run(roster, core.sources_stop.clone());
        let stop = core.sources_stop.clone();
        core.sources.spawn(async move {
            stop.run_until_cancelled(running).await;
        });
        let (core, stop) = (Arc::downgrade(core), core.sources_stop.clone());
        self.core.sources.spawn(async move {
            let waited = stop.run_until_cancelled(tokio::time::sleep(NAMES_WAIT)).await;
            if let (Some(()), Some(core)) = (waited, core.upgrade()) {
                // Fails only at shutdown.
                let _ = core.change(|ledger| ledger.stop_waiting(number));
            }
        });
    }

    /// Returns the number of sources that have never listed their clusters. While it is not zero, clusters may be
    /// missing, and an unknown name does not prove that there is no such cluster. Waits for them up to `patience`,
    /// counted from when the latest one was followed.
    pub async fn unread_sources(&self, patience: Duration) -> usize {
        let mut unread = self.core.unread.subscribe();
        let left = patience.saturating_sub(unread.borrow().since.elapsed());
        let _ = timeout(left, unread.wait_for(|unread| unread.count == 0)).await;
        unread.borrow().count
    }

    /// Returns a stream of changes, beginning with the present clusters.
    pub fn changes(&self) -> Changes {
        Changes::new(self.core.clone())
    }

    /// Returns unusable entries of sources, and sources that cannot list their clusters.
    pub fn problems(&self) -> Vec<SourceProblem> {
        self.core.ledger.lock().problems()
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

    /// Stops all lists and watches, so that nothing in memory changes any more: watchers then see the last state of this
    /// process. Requests are still passed through. Servers whose watchers resume after a restart call this before
    /// [`Fleet::shutdown`]. Returns whether it completed within `limit`.
    pub async fn freeze(&self, limit: Duration) -> bool {
        let members = self.members();
        let freezes = members.values().map(|cluster| cluster.unit.freeze(limit));
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
        let ends = members.values().map(|cluster| cluster.unit.shutdown(left()));
        complete &= futures::future::join_all(ends).await.into_iter().all(|complete| complete);
        complete &= timeout(left(), core.tasks.wait()).await.is_ok();
        // Nothing changes any more: the keeper saves the last state that any watcher has seen.
        core.keeper_stop.cancel();
        core.keepers.close();
        complete &= timeout(left().min(KEEPER_END), core.keepers.wait()).await.is_ok();
        core.news.tell();
        complete
    }
}

impl Core {
    pub(crate) fn publish(self: &Arc<Self>, number: SourceNumber, listed: BTreeMap<ClusterId, Listed>) {
        // After shutdown the error is of no use to a source that is ending.
        let _ = self.change(|ledger| ledger.list(number, listed));
        // The members come first. Counting and notifying share one lock, so that an older count never comes last.
        let ledger = self.ledger.lock();
        let count = ledger.unread();
        self.unread.send_if_modified(|unread| std::mem::replace(&mut unread.count, count) != count);
    }

    pub(crate) fn publish_own(self: &Arc<Self>, id: &ClusterId, listed: Listed) {
        // As above.
        let _ = self.change(|ledger| ledger.list_own(id.clone(), listed));
    }

    pub(crate) fn trouble(self: &Arc<Self>, number: SourceNumber, trouble: Option<Arc<str>>) {
        // As above.
        let _ = self.change(|ledger| ledger.trouble(number, trouble));
    }

    /// Changes the registry, and applies the resulting steps to the members. Short, and never waits.
    fn change(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Ledger) -> Vec<(ClusterId, Step)>,
    ) -> Result<(), FleetError> {
        let mut ledger = self.ledger.lock();
        if self.stop.is_cancelled() {
            return Err(FleetError::Closed);
        }
        let steps = change(&mut ledger);
        if steps.is_empty() {
            return Ok(());
        }
        let mut members = Members::clone(&self.members.load());
        let mut joined = false;
        for (id, step) in steps {
            let present = members.0.get(&id).filter(|cluster| !cluster.unit.left.is_cancelled());
            match (step, present.cloned()) {
                (Step::Put { listed, before }, Some(cluster)) => update(&cluster, &listed, before.as_ref()),
                (Step::Put { listed, .. }, None) => {
                    let cluster = self.new_cluster(id.clone(), listed, false);
                    members.0.insert(id, cluster);
                    joined = true;
                }
                (Step::Replace { listed, reason }, present) => {
                    // The data of a cluster that left can still be read.
                    let replaces = members.0.contains_key(&id);
                    if let Some(cluster) = present {
                        self.retire(&cluster, reason, Ended::Replaced);
                    }
                    let cluster = self.new_cluster(id.clone(), listed, replaces);
                    members.0.insert(id, cluster);
                    joined = true;
                }
                (Step::Take { reason }, Some(cluster)) => self.retire(&cluster, reason, Ended::Removed),
                (Step::Take { .. }, None) => {}
            }
        }
        if joined {
            self.members.store(Arc::new(members));
            self.news.tell();
        }
        Ok(())
    }

    fn new_cluster(&self, id: ClusterId, listed: Listed, replaces: bool) -> Cluster {
        let unit = Unit::start(UnitParts {
            id,
            labels: listed.labels,
            listed_as: ListedAs { name: listed.name, kubeconfig: listed.kubeconfig },
            spec: listed.spec,
            options: self.cluster.clone(),
            connector: self.options.connector.clone(),
            keeper: self.options.keeper.clone(),
            replaces,
            ways: self.ways.clone(),
            news: self.news.clone(),
            stop: self.stop.child_token(),
        });
        let cluster = Cluster::of(unit);
        if let Standing::Paused(paused) = listed.standing {
            cluster.pause(paused);
        }
        cluster
    }

    /// Makes a cluster leave; its data is retained for a while.
    fn retire(self: &Arc<Self>, cluster: &Cluster, reason: Arc<str>, ended: Ended) {
        cluster.unit.leave(reason, ended);
        let (core, unit) = (Arc::downgrade(self), cluster.unit.clone());
        let (stop, retain) = (self.stop.clone(), self.options.retain_removed);
        self.tasks.spawn(async move {
            if stop.run_until_cancelled(tokio::time::sleep(retain)).await.is_none() {
                return;
            }
            let Some(core) = core.upgrade() else { return };
            let still = core.forget(&unit);
            unit.shutdown(unit.options.shutdown_limit).await;
            // The cluster may have come back while it ended.
            let gone = still && !core.members.load().contains_key(unit.id.as_str());
            if let Some(keeper) = core.options.keeper.clone().filter(|_| gone) {
                let forgetting = tokio::time::timeout(KEEPER_END, keeper.forgotten(&unit.id));
                stop.run_until_cancelled(forgetting).await;
            }
        });
    }

    /// Removes a cluster from the members, unless another one has its name by now.
    fn forget(&self, unit: &Arc<Unit>) -> bool {
        let mut ledger = self.ledger.lock();
        let members = self.members.load();
        if !members.get(unit.id.as_str()).is_some_and(|cluster| Arc::ptr_eq(&cluster.unit, unit)) {
            return false;
        }
        let mut members = Members::clone(&members);
        members.0.remove(&unit.id);
        ledger.forget(&unit.id);
        self.members.store(Arc::new(members));
        self.news.tell();
        true
    }
}

fn update(cluster: &Cluster, listed: &Listed, before: Option<&Standing>) {
    cluster.unit.set_labels(&listed.labels);
    cluster.unit.set_listed_as(ListedAs { name: listed.name.clone(), kubeconfig: listed.kubeconfig.clone() });
    cluster.unit.redirect(listed.spec.clone());
    if before == Some(&listed.standing) {
        return;
    }
    match &listed.standing {
        Standing::Paused(paused) => cluster.pause(paused.clone()),
        Standing::Starting => cluster.unit.resume(false),
        Standing::Up => {
            cluster.unit.resume(true);
            // A wake helps a cluster that was not paused, too: its pods have just become ready.
            cluster.wake();
        }
    }
}

impl Deref for Members {
    type Target = BTreeMap<ClusterId, Cluster>;

    fn deref(&self) -> &Self::Target {
        &self.0
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
