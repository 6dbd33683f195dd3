//! History of a run: facts in the order of virtual time. All participants record them through a [`Recorder`]. The oracle, the
//! timeline and the digest use nothing else.
//!
//! ```text
//!   truth    Committed RolledBack Compacted         what the servers really had, and when
//!   wire     Requested Fault*                       what came through, and what went wrong
//!   client   Looked Called Callback Watcher* ...    what the client believed, reported and did
//!   gateway  Forwarded Asked Answered               the visitors' requests to a gateway, and its answers
//!   outside  Service Sent Applied Notified ...      what notifiers were to do, did, and found outside
//! ```
//!
//! # Conventions
//!
//! * Every write of a server is recorded as [`Fact::Committed`] at the moment of the commit, before anything else runs. Each
//!   object carries the number of its write in the label [`STAMP_LABEL`] (the [`Recorder`] counts them), so that two states
//!   differ even when a rollback gave them the same RV.
//! * The store is looked at ([`Fact::Looked`]) at least every [`Cast::look_interval`] for every informer. A look that equals the
//!   previous one in all parts needs no fact, except the last one before a fault begins or after it was healed.
//! * Objects of reads are not kept, only the digest of (key, uid, RV, stamp) of them all: see [`Content`]. The oracle folds
//!   the true state into such digests once and compares numbers.
//! * Facts may be recorded late ([`Recorder::record_at`]); [`Recorder::finish`] puts them in order.

mod cast;
mod facts;
mod looks;
mod outside;
mod recorder;
mod selection;
mod visits;

use std::hash::{Hash, Hasher};

pub use self::cast::{
    Cast, Client, ClientId, Cluster, ClusterId, Handler, HandlerId, Informer, InformerId, KeyId, Member,
    MemberId, Names, Process, ProcessId, Queue, QueueId, ResourceId, ShapeId, TargetId, UidId, Visitor,
    VisitorId, Watcher, WatcherId,
};
pub use self::facts::{At, CallId, CallKind, Change, Fact, FaultId, Flags, Heard, Kind, Outcome, Verb};
pub use self::looks::{Content, Freshness, Look, Reason, Seen, Standing, View, Walk};
pub use self::outside::{Address, AtOutside, MessageId, ObjectState, Ready, Record, Step, Trouble, Written};
pub(crate) use self::recorder::Pace;
pub use self::recorder::Recorder;
pub use self::selection::{Selection, Shape, Target, Term};
pub use self::visits::{Answer, Asked, AtGateway, Shown, VisitId};

/// The label with the number of the write that made the object.
pub const STAMP_LABEL: &str = "stamp";

/// History of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The participants.
    pub cast: Cast,
    /// Meanings of the numbers in the facts.
    pub names: Names,
    /// The facts, in order.
    pub entries: Vec<Entry>,
}

/// A fact with its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Time since the beginning of the run.
    pub at: At,
    /// The fact.
    pub fact: Fact,
}

impl History {
    /// Returns a digest of everything, equal for equal runs, also in different processes of one build.
    pub fn digest(&self) -> u64 {
        let mut hasher = Fnv::default();
        self.cast.hash(&mut hasher);
        self.names.hash(&mut hasher);
        self.entries.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the time of the last fact.
    pub fn end(&self) -> At {
        self.entries.last().map_or(At::ZERO, |entry| entry.at)
    }
}

/// A hasher with the same results in each process, unlike the standard library's.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

/// Mixes every bit into all bits.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
