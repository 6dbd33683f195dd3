//! Statistics of a transport, as plain values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::class::ConnectionId;
use crate::dialer::Protocol;
use crate::error::TransportErrorKind;

/// A snapshot of a transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportStats {
    /// The open connections, including retired ones whose streams continue.
    pub connections: Vec<ConnectionStats>,
    /// Dials under way.
    pub dialing: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Dials started.
    pub dials: u64,
    /// Dials that failed.
    pub dial_failures: u64,
    /// Requests sent on a connection.
    pub requests: u64,
    /// Requests sent a second time because the server had not processed them, or a used connection turned out dead.
    pub resent: u64,
    /// Failures of connections, dials and requests, by [`TransportErrorKind::label`].
    pub errors: BTreeMap<&'static str, u64>,
    /// The last failure.
    pub last_error: Option<LastError>,
    /// The current outage: its start, the last error and the next dial.
    pub down: Option<Outage>,
    /// Number of detected suspends or VM pauses.
    pub suspends: u64,
    /// Total extension of deadlines because this process lagged.
    pub lagged: Duration,
    /// Number of credential renewals after a 401.
    pub credential_refreshes: u64,
    /// The problem of the credentials, until the server accepts some.
    pub credentials: Option<CredentialProblem>,
}

impl TransportStats {
    /// Returns the number of open streams.
    pub fn open_streams(&self) -> usize {
        self.connections.iter().map(|c| c.open_streams).sum()
    }
}

/// Statistics of one connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The connection's ID.
    pub id: ConnectionId,
    /// Set if it carries watches; otherwise it carries all other requests.
    pub for_watches: bool,
    /// The protocol.
    pub protocol: Protocol,
    /// The other end, and the address of the proxy on the way there.
    pub peer: Arc<str>,
    /// Requests and bodies on it now.
    pub open_streams: usize,
    /// Maximum number of concurrent streams.
    pub max_streams: usize,
    /// Time since it was established.
    pub age: Duration,
    /// The number of responses that it brought.
    pub served: u64,
    /// Time since it last received anything.
    pub silent: Duration,
    /// Set while a PING is unanswered for longer than a healthy connection takes. The connection ends when there is still
    /// no answer after [`TransportOptions::ping_timeout`](crate::TransportOptions::ping_timeout).
    pub doubtful: bool,
    /// Bytes received, as HTTP sees them (after TLS).
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// The reason why it takes no new requests, if so.
    pub retired: Option<Arc<TransportErrorKind>>,
}

/// A problem of the credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CredentialProblem {
    /// Its start: no request was accepted since.
    pub since: Instant,
    /// The time when it was last seen.
    pub at: Instant,
    /// Set if the server rejected them (401); otherwise there are none, because a plugin has failed.
    pub refused: bool,
    /// The human-readable problem.
    pub reason: Arc<str>,
}

/// The last failure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastError {
    /// The time.
    pub at: Instant,
    /// The connection, unless it was a dial.
    pub connection: Option<ConnectionId>,
    /// The reason.
    pub kind: Arc<TransportErrorKind>,
}

/// An outage: the cluster cannot be reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outage {
    /// Failed attempts in a row.
    pub attempts: u64,
    /// Start of the first failed attempt.
    pub since: Instant,
    /// Time of the next attempt.
    pub next: Instant,
    /// The error of the last attempt.
    pub last: Arc<TransportErrorKind>,
}

/// Monotonic counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) dials: u64,
    pub(crate) dial_failures: u64,
    pub(crate) requests: u64,
    pub(crate) resent: u64,
    pub(crate) suspends: u64,
    pub(crate) errors: BTreeMap<&'static str, u64>,
    pub(crate) last_error: Option<LastError>,
    pub(crate) credentials: Option<CredentialProblem>,
}

impl Counters {
    /// Records that the server has rejected the credentials, or that there are none.
    pub(crate) fn credentials_failed(&mut self, refused: bool, reason: Arc<str>) {
        let at = Instant::now();
        let since = self.credentials.as_ref().map_or(at, |before| before.since);
        self.credentials = Some(CredentialProblem { since, at, refused, reason });
    }

    pub(crate) fn count_error(&mut self, connection: Option<ConnectionId>, kind: Arc<TransportErrorKind>) {
        *self.errors.entry(kind.label()).or_default() += 1;
        self.last_error = Some(LastError { at: Instant::now(), connection, kind });
    }
}
