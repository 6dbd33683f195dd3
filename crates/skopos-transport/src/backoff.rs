//! Schedule of the next dial to a cluster. Pure: no clock, no I/O.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::TransportErrorKind;
use crate::options::BackoffOptions;
use crate::stats::Outage;

/// The backoff of one cluster: for any number of requests, a dead server sees only the dials that this admits.
#[derive(Debug)]
pub(crate) struct DialBackoff {
    options: BackoffOptions,
    rng: fastrand::Rng,
    /// Start of the first attempt of the current run of failures.
    failing_since: Option<Instant>,
    closed: Option<(Instant, Arc<TransportErrorKind>)>,
    ever_connected: bool,
    failures: u64,
    /// Dials that may start at once, and the time of that count.
    burst: u32,
    tokens: f64,
    counted_at: Option<Instant>,
}

/// The long-term rate of dials per second to a server, even if every dial succeeds. A server that ends its connections as
/// fast as they are made (a storm of GOAWAYs) gets no extra load from that. HTTP/1.1 is exempt: there each request has its
/// own connection.
const DIALS_PER_SECOND: f64 = 4.0;

/// The decision on a dial that would start now.
#[derive(Debug, PartialEq)]
pub(crate) enum Gate {
    Open,
    Closed { until: Instant, last: Arc<TransportErrorKind> },
}

impl DialBackoff {
    /// Creates a backoff. `burst` is the number of dials that may start at once.
    pub(crate) fn new(options: BackoffOptions, burst: u32, rng: fastrand::Rng) -> Self {
        Self {
            options,
            rng,
            failing_since: None,
            closed: None,
            ever_connected: false,
            failures: 0,
            tokens: f64::from(burst),
            counted_at: None,
            burst,
        }
    }

    pub(crate) fn gate(&self, now: Instant) -> Gate {
        match &self.closed {
            Some((until, last)) if now < *until => Gate::Closed { until: *until, last: last.clone() },
            _ => Gate::Open,
        }
    }

    /// Takes the permission for one dial of a shared connection; otherwise returns the time of the next one.
    pub(crate) fn take_token(&mut self, now: Instant) -> Result<(), Instant> {
        let passed = self.counted_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        self.tokens = (self.tokens + passed.as_secs_f64() * DIALS_PER_SECOND).min(f64::from(self.burst));
        self.counted_at = Some(now);
        if self.tokens < 1.0 {
            // Slightly later than exact, so that rounding does not make it come too early.
            let wait = (1.0 - self.tokens) / DIALS_PER_SECOND + 0.001;
            return Err(now + Duration::from_secs_f64(wait));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    /// Returns the error of the last dial, unless one has succeeded since.
    pub(crate) fn last_error(&self) -> Option<&Arc<TransportErrorKind>> {
        self.closed.as_ref().map(|(_, last)| last)
    }

    /// Returns whether no failure is known, so that several dials may run at once.
    pub(crate) fn is_healthy(&self) -> bool {
        self.ever_connected && self.failing_since.is_none()
    }

    /// Records that a dial started at `started` failed at `now`, or that its connection died before any response.
    pub(crate) fn failed(&mut self, started: Instant, now: Instant, error_kind: Arc<TransportErrorKind>) {
        self.failures += 1;
        let since = *self.failing_since.get_or_insert(started);
        let (interval, jitter) = (self.interval_since(since, now), 0.2 * self.rng.f64());
        // At first the pause is never shorter than the interval, later never longer: a server that was down for long is
        // found within that interval of its return.
        let pause =
            interval.mul_f64(if self.is_initial_phase(since, now) { 1.0 + jitter } else { 1.0 - jitter });
        // Counted from the start, so that slow failures do not stretch the interval; but never back to back.
        let until = (started + pause).max(now + pause / 4);
        self.closed = Some((until, error_kind));
    }

    /// Returns the current interval between dials of a server that does not respond.
    pub(crate) fn interval(&self, now: Instant) -> Duration {
        self.interval_since(self.failing_since.unwrap_or(now), now)
    }

    fn interval_since(&self, since: Instant, now: Instant) -> Duration {
        if self.is_initial_phase(since, now) { self.options.first } else { self.options.later }
    }

    fn is_initial_phase(&self, since: Instant, now: Instant) -> bool {
        now.duration_since(since) < self.options.first_for
    }

    /// Records a new connection. Requests may use it; the run of failures ends only with its first response.
    pub(crate) fn connected(&mut self) {
        self.closed = None;
        self.ever_connected = true;
    }

    /// Records that a connection brought a response.
    pub(crate) fn response_received(&mut self) {
        self.failing_since = None;
        self.failures = 0;
    }

    /// Resets the backoff, because the server is probably back: the next dial is due now.
    pub(crate) fn reset(&mut self) {
        self.closed = None;
        self.failing_since = None;
        self.failures = 0;
    }

    /// Returns the current run of failures for stats, unless a connection was made since.
    pub(crate) fn down(&self) -> Option<Outage> {
        let (next, last) = self.closed.clone()?;
        Some(Outage { attempts: self.failures, since: self.failing_since?, next, last })
    }

    /// Returns the upper bound of the pause between two attempts right now, for tests.
    #[cfg(test)]
    fn longest_pause(&self) -> Duration {
        self.options.first.mul_f64(1.2).max(self.options.later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Arc<TransportErrorKind> {
        Arc::new(TransportErrorKind::Refused { to: "there".into(), reason: "no".into() })
    }

    fn backoff(seed: u64) -> DialBackoff {
        DialBackoff::new(BackoffOptions::default(), 10, fastrand::Rng::with_seed(seed))
    }

    /// Returns the times of all attempts in `span`, if each takes `each` and fails, with a request every 10 ms.
    fn attempts(backoff: &mut DialBackoff, begin: Instant, span: Duration, each: Duration) -> Vec<Duration> {
        let mut now = begin;
        let mut at = Vec::new();
        while now < begin + span {
            if backoff.gate(now) == Gate::Open {
                at.push(now - begin);
                backoff.failed(now, now + each, refused());
                now += each;
            }
            now += Duration::from_millis(10);
        }
        at
    }

    #[tokio::test(start_paused = true)]
    async fn dial_rate_drops_to_one_per_5s() {
        for seed in 0..50 {
            let at = attempts(&mut backoff(seed), Instant::now(), Duration::from_secs(180), Duration::ZERO);
            let first = at.iter().filter(|t| **t < Duration::from_secs(60)).count();
            let later = at.len() - first;
            assert!((50..=60).contains(&first), "seed {seed}: {first} in the first minute");
            assert!((24..=30).contains(&later), "seed {seed}: {later} in the two minutes after");
            for pair in at.windows(2) {
                assert!(pair[1] - pair[0] >= Duration::from_secs(1), "seed {seed}: {pair:?}");
                assert!(pair[1] - pair[0] <= Duration::from_millis(5_020), "seed {seed}: {pair:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_failures_do_not_follow_back_to_back() {
        let at = attempts(&mut backoff(1), Instant::now(), Duration::from_secs(60), Duration::from_secs(10));
        for pair in at.windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_millis(10_250), "{pair:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn successful_dials_are_limited_too() {
        let mut backoff = backoff(1);
        let begin = Instant::now();
        let (mut now, mut dials) = (begin, 0);
        while now < begin + Duration::from_secs(10) {
            match backoff.take_token(now) {
                Ok(()) => dials += 1,
                Err(at) => now = at,
            }
        }
        assert!((48..=51).contains(&dials), "10 at once, then 4 a second, but {dials}");
        now += Duration::from_secs(3600);
        assert_eq!((0..20).filter(|_| backoff.take_token(now).is_ok()).count(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn only_response_resets_backoff() {
        let mut backoff = backoff(7);
        let begin = Instant::now();
        let mut now = begin;
        // A server that accepts and at once drops is as dead as one that refuses.
        for _ in 0..100 {
            assert_eq!(backoff.gate(now), Gate::Open);
            backoff.connected();
            assert_eq!(backoff.gate(now), Gate::Open);
            backoff.failed(now, now, refused());
            let Gate::Closed { until, last } = backoff.gate(now) else { panic!("open after a failure") };
            assert_eq!(last, refused());
            assert!(until - now <= backoff.longest_pause());
            now = until;
        }
        assert!(!backoff.is_healthy());
        assert!(now - begin > Duration::from_secs(200), "the pauses must have grown: {:?}", now - begin);
        backoff.connected();
        backoff.response_received();
        assert!(backoff.is_healthy() && backoff.last_error().is_none());
        backoff.failed(now, now, refused());
        let Gate::Closed { until, .. } = backoff.gate(now) else { panic!("open after a failure") };
        assert!(until - now <= Duration::from_millis(1_200), "a new stretch begins with short pauses");
    }
}
