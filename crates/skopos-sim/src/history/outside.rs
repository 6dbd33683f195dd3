//! Facts of notifiers: their cluster's wanted state, their actions, and the outside.

use std::fmt;
use std::net::Ipv4Addr;

use super::cast::{ClusterId, KeyId, ProcessId, TargetId, UidId};
use super::facts::Verb;
use super::looks::Seen;

/// An event of the notifiers or their outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AtOutside {
    // ---- truth
    /// A Service was written.
    Service {
        /// The cluster.
        cluster: ClusterId,
        /// The object; its key is the name outside.
        object: Seen,
        /// True if the notifier's source selects it; `false` if it is gone.
        asks: bool,
        /// True if it was deleted.
        gone: bool,
    },
    /// An EndpointSlice was written.
    Slice {
        /// The cluster.
        cluster: ClusterId,
        /// The object.
        object: Seen,
        /// Its Service.
        service: KeyId,
        /// Its endpoints, if the notifier's source selects it; none if it is gone.
        endpoints: Box<[(Address, Ready)]>,
        /// True if the notifier's source selects it; `false` if it is gone.
        asks: bool,
        /// True if it was deleted.
        gone: bool,
    },

    // ---- wire
    /// A request of a notifier reached a server.
    Requested {
        /// The process.
        process: ProcessId,
        /// The connection, numbered by the server.
        connection: u32,
        /// The verb.
        verb: Verb,
        /// The target.
        target: TargetId,
    },

    // ---- notifiers
    /// A process has begun to work in a term.
    Began {
        /// The process.
        process: ProcessId,
        /// The number of the term.
        term: u64,
    },
    /// The work of a process in a term has ended: it was dropped.
    Ended {
        /// The process.
        process: ProcessId,
        /// The number of the term.
        term: u64,
    },
    /// A process sends a write.
    Sent {
        /// The message.
        message: MessageId,
        /// The sender.
        process: ProcessId,
        /// The term.
        term: u64,
        /// The Service that determines the name.
        name: KeyId,
        /// The sender's last observation of the name, and its wanted state.
        step: Box<Step>,
    },
    /// A process sends a message about the state of a Service to the receiver.
    Notified {
        /// The message.
        message: MessageId,
        /// The sender.
        process: ProcessId,
        /// The term.
        term: u64,
        /// The state.
        state: ObjectState,
    },
    /// The sender got an answer, or has given up.
    Answered {
        /// The message.
        message: MessageId,
        /// The answer.
        outcome: Written,
    },
    /// A process reads everything, or some names.
    Read {
        /// The process.
        process: ProcessId,
        /// True if it got the complete content.
        whole: bool,
    },
    /// The report of a working process.
    Reported {
        /// The process.
        process: ProcessId,
        /// Names that are not yet as wanted.
        pending: u32,
        /// Names that are wanted.
        wanted: u32,
        /// Names that are outside and the notifier's own.
        outside: u32,
    },

    // ---- outside
    /// A write was done.
    Applied {
        /// The message.
        message: MessageId,
        /// The Service that determines the name.
        name: KeyId,
        /// The record before.
        before: Option<Record>,
        /// The record now.
        after: Option<Record>,
    },
    /// The receiver took a message.
    Received {
        /// The message.
        message: MessageId,
        /// The state.
        state: ObjectState,
    },
    /// A person has changed a name.
    Edited {
        /// The Service that determines the name.
        name: KeyId,
        /// The record now.
        after: Option<Record>,
    },
    /// A fault of the outside begins.
    TroubleBegan {
        /// The fault.
        what: Trouble,
    },
    /// A fault of the outside ends.
    TroubleEnded {
        /// The fault.
        what: Trouble,
    },
}

/// A message of this run; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u32);

/// A value behind a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u32);

/// Readiness of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ready {
    /// It serves.
    Yes,
    /// It fails its checks.
    No,
    /// It is terminating.
    Ending,
}

/// A name's record outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The uid in the notifier's mark; `None`: there is no mark.
    pub owner: Option<UidId>,
    /// The values.
    pub values: Box<[Address]>,
}

/// The state of a Service, as a message has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectState {
    /// The Service.
    pub key: KeyId,
    /// Its uid.
    pub uid: UidId,
    /// The version; for a deletion that of the deletion, or of a list without the object.
    pub rv: u64,
    /// The stamp of the content; 0 for a deletion.
    pub stamp: u32,
    /// The epoch of the notifier, in which versions are comparable.
    pub epoch: u64,
    /// True if it is gone, or no longer selected.
    pub gone: bool,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The record as it was last read by the sender.
    pub before: Option<Record>,
    /// The wanted record.
    pub after: Option<Record>,
}

/// The answer to a write or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It was done.
    Done,
    /// The record was not as the sender expected.
    Conflict,
    /// The sender is not allowed to do it.
    Refused,
    /// The receiver is down behind its proxy.
    Unavailable,
    /// There was no connection.
    Unreachable,
    /// There was no answer in time.
    Unknown,
}

/// Fault of the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Trouble {
    /// Connections to it fail.
    Down,
    /// Connections of this process, counted from 0, fail.
    Cut(u8),
    /// It takes messages and does nothing, until it executes all of them in order.
    Frozen,
    /// It executes messages, and its answers are lost.
    Mute,
    /// It refuses writes.
    Refuses,
    /// Reads end in the middle, and a proxy says that the receiver is unavailable.
    Torn,
}

impl AtOutside {
    /// Returns the name that it is about.
    pub fn name(&self) -> Option<KeyId> {
        match self {
            Self::Service { object, .. } => Some(object.key),
            Self::Slice { service, .. } => Some(*service),
            Self::Sent { name, .. } | Self::Applied { name, .. } | Self::Edited { name, .. } => Some(*name),
            Self::Notified { state, .. } | Self::Received { state, .. } => Some(state.key),
            _ => None,
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from(self.0).fmt(f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from(self.0).fmt(f)
    }
}
