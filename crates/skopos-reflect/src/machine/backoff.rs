//! How often something may be asked for.

use std::time::Duration;

use super::MachineOptions;
use crate::Time;

/// Delays that double with every failure in a row. Up to 30 % are added at random, never subtracted: six attempts in the
/// first minute and two in each later one are the most that a server in permanent trouble sees of one link.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

/// A token bucket: a burst at once, and then one each `refill`.
#[derive(Debug)]
pub(super) struct Bucket {
    capacity: u32,
    refill: Duration,
    /// When the bucket was, or will be, full again: each token taken moves it by `refill`.
    full_at: Time,
}

// === impl Backoff ===

impl Backoff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts one more failure and says how long to wait.
    pub(super) fn fail(&mut self, options: &MachineOptions, rng: &mut fastrand::Rng) -> Duration {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let base = options.backoff_min.saturating_mul(1 << doublings).min(options.backoff_max);
        base.mul_f64(1.0 + 0.3 * rng.f64())
    }
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn new(capacity: u32, refill: Duration) -> Self {
        Bucket { capacity, refill, full_at: Time::ORIGIN }
    }

    /// When the next token is there: now, or later.
    pub(super) fn available_at(&self, now: Time) -> Time {
        // With n tokens missing, the bucket is full n refills from now; the last token may be taken as long as no more
        // than `capacity - 1` are missing.
        let slack = self.refill * self.capacity.saturating_sub(1);
        (self.full_at - slack).max(now)
    }

    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let there = self.available_at(now) <= now;
        if there {
            self.spend(now);
        }
        there
    }

    /// Takes a token, also one that is not there yet.
    pub(super) fn spend(&mut self, now: Time) {
        self.full_at = self.full_at.max(now) + self.refill;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn backoff_makes_at_most_six_attempts_in_any_minute() {
        let options = MachineOptions::default();
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut backoff = Backoff::default();
            let mut attempts = vec![Duration::ZERO];
            for _ in 0..30 {
                let last = attempts[attempts.len() - 1];
                attempts.push(last + backoff.fail(&options, &mut rng));
            }
            for start in &attempts {
                let end = *start + Duration::from_secs(60);
                let count = attempts.iter().filter(|at| *at >= start && **at < end).count();
                assert!(count <= 6, "{count} attempts from {start:?} on: {attempts:?}");
            }
        }
    }

    #[test]
    fn bucket_allows_a_burst_and_then_a_rate() {
        let mut bucket = Bucket::new(3, Duration::from_secs(30));
        assert!(bucket.take(at(0)) && bucket.take(at(0)) && bucket.take(at(1)));
        assert!(!bucket.take(at(1)));
        assert_eq!(bucket.available_at(at(1)), at(30));
        assert!(bucket.take(at(30)));
        assert!(!bucket.take(at(59)));
        assert!(
            bucket.take(at(1000)) && bucket.take(at(1000)) && bucket.take(at(1000)) && !bucket.take(at(1000))
        );
    }
}
