//! Wall clock that follows tokio's clock, so that a paused test stamps objects with virtual time.

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall clock: a base time plus the time elapsed on tokio's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    base: Timestamp,
    started: Instant,
}

impl ServerClock {
    /// Creates a clock that shows `base` now.
    pub(crate) fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = jiff::SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        self.base.checked_add(elapsed).unwrap_or(self.base)
    }

    /// Returns the time as in `metadata.creationTimestamp`: whole seconds, `2026-01-31T12:00:00Z`.
    pub(crate) fn now_text(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
