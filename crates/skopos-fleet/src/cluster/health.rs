//! Observations for the machine, derived from statistics of connections and lists/watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skopos::TransportStats;
use skopos::transport::{ConnectionId, TransportErrorKind};
use tokio::time::Instant;

use super::kinds::CachedInformer;
use super::machine::{Failure, Observation, Trouble};

/// State carried from one observation to the next.
#[derive(Debug, Default)]
pub(crate) struct HealthObserver {
    /// The number of responses on each connection at the last check.
    served: BTreeMap<ConnectionId, u64>,
    last_response: Option<Instant>,
    /// Silence found before this time no longer counts.
    silence_reset_at: Option<Instant>,
}

/// Time without any response after which an unanswered request means that the server is silent. A healthy server
/// answers freshness probes more often.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);

/// Returns the problem of a connection that may be dead.
fn doubtful_connection(stats: &TransportStats) -> Option<Trouble> {
    let doubtful =
        stats.connections.iter().any(|connection| connection.doubtful && connection.retired.is_none());
    doubtful.then(|| Trouble::new("ping_unanswered", "a PING is not answered: the connection may be dead"))
}

impl HealthObserver {
    pub(crate) fn observe(
        &mut self,
        stats: &TransportStats,
        kinds: &[Arc<CachedInformer>],
        now: Instant,
    ) -> Observation {
        let answered = self.answered(stats);
        if answered {
            self.last_response = Some(now);
        }
        let connected = stats.connections.iter().any(|connection| connection.retired.is_none());
        let down = stats.down.as_ref().map(|down| Failure {
            since: down.since,
            reason: down.last.to_string().into(),
            cause: down.last.root().label(),
        });
        let credentials = stats.credentials.as_ref();
        let refused = credentials.filter(|credentials| credentials.refused);
        // Without credentials no connection is dialed.
        let none = credentials.filter(|credentials| !credentials.refused);
        let none = none.map(|credentials| Failure {
            since: credentials.since,
            reason: credentials.reason.clone(),
            cause: "credentials",
        });
        Observation {
            // A server that rejects the credentials answers and closes the connection.
            connected: connected || refused.is_some(),
            answered_at: refused.map(|refused| refused.at).or(answered.then_some(now)),
            failing: none.or(down.clone()).filter(|_| !connected && refused.is_none()),
            trouble: refused
                .map(|refused| Trouble::new("unauthorized", refused.reason.clone()))
                // While a working connection exists, failing to open another is only a problem: silence on it would
                // have been found.
                .or_else(|| {
                    down.map(|down| Trouble::new(down.cause, format!("no new connection: {}", down.reason)))
                })
                .or_else(|| doubtful_connection(stats))
                .or_else(|| kinds.iter().find_map(|entry| entry.trouble())),
        }
    }

    /// Returns whether a response arrived since the last check.
    fn answered(&mut self, stats: &TransportStats) -> bool {
        let now: BTreeMap<ConnectionId, u64> =
            stats.connections.iter().map(|connection| (connection.id, connection.served)).collect();
        let before = std::mem::replace(&mut self.served, now);
        self.served.iter().any(|(id, served)| *served > before.get(id).copied().unwrap_or(0))
    }

    /// Returns start and evidence of the silence of a server that accepts connections.
    pub(crate) fn silence(&self, stats: &TransportStats) -> Option<Failure> {
        let last = stats.last_error.as_ref().filter(|last| Some(last.at) > self.silence_reset_at)?;
        let unanswered = matches!(
            *last.kind,
            TransportErrorKind::HeadersDeadline { .. }
                | TransportErrorKind::ProgressDeadline { .. }
                | TransportErrorKind::BodyDeadline { .. }
        );
        let silent =
            self.last_response.is_none_or(|last_response| last_response + SILENCE_TIMEOUT <= last.at);
        (unanswered && silent).then(|| Failure {
            since: last.at,
            reason: last.kind.to_string().into(),
            cause: "silence",
        })
    }

    /// Ignores silence found until now.
    pub(crate) fn reset_silence(&mut self, now: Instant) {
        self.silence_reset_at = Some(now);
    }
}
