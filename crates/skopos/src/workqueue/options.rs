use super::limit::RateLimit;

/// How a work queue behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkQueueOptions {
    /// A name for logs and statistics. Default: `workqueue`.
    pub name: String,
    /// How many keys there may be, each counted once: those that wait, are delayed, or are being worked on. Each takes some
    /// 200 bytes beside its own size. 0 counts as 1. Default: 1,000,000.
    pub capacity: usize,
    /// How long a key waits that is tried again. Default: [`RateLimit::default`].
    pub rate_limit: RateLimit,
}

impl WorkQueueOptions {
    /// The defaults, with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets [`capacity`](Self::capacity).
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets [`rate_limit`](Self::rate_limit).
    #[must_use]
    pub fn rate_limit(self, rate_limit: RateLimit) -> Self {
        Self { rate_limit, ..self }
    }
}

impl Default for WorkQueueOptions {
    fn default() -> Self {
        Self { name: "workqueue".to_owned(), capacity: 1_000_000, rate_limit: RateLimit::default() }
    }
}
