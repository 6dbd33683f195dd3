//! Everything that one seed determines, as plain data: it can be printed, stored in a file, and shrunk.

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

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of the client's own random choices, and the name of the run.
    pub seed: u64,
    /// Time during which writes come and faults begin.
    pub length: Duration,
    /// Quiet time afterwards.
    pub quiet: Duration,
    /// Interval at which each store is looked at.
    pub look_interval: Duration,
    /// The clusters.
    pub clusters: Vec<ClusterPlan>,
    /// Their clients.
    pub clients: Vec<ClientPlan>,
    /// The writes.
    pub bursts: Vec<Burst>,
    /// The faults.
    pub faults: Vec<FaultPlan>,
    /// The gateway over its clusters.
    #[serde(default)]
    pub gateway: GatewayPlan,
    /// The notifiers of one of its clusters.
    #[serde(default)]
    pub notifier: NotifierPlan,
}

/// Plan of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// Number of servers behind its name.
    pub servers: usize,
    /// Latency of each way.
    pub latency: Duration,
    /// Interval of bookmarks.
    pub bookmark_interval: Duration,
    /// Pause of watches between two frames of one RV.
    #[serde(default)]
    pub pause_within_revision: Duration,
    /// True if lists can be streamed.
    pub watch_list: bool,
    /// Time for which watch events are kept.
    pub event_window: Duration,
    /// Interval of compactions.
    pub compaction_interval: Duration,
    /// Maximum number of streams of one connection.
    pub max_streams: u32,
}

/// Plan of an informer factory and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// The index of its cluster.
    pub cluster: usize,
    /// Time of its start.
    pub starts: Duration,
    /// Time of its shutdown; `None`: at the end.
    pub stops: Option<Duration>,
    /// `FactoryOptions::probe_interval`.
    pub probe_interval: Duration,
    /// `FactoryOptions::audit_interval`.
    pub audit_interval: Option<Duration>,
    /// `MachineOptions::page_size`.
    pub page_size: Option<u32>,
    /// True if it requests streamed lists.
    pub streamed: bool,
    /// Index of the client whose last content it begins with, if that client is stopped before.
    #[serde(default)]
    pub restores: Option<usize>,
    /// Its informers.
    pub informers: Vec<InformerPlan>,
    /// Its raw watches, which have no store.
    #[serde(default)]
    pub watchers: Vec<WatcherPlan>,
}

/// Plan of a raw watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatcherPlan {
    /// The watched resource.
    pub resource: Resource,
    /// The selected objects, of one namespace at most.
    pub selection: Selection,
    /// Time from the client's start to its beginning.
    pub begins: Duration,
    /// Time from its beginning until it is dropped.
    pub leaves: Option<Duration>,
    /// Maximum processing time of each item.
    pub slowness: Duration,
}

/// Plan of an informer and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InformerPlan {
    /// The resource.
    pub resource: Resource,
    /// The selected objects.
    pub selection: Selection,
    /// True if it holds metadata only.
    pub metadata_only: bool,
    /// Time at which another handle of it is created and dropped again (fault 41).
    pub shared: Option<Duration>,
    /// Time at which all its users end, and use it again later.
    #[serde(default)]
    pub again: Option<Again>,
    /// Its handlers.
    pub handlers: Vec<HandlerPlan>,
    /// Its readers.
    pub readers: Vec<ReaderPlan>,
    /// A work queue that it feeds.
    pub queue: Option<QueuePlan>,
}

/// Restart of an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Time from its start until its users end.
    pub after: Duration,
    /// Time for which it has no users.
    pub pause: Duration,
}

/// Plan of a work queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePlan {
    /// Number of workers.
    pub workers: u16,
    /// Maximum processing time of a key.
    pub slowness: Duration,
    /// Workers fail on one key in this number.
    pub fails: u32,
}

/// Plan of a handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerPlan {
    /// Its behavior.
    pub manner: Manner,
    /// Time from its informer's start until it is added.
    pub added: Duration,
    /// Time from then until it is removed.
    pub removed: Option<Duration>,
    /// `HandlerOptions::capacity`.
    pub capacity: usize,
    /// `HandlerOptions::resync`.
    pub resync: Option<Duration>,
}

/// Behavior of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    /// It returns at once.
    Quick,
    /// It takes up to this time.
    Slow(Duration),
    /// It panics on one call in this number.
    Panics(u32),
}

/// Plan of a user that repeats a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReaderPlan {
    /// The call.
    pub what: ReaderKind,
    /// Approximate interval.
    pub every: Duration,
    /// Deadline of each call.
    pub limit: Duration,
}

/// Kind of a reader's call.
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
    /// `Informer::read`, with this maximum age.
    Read(Duration),
    /// `Informer::read_one`, with this maximum age.
    ReadOne(Duration),
    /// `Informer::audit`.
    Audit,
}

/// Consecutive writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Time of the first write.
    pub at: Duration,
    /// The cluster.
    pub cluster: usize,
    /// Interval between two writes.
    pub spacing: Duration,
    /// The writes.
    pub writes: Vec<Write>,
}

/// A fault, with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// Its number in the catalogue.
    pub number: u8,
    /// The kind of fault.
    pub what: Inflict,
    /// The cluster.
    pub cluster: usize,
    /// Time of its beginning.
    pub strikes: Strikes,
    /// Its duration.
    pub lasts: Duration,
}

/// Time at which a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strikes {
    /// This long after the beginning.
    At(Duration),
    /// The n-th occurrence of this moment, counted from this time after the beginning.
    Moment(Moment, u64, Duration),
}

impl Plan {
    /// Writes the plan as JSON, for people.
    ///
    /// # Errors
    /// Never. Plans are plain data.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Reads a plan from a file.
    ///
    /// # Errors
    /// When it is invalid, names missing clusters, or exceeds the numbers that histories have.
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

/// Histories number clusters with one byte...
const MOST_CLUSTERS: usize = u8::MAX as usize;
/// ... and participants with two. Some numbers are left for those that take part several times.
const MOST: usize = 1 << 14;

/// Error of an invalid plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It is not the JSON of a plan.
    #[error("not a plan: {0}")]
    Json(#[from] serde_json::Error),
    /// More than histories can number.
    #[error("the plan has {count} {what}, and at most {most} can be told apart")]
    TooMany {
        /// The kind of participants.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The maximum.
        most: usize,
    },
    /// A client begins with the content of a missing client.
    #[error("the plan speaks of client {number}, which it does not have (they are counted from 0)")]
    NoSuchClient {
        /// The index.
        number: usize,
    },
    /// An item belongs to a missing cluster.
    #[error("the plan speaks of cluster {number}, which it does not have (they are counted from 0)")]
    NoSuchCluster {
        /// The index.
        number: usize,
    },
}

impl Strikes {
    /// Returns its earliest possible time.
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
    fn plan_survives_json_round_trip() {
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
