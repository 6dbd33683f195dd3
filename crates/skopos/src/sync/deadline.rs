//! Deadlines, including none.

use std::time::Duration;

use tokio::time::Instant;

/// Returns the instant `limit` from now.
pub(crate) fn after(limit: Duration) -> Instant {
    from(Instant::now(), limit)
}

/// Returns the instant `limit` after `begun`. `Duration::MAX` means "never", and no clock goes that far.
pub(crate) fn from(begun: Instant, limit: Duration) -> Instant {
    begun.checked_add(limit).unwrap_or_else(|| begun + MAX_WAIT)
}

/// The longest wait: 30 years.
const MAX_WAIT: Duration = Duration::from_secs(30 * 365 * 86_400);
