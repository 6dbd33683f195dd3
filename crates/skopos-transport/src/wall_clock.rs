use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A source of the time of day, which simulations and tests replace. Durations are measured by tokio's clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl WallClock {
    /// Makes a clock of the operating system's time.
    pub fn system() -> Self {
        Self::from_fn(SystemTime::now)
    }

    /// Makes a clock of another source, such as virtual time.
    pub fn from_fn(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
