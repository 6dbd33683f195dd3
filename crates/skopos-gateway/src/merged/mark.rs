//! Marks: the resourceVersions of the merged history.

use std::fmt;

use jiff::Timestamp;
use skopos_wire::ResourceVersion;

/// A version in the merged history: microseconds since 1970, or one more than the previous mark; its lowest bits identify
/// the gateway instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark(u64);

/// The gateway instance that gives out marks. Two processes that serve the same clusters, perhaps behind one address,
/// receive changes in different orders, so their marks are not comparable. With an 11-bit instance ID, one foreign mark
/// in 2,048 is mistaken for our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker(u16);

/// Generator of marks. Each is greater than all earlier ones.
#[derive(Debug)]
pub(crate) struct Marks {
    last: Mark,
    maker: Maker,
}

/// The number of bits for the maker. The bits above hold microseconds until the year 2112, within an i64.
const MAKER: u32 = 11;

// === impl Mark ===

impl Mark {
    /// Makes a mark from its number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, as in `resourceVersion`.
    pub fn number(self) -> u64 {
        self.0
    }

    fn at(micros: u64, maker: Maker) -> Self {
        Self(micros.saturating_mul(1 << MAKER) | u64::from(maker.0))
    }

    fn micros(self) -> u64 {
        self.0 >> MAKER
    }

    /// Returns the maker of this mark.
    pub(crate) fn maker(self) -> Maker {
        Maker::new(self.0)
    }

    /// Returns the mark that is `micros` microseconds later.
    pub(crate) fn after(self, micros: u64) -> Self {
        Self::at(self.micros().saturating_add(micros), self.maker())
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

// === impl Maker ===

impl Maker {
    /// Makes one of 2,048 makers from the lowest bits of `number`.
    pub(crate) fn new(number: u64) -> Self {
        // The mask keeps `MAKER` bits, so the cast loses nothing.
        Self((number & ((1 << MAKER) - 1)) as u16)
    }

    /// Returns the number of the maker.
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

// === impl Marks ===

impl Marks {
    /// Makes a generator whose marks are after `floor` and not before `now`.
    pub(crate) fn beginning(floor: Mark, now: Timestamp, maker: Maker) -> Self {
        let mut marks = Self { last: floor, maker };
        marks.next(now);
        marks
    }

    /// Returns the maker of these marks.
    pub(crate) fn maker(&self) -> Maker {
        self.maker
    }

    /// Returns the newest mark.
    pub(crate) fn last(&self) -> Mark {
        self.last
    }

    /// Returns a new mark for one change.
    pub(crate) fn next(&mut self, now: Timestamp) -> Mark {
        self.reach(self.last.micros().saturating_add(1).max(micros(now)))
    }

    /// Returns the mark of this moment: all changes so far are at or before it, all later ones after it.
    pub(crate) fn present(&mut self, now: Timestamp) -> Mark {
        self.reach(self.last.micros().max(micros(now)))
    }

    fn reach(&mut self, micros: u64) -> Mark {
        self.last = Mark::at(micros, self.maker);
        self.last
    }
}

fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.as_microsecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(micros).unwrap()
    }

    #[test]
    fn marks_grow_even_when_the_clock_does_not() {
        let maker = Maker::new(7);
        let of = |micros| Mark::at(micros, maker);
        let mut marks = Marks::beginning(Mark::at(10, Maker::new(9)), at(100), maker);
        assert_eq!((marks.last(), marks.maker()), (of(100), maker));
        assert_eq!(marks.next(at(100)), of(101));
        assert_eq!(marks.next(at(50)), of(102));
        assert_eq!(marks.present(at(90)), of(102));
        assert_eq!(marks.present(at(200)), of(200));
        assert_eq!(marks.next(at(200)), of(201));
    }

    #[test]
    fn a_clock_that_went_back_does_not_take_the_marks_back() {
        let maker = Maker::new(7);
        let floor = Mark::at(1_000, Maker::new(9));
        assert_eq!(Marks::beginning(floor, at(10), maker).last(), Mark::at(1_001, maker));
    }

    #[test]
    fn a_mark_says_whose_it_is() {
        let (now, maker) = (Timestamp::from_second(4_000_000_000).unwrap(), Maker::new(2_047));
        let mark = Marks::beginning(Mark::default(), now, maker).last();
        assert_eq!((mark.maker(), mark.after(3_600_000_000).maker()), (maker, maker));
        assert_eq!(mark.micros(), 4_000_000_000_000_000);
        assert!(i64::try_from(mark.number()).is_ok(), "as clients in Go read it");
        assert_eq!(Mark::new(mark.number()), mark);
    }
}
