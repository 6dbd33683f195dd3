use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos_wire::{BrokenFrame, ObjectKey, RawObject, ResourceVersion, Status, WatchEvent};

use super::Reason;
use crate::Time;

/// The number of a request, unique within one machine. Inputs name their request; inputs for a request that was given
/// up are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// An input of the machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// The server answered the request with a success status (2xx); the body follows.
    Opened {
        /// The request.
        id: RequestId,
    },
    /// Items of a list, in the order of the list.
    Items {
        /// The request.
        id: RequestId,
        /// All items that were complete in one chunk.
        items: Vec<Result<RawObject, BrokenItem>>,
    },
    /// The list's body ended normally.
    ListEnd {
        /// The request.
        id: RequestId,
        /// The RV of the list, if present.
        resource_version: Option<ResourceVersion>,
        /// The start of the next page; `None` after the last.
        continue_token: Option<Arc<str>>,
    },
    /// Watch events: all the complete frames of one chunk. They are applied as one batch.
    Events {
        /// The request.
        id: RequestId,
        /// In the order of the stream.
        events: Vec<Result<WatchEvent, BrokenFrame>>,
    },
    /// The response to an [`Action::Get`].
    Got {
        /// The request.
        id: RequestId,
        /// The object; `Ok(None)` if the server does not have it (404).
        object: Result<Option<RawObject>, BrokenItem>,
    },
    /// The stream of a watch ended cleanly, between two frames.
    Closed {
        /// The request.
        id: RequestId,
    },
    /// The request failed: before its response, by its response, or in its body. It has no further inputs.
    Failed {
        /// The request.
        id: RequestId,
        /// The failure.
        failure: Failure,
    },
    /// A consistent read outside of this machine found the collection at an RV.
    ///
    /// It comes from outside because one prober serves all reflectors of the same resource on one cluster. The server must
    /// not answer that read from an older state: it is a LIST with `limit=1` and no `resourceVersion`.
    Probed {
        /// The time at which the read was *sent*: its result is true of some moment after that.
        sent_at: Time,
        /// The RV of the response.
        resource_version: ResourceVersion,
    },
    /// The content was compared with a list of metadata, and both had the same objects in the same versions. The
    /// comparison was an audit, or the reply to [`Sink::compare`](crate::Sink::compare).
    Compared {
        /// The time at which the list was *sent*. The list must be a consistent one.
        sent_at: Time,
        /// The time of the comparison: content that was replaced since then was not compared.
        compared_at: Time,
        /// The RV of the list.
        resource_version: ResourceVersion,
    },
    /// A consistent list shows objects that the content does not have in that version, and its RV is later than the
    /// content's. The stream brings them in a moment, or it is stalled. The comparison continues.
    Differs {
        /// The RV of the list.
        resource_version: ResourceVersion,
    },
    /// A request to read everything again: from an audit that found a difference, or from an operator. The old content
    /// stays until then.
    Relist,
    /// The network or the server seems to be back: a reflector that waits after a failure tries now.
    RetryNow,
    /// The process was suspended for about this long (a suspended machine, a paused container), and the machine's clock
    /// may have stopped too. Open connections may be long dead.
    Suspended {
        /// The duration.
        by: Duration,
    },
    /// The time of [`Machine::poll_timeout`](super::Machine::poll_timeout) has come.
    Timeout,
    /// The stop command. No action and no call to the sink comes after [`Condition::Stopped`](crate::Condition::Stopped).
    Stop,
}

/// An action that the driver executes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Request a list, or a page of it.
    List(ListRequest),
    /// Open a watch.
    Watch(WatchRequest),
    /// Read one object.
    Get(GetRequest),
    /// Cancel a request: drop its response at once. It has no further inputs.
    Cancel {
        /// The request.
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
    /// The end of the last page.
    pub continue_token: Option<Arc<str>>,
    /// The request whose connection this one avoids, if there can be another.
    pub avoid: Option<RequestId>,
    /// True to wait for the transport to find a connection, instead of failing at once without one.
    pub wait_for_connection: bool,
}

/// A watch with bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The number of this request.
    pub id: RequestId,
    /// The start of the watch.
    pub start: WatchStart,
    /// The time after which the server should end the stream (`timeoutSeconds`).
    pub timeout: Duration,
    /// The request whose connection this one avoids, if there can be another.
    pub avoid: Option<RequestId>,
    /// True to wait for the transport to find a connection, instead of failing at once without one.
    pub wait_for_connection: bool,
    /// True if the avoided connection must be retired: a stream on it is stalled.
    pub retire_avoided: bool,
    /// True if this is a short verification watch beside the open stream
    /// ([`MachineOptions::verify_timeout`](super::MachineOptions::verify_timeout)).
    pub verification: bool,
}

/// The start of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// After this RV.
    After(ResourceVersion),
    /// With the current state as events, then a bookmark that marks its end, then the changes
    /// (`sendInitialEvents=true`, `resourceVersionMatch=NotOlderThan`, no `resourceVersion`: consistent).
    InitialEvents,
}

/// A live read of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// The number of this request.
    pub id: RequestId,
    /// The object to read.
    pub key: ObjectKey,
    /// The request whose connection this one avoids, if there can be another.
    pub avoid: Option<RequestId>,
    /// True to wait for the transport to find a connection, instead of failing at once without one.
    pub wait_for_connection: bool,
}

/// The failure of a request.
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
    /// The connection failed before the response was complete.
    Connection {
        /// The kind of failure.
        trouble: Trouble,
        /// The reason.
        reason: Reason,
        /// The time at which the transport connects again; earlier requests are useless.
        retry_at: Option<Time>,
    },
    /// The status is a success, but the body is not what was requested.
    Malformed {
        /// The defect.
        reason: Arc<str>,
    },
}

/// The kind of a connection failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trouble {
    /// No connection could be made: DNS, refused, timed out, TLS. No request was sent.
    CannotConnect,
    /// An open connection was lost: reset, end of file, missed PING, GOAWAY.
    Lost,
    /// The response did not come, or did not continue, within the transport's deadline.
    TimedOut,
    /// There are no credentials to send (the exec plugin or the token file failed).
    NoCredentials,
    /// The request cannot be sent, or its response cannot be accepted (a redirect, a protocol error, a body too large).
    Protocol,
    /// The transport was shut down: no request will ever succeed again.
    Closed,
}

/// An object in a list, or the response to a GET, that cannot be decoded.
#[derive(Clone, Debug)]
pub struct BrokenItem {
    /// Its key, if known.
    pub key: Option<ObjectKey>,
    /// The defect.
    pub reason: Arc<str>,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl Action {
    /// Returns the request of the action.
    pub fn id(&self) -> RequestId {
        match self {
            Action::List(request) => request.id,
            Action::Watch(request) => request.id,
            Action::Get(request) => request.id,
            Action::Cancel { id } => *id,
        }
    }
}
