//! Watches that end before their time: because a right is gone, or because what follows cannot be told.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use skopos_fleet::{Cluster, ClusterId, Fleet, FleetChange};
use skopos_wire::Status;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::sights::{Question, Sights};
use super::standing::Wanted;
use crate::auth::Identity;
use crate::authz::{Attributes, Authorizer};

/// The clusters that a request sees. A watch may come to see more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(Arc<ArcSwap<std::collections::BTreeSet<ClusterId>>>);

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

// === impl Sight ===

impl Sight {
    pub(crate) fn new(clusters: impl IntoIterator<Item = ClusterId>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(clusters.into_iter().collect())))
    }

    pub(crate) fn sees(&self, cluster: &ClusterId) -> bool {
        self.0.load().contains(cluster)
    }

    pub(crate) fn all(&self) -> Arc<std::collections::BTreeSet<ClusterId>> {
        self.0.load_full()
    }

    fn add(&self, cluster: &ClusterId) {
        self.0.rcu(|seen| {
            let mut seen = (**seen).clone();
            seen.insert(cluster.clone());
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
            rights.push(revoked(self.authorizer.clone(), id.clone(), self.who.clone(), self.what.clone()));
        }
        let mut changes = self.fleet.changes();
        loop {
            tokio::select! {
                () = draining.cancelled() => return None,
                Some(()) = rights.next(), if !rights.is_empty() => {
                    return Some(Status::expired("what you may read has changed: list anew"));
                }
                gone = self.vanished.recv() => match gone {
                    Ok(id) if !self.sight.sees(&id) => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => {
                        return Some(Status::expired(
                            "the objects of a cluster that left the fleet are no longer kept: list anew",
                        ));
                    }
                    Err(RecvError::Closed) => return None,
                },
                change = changes.next() => match change {
                    None => return None,
                    Some(FleetChange::Added(cluster) | FleetChange::Changed(cluster)) => {
                        match self.look_at(cluster).await {
                            Look::Nothing => {}
                            Look::Seen(id) => {
                                rights.push(revoked(
                                    self.authorizer.clone(), id, self.who.clone(), self.what.clone(),
                                ));
                            }
                            Look::Anew => {
                                return Some(Status::expired(
                                    "the clusters that are asked for are others now: list anew",
                                ));
                            }
                        }
                    }
                    Some(_) => {}
                },
            }
        }
    }

    /// A cluster is new, or its labels are.
    async fn look_at(&mut self, cluster: Cluster) -> Look {
        let id = cluster.id().clone();
        let seen = self.sight.sees(&id);
        if !seen {
            if !self.wanted.names(&cluster) || self.considered.contains(&cluster) {
                return Look::Nothing;
            }
            // Before its labels are looked at: they are nobody's business who may not read it.
            let allowed = self.authorizer.decide(id.as_str(), &self.who, &self.what).await.allowed;
            if !allowed || self.wanted.wants(&cluster) {
                self.considered.push(cluster.clone());
            }
            if !allowed {
                return Look::Nothing;
            }
        }
        let wanted = self.wanted.wants(&cluster);
        if wanted == seen {
            return Look::Nothing;
        }
        let sight = &self.sight;
        self.history.with_content(&id, |has_content| match has_content {
            // Before readers were let in, content is not told to those who watch already.
            false if wanted && !self.history.is_open() => Look::Anew,
            // Nothing of it was passed over: it comes as it comes.
            false if wanted => {
                sight.add(&id);
                self.sights.join(self.question, &id);
                Look::Seen(id.clone())
            }
            false => Look::Nothing,
            true => Look::Anew,
        })
    }
}

/// What a change of the fleet means for a watch.
enum Look {
    Nothing,
    Seen(ClusterId),
    Anew,
}

async fn revoked(authorizer: Authorizer, id: ClusterId, who: Arc<Identity>, what: Attributes) {
    authorizer.revoked(id.as_str(), &who, &what).await;
}
