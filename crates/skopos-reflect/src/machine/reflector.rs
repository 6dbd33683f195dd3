use std::fmt;

use skopos_wire::ObjectKey;

use super::Reason;
use crate::Time;

/// The state of a list/watch, for people and for bounded waits.
///
/// It describes the reflector, not the age of the content: only probes prove that
/// ([`Sink::fresh_as_of`](crate::Sink::fresh_as_of)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorState {
    /// The current condition.
    pub condition: Condition,
    /// The time since which this condition holds without interruption.
    pub since: Time,
    /// The number of consecutive failed requests since the reflector last worked. 0 while it works.
    pub attempts: u32,
    /// The last failure: the error of the connection, the response of the server. Kept while the reflector recovers, cleared
    /// once it works again.
    pub reason: Option<Reason>,
    /// The time of the next attempt, if the reflector waits.
    pub retry_at: Option<Time>,
    /// The number of objects whose current state cannot be decoded, in any condition: the store has an older version of
    /// them, or none. Never reported later than the RV that hides them.
    pub undecodable: usize,
}

/// The condition of a reflector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// A request was sent, and no response has come yet.
    Connecting,
    /// A list is being received.
    Listing,
    /// The watch is open: changes arrive as they happen.
    Watching,
    /// The watch is open, but the content is incomplete.
    Degraded(Degradation),
    /// The connection broke, or the server ended the watch too soon; another attempt is due.
    Retrying,
    /// No connection can be made: refused, no address, no route, an untrusted certificate.
    Unreachable,
    /// 401: the credentials are not accepted, even after they were read again.
    Unauthorized,
    /// 403: the credentials are accepted, but lack the permission.
    Forbidden,
    /// 404: the server does not serve this resource.
    NotServed,
    /// 429: the server asks to be left alone for a while.
    Throttled,
    /// 5xx, or a response that is not one of a Kubernetes API server.
    ServerError,
    /// Another 4xx: the server refuses the request as such. Retries do not help before something is changed.
    Rejected,
    /// Stopped; no further call will come.
    Stopped,
}

/// The reason why the content is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// Objects whose current state cannot be decoded. The store's versions of them are older. They are read again every
    /// 30 s at first and every 5 minutes later, and listed as soon as one can be read.
    Undecodable {
        /// The first of them, if its name is known.
        key: Option<ObjectKey>,
        /// The number of objects.
        count: usize,
    },
    /// The stream is open, but neither changes nor bookmarks come through, though there are some: something on the way
    /// from the server holds them back.
    Stalled,
}

impl Condition {
    /// Returns the condition as one word in kebab case.
    pub fn as_str(&self) -> &'static str {
        match self {
            Condition::Connecting => "connecting",
            Condition::Listing => "listing",
            Condition::Watching => "watching",
            Condition::Degraded(_) => "degraded",
            Condition::Retrying => "retrying",
            Condition::Unreachable => "unreachable",
            Condition::Unauthorized => "unauthorized",
            Condition::Forbidden => "forbidden",
            Condition::NotServed => "not-served",
            Condition::Throttled => "throttled",
            Condition::ServerError => "server-error",
            Condition::Rejected => "rejected",
            Condition::Stopped => "stopped",
        }
    }

    /// Returns whether a watch is open.
    pub fn is_watching(&self) -> bool {
        matches!(self, Condition::Watching | Condition::Degraded(_))
    }

    /// Returns whether the reflector waits after a failure.
    pub fn is_failing(&self) -> bool {
        matches!(
            self,
            Condition::Retrying
                | Condition::Unreachable
                | Condition::Unauthorized
                | Condition::Forbidden
                | Condition::NotServed
                | Condition::Throttled
                | Condition::ServerError
                | Condition::Rejected
        )
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Degraded(Degradation::Undecodable { key: Some(key), count: 1 }) => {
                write!(f, "degraded ({key} cannot be decoded)")
            }
            Condition::Degraded(Degradation::Undecodable { count, .. }) => {
                write!(f, "degraded ({count} objects cannot be decoded)")
            }
            Condition::Degraded(Degradation::Stalled) => f.write_str("degraded (the stream is held back)"),
            other => f.write_str(other.as_str()),
        }
    }
}

impl ReflectorState {
    /// Makes the state of a reflector that has not begun.
    pub(crate) fn new(now: Time) -> Self {
        ReflectorState {
            condition: Condition::Connecting,
            since: now,
            attempts: 0,
            reason: None,
            retry_at: None,
            undecodable: 0,
        }
    }
}

impl fmt::Display for ReflectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.condition)?;
        if self.attempts > 0 {
            write!(f, " ({} failed in a row)", self.attempts)?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
