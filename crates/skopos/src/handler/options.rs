use std::time::Duration;

/// The options of one handler.
///
/// # Example
/// ```no_run
/// # fn example(pods: &skopos::Informer<k8s_openapi::api::core::v1::Pod>) -> Result<(), skopos::Closed> {
/// use std::time::Duration;
///
/// use skopos::{HandlerOptions, sync_handler};
///
/// let options = HandlerOptions::named("inventory").capacity(10_000).resync(Duration::from_secs(600));
/// let handler = pods.add_handler(sync_handler(|event| println!("{event:?}")), options)?;
/// println!("{:?}", handler.stats());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// A name for logs and statistics. Default: `handler`.
    pub name: String,
    /// The maximum number of waiting events; beyond it, changes are coalesced per key. A batch from the network is never
    /// split: a larger batch fits in when nothing else waits. Default: 1,000.
    pub capacity: usize,
    /// The number of retries after the handler panicked on an event, before the event is recorded and skipped. Default: 3.
    pub retries: u32,
    /// The wait before the first such retry; it doubles with each one. Default: 100 ms.
    pub retry_backoff: Duration,
    /// The interval at which every object is delivered again as an update without a change. Postponed while other events
    /// wait. Zero: never, also if the informer has a period. Default: that of the informer, or never.
    pub resync: Option<Duration>,
    /// The time that a running call may take after the handler is removed; then its future is dropped at its current await.
    /// Default: 500 ms.
    pub shutdown_limit: Duration,
}

impl HandlerOptions {
    /// Creates the default options with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets [`capacity`](Self::capacity).
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets [`retries`](Self::retries) and [`retry_backoff`](Self::retry_backoff).
    #[must_use]
    pub fn retries(self, retries: u32, backoff: Duration) -> Self {
        Self { retries, retry_backoff: backoff, ..self }
    }

    /// Sets [`resync`](Self::resync).
    #[must_use]
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }

    /// Sets [`shutdown_limit`](Self::shutdown_limit).
    #[must_use]
    pub fn shutdown_limit(self, shutdown_limit: Duration) -> Self {
        Self { shutdown_limit, ..self }
    }
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            name: "handler".to_owned(),
            capacity: 1_000,
            retries: 3,
            retry_backoff: Duration::from_millis(100),
            resync: None,
            shutdown_limit: Duration::from_millis(500),
        }
    }
}
