//! What a transport has done and has now, as plain values.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{class::ConnectionId, dialer::Protocol, error::Death};

/// A look at a transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportStats {
    /// The connections that stand now, also retired ones whose streams go on.
    pub connections: Vec<ConnectionStats>,
    /// Dials under way.
    pub dialing: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Dials begun.
    pub dials: u64,
    /// Dials that failed.
    pub dial_failures: u64,
    /// Requests given to a connection.
    pub requests: u64,
    /// Requests sent a second time because the server had not looked at them, or a used connection turned out dead.
    pub resent: u64,
    /// Connections, dials and requests that ended badly, by [`Death::kind`].
    pub deaths: BTreeMap<&'static str, u64>,
    /// The last of them.
    pub last_death: Option<LastDeath>,
    /// While dials fail: since when, how the last one failed, and when the next is due.
    pub down: Option<Down>,
    /// Times that a suspend or VM pause was noticed.
    pub suspends: u64,
    /// By how much deadlines have been extended because this process lagged, all in all.
    pub lagged: Duration,
    /// Times that a 401 made us have credentials anew.
    pub credential_refreshes: u64,
    /// What is wrong with the credentials, until the server accepts some.
    pub credentials: Option<CredentialTrouble>,
}

impl TransportStats {
    /// Streams that are open now.
    pub fn open_streams(&self) -> usize {
        self.connections.iter().map(|c| c.open_streams).sum()
    }
}

/// One connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Its name.
    pub id: ConnectionId,
    /// Whether it carries watches; else everything else.
    pub for_watches: bool,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// The other end, and the address of the proxy on the way there.
    pub peer: Arc<str>,
    /// Requests and bodies on it now.
    pub open_streams: usize,
    /// Most that it may have at once.
    pub max_streams: usize,
    /// Time since it stood.
    pub age: Duration,
    /// Responses that it brought.
    pub served: u64,
    /// Time since it last brought anything.
    pub silent: Duration,
    /// A PING is not answered although that takes no more than a moment on a connection that is well. The connection ends when it is
    /// still not answered after [`TransportOptions::ping_timeout`](crate::TransportOptions::ping_timeout).
    pub doubtful: bool,
    /// Bytes received, as HTTP sees them (after TLS).
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Why it takes no new requests, if so.
    pub retired: Option<Arc<Death>>,
}

/// What is wrong with the credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CredentialTrouble {
    /// Since when, without a request that was accepted.
    pub since: Instant,
    /// When it was seen last.
    pub at: Instant,
    /// Whether the server refused them (401); otherwise there are none, as a plugin has failed.
    pub refused: bool,
    /// What is wrong, for people.
    pub reason: Arc<str>,
}

/// What ended last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastDeath {
    /// When.
    pub at: Instant,
    /// The connection, unless it was a dial.
    pub connection: Option<ConnectionId>,
    /// Why.
    pub death: Arc<Death>,
}

/// The cluster cannot be reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Down {
    /// Failed attempts in a row.
    pub attempts: u64,
    /// Begin of the first failed attempt.
    pub since: Instant,
    /// When the next attempt may be made.
    pub next: Instant,
    /// How the last one failed.
    pub last: Arc<Death>,
}

/// Counters that only go up.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) dials: u64,
    pub(crate) dial_failures: u64,
    pub(crate) requests: u64,
    pub(crate) resent: u64,
    pub(crate) suspends: u64,
    pub(crate) deaths: BTreeMap<&'static str, u64>,
    pub(crate) last_death: Option<LastDeath>,
    pub(crate) credentials: Option<CredentialTrouble>,
}

impl Counters {
    /// The server has refused the credentials, or there are none.
    pub(crate) fn credentials_failed(&mut self, refused: bool, reason: Arc<str>) {
        let at = Instant::now();
        let since = self.credentials.as_ref().map_or(at, |before| before.since);
        self.credentials = Some(CredentialTrouble { since, at, refused, reason });
    }

    pub(crate) fn death(&mut self, connection: Option<ConnectionId>, death: Arc<Death>) {
        *self.deaths.entry(death.kind()).or_default() += 1;
        self.last_death = Some(LastDeath { at: Instant::now(), connection, death });
    }
}
