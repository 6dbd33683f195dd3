//! Facts of visitors' requests to a gateway, and its answers.

use super::cast::{ClusterId, KeyId, MemberId, TargetId, VisitorId};
use super::facts::Verb;
use super::looks::Seen;

/// A visitor's request of this run; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VisitId(pub u32);

/// An event of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AtGateway {
    /// A request of the gateway reached a server.
    Forwarded {
        /// The cluster.
        cluster: ClusterId,
        /// The connection, numbered by the server.
        connection: u32,
        /// The verb.
        verb: Verb,
        /// The target.
        target: TargetId,
    },
    /// A visitor sends a request.
    Asked {
        /// The request.
        visit: VisitId,
        /// The visitor.
        visitor: VisitorId,
        /// The member; `None`: all (`/fleet`).
        member: Option<MemberId>,
        /// The kind of request.
        what: Asked,
    },
    /// The gateway has answered; for a watch: the visitor has finished it.
    Answered {
        /// The request.
        visit: VisitId,
        /// The answer.
        answer: Box<Answer>,
    },
}

/// Kind of a visitor's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// POST.
    Create {
        /// The object.
        key: KeyId,
        /// The number of the write.
        stamp: u32,
    },
    /// PUT.
    Update {
        /// The object.
        key: KeyId,
        /// The number of the write.
        stamp: u32,
    },
    /// DELETE.
    Delete {
        /// The object.
        key: KeyId,
    },
    /// One object; for `/fleet` with `?clusters=` and this member.
    Get {
        /// The object.
        key: KeyId,
        /// The member that it must come from.
        of: MemberId,
    },
    /// All objects.
    List {
        /// The namespace; `None`: all.
        namespace: Option<u8>,
    },
    /// All objects and their changes, with an unset `resourceVersion`.
    Watch {
        /// The namespace; `None`: all.
        namespace: Option<u8>,
    },
}

/// Answer of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The status; 0: there was none in time, or the visitor left.
    pub code: u16,
    /// True if the answer is that there is no such object.
    pub missing: bool,
    /// The members that a warning reports as away, so that their content may be old.
    pub away: Box<[MemberId]>,
    /// The objects, in the order of the answer.
    pub shown: Box<[Shown]>,
}

/// An object in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// The member of the request; for `/fleet`: the one that the object names. `None`: it names no existing member.
    pub member: Option<MemberId>,
    /// The member that it was written to, according to its annotation. `None`: it has no such annotation.
    pub home: Option<MemberId>,
    /// True for the last state of a deleted object.
    pub gone: bool,
    /// The object, with the member's own version.
    pub object: Seen,
}
