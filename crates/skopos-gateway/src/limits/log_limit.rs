//! A rate limit on log lines about events that may happen thousands of times a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A limit of one log line per interval.
#[derive(Debug)]
pub(crate) struct LogLimit {
    interval: Duration,
    last: Mutex<Option<Instant>>,
}

impl LogLimit {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::new(None) }
    }

    /// Returns whether a line may be written now, and counts it.
    pub(crate) fn permits(&self) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock();
        let permitted = last.is_none_or(|last| now - last >= self.interval);
        if permitted {
            *last = Some(now);
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_per_interval_is_permitted() {
        let limit = LogLimit::new(Duration::from_secs(60));
        assert_eq!([limit.permits(), limit.permits()], [true, false]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!([limit.permits(), limit.permits()], [true, false]);
    }
}
