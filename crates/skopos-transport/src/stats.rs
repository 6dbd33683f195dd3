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
    /// Bytes received, as HTTP sees them (after TLS).
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Why it takes no new requests, if so.
    pub retired: Option<Arc<Death>>,
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
}

impl Counters {
    pub(crate) fn death(&mut self, connection: Option<ConnectionId>, death: Arc<Death>) {
        *self.deaths.entry(death.kind()).or_default() += 1;
        self.last_death = Some(LastDeath { at: Instant::now(), connection, death });
    }
}
