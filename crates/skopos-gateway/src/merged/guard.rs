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
use super::mark::Mark;
use super::sights::{Question, Sights};
use super::standing::Wanted;
use crate::auth::Identity;
use crate::authz::{Attributes, Authorizer, Decision};

/// The clusters that a request sees. A watch may gain clusters, and may be suspended for some of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(Arc<ArcSwap<Seen>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    shown: Arc<BTreeSet<ClusterId>>,
    /// The clusters on suspension: their permission cannot be checked now.
    held: BTreeMap<ClusterId, Held>,
}

/// The suspension of a cluster: its start, and whether an earlier event was skipped.
#[derive(Clone, Debug)]
struct Held {
    since: Mark,
    passed_over: Arc<AtomicBool>,
}

/// Supervisor of one open watch.
pub(crate) struct Guard {
    pub(crate) fleet: Fleet,
    pub(crate) authorizer: Authorizer,
    pub(crate) history: Arc<History>,
    pub(crate) who: Arc<Identity>,
    pub(crate) what: Attributes,
    pub(crate) wanted: Wanted,
    pub(crate) sight: Sight,
    pub(crate) sights: Arc<Sights>,
    pub(crate) question: Question,
    /// The clusters for which the visibility is decided.
    pub(crate) considered: Vec<Cluster>,
    /// Members that vanished since the watch was accepted.
    pub(crate) vanished: Receiver<ClusterId>,
    pub(crate) draining: CancellationToken,
}

/// Delay until a cluster is asked again after a failed check, unless it changes.
const RETRY: Duration = Duration::from_secs(10);

// === impl Sight ===

impl Sight {
    pub(crate) fn new(clusters: impl IntoIterator<Item = ClusterId>) -> Self {
        let shown = Arc::new(clusters.into_iter().collect());
        Self(Arc::new(ArcSwap::from_pointee(Seen { shown, held: BTreeMap::new() })))
    }

    pub(crate) fn sees(&self, cluster: &ClusterId) -> bool {
        self.0.load().shown.contains(cluster)
    }

    /// Returns whether a watch may get this object. It gets nothing at all of a suspended cluster: with an old state and
    /// without the new one, the client would take the object for deleted.
    pub(crate) fn permits(&self, item: &MergedItem) -> bool {
        let seen = self.0.load();
        if let Some(held) = seen.held.get(item.cluster()).filter(|held| item.mark() <= held.since) {
            held.passed_over.store(true, Ordering::Relaxed);
        }
        seen.shown.contains(item.cluster())
    }

    /// Returns the clusters that it sees.
    pub(crate) fn all(&self) -> Arc<BTreeSet<ClusterId>> {
        self.0.load().shown.clone()
    }

    fn held(&self, cluster: &ClusterId) -> Option<Held> {
        self.0.load().held.get(cluster).cloned()
    }

    fn show(&self, cluster: &ClusterId) {
        self.edit(|seen| {
            Arc::make_mut(&mut seen.shown).insert(cluster.clone());
            seen.held.remove(cluster);
        });
    }

    fn hold(&self, cluster: &ClusterId, at: Mark) {
        self.edit(|seen| {
            Arc::make_mut(&mut seen.shown).remove(cluster);
            seen.held.insert(cluster.clone(), Held { since: at, passed_over: Arc::default() });
        });
    }

    /// Hides a cluster that had no content.
    fn hide(&self, cluster: &ClusterId) {
        self.edit(|seen| {
            Arc::make_mut(&mut seen.shown).remove(cluster);
            seen.held.remove(cluster);
        });
    }

    fn edit(&self, edit: impl Fn(&mut Seen)) {
        self.0.rcu(|seen| {
            let mut seen = Seen::clone(seen);
            edit(&mut seen);
            seen
        });
    }
}

// === impl Guard ===

impl Guard {
    /// Waits until the watch must end. Returns the status for the client, or `None` for a normal end.
    pub(crate) async fn end(mut self) -> Option<Status> {
        let draining = self.draining.clone();
        let mut rights = FuturesUnordered::new();
        for id in self.sight.all().iter() {
            rights.push(self.revoked(id));
        }
        let mut changes = self.fleet.changes();
        // At most one immediate and one delayed check per cluster.
        let mut asking = BTreeSet::new();
        loop {
            let next = tokio::select! {
                () = draining.cancelled() => return None,
                Some(answer) = rights.next(), if !rights.is_empty() => {
                    let Answer { id, decision, asked } = answer;
                    asked.map(|after| asking.remove(&(id.clone(), after)));
                    self.decided(id, &decision)
                }
                gone = self.vanished.recv() => match gone {
                    Ok(id) if !self.concerns(&id) => Next::Nothing,
                    Ok(_) | Err(RecvError::Lagged(_)) => {
                        Next::End("the objects of a cluster are no longer kept: list anew")
                    }
                    Err(RecvError::Closed) => return None,
                },
                change = changes.next() => match change {
                    None => return None,
                    Some(FleetChange::Added(cluster) | FleetChange::Changed(cluster)) => self.changed(&cluster),
                    Some(_) => Next::Nothing,
                },
            };
            match next {
                Next::Nothing => {}
                Next::Ask(id, after) => {
                    if asking.insert((id.clone(), after)) {
                        rights.push(self.ask(id, after));
                    }
                }
                Next::Shown(id) => rights.push(self.revoked(&id)),
                Next::End(why) => return Some(Status::expired(why)),
            }
        }
    }

    /// Waits until the cluster no longer confirms the permission.
    fn revoked(&self, id: &ClusterId) -> BoxFuture<'static, Answer> {
        let (authorizer, id) = (self.authorizer.clone(), id.clone());
        let (who, what) = (self.who.clone(), self.what.clone());
        async move {
            let decision = authorizer.unconfirmed(id.as_str(), &who, &what).await;
            Answer { id, decision, asked: None }
        }
        .boxed()
    }

    /// Asks a cluster for a decision, after a delay.
    fn ask(&self, id: ClusterId, after: Duration) -> BoxFuture<'static, Answer> {
        let authorizer = self.authorizer.clone();
        let (who, what) = (self.who.clone(), self.what.clone());
        async move {
            sleep(after).await;
            let decision = authorizer.decide(id.as_str(), &who, &what).await;
            Answer { id, decision, asked: Some(after) }
        }
        .boxed()
    }

    /// Returns whether the watch may have sent events of a cluster.
    fn concerns(&self, id: &ClusterId) -> bool {
        self.sight.sees(id) || self.sight.held(id).is_some()
    }

    /// Handles a new cluster, or one whose state or labels changed.
    fn changed(&mut self, cluster: &Cluster) -> Next {
        let id = cluster.id();
        if self.concerns(id) && !self.wanted.wants(cluster) {
            return self.unwanted(id);
        }
        if !self.wanted.names(cluster) {
            return Next::Nothing;
        }
        let is_new = !self.considered.contains(cluster);
        if is_new && self.sight.sees(id) {
            // Another cluster has the name, and has not confirmed the permission yet.
            self.hold(id);
        }
        match is_new || self.sight.held(id).is_some() {
            true => Next::Ask(id.clone(), Duration::ZERO),
            false => Next::Nothing,
        }
    }

    /// Handles a cluster that no longer matches the request's selection.
    fn unwanted(&mut self, id: &ClusterId) -> Next {
        if self.history.with_content(id, |has_content| has_content) {
            return OTHERS;
        }
        self.sight.hide(id);
        self.considered.retain(|cluster| cluster.id() != id);
        Next::Nothing
    }

    /// Handles a cluster's decision on the permission, or its failure to decide.
    fn decided(&mut self, id: ClusterId, decision: &Decision) -> Next {
        let shown = self.sight.sees(&id);
        let held = self.sight.held(&id);
        if decision.is_undecided() {
            if shown {
                self.hold(&id);
            }
            return Next::Ask(id, RETRY);
        }
        match (decision.allowed, shown, held) {
            (true, true, _) => Next::Nothing,
            (true, false, Some(held)) => self.regain(id, &held),
            (allowed, false, None) => self.consider(id, allowed),
            (false, ..) => Next::End("what you may read has changed: list anew"),
        }
    }

    /// Suspends a cluster whose permission cannot be checked. The watch gets no later changes; what it got stays.
    fn hold(&self, id: &ClusterId) {
        let now = self.history.view().mark;
        self.sight.hold(id, now);
        self.sights.hold(self.question, id, now);
    }

    /// Resumes a suspended cluster, or another one with its name.
    fn regain(&mut self, id: ClusterId, held: &Held) -> Next {
        let now = self.fleet.get(id.as_str()).filter(|cluster| !self.considered.contains(cluster));
        self.considered.extend(now);
        let (sight, sights) = (&self.sight, &self.sights);
        self.history.with_changes(&id, |changed| {
            if changed > held.since || held.passed_over.load(Ordering::Relaxed) {
                return Next::End("a cluster that could not be asked for your rights has changed: list anew");
            }
            sight.show(&id);
            sights.regain(self.question, &id, changed);
            Next::Shown(id.clone())
        })
    }

    /// Handles a decision on a cluster that the watch does not include yet.
    fn consider(&mut self, id: ClusterId, allowed: bool) -> Next {
        let Some(cluster) = self.fleet.get(id.as_str()) else { return Next::Nothing };
        // Labels are not revealed to a caller who may not read the cluster.
        let wanted = allowed && self.wanted.wants(&cluster);
        if (wanted || !allowed) && !self.considered.contains(&cluster) {
            self.considered.push(cluster);
        }
        if !wanted {
            return Next::Nothing;
        }
        let (history, sight) = (&self.history, &self.sight);
        history.with_content(&id, |has_content| {
            // Before readers are let in, watches that are already open get no new content.
            if has_content || !history.is_open() {
                return OTHERS;
            }
            // No event was skipped, so later events are enough.
            sight.show(&id);
            self.sights.join(self.question, &id);
            Next::Shown(id.clone())
        })
    }
}

/// A decision on a cluster.
struct Answer {
    id: ClusterId,
    decision: Decision,
    /// The delay before the check; `None` if the cluster was shown until now.
    asked: Option<Duration>,
}

/// The next action.
enum Next {
    Nothing,
    Ask(ClusterId, Duration),
    Shown(ClusterId),
    End(&'static str),
}

const OTHERS: Next = Next::End("the clusters that are asked for are others now: list anew");
