//! Deadlines, also of those who want none.

use std::time::Duration;

use tokio::time::Instant;

/// `limit` from now on.
pub(crate) fn after(limit: Duration) -> Instant {
    from(Instant::now(), limit)
}

/// `limit` after `begun`. `Duration::MAX` is a way to say "never", and no clock goes that far.
pub(crate) fn from(begun: Instant, limit: Duration) -> Instant {
    begun.checked_add(limit).unwrap_or_else(|| begun + NEVER)
}

/// 30 years.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);
