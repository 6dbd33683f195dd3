//! State shared by the handles and tasks of a fleet: its members, and the registry that they follow from.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::registry::{Registry, Step};
use crate::change_signal::ChangeSignal;
use crate::cluster::{
    self, Cluster, ClusterInner, ClusterOptions, ClusterParts, Connector, Generations, ListedAs, Persistence,
    StopReason,
};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::incident::Incidents;
use crate::source::{DiscoveredCluster, PowerState, Publish, SourceNumber};

/// Members of a fleet at one moment, by name. Clusters that have left are included while their data is retained.
#[derive(Clone, Debug, Default)]
pub struct Members(BTreeMap<ClusterId, Cluster>);

/// State shared by the handles and tasks of a fleet.
pub(crate) struct Core {
    /// The options of every cluster.
    cluster_options: Arc<ClusterOptions>,
    connector: Connector,
    persistence: Option<Arc<dyn Persistence>>,
    retain_removed: Duration,
    pub(super) members: ArcSwap<Members>,
    /// The registry. Its lock is held while members change, and never across an await.
    pub(super) registry: Mutex<Registry>,
    pub(super) unread: watch::Sender<Unread>,
    /// Numbers of the connections to all its clusters.
    generations: Generations,
    pub(super) changes: ChangeSignal,
    pub(super) incidents: Incidents,
    /// Cancelled to stop the sources.
    pub(super) sources_stop: CancellationToken,
    /// Cancelled to stop the checkpoint task.
    pub(super) checkpoint_stop: CancellationToken,
    /// Cancelled to stop the clusters.
    pub(super) stop: CancellationToken,
    pub(super) sources: TaskTracker,
    pub(super) checkpoint_tasks: TaskTracker,
    pub(super) tasks: TaskTracker,
}

/// The sources that have never listed their clusters.
pub(super) struct Unread {
    pub(super) count: usize,
    /// The time at which the latest source was added.
    pub(super) since: Instant,
}

/// Limit on the checkpoint task's final work, and on deleting the checkpoints of a removed cluster.
pub(super) const CHECKPOINT_END_TIMEOUT: Duration = Duration::from_secs(10);

impl Core {
    /// Creates a fleet without clusters. Its tasks end when `all` is cancelled.
    pub(super) fn new(
        cluster_options: ClusterOptions,
        connector: Connector,
        persistence: Option<Arc<dyn Persistence>>,
        retain_removed: Duration,
        all: &CancellationToken,
    ) -> Self {
        Self {
            cluster_options: Arc::new(cluster_options),
            connector,
            persistence,
            retain_removed,
            members: ArcSwap::default(),
            registry: Mutex::default(),
            unread: watch::Sender::new(Unread { count: 0, since: Instant::now() }),
            generations: Generations::default(),
            changes: ChangeSignal::new(),
            incidents: Incidents::default(),
            sources_stop: all.child_token(),
            checkpoint_stop: all.child_token(),
            stop: all.child_token(),
            sources: TaskTracker::new(),
            checkpoint_tasks: TaskTracker::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Changes the registry, and applies the resulting steps to the members. Short, and never waits.
    pub(super) fn change(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Registry) -> Vec<(ClusterId, Step)>,
    ) -> Result<(), FleetError> {
        let mut registry = self.registry.lock();
        if self.stop.is_cancelled() {
            return Err(FleetError::Closed);
        }
        let steps = change(&mut registry);
        if steps.is_empty() {
            return Ok(());
        }
        let mut members = Members::clone(&self.members.load());
        let mut joined = false;
        for (id, step) in steps {
            let present = members.0.get(&id).filter(|cluster| !cluster.inner.left.is_cancelled());
            match (step, present.cloned()) {
                (Step::Put { listed, before }, Some(cluster)) => update(&cluster, &listed, before.as_ref()),
                (Step::Put { listed, .. }, None) => {
                    let cluster = self.new_cluster(id.clone(), listed, false);
                    members.0.insert(id, cluster);
                    joined = true;
                }
                (Step::Replace { listed, reason }, present) => {
                    // The data of a cluster that left can still be read.
                    let is_replacement = members.0.contains_key(&id);
                    if let Some(cluster) = present {
                        self.retire(&cluster, reason, StopReason::Replaced);
                    }
                    let cluster = self.new_cluster(id.clone(), listed, is_replacement);
                    members.0.insert(id, cluster);
                    joined = true;
                }
                (Step::Take { reason }, Some(cluster)) => self.retire(&cluster, reason, StopReason::Removed),
                (Step::Take { .. }, None) => {}
            }
        }
        if joined {
            self.members.store(Arc::new(members));
            self.changes.notify();
        }
        Ok(())
    }

    fn new_cluster(&self, id: ClusterId, listed: DiscoveredCluster, is_replacement: bool) -> Cluster {
        let inner = cluster::start(ClusterParts {
            id,
            labels: listed.labels,
            listed_as: ListedAs { name: listed.name, kubeconfig: listed.kubeconfig },
            spec: listed.spec,
            options: self.cluster_options.clone(),
            connector: self.connector.clone(),
            persistence: self.persistence.clone(),
            is_replacement,
            generations: self.generations.clone(),
            changes: self.changes.clone(),
            incidents: self.incidents.clone(),
            stop: self.stop.child_token(),
        });
        let cluster = Cluster::from_inner(inner);
        if let PowerState::Paused(paused) = listed.power_state {
            cluster.pause(paused);
        }
        cluster
    }

    /// Makes a cluster leave; its data is retained for a while.
    fn retire(self: &Arc<Self>, cluster: &Cluster, reason: Arc<str>, ended: StopReason) {
        cluster.inner.leave(reason, ended);
        let (core, inner) = (Arc::downgrade(self), cluster.inner.clone());
        let (stop, retain) = (self.stop.clone(), self.retain_removed);
        self.tasks.spawn(async move {
            if stop.run_until_cancelled(tokio::time::sleep(retain)).await.is_none() {
                return;
            }
            let Some(core) = core.upgrade() else { return };
            let still = core.forget(&inner);
            inner.shutdown(inner.options.shutdown_limit).await;
            // The cluster may have come back while it ended.
            let gone = still && !core.members.load().contains_key(inner.id.as_str());
            if let Some(persistence) = core.persistence.clone().filter(|_| gone) {
                let deleting = tokio::time::timeout(CHECKPOINT_END_TIMEOUT, persistence.delete(&inner.id));
                stop.run_until_cancelled(deleting).await;
            }
        });
    }

    /// Removes a cluster from the members, unless another one has its name by now.
    fn forget(&self, inner: &Arc<ClusterInner>) -> bool {
        let mut registry = self.registry.lock();
        let members = self.members.load();
        if !members.get(inner.id.as_str()).is_some_and(|cluster| Arc::ptr_eq(&cluster.inner, inner)) {
            return false;
        }
        let mut members = Members::clone(&members);
        members.0.remove(&inner.id);
        registry.forget(&inner.id);
        self.members.store(Arc::new(members));
        self.changes.notify();
        true
    }
}

impl Publish for Core {
    fn publish(self: Arc<Self>, number: SourceNumber, listed: BTreeMap<ClusterId, DiscoveredCluster>) {
        // After shutdown the error is of no use to a source that is ending.
        let _ = self.change(|registry| registry.list(number, listed));
        // The members come first. Counting and notifying share one lock, so that an older count never comes last.
        let registry = self.registry.lock();
        let count = registry.unread();
        self.unread.send_if_modified(|unread| std::mem::replace(&mut unread.count, count) != count);
    }

    fn publish_own(self: Arc<Self>, id: &ClusterId, listed: DiscoveredCluster) {
        // As above.
        let _ = self.change(|registry| registry.list_own(id.clone(), listed));
    }

    fn trouble(self: Arc<Self>, number: SourceNumber, trouble: Option<Arc<str>>) {
        // As above.
        let _ = self.change(|registry| registry.trouble(number, trouble));
    }
}

fn update(cluster: &Cluster, listed: &DiscoveredCluster, before: Option<&PowerState>) {
    cluster.inner.set_labels(&listed.labels);
    cluster
        .inner
        .set_listed_as(ListedAs { name: listed.name.clone(), kubeconfig: listed.kubeconfig.clone() });
    cluster.inner.redirect(listed.spec.clone());
    if before == Some(&listed.power_state) {
        return;
    }
    match &listed.power_state {
        PowerState::Paused(paused) => cluster.pause(paused.clone()),
        PowerState::Starting => cluster.inner.resume(false),
        PowerState::Up => {
            cluster.inner.resume(true);
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
