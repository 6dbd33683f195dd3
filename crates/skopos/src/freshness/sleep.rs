//! Detection of a suspended machine: its monotonic clock stops meanwhile, and every age would be too small.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::sync::Mutex;

/// The wall clock's lead over the monotonic clock. It grows by the time that the machine is suspended.
///
/// Both are the machine's real clocks, also under a test's virtual time. So only a real suspend changes the lead, or
/// setting the wall clock forward, which overstates ages until the next probe.
#[derive(Clone)]
pub struct SleepClock(Arc<dyn Fn() -> i128 + Send + Sync>);

impl SleepClock {
    /// Creates a clock that reads the machine's clocks.
    pub fn system() -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "the real monotonic clock is the one that does not advance"
        )]
        let origin = std::time::Instant::now();
        Self(Arc::new(move || {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            nanos(wall) - nanos(origin.elapsed())
        }))
    }

    /// Creates a clock for a test: `lead` returns nanoseconds.
    pub fn from_fn(lead: impl Fn() -> i128 + Send + Sync + 'static) -> Self {
        Self(Arc::new(lead))
    }

    /// Returns the current lead, in nanoseconds; only differences are meaningful.
    fn lead(&self) -> i64 {
        i64::try_from((self.0)()).unwrap_or(i64::MAX)
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

impl Default for SleepClock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for SleepClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SleepClock")
    }
}

/// A log of the lead in the last minutes, so that a proof can be dated even if the machine was suspended since.
#[derive(Debug)]
pub(crate) struct SleepLog {
    clock: SleepClock,
    /// The clock's last lead, give or take [`TOLERANCE_NANOS`](Self::TOLERANCE_NANOS).
    seen: AtomicI64,
    /// The total by which the wall clock was set back.
    set_back: AtomicI64,
    /// The leads, oldest first. One entry for as long as the lead does not change.
    leads: Mutex<VecDeque<(Instant, i64)>>,
}

impl SleepLog {
    const MAX_ENTRIES: usize = 64;
    /// The maximum difference between two clocks that are read one after the other, in nanoseconds.
    pub(crate) const TOLERANCE_NANOS: i64 = 10_000_000;

    pub(crate) fn new(clock: SleepClock) -> Self {
        let lead = clock.lead();
        let leads = VecDeque::from([(Instant::now(), lead)]);
        Self { clock, seen: lead.into(), set_back: 0.into(), leads: Mutex::new(leads) }
    }

    /// Returns the current lead, as if the wall clock had never been set back: that would hide as long a suspend
    /// afterwards.
    ///
    /// Concurrent callers may both count a set-back, which overstates ages until the next proof; none misses it.
    pub(crate) fn lead(&self) -> i64 {
        loop {
            let lead = self.clock.lead();
            let seen = self.seen.load(SeqCst);
            let back = seen.saturating_sub(lead);
            // Before `seen` is updated, so that every reader of it also sees the count.
            if back > Self::TOLERANCE_NANOS {
                self.set_back.fetch_add(back, SeqCst);
            }
            // While the clocks are steady, readers write nothing.
            let is_steady = back.abs() <= Self::TOLERANCE_NANOS;
            if is_steady || self.seen.compare_exchange(seen, lead, SeqCst, SeqCst).is_ok() {
                return lead.saturating_add(self.set_back.load(SeqCst));
            }
        }
    }

    /// Records the lead; must be called every second. Returns by how much it has grown since the last call.
    pub(crate) fn tick(&self) -> Duration {
        // The lead first: a suspend between the two then makes ages larger, not smaller.
        let lead = self.lead();
        let now = Instant::now();
        let mut leads = self.leads.lock();
        let grown = leads.back().map_or(0, |(_, last)| lead - last);
        if grown.abs() > Self::TOLERANCE_NANOS {
            leads.push_back((now, lead));
        }
        while leads.len() > Self::MAX_ENTRIES {
            leads.pop_front();
        }
        Duration::from_nanos(grown.max(0).unsigned_abs())
    }

    /// Returns the lead at `at`, or less.
    pub(crate) fn lead_at(&self, at: Instant) -> i64 {
        let leads = self.leads.lock();
        let known = leads.iter().rev().find(|(since, _)| *since <= at).or(leads.front());
        known.map_or_else(|| self.lead(), |(_, lead)| *lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a log, and the lead of its clock.
    fn log() -> (SleepLog, Arc<AtomicI64>) {
        let lead = Arc::new(AtomicI64::new(0));
        let told = lead.clone();
        (SleepLog::new(SleepClock::from_fn(move || told.load(SeqCst).into())), lead)
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_hides_no_sleep() {
        let (log, wall) = log();
        let before = log.lead();
        wall.store(-60_000_000_000, SeqCst);
        assert_eq!((log.tick(), log.lead() - before), (Duration::ZERO, 0), "the machine did not sleep");
        wall.store(0, SeqCst);
        assert_eq!(log.lead() - before, 60_000_000_000, "as long as it was set back");
        assert_eq!(log.tick(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn suspend_lead_is_never_overstated() {
        let (log, slept) = log();
        let before = Instant::now();
        tokio::time::advance(Duration::from_millis(500)).await;
        slept.store(60_000_000_000, SeqCst);
        let unnoticed = Instant::now();
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(log.tick(), Duration::from_secs(60));
        assert_eq!(log.tick(), Duration::ZERO);
        assert_eq!(log.lead_at(before), 0);
        assert_eq!(log.lead_at(unnoticed), 0, "not noticed yet at that moment: the safe side");
        assert_eq!(log.lead_at(Instant::now()), 60_000_000_000);
    }
}
