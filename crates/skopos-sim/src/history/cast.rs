//! Who takes part in a run, and the numbers that stand for names.

use std::time::Duration;

use skopos_wire::ObjectKey;

use super::selection::{Selection, Shape, Target};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            /// Where it stands in its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A cluster, that is one truth, however many servers answer for it: see [`Cast::clusters`].
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
    /// What a request is about: see [`Names::targets`].
    TargetId(u16);
}

/// Who takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The seed of the run.
    pub seed: u64,
    /// How often each store is looked at.
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
    /// Those who watch without a store.
    pub watchers: Vec<Watcher>,
    /// The clusters of the gateway, as it calls them.
    pub members: Vec<Member>,
    /// Those who use the gateway.
    pub visitors: Vec<Visitor>,
    /// Processes with a notifier.
    pub processes: Vec<Process>,
}

/// A cluster, with what its servers do of themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// A name for people.
    pub name: String,
    /// How often watches get bookmarks.
    pub bookmark_interval: Duration,
}

/// An informer factory, with those of its options that promise something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// A name for people.
    pub name: String,
    /// The cluster to which its transport leads.
    pub cluster: ClusterId,
    /// `FactoryOptions::probe_interval`.
    pub probe_interval: Duration,
    /// `FactoryOptions::stale_after`.
    pub stale_after: Duration,
    /// `FactoryOptions::audit_interval`.
    pub audit_interval: Option<Duration>,
}

/// A store and the lists and watches that fill it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Informer {
    /// A name for people.
    pub name: String,
    /// Its factory.
    pub client: ClientId,
    /// The plural name of what it holds.
    pub resource: ResourceId,
    /// Which of them.
    pub selection: Selection,
    /// Whether it holds metadata only.
    pub metadata_only: bool,
}

/// A handler of an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handler {
    /// A name for people.
    pub name: String,
    /// Whose changes it is told.
    pub informer: InformerId,
    /// `HandlerOptions::capacity`.
    pub capacity: usize,
    /// `HandlerOptions::retries`.
    pub retries: u32,
    /// Whether it is called again and again with what has not changed.
    pub resyncs: bool,
    /// How long each call takes at most; zero for one that is done at once.
    pub slowness: Duration,
}

/// A work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// A name for people.
    pub name: String,
    /// How many workers take from it.
    pub workers: usize,
}

/// Somebody who watches without a store: a `RawWatch`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watcher {
    /// A name for people.
    pub name: String,
    /// Whose transport it uses.
    pub client: ClientId,
    /// The plural name of what it watches.
    pub resource: ResourceId,
    /// Which of them: of one namespace at most, and nobody else asks for the same.
    pub selection: Selection,
    /// How long it takes for what it is told at most; zero if it is done at once.
    pub slowness: Duration,
}

/// A name under which the gateway has a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The name.
    pub name: String,
    /// The context of a kubeconfig that it was made of.
    pub context: String,
    /// The cluster to which the kubeconfig leads.
    pub cluster: ClusterId,
}

/// A user of the gateway, who writes and reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Visitor {
    /// A name for people.
    pub name: String,
}

/// A process with a notifier, which works while it has the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// A name for people.
    pub name: String,
    /// The cluster that it makes the outside equal to.
    pub cluster: ClusterId,
}

/// What the numbers stand for, in the order in which they were first met.
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
    /// What requests are about.
    pub targets: Vec<Target>,
}
