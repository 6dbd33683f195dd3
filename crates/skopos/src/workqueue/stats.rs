use std::time::Duration;

/// The statistics of a work queue, corresponding to client-go's metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkQueueStats {
    /// The queue's name.
    pub name: String,
    /// The number of keys that wait for a worker now.
    pub depth: usize,
    /// The maximum number of keys that ever waited.
    pub deepest: usize,
    /// The number of keys that are delayed now.
    pub delayed: usize,
    /// The number of keys that are being worked on now.
    pub processing: usize,
    /// The number of times that a key began to wait for a worker, for whatever reason.
    pub adds: u64,
    /// Additions that changed nothing, because the key waited already.
    pub collapsed: u64,
    /// Additions that were refused, because there were too many keys.
    pub refused: u64,
    /// The number of retries with the rate limit.
    pub retries: u64,
    /// Keys that were dropped when the queue was shut down: delayed ones, and those that a drain did not reach.
    pub abandoned: u64,
    /// The times that keys waited for a worker.
    pub latency: Durations,
    /// The times that keys were worked on.
    pub work: Durations,
    /// The time for which the longest running key has been worked on. If it grows and grows, a worker hangs.
    pub longest_running: Option<Duration>,
    /// The sum of the times for which the current keys have been worked on.
    pub unfinished: Duration,
    /// True if the queue was shut down.
    pub shut_down: bool,
}

/// A summary of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// The number of durations.
    pub count: u64,
    /// The sum.
    pub sum: Duration,
    /// The longest.
    pub longest: Duration,
    /// The numbers of durations up to each bound of [`Durations::BOUNDS`].
    pub at_most: [u64; 9],
}

impl Durations {
    /// The bounds of [`Durations::at_most`].
    pub const BOUNDS: [Duration; 9] = [
        Duration::from_micros(10),
        Duration::from_micros(100),
        Duration::from_millis(1),
        Duration::from_millis(10),
        Duration::from_millis(100),
        Duration::from_secs(1),
        Duration::from_secs(10),
        Duration::from_secs(100),
        Duration::from_secs(1000),
    ];

    /// Returns the mean; `None` if there are no durations.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }

    pub(super) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
        for (count, bound) in self.at_most.iter_mut().zip(Self::BOUNDS) {
            *count += u64::from(time <= bound);
        }
    }
}
