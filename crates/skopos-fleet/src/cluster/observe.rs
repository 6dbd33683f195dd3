//! From figures of connections and lists/watches to what the machine is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skopos::TransportStats;
use skopos::transport::{ConnectionId, Death};
use tokio::time::Instant;

use super::kinds::Entry;
use super::machine::{Observation, Trouble};

/// What has to be remembered from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Eyes {
    /// The responses that each connection had brought.
    served: BTreeMap<ConnectionId, u64>,
    heard: Option<Instant>,
    /// Silence that was found before is over.
    forgiven: Option<Instant>,
}

/// A request without an answer says that the server is silent, if nothing else was heard for so long: of a server that is
/// well, proofs of freshness are heard more often.
const SILENCE: Duration = Duration::from_secs(40);

/// What is in doubt of the connections, before it is known.
fn doubt(stats: &TransportStats) -> Option<Trouble> {
    let doubtful =
        stats.connections.iter().any(|connection| connection.doubtful && connection.retired.is_none());
    doubtful.then(|| Trouble::of_cluster("a PING is not answered: the connection may be dead"))
}

impl Eyes {
    pub(crate) fn look(&mut self, stats: &TransportStats, kinds: &[Arc<Entry>], now: Instant) -> Observation {
        let answered = self.answered(stats);
        if answered {
            self.heard = Some(now);
        }
        let connected = stats.connections.iter().any(|connection| connection.retired.is_none());
        let down = stats.down.as_ref().map(|down| (down.since, Arc::<str>::from(down.last.to_string())));
        let credentials = stats.credentials.as_ref();
        let refused = credentials.filter(|credentials| credentials.refused);
        // Nothing is dialed without credentials.
        let none = credentials.filter(|credentials| !credentials.refused);
        let none = none.map(|credentials| (credentials.since, credentials.reason.clone()));
        Observation {
            // A server that refuses the credentials answers, and hangs up.
            connected: connected || refused.is_some(),
            answered_at: refused.map(|refused| refused.at).or(answered.then_some(now)),
            failing: none.or(down.clone()).filter(|_| !connected && refused.is_none()),
            trouble: refused
                .map(|refused| Trouble::of_cluster(refused.reason.clone()))
                // Where a connection stands, whose silence would have been found, that another is not to be had is no end.
                .or_else(|| down.map(|(_, why)| Trouble::of_cluster(format!("no new connection: {why}"))))
                .or_else(|| doubt(stats))
                .or_else(|| kinds.iter().find_map(|entry| entry.trouble())),
        }
    }

    /// Whether a response has come since the last look.
    fn answered(&mut self, stats: &TransportStats) -> bool {
        let now: BTreeMap<ConnectionId, u64> =
            stats.connections.iter().map(|connection| (connection.id, connection.served)).collect();
        let before = std::mem::replace(&mut self.served, now);
        self.served.iter().any(|(id, served)| *served > before.get(id).copied().unwrap_or(0))
    }

    /// Since when a server that can be connected to says nothing, and how that was found.
    pub(crate) fn silence(&self, stats: &TransportStats) -> Option<(Instant, Arc<str>)> {
        let last = stats.last_death.as_ref().filter(|last| Some(last.at) > self.forgiven)?;
        let unanswered = matches!(
            *last.death,
            Death::HeadersDeadline { .. } | Death::ProgressDeadline { .. } | Death::BodyDeadline { .. }
        );
        let silent = self.heard.is_none_or(|heard| heard + SILENCE <= last.at);
        (unanswered && silent).then(|| (last.at, last.death.to_string().into()))
    }

    /// What was found until now counts no more.
    pub(crate) fn forgive(&mut self, now: Instant) {
        self.forgiven = Some(now);
    }
}
