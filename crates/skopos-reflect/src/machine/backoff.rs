//! Rate limits: backoff and budgets.

use std::collections::VecDeque;
use std::time::Duration;

use super::MachineOptions;
use crate::Time;

/// Delays that double with every consecutive failure. Up to 30 % are added at random, never subtracted, which allows at
/// most six attempts in the first minute and two in each later one.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

/// A limit per minute, for any reason, which bounds the load of a reflector under all kinds of failure at once (I15). It
/// does not space requests out: the backoff does.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    /// The times of the last minute's spending, oldest first.
    spent: VecDeque<Time>,
}

/// Returns a duration times a factor, or the maximum duration if that is exceeded.
pub(super) fn scaled(span: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(span.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Returns a delay that doubles with each of `failures`, up to `longest`.
pub fn exponential_delay(first: Duration, longest: Duration, failures: u32) -> Duration {
    // No duration is longer than a nanosecond doubled this often.
    (0..failures.min(94)).fold(first, |delay, _| delay.saturating_mul(2)).min(longest)
}

/// The period of a budget: a minute, and a second for requests that reach the server later than the ones before them.
const PERIOD: Duration = Duration::from_secs(61);

impl Backoff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts one more failure and returns the delay.
    pub(super) fn fail(&mut self, options: &MachineOptions, rng: &mut fastrand::Rng) -> Duration {
        let base = exponential_delay(options.backoff_min, options.backoff_max, self.failures);
        self.failures = self.failures.saturating_add(1);
        scaled(base, 1.0 + 0.3 * rng.f64())
    }
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Budget { limit, spent: VecDeque::with_capacity(limit) }
    }

    /// Returns the time at which `count` units may be spent: now, or later.
    pub(super) fn available_at(&self, now: Time, count: usize) -> Time {
        let limiting = (self.spent.len() + count).checked_sub(self.limit + 1).and_then(|i| self.spent.get(i));
        limiting.map_or(now, |at| (*at + PERIOD).max(now))
    }

    /// Returns whether half of the last minute's budget is left: early attempts reduce the budget for later ones.
    pub(super) fn is_ample(&self, now: Time) -> bool {
        2 * self.spent.iter().filter(|at| **at + PERIOD > now).count() <= self.limit
    }

    pub(super) fn spend(&mut self, now: Time) {
        while self.spent.front().is_some_and(|at| *at + PERIOD <= now) {
            self.spent.pop_front();
        }
        self.spent.push_back(now);
    }

    /// Spends one unit if one is available now, and returns whether it did.
    pub(super) fn try_spend(&mut self, now: Time) -> bool {
        let available = self.available_at(now, 1) <= now;
        if available {
            self.spend(now);
        }
        available
    }

    /// Gives the last unit back: the request came to nothing.
    pub(super) fn refund(&mut self) {
        self.spent.pop_back();
    }

    /// Clears the past spending.
    pub(super) fn renew(&mut self) {
        self.spent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::after_origin(Duration::from_secs_f64(seconds))
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
    fn budget_holds_in_any_minute_and_wastes_nothing() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut budget = Budget::new(6);
            let (mut now, mut spent) = (0.0, Vec::<f64>::new());
            for _ in 0..300 {
                now += if rng.u32(0..10) == 0 { 100.0 * rng.f64() } else { rng.f64() };
                let recent = spent.iter().filter(|at| **at > now - 61.0).count();
                assert_eq!(budget.is_ample(at(now)), recent <= 3);
                assert_eq!(budget.try_spend(at(now)), recent < 6, "{now}: {spent:?}");
                if recent < 6 {
                    spent.push(now);
                }
            }
        }
    }

    #[test]
    fn budget_says_when_there_is_more() {
        let mut budget = Budget::new(2);
        assert!(budget.try_spend(at(0.0)) && budget.try_spend(at(7.0)) && !budget.try_spend(at(8.0)));
        assert!(!budget.is_ample(at(60.9)) && budget.is_ample(at(61.0)), "what is over does not count");
        assert_eq!(budget.available_at(at(8.0), 1), at(61.0));
        assert_eq!(budget.available_at(at(8.0), 2), at(68.0));
        budget.refund();
        assert_eq!(budget.available_at(at(8.0), 1), at(8.0));
        assert_eq!(budget.available_at(at(8.0), 2), at(61.0));
        assert!(budget.try_spend(at(9.0)) && budget.try_spend(at(61.0)));
        assert_eq!(budget.available_at(at(61.0), 1), at(70.0));
        budget.renew();
        assert!(budget.try_spend(at(62.0)) && budget.try_spend(at(62.0)));
    }
}
