//! The options of a controller.

use std::time::Duration;

use skopos::workqueue::RateLimit;

/// The options of a controller. The defaults are those of controller-runtime where it has them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ControllerOptions {
    /// The name, for logs and metrics.
    pub name: String,
    /// The maximum number of reconciliations that run at the same time, each of another key. They share one task, so blocking
    /// work belongs into `spawn_blocking`. 0 counts as 1. Default: 1.
    pub workers: usize,
    /// The maximum duration of one reconciliation. It is dropped then, and the key is retried. Default: 2 minutes.
    pub time_limit: Duration,
    /// The maximum age of the content that a reconciliation may see. While the view is older, no reconciliation begins.
    /// Default: 60 s.
    pub max_age: Duration,
    /// The time for which a key may wait until the view shows the controller's own last write of it. A key that waits longer
    /// is counted and logged, and continues to wait. Waiting keys hold no worker. Default: 10 s.
    pub own_write_limit: Duration,
    /// The delays of keys that failed. Default: [`RateLimit::default`], which is client-go's.
    pub rate_limit: RateLimit,
    /// The maximum time for running reconciliations when the controller stops. They are dropped then. Default: 30 s.
    pub shutdown_limit: Duration,
}

impl ControllerOptions {
    /// Makes options with the defaults.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            workers: 1,
            time_limit: Duration::from_secs(120),
            max_age: Duration::from_secs(60),
            own_write_limit: Duration::from_secs(10),
            rate_limit: RateLimit::default(),
            shutdown_limit: Duration::from_secs(30),
        }
    }

    /// Sets [`workers`](Self::workers).
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Sets [`time_limit`](Self::time_limit).
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets [`max_age`](Self::max_age).
    #[must_use]
    pub fn max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// Sets [`own_write_limit`](Self::own_write_limit).
    #[must_use]
    pub fn own_write_limit(self, own_write_limit: Duration) -> Self {
        Self { own_write_limit, ..self }
    }

    /// Sets [`rate_limit`](Self::rate_limit).
    #[must_use]
    pub fn rate_limit(self, rate_limit: RateLimit) -> Self {
        Self { rate_limit, ..self }
    }

    /// Sets [`shutdown_limit`](Self::shutdown_limit).
    #[must_use]
    pub fn shutdown_limit(self, shutdown_limit: Duration) -> Self {
        Self { shutdown_limit, ..self }
    }
}
