use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos_wire::{BrokenFrame, ObjectKey, RawObject, ResourceVersion, Status, WatchEvent};

use super::Reason;
use crate::Time;

/// The number of a request, unique within one machine. Inputs name the request that they belong to; what comes for a
/// request that was given up is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// The server answered the request with a success status (2xx); the body follows.
    Opened {
        /// Which request.
        id: RequestId,
    },
    /// Items of a list, in the order of the list.
    Items {
        /// Which request.
        id: RequestId,
        /// As many as were complete in one chunk.
        items: Vec<Result<RawObject, BrokenItem>>,
    },
    /// The list's body ended as it should.
    ListEnd {
        /// Which request.
        id: RequestId,
        /// The RV that the list belongs to, if it says so.
        resource_version: Option<ResourceVersion>,
        /// Where the next page begins; none after the last.
        continue_token: Option<Arc<str>>,
    },
    /// Watch events: all the complete frames of one chunk. They are applied as one batch.
    Events {
        /// Which request.
        id: RequestId,
        /// In the order of the stream.
        events: Vec<Result<WatchEvent, BrokenFrame>>,
    },
    /// The answer to a [`Action::Get`].
    Got {
        /// Which request.
        id: RequestId,
        /// The object; `Ok(None)` when the server does not have it (404).
        object: Result<Option<RawObject>, BrokenItem>,
    },
    /// The stream of a watch ended cleanly, between two frames.
    Closed {
        /// Which request.
        id: RequestId,
    },
    /// The request failed: before its answer, by its answer, or in its body. Nothing more comes for it.
    Failed {
        /// Which request.
        id: RequestId,
        /// How.
        failure: Failure,
    },
    /// A consistent read by somebody else found the collection at an RV.
    ///
    /// It comes from outside because one prober serves all links of the same resource on one cluster. It has to be a
    /// read that the server may not answer from the past: a LIST with `limit=1` and no `resourceVersion`.
    Probed {
        /// When the read was *sent*: what it found is true of some moment after that.
        sent_at: Time,
        /// The RV of the answer.
        resource_version: ResourceVersion,
    },
    /// The content was compared with a list of metadata, and both had the same objects in the same versions: an audit, or the answer
    /// to [`Sink::compare`](crate::Sink::compare).
    Compared {
        /// When the list was *sent*. It has to be a consistent one.
        sent_at: Time,
        /// When they were compared: content that was replaced since is another.
        compared_at: Time,
        /// The RV of the list.
        resource_version: ResourceVersion,
    },
    /// A consistent list shows objects that the content does not have in that version, and its RV is later than the content's: the
    /// stream brings them in a moment, or it is stalled. The comparison goes on.
    Differs {
        /// The RV of the list.
        resource_version: ResourceVersion,
    },
    /// Read everything again: an audit found a difference, or an operator asks. The old content stays until then.
    Relist,
    /// The network or the server is back as far as others can tell: if the link waits after a failure, let it try now.
    RetryNow,
    /// The process stood still for about so long (a suspended machine, a paused container) while the clock of the
    /// machine may have stood still too. What is open may be long dead.
    Suspended {
        /// How long.
        by: Duration,
    },
    /// The moment of [`Machine::poll_timeout`](super::Machine::poll_timeout) has come.
    Timeout,
    /// Stop. No action and no call to the sink comes after [`Condition::Stopped`](crate::Condition::Stopped).
    Stop,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Ask for a list, or a page of it.
    List(ListRequest),
    /// Open a watch.
    Watch(WatchRequest),
    /// Read one object.
    Get(GetRequest),
    /// Give up a request: drop its answer, at once. No input is expected for it any more.
    Cancel {
        /// Which request.
        id: RequestId,
    },
}

/// A list, or a page of it. Always consistent: without a `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The number of this request.
    pub id: RequestId,
    /// The size of the page; `None`: everything at once.
    pub limit: Option<u32>,
    /// Where the last page ended.
    pub continue_token: Option<Arc<str>>,
    /// Travel on another connection than that request did, if there can be another.
    pub avoid: Option<RequestId>,
    /// Wait for the transport to find a connection, instead of failing at once while there is none.
    pub patient: bool,
}

/// A watch with bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The number of this request.
    pub id: RequestId,
    /// Where from.
    pub start: WatchStart,
    /// After how long the server shall end the stream (`timeoutSeconds`).
    pub timeout: Duration,
    /// Travel on another connection than that request did, if there can be another.
    pub avoid: Option<RequestId>,
    /// Wait for the transport to find a connection, instead of failing at once while there is none.
    pub patient: bool,
    /// Nobody should use the connection to avoid any more: a stream on it is stalled.
    pub distrust: bool,
    /// Whether this is a short second look beside the stream that stands ([`MachineOptions::verify_timeout`](super::MachineOptions::verify_timeout)).
    pub second_look: bool,
}

/// Where a watch starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// After this RV.
    After(ResourceVersion),
    /// With the present state as events, then a bookmark that says so, then the changes (`sendInitialEvents=true`,
    /// `resourceVersionMatch=NotOlderThan`, no `resourceVersion`: consistent).
    InitialEvents,
}

/// A live read of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// The number of this request.
    pub id: RequestId,
    /// Of which object.
    pub key: ObjectKey,
    /// Travel on another connection than that request did, if there can be another.
    pub avoid: Option<RequestId>,
    /// Wait for the transport to find a connection, instead of failing at once while there is none.
    pub patient: bool,
}

/// How a request failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server answered with an HTTP status that is no success.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The Status in the body, if there was one.
        status: Option<Box<Status>>,
        /// The `Retry-After` header, if there was one.
        retry_after: Option<Duration>,
    },
    /// No complete answer: the connection.
    Connection {
        /// What became of it.
        trouble: Trouble,
        /// Why.
        reason: Reason,
        /// When the transport will try to connect again; asking earlier is useless.
        retry_at: Option<Time>,
    },
    /// A success status, and a body that is not what was asked for.
    Malformed {
        /// What is wrong with it.
        reason: Arc<str>,
    },
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trouble {
    /// No connection could be made: DNS, refused, timed out, TLS. No request was sent.
    CannotConnect,
    /// A connection that stood is gone: reset, end of file, missed PING, GOAWAY.
    Lost,
    /// The answer did not come, or did not go on, within the transport's deadline.
    TimedOut,
    /// There are no credentials to send (the exec plugin or the token file failed).
    NoCredentials,
    /// The request cannot be sent or its answer not be accepted as such (a redirect, a protocol error, a body too large).
    Protocol,
    /// The transport was shut down: no request will ever succeed again.
    Closed,
}

/// An object in a list, or the answer to a GET, that cannot be decoded.
#[derive(Clone, Debug)]
pub struct BrokenItem {
    /// Its key, if that can be known.
    pub key: Option<ObjectKey>,
    /// What is wrong with it.
    pub reason: Arc<str>,
}

// === impl RequestId ===

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

// === impl Action ===

impl Action {
    /// The request that the action is about.
    pub fn id(&self) -> RequestId {
        match self {
            Action::List(request) => request.id,
            Action::Watch(request) => request.id,
            Action::Get(request) => request.id,
            Action::Cancel { id } => *id,
        }
    }
}
