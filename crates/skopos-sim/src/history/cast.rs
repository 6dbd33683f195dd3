//! Participants of a run, and the numbers that stand for names.

use std::time::Duration;

use skopos_wire::ObjectKey;

use super::selection::{Selection, Shape, Target};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            /// Returns its index in its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A cluster, that is one true state behind any number of servers: see [`Cast::clusters`].
    ClusterId(u8);
    /// One informer factory: see [`Cast::clients`].
    ClientId(u16);
    /// One store: see [`Cast::informers`].
    InformerId(u16);
    /// See [`Cast::handlers`].
    HandlerId(u16);
    /// A work queue: see [`Cast::queues`].
    QueueId(u16);
    /// See [`Cast::watchers`].
    WatcherId(u16);
    /// A member of the gateway: see [`Cast::members`].
    MemberId(u8);
    /// See [`Cast::visitors`].
    VisitorId(u8);
    /// See [`Cast::processes`].
    ProcessId(u8);
    /// A plural name: see [`Names::resources`].
    ResourceId(u8);
    /// See [`Names::keys`].
    KeyId(u32);
    /// See [`Names::uids`].
    UidId(u32);
    /// Labels and fields: see [`Names::shapes`].
    ShapeId(u32);
    /// The target of a request: see [`Names::targets`].
    TargetId(u16);
}

/// All participants of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The seed of the run.
    pub seed: u64,
    /// Interval at which each store is looked at.
    pub look_interval: Duration,
    /// Clusters.
    pub clusters: Vec<Cluster>,
    /// Informer factories.
    pub clients: Vec<Client>,
    /// Stores: informers that share one count once.
    pub informers: Vec<Informer>,
    /// Handlers.
    pub handlers: Vec<Handler>,
    /// Work queues.
    pub queues: Vec<Queue>,
    /// Raw watches, which have no store.
    pub watchers: Vec<Watcher>,
    /// The members of the gateway, under its names.
    pub members: Vec<Member>,
    /// The users of the gateway.
    pub visitors: Vec<Visitor>,
    /// Processes with a notifier.
    pub processes: Vec<Process>,
}

/// A cluster, with the automatic behavior of its servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// Name for people.
    pub name: String,
    /// Interval of bookmarks.
    pub bookmark_interval: Duration,
}

/// An informer factory, with the options that promise something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Name for people.
    pub name: String,
    /// The cluster that its transport leads to.
    pub cluster: ClusterId,
    /// `FactoryOptions::probe_interval`.
    pub probe_interval: Duration,
    /// `FactoryOptions::stale_after`.
    pub stale_after: Duration,
    /// `FactoryOptions::audit_interval`.
    pub audit_interval: Option<Duration>,
}

/// A store, with the lists and watches that fill it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Informer {
    /// Name for people.
    pub name: String,
    /// Its factory.
    pub client: ClientId,
    /// The plural name of its objects.
    pub resource: ResourceId,
    /// The selected objects.
    pub selection: Selection,
    /// True if it holds metadata only.
    pub metadata_only: bool,
}

/// A handler of an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handler {
    /// Name for people.
    pub name: String,
    /// The informer whose changes it gets.
    pub informer: InformerId,
    /// `HandlerOptions::capacity`.
    pub capacity: usize,
    /// `HandlerOptions::retries`.
    pub retries: u32,
    /// True if it is repeatedly called with unchanged objects.
    pub resyncs: bool,
    /// Maximum duration of each call; zero for one that returns at once.
    pub slowness: Duration,
}

/// A work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Name for people.
    pub name: String,
    /// Number of workers.
    pub workers: usize,
}

/// A user of a `RawWatch`, without a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watcher {
    /// Name for people.
    pub name: String,
    /// The client whose transport it uses.
    pub client: ClientId,
    /// The plural name of the watched objects.
    pub resource: ResourceId,
    /// The selected objects: of one namespace at most, with a selector that no other user has.
    pub selection: Selection,
    /// Maximum processing time of each item; zero if it returns at once.
    pub slowness: Duration,
}

/// A cluster of the gateway, under its name there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The name.
    pub name: String,
    /// The context of the kubeconfig that it was made from.
    pub context: String,
    /// The cluster that the kubeconfig leads to.
    pub cluster: ClusterId,
}

/// A user of the gateway that writes and reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Visitor {
    /// Name for people.
    pub name: String,
}

/// A process with a notifier, which works while it has the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Name for people.
    pub name: String,
    /// The cluster that it makes the outside equal to.
    pub cluster: ClusterId,
}

/// Meanings of the numbers, in the order of their first use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// Plural names.
    pub resources: Vec<String>,
    /// Keys of objects.
    pub keys: Vec<ObjectKey>,
    /// Uids.
    pub uids: Vec<String>,
    /// Labels and fields of objects.
    pub shapes: Vec<Shape>,
    /// Targets of requests.
    pub targets: Vec<Target>,
}
