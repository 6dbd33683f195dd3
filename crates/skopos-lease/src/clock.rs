use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skopos_reflect::{Clock, Time};

/// A clock that counts while the machine is suspended, as the clocks of other machines do meanwhile.
///
/// It is tokio's clock, so that tests run under virtual time, plus the time that the machine has slept.
#[derive(Clone)]
pub struct BootClock {
    awake: Clock,
    slept: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl BootClock {
    /// Returns the machine's clock. Outside of Unix it does not count suspension: use it there on machines that are never
    /// suspended.
    pub fn system() -> Self {
        let before = slept();
        Self::from_fn(move || slept().saturating_sub(before))
    }

    /// Makes a clock for a test: `slept` returns the total time that the machine has slept. A value lower than before counts
    /// as unchanged.
    pub fn from_fn(slept: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        // Two clocks are read one after the other, so their difference varies: a term that is over must not get some
        // nanoseconds back.
        let max = AtomicU64::new(0);
        let monotonic = move || {
            let now = u64::try_from(slept().as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(max.fetch_max(now, Ordering::SeqCst).max(now))
        };
        Self { awake: Clock::new(), slept: Arc::new(monotonic) }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Time {
        self.awake.now() + (self.slept)()
    }
}

impl fmt::Debug for BootClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootClock")
    }
}

/// Returns the total time that the machine has slept since it was started.
#[cfg(target_os = "linux")]
fn slept() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    let read = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    // Read in this order, a moment between the two counts as sleep, never the other way round.
    let awake = read(ClockId::CLOCK_MONOTONIC);
    read(ClockId::CLOCK_BOOTTIME).saturating_sub(awake)
}

#[cfg(not(target_os = "linux"))]
fn slept() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_is_monotonic_when_sleep_reading_drops() {
        let slept = Arc::new(AtomicU64::new(900));
        let read = slept.clone();
        let clock = BootClock::from_fn(move || Duration::from_nanos(read.load(Ordering::SeqCst)));
        let before = clock.now();
        slept.store(200, Ordering::SeqCst);
        assert_eq!(clock.now(), before);
        slept.store(1_000, Ordering::SeqCst);
        assert_eq!(clock.now(), before + Duration::from_nanos(100));
    }
}
