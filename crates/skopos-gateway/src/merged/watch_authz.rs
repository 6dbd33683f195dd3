//! Watches that end early: because a permission is revoked, or because the next event cannot be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use skopos_fleet::{Cluster, ClusterId, Fleet, FleetChange};
use skopos_wire::Status;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::item::MergedItem;
use super::merged_version::MergedVersion;
use super::request::AccessReview;
use super::visibility_log::{QueryKey, VisibilityLog};
use crate::authz::{Authorizer, Decision};

/// The clusters that a request sees. A watch may gain clusters, and may be suspended for some of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisibleClusters(Arc<ArcSwap<Visibility>>);

#[derive(Clone, Debug, Default)]
struct Visibility {
    shown: Arc<BTreeSet<ClusterId>>,
    /// The clusters on suspension: their permission cannot be checked now.
    suspended: BTreeMap<ClusterId, Suspension>,
}

/// The suspension of a cluster: its start, and whether an earlier event was skipped.
#[derive(Clone, Debug)]
struct Suspension {
    since: MergedVersion,
    skipped_event: Arc<AtomicBool>,
}

/// Supervisor of one open watch.
pub(crate) struct WatchAuthorizer {
    pub(crate) fleet: Fleet,
    pub(crate) authorizer: Authorizer,
    pub(crate) history: Arc<History>,
    pub(crate) review: Arc<AccessReview>,
    pub(crate) visible: VisibleClusters,
    pub(crate) visibility_log: Arc<VisibilityLog>,
    pub(crate) query_key: QueryKey,
    /// The clusters for which the visibility is decided.
    pub(crate) considered: Vec<Cluster>,
    /// Members that vanished since the watch was accepted.
    pub(crate) vanished: Receiver<ClusterId>,
    pub(crate) draining: CancellationToken,
}

/// Delay until a cluster is asked again after a failed check, unless it changes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

impl VisibleClusters {
    pub(crate) fn new(clusters: impl IntoIterator<Item = ClusterId>) -> Self {
        let shown = Arc::new(clusters.into_iter().collect());
        Self(Arc::new(ArcSwap::from_pointee(Visibility { shown, suspended: BTreeMap::new() })))
    }

    pub(crate) fn contains(&self, cluster: &ClusterId) -> bool {
        self.0.load().shown.contains(cluster)
    }

    /// Returns whether a watch may get this object. It gets nothing at all of a suspended cluster: with an old state and
    /// without the new one, the client would take the object for deleted.
    pub(crate) fn permits(&self, item: &MergedItem) -> bool {
        let visibility = self.0.load();
        if let Some(suspension) = visibility
            .suspended
            .get(item.cluster())
            .filter(|suspension| item.merged_version() <= suspension.since)
        {
            suspension.skipped_event.store(true, Ordering::Relaxed);
        }
        visibility.shown.contains(item.cluster())
    }

    /// Returns the clusters that it sees.
    pub(crate) fn all(&self) -> Arc<BTreeSet<ClusterId>> {
        self.0.load().shown.clone()
    }

    fn suspension(&self, cluster: &ClusterId) -> Option<Suspension> {
        self.0.load().suspended.get(cluster).cloned()
    }

    fn show(&self, cluster: &ClusterId) {
        self.edit(|visibility| {
            Arc::make_mut(&mut visibility.shown).insert(cluster.clone());
            visibility.suspended.remove(cluster);
        });
    }

    fn suspend(&self, cluster: &ClusterId, at: MergedVersion) {
        self.edit(|visibility| {
            Arc::make_mut(&mut visibility.shown).remove(cluster);
            visibility
                .suspended
                .insert(cluster.clone(), Suspension { since: at, skipped_event: Arc::default() });
        });
    }

    /// Hides a cluster that had no content.
    fn hide(&self, cluster: &ClusterId) {
        self.edit(|visibility| {
            Arc::make_mut(&mut visibility.shown).remove(cluster);
            visibility.suspended.remove(cluster);
        });
    }

    fn edit(&self, edit: impl Fn(&mut Visibility)) {
        self.0.rcu(|visibility| {
            let mut visibility = Visibility::clone(visibility);
            edit(&mut visibility);
            visibility
        });
    }
}

impl WatchAuthorizer {
    /// Waits until the watch must end. Returns the status for the client, or `None` for a normal end.
    pub(crate) async fn wait_for_end(mut self) -> Option<Status> {
        let draining = self.draining.clone();
        let mut rights = FuturesUnordered::new();
        for id in self.visible.all().iter() {
            rights.push(self.decide(id.clone(), None));
        }
        let mut changes = self.fleet.changes();
        // At most one immediate and one delayed check per cluster.
        let mut asking = BTreeSet::new();
        loop {
            let next = tokio::select! {
                () = draining.cancelled() => return None,
                Some(answer) = rights.next(), if !rights.is_empty() => {
                    let ClusterDecision { id, decision, asked } = answer;
                    asked.map(|after| asking.remove(&(id.clone(), after)));
                    self.on_decision(id, &decision)
                }
                gone = self.vanished.recv() => match gone {
                    Ok(id) if !self.concerns(&id) => Action::Nothing,
                    Ok(_) | Err(RecvError::Lagged(_)) => {
                        Action::End("the objects of a cluster are no longer cached: list again")
                    }
                    Err(RecvError::Closed) => return None,
                },
                change = changes.next() => match change {
                    None => return None,
                    Some(FleetChange::Added(cluster) | FleetChange::Changed(cluster)) => self.on_cluster_changed(&cluster),
                    Some(_) => Action::Nothing,
                },
            };
            match next {
                Action::Nothing => {}
                Action::Ask(id, after) => {
                    if asking.insert((id.clone(), after)) {
                        rights.push(self.decide(id, Some(after)));
                    }
                }
                Action::Shown(id) => rights.push(self.decide(id, None)),
                Action::End(why) => return Some(Status::expired(why)),
            }
        }
    }

    /// Waits until the cluster no longer confirms the permission, or asks it for a decision after a delay.
    fn decide(&self, id: ClusterId, asked: Option<Duration>) -> BoxFuture<'static, ClusterDecision> {
        let (authorizer, review) = (self.authorizer.clone(), self.review.clone());
        async move {
            let AccessReview { who, what, .. } = &*review;
            let decision = match asked {
                None => authorizer.unconfirmed(id.as_str(), who, what).await,
                Some(after) => {
                    sleep(after).await;
                    authorizer.decide(id.as_str(), who, what).await
                }
            };
            ClusterDecision { id, decision, asked }
        }
        .boxed()
    }

    /// Returns whether the watch may have sent events of a cluster.
    fn concerns(&self, id: &ClusterId) -> bool {
        self.visible.contains(id) || self.visible.suspension(id).is_some()
    }

    /// Handles a new cluster, or one whose state or labels changed.
    fn on_cluster_changed(&mut self, cluster: &Cluster) -> Action {
        let id = cluster.id();
        if self.concerns(id) && !self.review.clusters.matches(cluster) {
            return self.on_deselected(id);
        }
        if !self.review.clusters.names(cluster) {
            return Action::Nothing;
        }
        let is_new = !self.considered.contains(cluster);
        if is_new && self.visible.contains(id) {
            // Another cluster has the name, and has not confirmed the permission yet.
            self.suspend(id);
        }
        match is_new || self.visible.suspension(id).is_some() {
            true => Action::Ask(id.clone(), Duration::ZERO),
            false => Action::Nothing,
        }
    }

    /// Handles a cluster that no longer matches the request's selection.
    fn on_deselected(&mut self, id: &ClusterId) -> Action {
        if self.history.with_content(id, |has_content| has_content) {
            return SELECTION_CHANGED;
        }
        self.visible.hide(id);
        self.considered.retain(|cluster| cluster.id() != id);
        Action::Nothing
    }

    /// Handles a cluster's decision on the permission, or its failure to decide.
    fn on_decision(&mut self, id: ClusterId, decision: &Decision) -> Action {
        let shown = self.visible.contains(&id);
        let suspension = self.visible.suspension(&id);
        if decision.is_undecided() {
            if shown {
                self.suspend(&id);
            }
            return Action::Ask(id, RETRY_DELAY);
        }
        match (decision.allowed, shown, suspension) {
            (true, true, _) => Action::Nothing,
            (true, false, Some(suspension)) => self.resume(id, &suspension),
            (allowed, false, None) => self.on_new_cluster(id, allowed),
            (false, ..) => Action::End("your access has changed: list again"),
        }
    }

    /// Suspends a cluster whose permission cannot be checked. The watch gets no later changes; what it got stays.
    fn suspend(&self, id: &ClusterId) {
        let now = self.history.view().merged_version;
        self.visible.suspend(id, now);
        self.visibility_log.suspend(self.query_key, id, now);
    }

    /// Resumes a suspended cluster, or another one with its name.
    fn resume(&mut self, id: ClusterId, suspension: &Suspension) -> Action {
        let now = self.fleet.get(id.as_str()).filter(|cluster| !self.considered.contains(cluster));
        self.considered.extend(now);
        let (visible, visibility_log) = (&self.visible, &self.visibility_log);
        self.history.with_changes(&id, |changed| {
            if changed > suspension.since || suspension.skipped_event.load(Ordering::Relaxed) {
                return Action::End("a cluster that could not check your access has changed: list again");
            }
            visible.show(&id);
            visibility_log.resume(self.query_key, &id, changed);
            Action::Shown(id.clone())
        })
    }

    /// Handles a decision on a cluster that the watch does not include yet.
    fn on_new_cluster(&mut self, id: ClusterId, allowed: bool) -> Action {
        let Some(cluster) = self.fleet.get(id.as_str()) else { return Action::Nothing };
        // Labels are not revealed to a caller who may not read the cluster.
        let selection = allowed && self.review.clusters.matches(&cluster);
        if (selection || !allowed) && !self.considered.contains(&cluster) {
            self.considered.push(cluster);
        }
        if !selection {
            return Action::Nothing;
        }
        let (history, visible) = (&self.history, &self.visible);
        history.with_content(&id, |has_content| {
            // Before readers are let in, watches that are already open get no new content.
            if has_content || !history.is_open() {
                return SELECTION_CHANGED;
            }
            // No event was skipped, so later events are enough.
            visible.show(&id);
            self.visibility_log.join(self.query_key, &id);
            Action::Shown(id.clone())
        })
    }
}

/// A decision on a cluster.
struct ClusterDecision {
    id: ClusterId,
    decision: Decision,
    /// The delay before the check; `None` if the cluster was shown until now.
    asked: Option<Duration>,
}

/// The next action.
enum Action {
    Nothing,
    Ask(ClusterId, Duration),
    Shown(ClusterId),
    End(&'static str),
}

const SELECTION_CHANGED: Action = Action::End("the set of selected clusters changed: list again");
