//! Facts, the events of a history.

use std::fmt;
use std::time::Duration;

use super::cast::{
    ClientId, ClusterId, HandlerId, InformerId, KeyId, QueueId, ResourceId, ShapeId, TargetId, WatcherId,
};
use super::looks::{Look, Seen};
use super::outside::AtOutside;
use super::visits::AtGateway;
use crate::fault::Part;

/// A moment: nanoseconds of virtual time since the beginning of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At(pub u64);

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    // ---- truth
    /// A server committed a write.
    Committed {
        /// The cluster.
        cluster: ClusterId,
        /// The resource.
        resource: ResourceId,
        /// The new object; for a deletion its last state with the RV of the deletion.
        object: Seen,
        /// Labels and fields of the object; for a deletion those of its last state.
        shape: ShapeId,
        /// The change.
        change: Change,
    },
    /// History went back to `rv` (a restored etcd): later commits are void.
    RolledBack {
        /// The cluster.
        cluster: ClusterId,
        /// The newest revision now.
        rv: u64,
    },
    /// Everything before `rv` was compacted.
    Compacted {
        /// The cluster.
        cluster: ClusterId,
        /// The oldest revision that can be read.
        rv: u64,
    },

    // ---- wire
    /// A request reached a server.
    Requested {
        /// The cluster.
        cluster: ClusterId,
        /// The connection, numbered by the server.
        connection: u32,
        /// The verb.
        verb: Verb,
        /// The target.
        target: TargetId,
        /// `resourceVersion`; `None`: not set or empty.
        rv: Option<u64>,
        /// `limit`.
        limit: Option<u32>,
        /// For a further page: a number in place of its `continue` token.
        further: Option<u64>,
        /// `timeoutSeconds`.
        timeout: Option<Duration>,
        /// `sendInitialEvents=true`: a streamed list.
        initial: bool,
        /// True if only metadata are requested.
        metadata: bool,
    },
    /// A server ended a watch cleanly.
    WatchEnded {
        /// The cluster.
        cluster: ClusterId,
        /// The target of the watch.
        target: TargetId,
        /// Lifetime of the watch. A watch that ends as soon as it begins has brought no more than a refusal, such as 410.
        stood: Duration,
    },
    /// A fault is in force from now on.
    FaultBegan {
        /// The fault.
        fault: FaultId,
        /// Its number in the catalogue.
        number: u8,
        /// The cluster; `None`: all clusters.
        cluster: Option<ClusterId>,
        /// True if the stream lies: events are lost without a trace, and only an audit can detect it.
        lies: bool,
        /// Time limit of the detection after a hit; `None`: the fault is harmless, and need not be detected.
        detect: Option<Duration>,
        /// Time limit of the recovery, once the fault is healed and detected.
        recover: Duration,
        /// `Retry-After` of every answer.
        retry_after: Option<Duration>,
        /// The part of the cluster that it is confined to.
        part: Part,
        /// True if lists that are not streamed are unaffected.
        spares_lists: bool,
    },
    /// A client failed to connect.
    DialFailed {
        /// The cluster.
        cluster: ClusterId,
        /// The client, by its index in the plan.
        client: u16,
    },
    /// A fault hit something: an open watch, a request, a dial. The catalogue defines what counts.
    FaultHit {
        /// The fault.
        fault: FaultId,
    },
    /// A fault is over.
    FaultHealed {
        /// The fault.
        fault: FaultId,
    },

    // ---- client
    /// An informer was started, or handed out again by a factory.
    InformerStarted {
        /// The informer.
        informer: InformerId,
    },
    /// The last handle of an informer was dropped.
    InformerStopped {
        /// The informer.
        informer: InformerId,
    },
    /// A store was looked at, or a snapshot was returned.
    Looked(Box<Look>),
    /// One object of a store was read.
    Got {
        /// The informer.
        informer: InformerId,
        /// The RV of the snapshot that it was read from.
        rv: u64,
        /// The epoch of the snapshot.
        epoch: u32,
        /// The key that was requested.
        key: KeyId,
        /// The object that was found.
        object: Option<Seen>,
    },
    /// All objects of a store, where the digest of a look is not enough: at the end, and in detailed runs.
    Listed {
        /// The informer.
        informer: InformerId,
        /// Its objects in order.
        objects: Box<[Seen]>,
    },
    /// A public call was made.
    Called {
        /// The call, counted over the whole run.
        call: CallId,
        /// Its factory.
        client: ClientId,
        /// Its informer, if it has one.
        informer: Option<InformerId>,
        /// The kind of call.
        kind: CallKind,
        /// Time limit of the call.
        limit: Duration,
    },
    /// A public call returned.
    Returned {
        /// The call.
        call: CallId,
        /// The result.
        outcome: Outcome,
    },
    /// A handler was added.
    HandlerAdded {
        /// The handler.
        handler: HandlerId,
    },
    /// A handler reports that it has synced.
    HandlerSynced {
        /// The handler.
        handler: HandlerId,
    },
    /// `remove()` has returned, or the handler's informer has ended: no call may follow.
    HandlerRemoved {
        /// The handler.
        handler: HandlerId,
    },
    /// A handler was called. Recorded when the call begins.
    Callback {
        /// The handler.
        handler: HandlerId,
        /// The kind of event.
        kind: Kind,
        /// The flags of the event.
        flags: Flags,
        /// The object: as `Event::object()`.
        object: Seen,
        /// The old object of an update.
        old: Option<Seen>,
    },
    /// A slow or panicking call of a handler has ended. Calls that return at once have no such fact.
    CallbackEnded {
        /// The handler.
        handler: HandlerId,
        /// True if it panicked.
        panicked: bool,
    },
    /// `HandlerHandle::stats()`, from time to time and at the end.
    HandlerStats {
        /// The handler.
        handler: HandlerId,
        /// Maximum number of events that ever waited.
        deepest: u32,
        /// Number of times that its queue began to coalesce.
        overflows: u32,
        /// Number of panics.
        panics: u32,
        /// Number of events that were given up.
        poisoned: u32,
    },
    /// A raw watch was begun at the current state.
    WatcherStarted {
        /// The watch.
        watcher: WatcherId,
    },
    /// A raw watch returned an item.
    WatcherTold {
        /// The watch.
        watcher: WatcherId,
        /// The item.
        heard: Heard,
    },
    /// The link of a raw watch is healthy, or no longer.
    WatcherStands {
        /// The watch.
        watcher: WatcherId,
        /// True if it is healthy.
        well: bool,
    },
    /// A raw watch has ended.
    WatcherEnded {
        /// The watch.
        watcher: WatcherId,
        /// True if it ended on its own, rather than being dropped.
        by_itself: bool,
    },
    /// A key was added to a work queue: at once, after a delay, or when its rate limit permitted.
    QueueAdded {
        /// The queue.
        queue: QueueId,
        /// The key.
        key: KeyId,
    },
    /// A worker took a key.
    QueueTaken {
        /// The queue.
        queue: QueueId,
        /// The worker.
        worker: u16,
        /// The key.
        key: KeyId,
    },
    /// A worker has finished a key.
    QueueDone {
        /// The queue.
        queue: QueueId,
        /// The worker.
        worker: u16,
        /// The key.
        key: KeyId,
        /// True if the worker gave it back to be retried.
        again: bool,
    },
    /// A queue was told to end. Keys that are added from now on need not be processed.
    QueueClosed {
        /// The queue.
        queue: QueueId,
        /// True if waiting keys are still to be processed.
        drains: bool,
    },
    /// A queue has ended.
    QueueEnded {
        /// The queue.
        queue: QueueId,
    },
    /// A factory was shut down: `shutdown()` has returned. The fact has what is left.
    Shutdown {
        /// The client.
        client: ClientId,
        /// Tasks that still run.
        tasks: u32,
        /// Connections that are still open on the servers' side.
        connections: u32,
    },

    /// Something happened at the gateway.
    Gateway(AtGateway),

    /// An event of the notifiers or their outside.
    Outside(AtOutside),

    // ---- the end
    /// From now on there are no writes and no faults in force.
    Quiet,
    /// It was quiet for long enough: the last looks follow.
    Settled,
}

/// Effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// An object of this name did not exist.
    Created,
    /// The object changed.
    Updated,
    /// The object is gone.
    Deleted,
}

/// Verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// All objects, or a page of them.
    List,
    /// A list of one object's metadata, to learn the RV. Recognised by `limit=1`.
    Probe,
    /// Changes.
    Watch,
    /// One object.
    Get,
    /// Everything else.
    Other,
}

/// A fault of this run; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(pub u16);

/// A call of this run; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u32);

/// Kind of an event of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `Event::Added`.
    Added,
    /// `Event::Updated`.
    Updated,
    /// `Event::Deleted`.
    Deleted,
}

/// Item of a raw watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// A change.
    Change(Kind, Seen),
    /// All changes up to this RV were returned.
    Bookmark {
        /// The RV.
        rv: u64,
    },
    /// `RawWatchItem::Skipped`.
    Skipped {
        /// The last RV that was returned.
        since: u64,
        /// The RV after which it continues.
        to: u64,
    },
    /// `RawWatchItem::Unreadable`.
    Unreadable {
        /// The object.
        key: KeyId,
        /// The RV of the change.
        rv: u64,
    },
    /// `RawWatchItem::Gone`.
    Gone {
        /// The object.
        key: KeyId,
        /// The RV of the deletion.
        rv: u64,
    },
    /// An item that this crate does not know.
    Other,
}

/// Flags of a handler's event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// `EventFlags::gap`.
    pub gap: bool,
    /// `EventFlags::coalesced`.
    pub coalesced: bool,
    /// `EventFlags::resync`.
    pub resync: bool,
    /// For an addition: `initial`.
    pub initial: bool,
    /// For a deletion: not `final_state_known`.
    pub last_state_unknown: bool,
}

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// `Informer::wait_synced` or `InformerFactory::wait_synced`.
    WaitSynced,
    /// `Informer::wait_for`.
    WaitFor {
        /// The RV.
        rv: u64,
    },
    /// `Informer::read`.
    Read {
        /// The maximum age.
        max_age: Duration,
    },
    /// `Informer::read_one`.
    ReadOne {
        /// The maximum age.
        max_age: Duration,
        /// The key.
        key: KeyId,
    },
    /// `Informer::audit`.
    Audit,
    /// `InformerFactory::shutdown`.
    Shutdown,
    /// `HandlerHandle::remove`.
    Remove,
    /// Any other call with a deadline, by name.
    Other(&'static str),
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Success.
    Done,
    /// Result of `read_one`: the object or none, without an RV.
    Found {
        /// The object that was found.
        object: Option<Seen>,
        /// Its maximum age.
        age: Duration,
    },
    /// Result of a complete audit.
    Audited {
        /// Objects that differ.
        differences: u32,
    },
    /// A typed error: the time limit passed, with the reason.
    NotInTime {
        /// True if the error names a cause.
        named: bool,
    },
    /// A typed error: the history was broken.
    HistoryBroken,
    /// The typed error `Closed`.
    Closed,
    /// Another typed error.
    Refused,
}

impl At {
    /// The beginning of the run.
    pub const ZERO: At = At(0);

    /// Returns the moment this long after the beginning.
    pub fn after_start(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns a later moment.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::after_start(time).0))
    }

    /// Returns the time since `earlier`; zero if it is later.
    pub fn since(self, earlier: At) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0 / 1_000_000;
        write!(f, "{:02}:{:02}.{:03}", millis / 60_000, millis / 1000 % 60, millis % 1000)
    }
}

impl From<skopos::EventFlags> for Flags {
    fn from(flags: skopos::EventFlags) -> Self {
        Self { gap: flags.gap, coalesced: flags.coalesced, resync: flags.resync, ..Self::default() }
    }
}
