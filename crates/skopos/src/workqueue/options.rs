use super::limit::RateLimit;

/// The options of a work queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkQueueOptions {
    /// A name for logs and statistics. Default: `workqueue`.
    pub name: String,
    /// The maximum number of keys, each counted once: those that wait, are delayed, or are being worked on. Each takes some
    /// 200 bytes in addition to its own size. 0 counts as 1. Default: 1,000,000.
    pub capacity: usize,
    /// The wait before a key is tried again. Default: [`RateLimit::default`].
    pub rate_limit: RateLimit,
}

impl WorkQueueOptions {
    /// Creates the default options with a name.
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
