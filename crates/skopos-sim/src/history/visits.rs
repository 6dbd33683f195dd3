//! What visitors ask a gateway, and what it answers.

use super::cast::{ClusterId, KeyId, MemberId, TargetId, VisitorId};
use super::facts::Verb;
use super::looks::Seen;

/// A request of a visitor in this run; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VisitId(pub u32);

/// Something that happened at the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AtGateway {
    /// A request of the gateway reached a server.
    Forwarded {
        /// Where.
        cluster: ClusterId,
        /// The connection, numbered by the server.
        connection: u32,
        /// What is done.
        verb: Verb,
        /// To what.
        target: TargetId,
    },
    /// A visitor asks the gateway.
    Asked {
        /// This request.
        visit: VisitId,
        /// Who asks.
        visitor: VisitorId,
        /// Of which member; `None`: of all (`/fleet`).
        member: Option<MemberId>,
        /// What is asked.
        what: Asked,
    },
    /// The gateway has answered; of a watch: the visitor is done with it.
    Answered {
        /// Which request.
        visit: VisitId,
        /// The answer.
        answer: Box<Answer>,
    },
}

/// What a visitor asks for.
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
    /// One object; of `/fleet` with `?clusters=` and this member.
    Get {
        /// The object.
        key: KeyId,
        /// The member that it is to be of.
        of: MemberId,
    },
    /// All objects.
    List {
        /// In this one of the namespaces; `None`: in all.
        namespace: Option<u8>,
    },
    /// All objects and their changes, from an unset `resourceVersion` on.
    Watch {
        /// In this one of the namespaces; `None`: in all.
        namespace: Option<u8>,
    },
}

/// What the gateway answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The status; 0: none came in time, or the visitor left.
    pub code: u16,
    /// Whether it is the answer that there is no such object.
    pub missing: bool,
    /// The members of which a warning says that they are away, and what is shown of them may be old.
    pub away: Box<[MemberId]>,
    /// The objects, in the order in which they came.
    pub shown: Box<[Shown]>,
}

/// An object in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// The member that was asked; of `/fleet`: the one that the object names. `None`: it names none that there is.
    pub member: Option<MemberId>,
    /// The member that it was written to, which its annotation says. `None`: it has no such annotation.
    pub home: Option<MemberId>,
    /// Whether it is the last state of an object that is gone.
    pub gone: bool,
    /// The object; its version is the member's own.
    pub object: Seen,
}
