use std::time::Duration;

/// Limits of removals, and times of draining.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// Removals are done only if the view is proven to be at most this old. Default 30 s.
    pub max_age: Duration,
    /// Additions are done as long as the view is at most this old. Default 1 h.
    pub add_when_stale: Duration,
    /// Delay between the moment a value is first missing and the list that may confirm its removal. Default 30 s.
    pub confirm: Duration,
    /// Fraction of all serving values that may be lost within ten minutes, from 0 to 1. Default 0.3.
    pub fraction: f64,
    /// Number of values that may always be lost. Default 10.
    pub at_least: usize,
    /// Number of values that may lose their traffic in a minute. Default 60.
    pub per_minute: u32,
    /// The last value of a name stays as long as its owner is there. Default true.
    pub keep_last: bool,
    /// Time for which a value may fail its checks before it loses its traffic. Default 5 s.
    pub settle: Duration,
    /// Time for which a draining value may keep its connections. Default 60 s.
    pub drain: Duration,
    /// Maximum number of names that one plan changes. Further changes follow with the next plan. Default 500.
    pub steps: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(30),
            add_when_stale: Duration::from_secs(3_600),
            confirm: Duration::from_secs(30),
            fraction: 0.3,
            at_least: 10,
            per_minute: 60,
            keep_last: true,
            settle: Duration::from_secs(5),
            drain: Duration::from_secs(60),
            steps: 500,
        }
    }
}
