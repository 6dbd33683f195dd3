//! Incidents of clusters: how long a fault was unseen, and how long it lasted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Figures about the incidents of one cause, of all clusters since the fleet exists.
///
/// An incident begins when a live cluster is found to have a problem, and ends when it is live again. A cluster that is paused,
/// removed or moved to another address meanwhile ends it without having healed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentStats {
    /// From the last proof that all was well until the problem was found.
    pub detection: DurationStats,
    /// From the detection until the cluster was live again.
    pub healing: DurationStats,
}

/// Distribution of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationStats {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The number of durations up to each of [`DurationStats::BOUNDS`] and above the one before, and last of those above all.
    pub buckets: [u64; DurationStats::BOUNDS.len() + 1],
}

impl DurationStats {
    /// Upper bounds of the buckets, in seconds. 20 and 40 are what the promises are about: docs/evidence/detection.md.
    pub const BOUNDS: [f64; 13] =
        [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(Self::BOUNDS.len())] += 1;
        self.count += 1;
        self.sum += duration;
    }
}

/// Step of an incident, with the cause that was found first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncidentStep {
    /// A problem was found, this long after the last proof that all was well.
    Detected { cause: &'static str, unseen: Duration },
    /// The cluster is live again, this long after the detection.
    Healed { cause: &'static str, lasted: Duration },
}

/// Recorder of the incidents of all clusters of a fleet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incidents {
    by_cause: Arc<Mutex<BTreeMap<&'static str, IncidentStats>>>,
}

impl Incidents {
    pub(crate) fn record(&self, step: IncidentStep) {
        let mut by_cause = self.by_cause.lock();
        match step {
            IncidentStep::Detected { cause, unseen } => {
                by_cause.entry(cause).or_default().detection.observe(unseen);
            }
            IncidentStep::Healed { cause, lasted } => {
                by_cause.entry(cause).or_default().healing.observe(lasted);
            }
        }
    }

    pub(crate) fn stats(&self) -> BTreeMap<&'static str, IncidentStats> {
        self.by_cause.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_first_bucket_that_holds_them() {
        let incidents = Incidents::default();
        for millis in [100, 101, 20_000, 7_200_000] {
            let unseen = Duration::from_millis(millis);
            incidents.record(IncidentStep::Detected { cause: "reset", unseen });
        }
        incidents.record(IncidentStep::Healed { cause: "reset", lasted: Duration::from_secs(3) });
        let stats = incidents.stats().remove("reset").unwrap();
        assert_eq!(stats.detection.buckets, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.detection.sum, Duration::from_millis(7_220_201));
        assert_eq!((stats.detection.count, stats.healing.count), (4, 1));
    }
}
