use std::time::Duration;

/// How a work queue fares. The figures are those that client-go names in its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkQueueStats {
    /// The queue's name.
    pub name: String,
    /// Keys that wait for a worker now.
    pub depth: usize,
    /// The most that ever waited.
    pub deepest: usize,
    /// Keys that wait for their time now.
    pub delayed: usize,
    /// Keys that are being worked on now.
    pub processing: usize,
    /// Times that a key began to wait for a worker, for whatever reason.
    pub adds: u64,
    /// Additions that changed nothing, as the key waited already.
    pub collapsed: u64,
    /// Additions that were refused, as there were too many keys.
    pub refused: u64,
    /// Times that a key was to be tried again with its rate limit.
    pub retries: u64,
    /// Keys that were forgotten when the queue was shut down: delayed ones, and those that a drain did not get to.
    pub abandoned: u64,
    /// How long keys waited for a worker.
    pub latency: Durations,
    /// How long keys were worked on.
    pub work: Durations,
    /// How long the key has been worked on that takes longest now. When this grows and grows, a worker hangs.
    pub longest_running: Option<Duration>,
    /// How long all keys that are being worked on now have been, together.
    pub unfinished: Duration,
    /// Whether the queue was shut down.
    pub shut_down: bool,
}

/// Some lengths of time, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// All together.
    pub sum: Duration,
    /// The longest.
    pub longest: Duration,
    /// How many were at most as long as the bound of the same place in [`Durations::BOUNDS`].
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

    /// The mean; nothing if there were none.
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
