//! Changes at a given rate.
use std::time::Duration;

/// Rate limiter: counts the changes that are due at a given rate.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    owed: f64,
}

impl Pace {
    /// Makes a pace of this many changes per second.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), owed: 0.0 }
    }

    /// Returns the number of changes that are due after this time since the last call. After a long pause it is at most that of
    /// one second.
    pub fn due(&mut self, passed: Duration) -> u32 {
        self.owed += self.per_second * passed.as_secs_f64().min(1.0);
        let due = self.owed.floor();
        self.owed -= due;
        due as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_however_it_is_asked() {
        let mut pace = Pace::new(20);
        let due: u32 = (0..100).map(|_| pace.due(Duration::from_millis(33))).sum();
        assert_eq!(due, 66);
        assert_eq!(pace.due(Duration::from_secs(3600)), 20, "a laptop that slept does not catch up");
        assert_eq!(Pace::new(0).due(Duration::from_secs(1)), 0);
    }
}
