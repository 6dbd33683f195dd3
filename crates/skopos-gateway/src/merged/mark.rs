//! Marks: the resourceVersions of the merged history.

use std::fmt;

use jiff::Timestamp;
use skopos_wire::ResourceVersion;

/// A point of the merged history: microseconds since 1970, or one more than the mark before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark(u64);

/// Gives out marks. Each is greater than all that were given out before.
#[derive(Debug)]
pub(crate) struct Marks {
    last: Mark,
}

// === impl Mark ===

impl Mark {
    /// The mark of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number: what stands in `resourceVersion`.
    pub fn number(self) -> u64 {
        self.0
    }

    fn of(time: Timestamp) -> Self {
        Self(u64::try_from(time.as_microsecond()).unwrap_or_default())
    }

    /// The mark that is so many microseconds away in the future.
    pub(crate) fn after(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

impl From<Mark> for ResourceVersion {
    fn from(mark: Mark) -> Self {
        mark.0.into()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mark {}", self.0)
    }
}

// === impl Marks ===

impl Marks {
    /// Marks after `floor`, and not before `now`.
    pub(crate) fn beginning(floor: Mark, now: Timestamp) -> Self {
        Self { last: floor.after(1).max(Mark::of(now)) }
    }

    /// The newest one.
    pub(crate) fn last(&self) -> Mark {
        self.last
    }

    /// A mark of its own, for a change.
    pub(crate) fn next(&mut self, now: Timestamp) -> Mark {
        self.last = self.last.after(1).max(Mark::of(now));
        self.last
    }

    /// The mark of this moment: all changes so far are at or before it, all to come behind it.
    pub(crate) fn present(&mut self, now: Timestamp) -> Mark {
        self.last = self.last.max(Mark::of(now));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(micros).unwrap()
    }

    #[test]
    fn marks_grow_even_when_the_clock_does_not() {
        let mut marks = Marks::beginning(Mark::new(10), at(100));
        assert_eq!(marks.last(), Mark::new(100));
        assert_eq!(marks.next(at(100)), Mark::new(101));
        assert_eq!(marks.next(at(50)), Mark::new(102));
        assert_eq!(marks.present(at(90)), Mark::new(102));
        assert_eq!(marks.present(at(200)), Mark::new(200));
        assert_eq!(marks.next(at(200)), Mark::new(201));
    }

    #[test]
    fn a_clock_that_went_back_does_not_take_the_marks_back() {
        let marks = Marks::beginning(Mark::new(1_000), at(10));
        assert_eq!(marks.last(), Mark::new(1_001));
    }
}
