//! The wall clock, which a simulation replaces.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;

/// A source of the time of day. Durations are measured by tokio's clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Makes a clock of the operating system's time.
    pub fn system() -> Self {
        Self::from_fn(SystemTime::now)
    }

    /// Makes a clock of another source, such as virtual time.
    pub fn from_fn(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> SystemTime {
        (self.0)()
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::try_from(self.now()).unwrap_or_default()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
