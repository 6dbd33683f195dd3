//! Everything that one seed decides, as plain data: it can be printed, kept in a file, and made smaller.

mod gateway;
mod generate;
mod inside;
mod leases;
mod notifier;
mod shrink;
mod silent;
mod watchers;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::gateway::{ContextPlan, GatewayPlan, VisitorPlan};
pub use self::notifier::{Edit, EditPlan, NotifierPlan, ProcessPlan, ServiceBurst, TroublePlan};
pub use self::shrink::shrink;

use crate::cluster::{Moment, Resource, Write};
use crate::fault::Inflict;
use crate::history::Selection;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seeds the client's own random choices, and names the run.
    pub seed: u64,
    /// How long writes come and faults begin.
    pub length: Duration,
    /// How long nothing happens afterwards.
    pub quiet: Duration,
    /// How often each store is looked at.
    pub look_interval: Duration,
    /// The clusters.
    pub clusters: Vec<ClusterPlan>,
    /// Their clients.
    pub clients: Vec<ClientPlan>,
    /// What is written.
    pub bursts: Vec<Burst>,
    /// What goes wrong.
    pub faults: Vec<FaultPlan>,
    /// The gateway over its clusters.
    #[serde(default)]
    pub gateway: GatewayPlan,
    /// The notifiers of one of its clusters.
    #[serde(default)]
    pub notifier: NotifierPlan,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// How many servers stand behind its name.
    pub servers: usize,
    /// How long bytes take, each way.
    pub latency: Duration,
    /// How often watches get bookmarks.
    pub bookmark_interval: Duration,
    /// How long watches wait between two frames of one RV.
    #[serde(default)]
    pub pause_within_revision: Duration,
    /// Whether lists can be streamed.
    pub watch_list: bool,
    /// For how long watch events are kept.
    pub event_window: Duration,
    /// How often old versions are compacted.
    pub compaction_interval: Duration,
    /// Streams of one connection.
    pub max_streams: u32,
}

/// An informer factory and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// Which cluster it is of.
    pub cluster: usize,
    /// When it is started.
    pub starts: Duration,
    /// When it is shut down; `None`: at the end.
    pub stops: Option<Duration>,
    /// `FactoryOptions::probe_interval`.
    pub probe_interval: Duration,
    /// `FactoryOptions::audit_interval`.
    pub audit_interval: Option<Duration>,
    /// `MachineOptions::page_size`.
    pub page_size: Option<u32>,
    /// Whether it asks for streamed lists.
    pub streamed: bool,
    /// The client whose content of its last moment it begins with, where that is stopped before.
    #[serde(default)]
    pub restores: Option<usize>,
    /// Its informers.
    pub informers: Vec<InformerPlan>,
    /// Those who watch without a store.
    #[serde(default)]
    pub watchers: Vec<WatcherPlan>,
}

/// Somebody who watches without a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatcherPlan {
    /// What is watched.
    pub resource: Resource,
    /// Which of them; of one namespace at most.
    pub selection: Selection,
    /// How long after the client's start it begins.
    pub begins: Duration,
    /// How long after that it is dropped.
    pub leaves: Option<Duration>,
    /// It takes up to so long for each thing that it is told.
    pub slowness: Duration,
}

/// An informer and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InformerPlan {
    /// What it holds.
    pub resource: Resource,
    /// Which of them.
    pub selection: Selection,
    /// Metadata only.
    pub metadata_only: bool,
    /// When another handle of it is had and dropped again (fault 41).
    pub shared: Option<Duration>,
    /// When all its users are done with it, and have it anew.
    #[serde(default)]
    pub again: Option<Again>,
    /// Its handlers.
    pub handlers: Vec<HandlerPlan>,
    /// Its readers.
    pub readers: Vec<ReaderPlan>,
    /// A work queue that it feeds.
    pub queue: Option<QueuePlan>,
}

/// An informer that is stopped and had anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// How long after it was started its users are done with it.
    pub after: Duration,
    /// For how long nobody has it.
    pub pause: Duration,
}

/// A work queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePlan {
    /// How many take keys from it.
    pub workers: u16,
    /// How long they take for a key at most.
    pub slowness: Duration,
    /// They fail on one key of so many.
    pub fails: u32,
}

/// A handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerPlan {
    /// How it behaves.
    pub manner: Manner,
    /// How long after its informer's start it is added.
    pub added: Duration,
    /// How long after that it is removed.
    pub removed: Option<Duration>,
    /// `HandlerOptions::capacity`.
    pub capacity: usize,
    /// `HandlerOptions::resync`.
    pub resync: Option<Duration>,
}

/// How a handler behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    /// It is done at once.
    Quick,
    /// It takes up to so long.
    Slow(Duration),
    /// It panics on one call of so many.
    Panics(u32),
}

/// Somebody who calls the same thing again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReaderPlan {
    /// What.
    pub what: ReaderKind,
    /// About how often.
    pub every: Duration,
    /// With which deadline.
    pub limit: Duration,
}

/// What a reader calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReaderKind {
    /// `Informer::snapshot`.
    Snapshot,
    /// One object of a snapshot.
    Get,
    /// `Informer::wait_synced`.
    WaitSynced,
    /// `Informer::wait_for` the newest write.
    WaitFor,
    /// `Informer::read`, with this greatest age.
    Read(Duration),
    /// `Informer::read_one`, with this greatest age.
    ReadOne(Duration),
    /// `Informer::audit`.
    Audit,
}

/// Writes in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// When the first is done.
    pub at: Duration,
    /// Where.
    pub cluster: usize,
    /// The time between two.
    pub spacing: Duration,
    /// The writes.
    pub writes: Vec<Write>,
}

/// A fault, and when it strikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// Its number in the catalogue.
    pub number: u8,
    /// What is inflicted.
    pub what: Inflict,
    /// On which cluster.
    pub cluster: usize,
    /// When.
    pub strikes: Strikes,
    /// How long it lasts.
    pub lasts: Duration,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strikes {
    /// So long after the beginning.
    At(Duration),
    /// When this moment comes the n-th time; counted from so long after the beginning.
    Moment(Moment, u64, Duration),
}

impl Plan {
    /// The whole run in words for people: as JSON.
    ///
    /// # Errors
    /// Never; plans are plain data.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// A plan from a file.
    ///
    /// # Errors
    /// When it is none, names clusters that it does not have, or has more of something than histories have numbers for.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(text)?;
        let informers = || plan.clients.iter().flat_map(|client| &client.informers);
        let watchers = || plan.clients.iter().flat_map(|client| &client.watchers);
        let contexts = || plan.gateway.contexts.iter();
        let namespaces = watchers().map(|watcher| watcher.selection.namespaces.len()).max().unwrap_or(0);
        let counts = [
            ("clusters", plan.clusters.len(), MOST_CLUSTERS),
            ("contexts", contexts().count(), MOST_CLUSTERS),
            ("visitors", plan.gateway.visitors.len(), MOST_CLUSTERS),
            ("processes", plan.notifier.processes.len(), MOST_CLUSTERS),
            ("clients", plan.clients.len(), MOST),
            ("informers", informers().count(), MOST),
            ("handlers", informers().map(|informer| informer.handlers.len()).sum(), MOST),
            ("watchers", watchers().count(), MOST),
            ("namespaces for one watcher", namespaces, 1),
        ];
        if let Some((what, count, most)) = counts.into_iter().find(|(_, count, most)| count > most) {
            return Err(PlanError::TooMany { what, count, most });
        }
        let of_clients = plan.clients.iter().map(|client| client.cluster);
        let of_bursts = plan.bursts.iter().map(|burst| burst.cluster);
        let of_faults = plan.faults.iter().map(|fault| fault.cluster);
        let restores = plan.clients.iter().filter_map(|client| client.restores);
        if let Some(number) = restores.into_iter().find(|client| *client >= plan.clients.len()) {
            return Err(PlanError::NoSuchClient { number });
        }
        let of_notifier = plan.notifier.is_there().then_some(plan.notifier.cluster);
        let of_contexts = contexts().map(|context| context.cluster);
        let mut clusters = of_clients.chain(of_bursts).chain(of_faults).chain(of_contexts).chain(of_notifier);
        match clusters.find(|cluster| *cluster >= plan.clusters.len()) {
            Some(number) => Err(PlanError::NoSuchCluster { number }),
            None => Ok(plan),
        }
    }
}

/// Histories count clusters in a byte...
const MOST_CLUSTERS: usize = u8::MAX as usize;
/// ... and who takes part in two, of which some are left for who is there several times.
const MOST: usize = 1 << 14;

/// Why a text is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It is not the JSON of one.
    #[error("not a plan: {0}")]
    Json(#[from] serde_json::Error),
    /// More than can be told apart.
    #[error("the plan has {count} {what}, and at most {most} can be told apart")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A client begins with the content of one that is not there.
    #[error("the plan speaks of client {number}, which it does not have (they are counted from 0)")]
    NoSuchClient {
        /// Which.
        number: usize,
    },
    /// Something is of a cluster that is not there.
    #[error("the plan speaks of cluster {number}, which it does not have (they are counted from 0)")]
    NoSuchCluster {
        /// Which.
        number: usize,
    },
}

impl Strikes {
    /// The earliest time at which it can be.
    pub fn earliest(&self) -> Duration {
        match self {
            Self::At(at) | Self::Moment(_, _, at) => *at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_after_it_was_written() {
        let plan = Plan::mixed(1);
        assert_eq!(Plan::from_json(&plan.to_json().expect("JSON")).expect("a plan"), plan);
    }

    #[test]
    fn a_plan_that_cannot_be_run_is_refused() {
        let refused =
            |plan: &Plan| Plan::from_json(&plan.to_json().expect("JSON")).expect_err("refused").to_string();
        let plan = Plan::mixed(1);
        let text = "the plan speaks of cluster 9, which it does not have (they are counted from 0)";
        let mut strange = plan.clone();
        strange.faults[0].cluster = 9;
        assert_eq!(refused(&strange), text);
        let mut strange = plan.clone();
        strange.bursts[0].cluster = 9;
        assert_eq!(refused(&strange), text);
        let mut strange = plan.clone();
        strange.clients[0].cluster = 9;
        assert_eq!(refused(&strange), text);
        let mut strange = plan.clone();
        strange.clients[0].restores = Some(9);
        let text = "the plan speaks of client 9, which it does not have (they are counted from 0)";
        assert_eq!(refused(&strange), text);
        let mut large = plan.clone();
        large.clusters = vec![plan.clusters[0].clone(); 256];
        assert_eq!(refused(&large), "the plan has 256 clusters, and at most 255 can be told apart");
        let mut wide = plan.clone();
        let selection =
            Selection { namespaces: vec!["a".to_owned(), "b".to_owned()], ..Selection::default() };
        let (begins, leaves, slowness) = (Duration::ZERO, None, Duration::ZERO);
        let watcher = WatcherPlan { resource: Resource::Pods, selection, begins, leaves, slowness };
        wide.clients[0].watchers = vec![watcher];
        let text = "the plan has 2 namespaces for one watcher, and at most 1 can be told apart";
        assert_eq!(refused(&wide), text);
        assert!(Plan::from_json("[]").expect_err("no plan").to_string().starts_with("not a plan: "));
    }
}
