use std::fmt;

use skopos_wire::ObjectKey;

use super::Reason;
use crate::Time;

/// How a link to the server stands, for people and for bounded waits.
///
/// It says what the link does, not how old the content is: that is proven by probes alone
/// ([`Sink::fresh_as_of`](crate::Sink::fresh_as_of)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// What is the case.
    pub condition: Condition,
    /// Since when this condition holds, without interruption.
    pub since: Time,
    /// Requests that failed one after the other since the link last worked. 0 while it works.
    pub attempts: u32,
    /// The last trouble: what killed the connection, what the server answered. Kept while the link recovers, cleared once
    /// it works again.
    pub reason: Option<Reason>,
    /// When the next attempt is due, if the link waits.
    pub retry_at: Option<Time>,
    /// Objects whose present state cannot be decoded, whatever else is the case: what the store has of them is older, or
    /// nothing. Never told later than the RV that hides them.
    pub undecodable: usize,
}

/// What is the case with a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// A request is out, and nothing has been answered yet.
    Connecting,
    /// A list is flowing in.
    Listing,
    /// The watch stands: changes arrive as they happen.
    Watching,
    /// The watch stands, but not everything that the server has is here.
    Degraded(Degradation),
    /// The connection broke, or the server ended the watch too soon; another attempt is due.
    Retrying,
    /// No connection can be made: refused, no address, no route, an untrusted certificate.
    Unreachable,
    /// 401: the credentials are not accepted, also after they were read again.
    Unauthorized,
    /// 403: the credentials are accepted, and this is not allowed.
    Forbidden,
    /// 404: the server does not serve this resource.
    NotServed,
    /// 429: the server asks to be left alone for a while.
    Throttled,
    /// 5xx, or an answer that is not one of a Kubernetes API server.
    ServerError,
    /// Another 4xx: the server refuses the request as such. Asking again will not help before something is changed.
    Rejected,
    /// Told to stop; no further call will come.
    Stopped,
}

/// Why the content is not everything that the server has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// Objects whose present state cannot be decoded. What the store has of them is older. They are read again every 30 s
    /// at first and every 5 minutes later, and listed as soon as one can be read.
    Undecodable {
        /// The first of them, if its name can be known.
        key: Option<ObjectKey>,
        /// How many.
        count: usize,
    },
    /// The stream stands but neither changes nor bookmarks come through, though there are some: something between here
    /// and the server holds them back.
    Stalled,
}

impl Condition {
    /// One word in kebab case.
    pub fn word(&self) -> &'static str {
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

    /// Whether a watch stands.
    pub fn is_watching(&self) -> bool {
        matches!(self, Condition::Watching | Condition::Degraded(_))
    }

    /// Whether the link waits after a failure.
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
            other => f.write_str(other.word()),
        }
    }
}

impl LinkState {
    /// The state of a link that has not begun.
    pub(crate) fn new(now: Time) -> Self {
        LinkState {
            condition: Condition::Connecting,
            since: now,
            attempts: 0,
            reason: None,
            retry_at: None,
            undecodable: 0,
        }
    }
}

impl fmt::Display for LinkState {
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
