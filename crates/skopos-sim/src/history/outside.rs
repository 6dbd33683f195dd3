//! What a notifier's cluster asks for, what notifiers do outside, and what is there.

use std::fmt;
use std::net::Ipv4Addr;

use super::cast::{ClusterId, KeyId, ProcessId, TargetId, UidId};
use super::facts::Verb;
use super::looks::Seen;

/// Something that has to do with notifiers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AtOutside {
    // ---- truth
    /// A Service was written.
    Service {
        /// Where.
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
        /// Where.
        cluster: ClusterId,
        /// The object.
        object: Seen,
        /// Its Service.
        service: KeyId,
        /// Its endpoints, as far as the notifier's source selects it; none if it is gone.
        endpoints: Box<[(Address, Ready)]>,
        /// True if the notifier's source selects it; `false` if it is gone.
        asks: bool,
        /// True if it was deleted.
        gone: bool,
    },

    // ---- wire
    /// A request of a notifier reached a server.
    Requested {
        /// Whose.
        process: ProcessId,
        /// The connection, numbered by the server.
        connection: u32,
        /// The verb.
        verb: Verb,
        /// To what.
        target: TargetId,
    },

    // ---- notifiers
    /// A process has begun to work in a term.
    Began {
        /// Which.
        process: ProcessId,
        /// The number of the term.
        term: u64,
    },
    /// The work of a process in a term has ended: it was dropped.
    Ended {
        /// Which.
        process: ProcessId,
        /// The number of the term.
        term: u64,
    },
    /// A process sends a write.
    Sent {
        /// This message.
        message: MessageId,
        /// Who sends it.
        process: ProcessId,
        /// In which term.
        term: u64,
        /// The Service that gives the name.
        name: KeyId,
        /// What the sender believes to be there, and what it wants to be there.
        step: Box<Step>,
    },
    /// The sender was answered, or has given up.
    Answered {
        /// Which message.
        message: MessageId,
        /// The answer.
        outcome: Written,
    },
    /// A process reads everything, or some names.
    Read {
        /// Which.
        process: ProcessId,
        /// Whether it was given what is there.
        whole: bool,
    },
    /// The report of a process that works.
    Reported {
        /// Which.
        process: ProcessId,
        /// Names that are not yet as they are to be.
        pending: u32,
        /// Names that are wanted.
        wanted: u32,
        /// Names that are outside and the notifier's own.
        outside: u32,
    },

    // ---- outside
    /// A write was done.
    Applied {
        /// Which.
        message: MessageId,
        /// The Service that gives the name.
        name: KeyId,
        /// What was there before.
        before: Option<Record>,
        /// What is there now.
        after: Option<Record>,
    },
    /// A person has changed a name.
    Edited {
        /// The Service that gives the name.
        name: KeyId,
        /// What is there now.
        after: Option<Record>,
    },
    /// Something is wrong with the outside from now on.
    TroubleBegan {
        /// What.
        what: Trouble,
    },
    /// It is no longer.
    TroubleEnded {
        /// What.
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
    /// It is about to go.
    Ending,
}

/// A name outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The uid in the notifier's mark; `None`: it bears none.
    pub owner: Option<UidId>,
    /// The values.
    pub values: Box<[Address]>,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The name as it was last read by the sender.
    pub before: Option<Record>,
    /// The name as it is to be.
    pub after: Option<Record>,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It was done.
    Done,
    /// The name was not as the sender believed.
    Conflict,
    /// The sender may not do it.
    Refused,
    /// No connection.
    Unreachable,
    /// No answer in time.
    Unknown,
}

/// What is wrong with the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Trouble {
    /// It cannot be connected to.
    Down,
    /// This process, counted from 0, cannot connect to it.
    Cut(u8),
    /// It takes messages and does nothing, until it does everything in order.
    Frozen,
    /// It does what it is told, and its answers are lost.
    Mute,
    /// It refuses writes.
    Refuses,
    /// What is read ends in the middle.
    Torn,
}

impl AtOutside {
    /// Returns the name that it is about.
    pub fn name(&self) -> Option<KeyId> {
        match self {
            Self::Service { object, .. } => Some(object.key),
            Self::Slice { service, .. } => Some(*service),
            Self::Sent { name, .. } | Self::Applied { name, .. } | Self::Edited { name, .. } => Some(*name),
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
