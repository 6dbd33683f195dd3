use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A clock that measures time across restarts: by the wall clock and by the machine's uptime.
///
/// A wall clock may be set back, and would then make ages too small. While the machine stays up, its uptime tells the truth,
/// and the greater of both counts. Across a reboot, or from one machine to another, there is the wall clock alone: it is
/// believed to be right within 5 seconds, which are added to the age, and if it is behind the time at which a checkpoint was
/// written, no age is told at all.
#[derive(Clone)]
pub struct RestartClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

/// A moment, as read from a [`RestartClock`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallTime {
    /// Milliseconds since 1970.
    wall_ms: u64,
    /// The boot ID, and the uptime in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<(String, u64)>,
}

/// The maximum difference between wall clocks of two machines, or before and after a reboot.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);
/// The resolution of the uptime.
const UPTIME_RESOLUTION: Duration = Duration::from_millis(10);

impl RestartClock {
    /// Creates a clock that reads the machine's clocks: on Linux with the uptime, elsewhere the wall clock alone.
    pub fn system() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.ok().map(|id| id.trim().to_owned());
        Self(Arc::new(move || {
            // The uptime first: time that passes in between makes ages greater.
            let up = boot.clone().zip(uptime());
            WallTime::new(SystemTime::now(), up)
        }))
    }

    /// Creates a clock for a test.
    pub fn from_fn(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the present moment.
    pub fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl WallTime {
    /// Creates a moment from the wall clock and, if known, the boot ID and the uptime.
    pub fn new(wall: SystemTime, up: Option<(String, Duration)>) -> Self {
        let since_1970 = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_ms: millis(since_1970), boot: up.map(|(id, up)| (id, millis(up))) }
    }

    /// Returns the wall clock's time.
    pub fn wall(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.wall_ms)).unwrap_or(UNIX_EPOCH)
    }

    /// Returns the moment that was `span` earlier; `None` if there was none.
    pub fn before(&self, span: Duration) -> Option<Self> {
        // Rounding down to milliseconds must not make it later.
        let span = millis(span).saturating_add(1);
        let boot = self.boot.clone().and_then(|(id, up)| Some((id, up.checked_sub(span)?)));
        Some(Self { wall_ms: self.wall_ms.checked_sub(span)?, boot })
    }

    /// Returns an upper bound on the time from `earlier` to this moment; `None` if that cannot be computed.
    pub fn since(&self, earlier: &WallTime) -> Option<Duration> {
        let wall = self.wall_ms.checked_sub(earlier.wall_ms).map(Duration::from_millis);
        let up = match (&self.boot, &earlier.boot) {
            (Some((now_in, now)), Some((then_in, then))) if now_in == then_in => {
                now.checked_sub(*then).map(|span| Duration::from_millis(span) + UPTIME_RESOLUTION)
            }
            _ => None,
        };
        match (wall, up) {
            (Some(wall), Some(up)) => Some(wall.max(up)),
            (Some(wall), None) => Some(wall + MAX_CLOCK_SKEW),
            (None, up) => up,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the machine's uptime, including suspend.
fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

impl Default for RestartClock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for RestartClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestartClock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall: u64, boot: Option<(&str, u64)>) -> WallTime {
        let boot = boot.map(|(id, up)| (id.to_owned(), Duration::from_secs(up)));
        WallTime::new(UNIX_EPOCH + Duration::from_secs(wall), boot)
    }

    #[test]
    fn clock_set_back_does_not_reduce_age() {
        let secs = Duration::from_secs;
        let written = at(1000, Some(("a", 50)));
        let since = |now: WallTime| now.since(&written);
        assert_eq!(since(at(1100, Some(("a", 150)))), Some(secs(100) + UPTIME_RESOLUTION));
        assert_eq!(since(at(900, Some(("a", 150)))), Some(secs(100) + UPTIME_RESOLUTION), "set back");
        assert_eq!(since(at(1700, Some(("a", 150)))), Some(secs(700)), "set forward: perhaps");
        assert_eq!(since(at(1100, Some(("b", 10)))), Some(secs(105)), "after a reboot");
        assert_eq!(since(at(1100, None)), Some(secs(105)));
        assert_eq!(since(at(900, Some(("b", 10)))), None);
        assert_eq!(since(at(1100, Some(("a", 10)))), Some(secs(105)), "not the same uptime");
        let proven = written.before(secs(7)).unwrap();
        assert!(at(1100, None).since(&proven).is_some_and(|age| age >= secs(112)));
        assert_eq!(at(3, None).before(secs(7)), None);
    }

    #[test]
    fn system_clock_moves_forward() {
        let clock = RestartClock::system();
        let then = clock.now();
        assert!(clock.now().since(&then).is_some_and(|span| span < Duration::from_secs(60)));
    }
}
