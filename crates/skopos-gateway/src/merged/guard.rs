//! Watches that end before their time: because a right is gone, or because what follows cannot be told.

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

/// The clusters that a request sees. A watch may come to see more, and to see nothing new of some for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(Arc<ArcSwap<Seen>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    shown: Arc<BTreeSet<ClusterId>>,
    /// Nobody can be asked whether they may still be shown.
    held: BTreeMap<ClusterId, Held>,
}

/// Since when a cluster is not shown, and whether something was passed over that had come before.
#[derive(Clone, Debug)]
struct Held {
    since: Mark,
    passed_over: Arc<AtomicBool>,
}

/// What looks after a watch while it is open.
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
    /// The clusters of which it is decided whether the watch sees them.
    pub(crate) considered: Vec<Cluster>,
    /// Members that vanished since the watch was found good.
    pub(crate) vanished: Receiver<ClusterId>,
    pub(crate) draining: CancellationToken,
}

/// How long a cluster that cannot be asked is left alone, unless it changes.
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

    /// Whether a watch may be told of this object. Of a cluster that is held back it is told nothing at all: whoever could be
    /// told of an old state and not of the new one would take the object for deleted.
    pub(crate) fn permits(&self, item: &MergedItem) -> bool {
        let seen = self.0.load();
        if let Some(held) = seen.held.get(item.cluster()).filter(|held| item.mark() <= held.since) {
            held.passed_over.store(true, Ordering::Relaxed);
        }
        seen.shown.contains(item.cluster())
    }

    /// Those that it sees.
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

    /// It had nothing to show.
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
    /// Ends when the watch has to: with what to tell the client, or (`None`) in order.
    pub(crate) async fn end(mut self) -> Option<Status> {
        let draining = self.draining.clone();
        let mut rights = FuturesUnordered::new();
        for id in self.sight.all().iter() {
            rights.push(self.revoked(id));
        }
        let mut changes = self.fleet.changes();
        // At most one question at once, and one for later, of each cluster.
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

    /// Ends when the cluster no longer says that it may be shown.
    fn revoked(&self, id: &ClusterId) -> BoxFuture<'static, Answer> {
        let (authorizer, id) = (self.authorizer.clone(), id.clone());
        let (who, what) = (self.who.clone(), self.what.clone());
        async move {
            let decision = authorizer.unconfirmed(id.as_str(), &who, &what).await;
            Answer { id, decision, asked: None }
        }
        .boxed()
    }

    /// Asks a cluster.
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

    /// Whether the watch has told anything of a cluster.
    fn concerns(&self, id: &ClusterId) -> bool {
        self.sight.sees(id) || self.sight.held(id).is_some()
    }

    /// A cluster is new, stands otherwise, or its labels are others.
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
            // Another one has the name, and has said nothing yet.
            self.hold(id);
        }
        match is_new || self.sight.held(id).is_some() {
            true => Next::Ask(id.clone(), Duration::ZERO),
            false => Next::Nothing,
        }
    }

    /// A cluster is none any more of those that are asked for.
    fn unwanted(&mut self, id: &ClusterId) -> Next {
        if self.history.with_content(id, |has_content| has_content) {
            return OTHERS;
        }
        self.sight.hide(id);
        self.considered.retain(|cluster| cluster.id() != id);
        Next::Nothing
    }

    /// A cluster said whether it may be shown, or could not be asked.
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

    /// Nobody can be asked: nothing is shown of what comes after now. What was shown is not taken back.
    fn hold(&self, id: &ClusterId) {
        let now = self.history.view().mark;
        self.sight.hold(id, now);
        self.sights.hold(self.question, id, now);
    }

    /// It may be shown again, or another that has its name.
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

    /// It was not shown so far.
    fn consider(&mut self, id: ClusterId, allowed: bool) -> Next {
        let Some(cluster) = self.fleet.get(id.as_str()) else { return Next::Nothing };
        // Its labels are nobody's business who may not read it.
        let wanted = allowed && self.wanted.wants(&cluster);
        if (wanted || !allowed) && !self.considered.contains(&cluster) {
            self.considered.push(cluster);
        }
        if !wanted {
            return Next::Nothing;
        }
        let (history, sight) = (&self.history, &self.sight);
        history.with_content(&id, |has_content| {
            // Before readers were let in, content is not told to those who watch already.
            if has_content || !history.is_open() {
                return OTHERS;
            }
            // Nothing of it was passed over: it comes as it comes.
            sight.show(&id);
            self.sights.join(self.question, &id);
            Next::Shown(id.clone())
        })
    }
}

/// What was decided of a cluster.
struct Answer {
    id: ClusterId,
    decision: Decision,
    /// How long it was waited for before it was asked; `None`: it was shown until now.
    asked: Option<Duration>,
}

/// What is to be done next.
enum Next {
    Nothing,
    Ask(ClusterId, Duration),
    Shown(ClusterId),
    End(&'static str),
}

const OTHERS: Next = Next::End("the clusters that are asked for are others now: list anew");
