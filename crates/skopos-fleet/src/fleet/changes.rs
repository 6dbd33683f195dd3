//! Stream of changes of a fleet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::core::Core;
use crate::cluster::{Cluster, ClusterState};
use crate::id::ClusterId;

/// Change of a fleet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FleetChange {
    /// A cluster joined.
    Added(Cluster),
    /// The state or the labels of a cluster changed.
    Changed(Cluster),
    /// A cluster left. Its cached data can still be read.
    Removed(Cluster),
    /// The cached data of a cluster that left was dropped, too.
    Forgotten(Cluster),
}

/// Stream of a fleet's changes, beginning with [`FleetChange::Added`] for each present cluster.
///
/// The stream compares the fleet with what it last reported. A slow follower sees fewer changes, but never a wrong
/// state, and costs no memory. A cluster that came back under its name is another one: [`FleetChange::Removed`] and
/// [`FleetChange::Forgotten`] for the old one, then [`FleetChange::Added`] for the new one.
pub struct Changes {
    core: Arc<Core>,
    signal: watch::Receiver<u64>,
    known: BTreeMap<ClusterId, Known>,
    ahead: VecDeque<FleetChange>,
}

struct Known {
    cluster: Cluster,
    state: Arc<ClusterState>,
    labels: Arc<BTreeMap<String, String>>,
    removed: bool,
}

impl Changes {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let mut signal = core.changes.subscribe();
        signal.mark_changed();
        Self { core, signal, known: BTreeMap::new(), ahead: VecDeque::new() }
    }

    /// Returns the next change; `None` once the fleet was shut down.
    pub async fn next(&mut self) -> Option<FleetChange> {
        loop {
            if let Some(change) = self.ahead.pop_front() {
                return Some(change);
            }
            let stop = self.core.stop.clone();
            stop.run_until_cancelled(self.signal.changed()).await?.ok()?;
            self.compare();
        }
    }

    fn compare(&mut self) {
        let members = self.core.members.load_full();
        let gone = self.known.iter().filter(|(id, known)| members.get(*id) != Some(&known.cluster));
        let gone: Vec<ClusterId> = gone.map(|(id, _)| id.clone()).collect();
        for known in gone.iter().filter_map(|id| self.known.remove(id)) {
            if !known.removed {
                self.ahead.push_back(FleetChange::Removed(known.cluster.clone()));
            }
            self.ahead.push_back(FleetChange::Forgotten(known.cluster));
        }
        for (id, cluster) in members.iter() {
            let (state, labels) = (cluster.state(), cluster.labels());
            let removed = cluster.inner.left.is_cancelled();
            let cluster = cluster.clone();
            match self.known.get_mut(id) {
                None => {
                    self.ahead.push_back(FleetChange::Added(cluster.clone()));
                    if removed {
                        self.ahead.push_back(FleetChange::Removed(cluster.clone()));
                    }
                    self.known.insert(id.clone(), Known { cluster, state, labels, removed });
                }
                Some(known) => {
                    if removed && !known.removed {
                        self.ahead.push_back(FleetChange::Removed(cluster));
                    } else if !state.is_as(&known.state) || labels != known.labels {
                        self.ahead.push_back(FleetChange::Changed(cluster));
                    }
                    (known.state, known.labels, known.removed) = (state, labels, removed);
                }
            }
        }
    }
}
