//! Errors of the informers' calls.
//!
//! Every error says in one line what failed, why, and what to do; each type belongs to one call.

use std::fmt;
use std::time::Duration;

use skopos_reflect::{Condition, ProbeError, Reason, ReflectorState};
use skopos_transport::TransportError;
use skopos_wire::{ObjectKey, ResourceVersion, Status};
use thiserror::Error;
use tokio::time::Instant;

use crate::checkpoint::error::IdentityMismatch;
use crate::freshness::Freshness;
use crate::informer::resource::ResourceId;
use crate::store::Closed;

/// The reason why an informer cannot be built: the caller's mistake, except [`BuildError::Closed`].
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The factory was shut down.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// A namespace set without a namespace.
    #[error("the set of namespaces is empty; name at least one, or use InformerOptions::all()")]
    NoNamespaces,
    /// The name is not a valid namespace name.
    #[error("{name:?} is not a namespace's name: use 1 to 63 of a-z, 0-9 and '-', not '-' at either end")]
    InvalidNamespace {
        /// The name.
        name: String,
    },
    /// The checkpoint has another identity. Without it, the informer can be built.
    #[error(transparent)]
    Restore(#[from] IdentityMismatch),
    /// An index reads whole objects of another resource, or the informer has only metadata.
    #[error(
        "the index {index:?} reads whole {reads}, and the informer has {found}: use Indexer::new for any object"
    )]
    IndexOfAnotherType {
        /// The name of the index.
        index: String,
        /// The resource that the index reads.
        reads: Box<ResourceId>,
        /// The content of the informer: its resource, or the metadata of it.
        found: String,
    },
    /// Namespaces were given for a cluster-scoped resource.
    #[error("{resource} have no namespace; use InformerOptions::all()")]
    ClusterScoped {
        /// The resource.
        resource: ResourceId,
    },
}

/// Something had not synced at the deadline, or never will.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotSynced {
    /// The time waited.
    pub waited: Duration,
    /// The list/watches that are not synced, since when, and why.
    pub who: Vec<Unsynced>,
    /// The factory was shut down meanwhile: waiting again is useless.
    pub closed: bool,
}

/// One list/watch that has not completed its first list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// The resource.
    pub resource: ResourceId,
    /// The namespace, if the list/watch has one.
    pub namespace: Option<String>,
    /// The time at which its attempts began.
    pub since: Instant,
    /// The number of failed requests.
    pub attempts: u32,
    /// Its current state.
    pub state: ReflectorState,
    /// The reason why it has not synced: the last error, or its current activity.
    pub reason: Reason,
}

impl std::error::Error for NotSynced {}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.closed {
            return write!(f, "not synced: {Closed}");
        }
        write!(f, "not synced after {:.1?}: ", self.waited)?;
        for (i, who) in self.who.iter().take(5).enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{who}")?;
        }
        match self.who.len().saturating_sub(5) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        write!(f, ": {}", self.reason)?;
        if self.attempts > 0 {
            write!(f, " ({} failed attempts in {:.1?})", self.attempts, self.since.elapsed())?;
        }
        Ok(())
    }
}

/// A handler that has not handled every object of the first list.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum HandlerNotSynced {
    /// The handler was removed, or its informer stopped: waiting again is useless.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The deadline came first: the informer has not synced, or the handler is slow.
    #[error(
        "the handler {name} has not handled the first list within {waited:.1?}: the content is {freshness}; {waiting} events wait"
    )]
    Late {
        /// The handler's name.
        name: String,
        /// The time waited.
        waited: Duration,
        /// The number of events that wait for the handler.
        waiting: usize,
        /// The content's freshness; if there is no content, the reason.
        freshness: Freshness,
    },
}

/// A removed handler that still runs: the caller waited less than its `shutdown_limit`, or the handler blocks its thread.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "a call of the handler {name} still runs {waited:.1?} after the handler was removed: wait for longer than its shutdown_limit; if that does not help, it blocks its thread"
)]
#[non_exhaustive]
pub struct HandlerStillRuns {
    /// The handler's name.
    pub name: String,
    /// The time waited.
    pub waited: Duration,
}

/// The store did not reach the state that the caller waited for.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The factory was shut down.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The deadline came first.
    #[error("did not reach resource version {wanted} within {waited:.1?}; the content is at {} and {freshness}",
        .reached.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string))]
    NotReached {
        /// The requested revision.
        wanted: ResourceVersion,
        /// The revision reached.
        reached: Option<ResourceVersion>,
        /// The time waited.
        waited: Duration,
        /// The content's freshness.
        freshness: Freshness,
    },
    /// The deadline came before the content met the condition.
    #[error("the condition was not met within {waited:.1?}; the content is {freshness}")]
    NotMet {
        /// The time waited.
        waited: Duration,
        /// The content's freshness.
        freshness: Freshness,
    },
    /// The server's history was reset (a restored backup): the revision may never come.
    #[error(
        "the server's history was replaced while waiting for resource version {wanted}: read again what you wrote"
    )]
    HistoryBroken {
        /// The requested revision.
        wanted: ResourceVersion,
    },
}

/// A read whose data could not be as fresh as required.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The factory was shut down.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The cache could not be proven fresh enough, and the server did not answer in time.
    #[error(
        "cannot read data younger than {max_age:.1?} (tried for {waited:.1?}): cache: {cache}; server: {live}"
    )]
    TooOld {
        /// The maximum age that the caller allowed.
        max_age: Duration,
        /// The time tried.
        waited: Duration,
        /// The cache's freshness.
        cache: Freshness,
        /// The error of the read from the server.
        live: LiveError,
    },
}

/// A request to the server that brought no usable answer.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The deadline came first.
    #[error("no complete answer within {waited:.1?}")]
    Deadline {
        /// The time waited.
        waited: Duration,
    },
    /// The connection failed, or could not be made.
    #[error(transparent)]
    Connection(#[from] TransportError),
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] RefusalError),
    /// The server's answer could not be parsed.
    #[error("the server's answer cannot be read: {0}")]
    Malformed(String),
}

/// The server answered with an HTTP status other than success.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the server answered {code}: {message}")]
#[non_exhaustive]
pub struct RefusalError {
    /// The HTTP status.
    pub code: u16,
    /// The server's message.
    pub message: String,
    /// True if the answer names one object, and not only the resource or the path.
    names_object: bool,
}

impl From<ProbeError> for LiveError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Transport(error) => Self::Connection(error),
            ProbeError::Refused { code, status } => Self::Refused(RefusalError::new(code, status.as_deref())),
            other => Self::Malformed(other.to_string()),
        }
    }
}

impl RefusalError {
    pub(crate) fn new(code: u16, status: Option<&Status>) -> Self {
        let said = status.map(|status| status.message.clone()).filter(|message| !message.is_empty());
        let name = || http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
        let message = said.unwrap_or_else(|| name().unwrap_or("no reason given").to_owned());
        let details = status.and_then(|status| status.details.as_ref());
        Self { code, message, names_object: details.is_some_and(|details| !details.name.is_empty()) }
    }

    /// Returns whether the server has the resource, and no object of that name. A 404 may also mean that it does not (or no
    /// longer) serve the resource, or come from a proxy.
    pub(crate) fn is_missing_object(&self) -> bool {
        self.code == 404 && self.names_object
    }
}

impl LiveError {
    /// Returns whether the error may concern only the request's target: the rights to it, its version, its form.
    pub(crate) fn is_refused_by_target(&self) -> bool {
        matches!(self, Self::Refused(refusal) if matches!(refusal.code, 403 | 404 | 406))
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 410)
    }
}

/// An audit that could not be completed; nothing is known about the content.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The factory was shut down.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// There is no content to compare yet.
    #[error("the informer has not synced yet: {reason}")]
    NotSynced {
        /// The reason.
        reason: String,
    },
    /// The list request failed.
    #[error("could not list from the server: {0}")]
    List(#[from] LiveError),
    /// Another audit of the informer was still running at the deadline.
    #[error("another audit of the informer still runs")]
    Busy,
    /// The part was left out: its list/watch is failing, or only restored content was to be compared.
    #[error("left out of this audit; its list/watch is {condition}")]
    LeftOut {
        /// The condition of the list/watch.
        condition: Condition,
    },
    /// The content was replaced during the comparison; try again.
    #[error("the content was replaced during the audit; try again")]
    Replaced,
    /// The server answered with an older revision than the content has: it was restored from a backup, or lags.
    #[error(
        "the server's newest resource version is {server}, behind the content's {content}: its history went back"
    )]
    WentBack {
        /// The server's revision.
        server: ResourceVersion,
        /// The content's revision.
        content: ResourceVersion,
    },
}

/// An object that does not exist, or a read that failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReadOneError {
    /// The key has no namespace, or one outside the informer's scope.
    #[error("{key} is not in the informer's scope")]
    OutOfScope {
        /// The key.
        key: ObjectKey,
    },
    /// The read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}
