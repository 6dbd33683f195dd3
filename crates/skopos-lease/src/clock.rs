use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::{Clock, Time};

/// A clock that goes on while the machine is suspended, as others' clocks do meanwhile.
///
/// It is tokio's clock, so that tests run under virtual time, and the time that the machine has slept in addition.
#[derive(Clone)]
pub struct BootClock {
    awake: Clock,
    slept: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl BootClock {
    /// The machine's clock. Beyond Unix it does not notice suspension: use it there on machines that are never suspended.
    pub fn system() -> Self {
        let before = slept();
        Self::from_fn(move || slept().saturating_sub(before))
    }

    /// A clock made for a test: `slept` gives how long the machine has slept so far.
    pub fn from_fn(slept: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { awake: Clock::new(), slept: Arc::new(slept) }
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Time {
        self.awake.now() + (self.slept)()
    }
}

impl fmt::Debug for BootClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootClock")
    }
}

/// How long the machine has slept since it was started.
#[cfg(target_os = "linux")]
fn slept() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    let read = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    // Read in this order a moment between the two counts as sleep, never the other way round.
    let awake = read(ClockId::CLOCK_MONOTONIC);
    read(ClockId::CLOCK_BOOTTIME).saturating_sub(awake)
}

#[cfg(not(target_os = "linux"))]
fn slept() -> Duration {
    Duration::ZERO
}
