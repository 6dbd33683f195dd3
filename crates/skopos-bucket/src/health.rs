use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Recent results of a bucket.
#[derive(Default)]
pub(crate) struct Health {
    failures: u32,
    /// The end of the time without requests.
    paused_until: Option<Instant>,
    reason: Option<Arc<str>>,
}

/// Consecutive failures that pause the bucket.
pub(crate) const MAX_FAILURES: u32 = 3;

impl Health {
    /// Returns the reason if the bucket is paused now.
    pub(crate) fn pause(&mut self) -> Option<Arc<str>> {
        let until = self.paused_until?;
        if Instant::now() < until {
            return self.reason.clone();
        }
        self.paused_until = None;
        None
    }

    /// Records the end of a call that counts as this number of failures.
    pub(crate) fn note(&mut self, failures: u32, reason: Option<String>, pause: Duration) {
        if failures == 0 {
            *self = Self::default();
            return;
        }
        self.failures += failures;
        // After a pause one failure is enough.
        if self.failures >= MAX_FAILURES {
            self.failures = MAX_FAILURES - 1;
            self.paused_until = Some(Instant::now() + pause);
            self.reason = reason.map(Into::into);
        }
    }
}
