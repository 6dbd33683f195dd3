use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use tokio::time::Instant;

/// A point in time, as the duration since an origin that only its [`Clock`] knows.
///
/// The state machine computes with these and reads no clock itself, so that a test can pass it any sequence of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

/// A clock that converts real (or tokio's virtual) instants to [`Time`] and back.
///
/// Cheap to copy. All components of one cluster should share one clock, so that the times that a prober, a driver and a
/// store exchange are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Time {
    /// The origin of the clock.
    pub const ORIGIN: Time = Time(Duration::ZERO);

    /// Returns the time this long after the origin.
    pub const fn after_origin(elapsed: Duration) -> Self {
        Time(elapsed)
    }

    /// Returns the duration between the origin and this time.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` lies in the future.
    pub fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(span))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}

impl Clock {
    /// Creates a clock whose origin is now.
    pub fn new() -> Self {
        Clock { origin: Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// Returns the time of a tokio instant; the origin for instants before it.
    pub fn at(&self, instant: Instant) -> Time {
        Time(instant.saturating_duration_since(self.origin))
    }

    /// Returns the tokio instant of a time.
    pub fn instant(&self, time: Time) -> Instant {
        // A time beyond the range of the platform's instants is as good as never.
        const FAR_FUTURE: Duration = Duration::from_secs(60 * 60 * 24 * 365);
        self.origin.checked_add(time.0).unwrap_or(self.origin + FAR_FUTURE)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}
