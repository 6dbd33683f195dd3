//! Rate limits: the wait before a key is tried again.

use std::time::Duration;

use skopos_reflect::exponential_delay;
use tokio::time::Instant;

/// A rate limit: the wait before a key is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimit {
    /// For each key separately: `first` after its first failure, and twice as long after each further one.
    Exponential {
        /// The wait after the first failure.
        first: Duration,
        /// The longest wait.
        longest: Duration,
    },
    /// For all keys together, as a token bucket: a burst at once, and then `per_second`.
    Bucket {
        /// The number of keys per second; 0 counts as 1.
        per_second: u32,
        /// The number of keys at once after a quiet time; 0 counts as 1.
        burst: u32,
    },
    /// The longest wait of several limits.
    MaxOf(Vec<RateLimit>),
    /// The wait of a limit, but at most this long.
    AtMost(Box<RateLimit>, Duration),
}

impl Default for RateLimit {
    /// Returns the limit of client-go's controllers (`DefaultTypedControllerRateLimiter`): the longer one of 5 ms to
    /// 1,000 s for each key, and of 10 a second with a burst of 100 for all.
    fn default() -> Self {
        Self::MaxOf(vec![
            Self::Exponential { first: Duration::from_millis(5), longest: Duration::from_secs(1000) },
            Self::Bucket { per_second: 10, burst: 100 },
        ])
    }
}

impl RateLimit {
    /// Returns the same limit, but with waits of at most `longest`.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        Self::AtMost(Box::new(self), longest)
    }
}

/// The state of a rate limit. It stores nothing about single keys: the queue counts their failures.
#[derive(Debug)]
pub(super) enum Limiter {
    Exponential { first: Duration, longest: Duration },
    Bucket(TokenBucket),
    MaxOf(Vec<Limiter>),
    AtMost(Box<Limiter>, Duration),
}

impl Limiter {
    pub(super) fn new(limit: &RateLimit) -> Self {
        match limit {
            RateLimit::Exponential { first, longest } => {
                Self::Exponential { first: *first, longest: *longest }
            }
            RateLimit::Bucket { per_second, burst } => Self::Bucket(TokenBucket::new(*per_second, *burst)),
            RateLimit::MaxOf(limits) => Self::MaxOf(limits.iter().map(Self::new).collect()),
            RateLimit::AtMost(limit, longest) => Self::AtMost(Box::new(Self::new(limit)), *longest),
        }
    }

    /// Returns the wait of a key with this number of earlier failures.
    pub(super) fn wait(&mut self, failures: u32, now: Instant) -> Duration {
        match self {
            Self::Exponential { first, longest } => exponential_delay(*first, *longest, failures),
            Self::Bucket(bucket) => bucket.reserve(now),
            // Each is asked, whatever the others return: a bucket counts every key.
            Self::MaxOf(limits) => {
                limits.iter_mut().map(|limit| limit.wait(failures, now)).max().unwrap_or_default()
            }
            Self::AtMost(limit, longest) => limit.wait(failures, now).min(*longest),
        }
    }
}

/// A token bucket that hands out future tokens: the wait lasts until the token is there.
#[derive(Debug)]
pub(super) struct TokenBucket {
    interval: Duration,
    /// The maximum lead over the even pace.
    burst: Duration,
    /// The time at which the bucket will be full again; in the past if it is full.
    full_at: Option<Instant>,
}

impl TokenBucket {
    fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, burst: interval.saturating_mul(burst.max(1)), full_at: None }
    }

    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        let wait = full_at.duration_since(now).saturating_sub(self.burst);
        // A caller that gets so long a wait will not come: do not run ahead any further.
        if wait <= MAX_RESERVATION {
            self.full_at = Some(full_at);
        }
        wait
    }
}

const MAX_RESERVATION: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn exponential(first: Duration, longest: Duration) -> Limiter {
        Limiter::new(&RateLimit::Exponential { first, longest })
    }

    #[test]
    fn wait_doubles_per_failure_without_overflow() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let century = s(100 * 365 * 24 * 3600);
        let now = Instant::now();
        let mut limiter = exponential(ms(1), s(1000));
        let waits: Vec<_> = (0..5).map(|failures| limiter.wait(failures, now)).collect();
        assert_eq!(waits, [ms(1), ms(2), ms(4), ms(8), ms(16)]);
        for (first, longest) in [(ms(1), s(1000)), (s(60), century), (Duration::MAX, Duration::MAX)] {
            let mut limiter = exponential(first, longest);
            let waits: Vec<_> = (0..2000).map(|failures| limiter.wait(failures, now)).collect();
            assert!(waits.is_sorted(), "{first:?}");
            assert_eq!(limiter.wait(1000, now), longest);
            assert_eq!(limiter.wait(u32::MAX, now), longest);
        }
        assert_eq!(exponential(Duration::ZERO, s(1)).wait(u32::MAX, now), Duration::ZERO);
        assert_eq!(exponential(s(9), s(1)).wait(0, now), s(1));
    }

    #[test]
    fn bucket_passes_burst_then_keeps_rate() {
        let ms = Duration::from_millis;
        let now = Instant::now();
        let mut bucket = Limiter::new(&RateLimit::Bucket { per_second: 10, burst: 3 });
        let waits: Vec<_> = (0..6).map(|_| bucket.wait(0, now)).collect();
        assert_eq!(waits, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
        // Six tokens were taken, and half a second brings five.
        let later = now + ms(500);
        let waits: Vec<_> = (0..3).map(|_| bucket.wait(0, later)).collect();
        assert_eq!(waits, [ms(0), ms(0), ms(100)]);
    }

    #[test]
    fn longest_limit_wins_below_cap() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let now = Instant::now();
        let limits = RateLimit::MaxOf(vec![
            RateLimit::Exponential { first: ms(5), longest: s(3) },
            RateLimit::Bucket { per_second: 1, burst: 1 },
        ]);
        let mut both = Limiter::new(&limits);
        assert_eq!([both.wait(0, now), both.wait(0, now), both.wait(9, now)], [ms(5), s(1), ms(2560)]);
        // The bucket was asked three times.
        assert_eq!(both.wait(0, now), s(3));
        let mut capped = Limiter::new(&limits.at_most(s(2)));
        let waits: Vec<_> = (0..5).map(|_| capped.wait(20, now)).collect();
        assert_eq!(waits, [s(2); 5]);
        assert_eq!(Limiter::new(&RateLimit::MaxOf(vec![])).wait(7, now), s(0));
    }

    #[test]
    fn default_limit_matches_client_go() {
        let now = Instant::now();
        let mut limiter = Limiter::new(&RateLimit::default());
        assert_eq!(limiter.wait(0, now), Duration::from_millis(5));
        assert_eq!(limiter.wait(60, now), Duration::from_secs(1000));
        for _ in 2..100 {
            limiter.wait(0, now);
        }
        assert_eq!(limiter.wait(0, now), Duration::from_millis(100));
    }
}
