//! The facts.

use std::fmt;
use std::time::Duration;

use super::cast::{
    ClientId, ClusterId, HandlerId, InformerId, KeyId, QueueId, ResourceId, ShapeId, TargetId, WatcherId,
};
use super::looks::{Look, Seen};
use super::outside::AtOutside;
use super::visits::AtGateway;
use crate::fault::Part;

/// A moment: nanoseconds of virtual time since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At(pub u64);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    // ---- truth
    /// A server committed a write.
    Committed {
        /// Where.
        cluster: ClusterId,
        /// Of what.
        resource: ResourceId,
        /// The object as it is now; of a deletion: its last state with the RV of the deletion.
        object: Seen,
        /// What selectors see of it; of a deletion: of its last state.
        shape: ShapeId,
        /// What was done.
        change: Change,
    },
    /// History went back to `rv` (a restored etcd): what was committed after it never was.
    RolledBack {
        /// Where.
        cluster: ClusterId,
        /// The revision that is the newest now.
        rv: u64,
    },
    /// Everything before `rv` was forgotten.
    Compacted {
        /// Where.
        cluster: ClusterId,
        /// The oldest revision that can be read.
        rv: u64,
    },

    // ---- wire
    /// A request reached a server.
    Requested {
        /// Where.
        cluster: ClusterId,
        /// The connection, numbered by the server.
        connection: u32,
        /// What is done.
        verb: Verb,
        /// To what.
        target: TargetId,
        /// `resourceVersion`; `None`: not set or empty.
        rv: Option<u64>,
        /// `limit`.
        limit: Option<u32>,
        /// Of a further page: a number that stands for its `continue` token.
        further: Option<u64>,
        /// `timeoutSeconds`.
        timeout: Option<Duration>,
        /// `sendInitialEvents=true`: a streamed list.
        initial: bool,
        /// Whether only metadata are asked for.
        metadata: bool,
    },
    /// A server ended a watch, in order.
    WatchEnded {
        /// Where.
        cluster: ClusterId,
        /// What was watched.
        target: TargetId,
        /// How long it had stood. One that ends as soon as it begins has brought no more than a refusal, such as 410.
        stood: Duration,
    },
    /// A fault is in force from now on.
    FaultBegan {
        /// This fault.
        fault: FaultId,
        /// Its number in the catalogue.
        number: u8,
        /// Where; `None`: everywhere.
        cluster: Option<ClusterId>,
        /// Whether the stream lies: events are lost without a trace, and nothing but an audit can find it out.
        lies: bool,
        /// Within what time it is to be noticed once it hit; `None`: it is harmless, nobody need notice.
        detect: Option<Duration>,
        /// Within what time all is well again, once it is healed and noticed.
        recover: Duration,
        /// Every answer says that nothing is to be asked before so much time has passed.
        retry_after: Option<Duration>,
        /// What of the cluster it is confined to.
        part: Part,
        /// Whether lists that are not streamed are as ever.
        spares_lists: bool,
    },
    /// A client tried to connect, and could not.
    DialFailed {
        /// Where to.
        cluster: ClusterId,
        /// Which client, by its place in the plan.
        client: u16,
    },
    /// A fault struck something: an open watch, a request, a dial; what counts is for the catalogue to say.
    FaultHit {
        /// Which.
        fault: FaultId,
    },
    /// A fault is over.
    FaultHealed {
        /// Which.
        fault: FaultId,
    },

    // ---- client
    /// An informer was started, or handed out again by a factory.
    InformerStarted {
        /// Which.
        informer: InformerId,
    },
    /// The last handle of an informer was dropped.
    InformerStopped {
        /// Which.
        informer: InformerId,
    },
    /// Somebody looked at a store, or was given a snapshot.
    Looked(Box<Look>),
    /// Somebody read one object of a store.
    Got {
        /// Where.
        informer: InformerId,
        /// The RV of the snapshot that it was read from.
        rv: u64,
        /// Its epoch.
        epoch: u32,
        /// What was asked for.
        key: KeyId,
        /// What was found.
        object: Option<Seen>,
    },
    /// All objects of a store, where the digest of a look is not enough: at the end, and in detailed runs.
    Listed {
        /// Where.
        informer: InformerId,
        /// Its objects in order.
        objects: Box<[Seen]>,
    },
    /// A public call was made.
    Called {
        /// This call; counted over the whole run.
        call: CallId,
        /// Which factory it is of.
        client: ClientId,
        /// Which informer, where it is of one.
        informer: Option<InformerId>,
        /// What was called.
        kind: CallKind,
        /// Within what time it must return.
        limit: Duration,
    },
    /// A public call returned.
    Returned {
        /// Which.
        call: CallId,
        /// With what.
        outcome: Outcome,
    },
    /// A handler was added.
    HandlerAdded {
        /// Which.
        handler: HandlerId,
    },
    /// A handler says that it has synced.
    HandlerSynced {
        /// Which.
        handler: HandlerId,
    },
    /// `remove()` has returned, or the handler's informer has ended: no call may come.
    HandlerRemoved {
        /// Which.
        handler: HandlerId,
    },
    /// A handler was called. Recorded when the call begins.
    Callback {
        /// Which.
        handler: HandlerId,
        /// What it was told.
        kind: Kind,
        /// Under which circumstances.
        flags: Flags,
        /// The object: as `Event::object()`.
        object: Seen,
        /// What an update had as the old object.
        old: Option<Seen>,
    },
    /// A call of a handler that takes its time, or panics, has come to its end. Calls that are done at once have none.
    CallbackEnded {
        /// Which.
        handler: HandlerId,
        /// Whether it panicked.
        panicked: bool,
    },
    /// `HandlerHandle::stats()`, from time to time and at the end.
    HandlerStats {
        /// Which.
        handler: HandlerId,
        /// The most events that ever waited.
        deepest: u32,
        /// How often its queue began to coalesce.
        overflows: u32,
        /// How often it panicked.
        panics: u32,
        /// Events that were given up.
        poisoned: u32,
    },
    /// A raw watch was begun, from then on.
    WatcherStarted {
        /// Which.
        watcher: WatcherId,
    },
    /// A raw watch gave something.
    WatcherTold {
        /// Which.
        watcher: WatcherId,
        /// What.
        heard: Heard,
    },
    /// The link of a raw watch stands, and all is well with it; or no longer.
    WatcherStands {
        /// Which.
        watcher: WatcherId,
        /// Whether it does.
        well: bool,
    },
    /// A raw watch has ended.
    WatcherEnded {
        /// Which.
        watcher: WatcherId,
        /// Whether it ended of itself; otherwise it was dropped.
        by_itself: bool,
    },
    /// A key was added to a work queue (at once, after a time, or rate limited and its time has come).
    QueueAdded {
        /// Where.
        queue: QueueId,
        /// The key.
        key: KeyId,
    },
    /// A worker took a key.
    QueueTaken {
        /// Where.
        queue: QueueId,
        /// Which worker.
        worker: u16,
        /// The key.
        key: KeyId,
    },
    /// A worker is done with a key.
    QueueDone {
        /// Where.
        queue: QueueId,
        /// Which worker.
        worker: u16,
        /// The key.
        key: KeyId,
        /// Whether it gave it back to be tried again.
        again: bool,
    },
    /// A queue was told to end; what is added from now on need not be done.
    QueueClosed {
        /// Where.
        queue: QueueId,
        /// Whether what waits is still to be done.
        drains: bool,
    },
    /// A queue has ended.
    QueueEnded {
        /// Where.
        queue: QueueId,
    },
    /// A factory was shut down: `shutdown()` has returned, and this is what is left.
    Shutdown {
        /// Which.
        client: ClientId,
        /// Tasks that still run.
        tasks: u32,
        /// Connections that are still open, on the servers' side.
        connections: u32,
    },

    /// Something happened at the gateway.
    Gateway(AtGateway),

    /// Something happened that has to do with notifiers.
    Outside(AtOutside),

    // ---- the end
    /// From now on no write comes, and no fault is in force.
    Quiet,
    /// Quiet for long enough: all that follows are the last looks.
    Settled,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// There was no object of this name.
    Created,
    /// The object changed.
    Updated,
    /// The object is gone.
    Deleted,
}

/// What is asked of a server.
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

/// What a handler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `Event::Added`.
    Added,
    /// `Event::Updated`.
    Updated,
    /// `Event::Deleted`.
    Deleted,
}

/// What a raw watch gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// A change.
    Change(Kind, Seen),
    /// All up to this RV was given.
    Bookmark {
        /// The RV.
        rv: u64,
    },
    /// `RawWatchItem::Skipped`.
    Skipped {
        /// The last RV that was given.
        since: u64,
        /// It goes on after this one.
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

/// Under which circumstances a handler was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// `EventFlags::gap`.
    pub gap: bool,
    /// `EventFlags::coalesced`.
    pub coalesced: bool,
    /// `EventFlags::resync`.
    pub resync: bool,
    /// Of an addition: `initial`.
    pub initial: bool,
    /// Of a deletion: not `final_state_known`.
    pub last_state_unknown: bool,
}

/// What was called.
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
        /// The greatest age that will do.
        max_age: Duration,
    },
    /// `Informer::read_one`.
    ReadOne {
        /// The greatest age that will do.
        max_age: Duration,
        /// Of what.
        key: KeyId,
    },
    /// `Informer::audit`.
    Audit,
    /// `InformerFactory::shutdown`.
    Shutdown,
    /// `HandlerHandle::remove`.
    Remove,
    /// Any other that takes a deadline or has one, by name.
    Other(&'static str),
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// What was asked for.
    Done,
    /// Of `read_one`: the object, and the RV of nothing.
    Found {
        /// What was found.
        object: Option<Seen>,
        /// At most so old.
        age: Duration,
    },
    /// Of an audit that was completed.
    Audited {
        /// Objects that differ.
        differences: u32,
    },
    /// A typed error that says that the time was over, and why.
    NotInTime {
        /// Whether the error names a cause.
        named: bool,
    },
    /// A typed error: the history was broken.
    HistoryBroken,
    /// The typed error `Closed`.
    Closed,
    /// Another typed error.
    Refused,
}

// === impl At ===

impl At {
    /// The beginning.
    pub const ZERO: At = At(0);

    /// So long after the beginning.
    pub fn after_start(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::after_start(time).0))
    }

    /// How long after `earlier` this is; zero if it is not.
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

// === impl Flags ===

impl From<skopos::EventFlags> for Flags {
    fn from(flags: skopos::EventFlags) -> Self {
        Self { gap: flags.gap, coalesced: flags.coalesced, resync: flags.resync, ..Self::default() }
    }
}
