use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Labels of a sample.
pub(super) type MetricLabels = Vec<(&'static str, String)>;

/// Propagation times of changes to the outside, by sink.
pub(super) type Propagation = Family<MetricLabels, Histogram, fn() -> Histogram>;

/// Makes the histograms of a notifier: from 5 ms, doubled 15 times, to 164 s.
pub(super) fn propagation() -> Propagation {
    Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 16)))
}
