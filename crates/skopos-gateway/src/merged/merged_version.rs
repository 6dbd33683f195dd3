//! Merged versions: the resourceVersions of the merged history.

use std::fmt;

use jiff::Timestamp;
use skopos_wire::ResourceVersion;

/// A version in the merged history: microseconds since 1970, or one more than the previous merged version; its lowest
/// bits identify the gateway instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MergedVersion(u64);

/// The gateway instance that gives out merged versions. Two processes that serve the same clusters, perhaps behind one
/// address, receive changes in different orders, so their merged versions are not comparable. With an 11-bit instance
/// ID, one foreign merged version in 2,048 is mistaken for our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstanceTag(u16);

/// Generator of merged versions. Each is greater than all earlier ones.
#[derive(Debug)]
pub(crate) struct VersionClock {
    last: MergedVersion,
    instance: InstanceTag,
}

/// The number of bits for the gateway instance. The bits above hold microseconds until the year 2112, within an i64.
const INSTANCE_BITS: u32 = 11;

impl MergedVersion {
    /// Makes a merged version from its number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, as in `resourceVersion`.
    pub fn number(self) -> u64 {
        self.0
    }

    fn at(micros: u64, instance: InstanceTag) -> Self {
        Self(micros.saturating_mul(1 << INSTANCE_BITS) | u64::from(instance.0))
    }

    fn micros(self) -> u64 {
        self.0 >> INSTANCE_BITS
    }

    /// Returns the gateway instance of this merged version.
    pub(crate) fn instance(self) -> InstanceTag {
        InstanceTag::new(self.0)
    }

    /// Returns the merged version that is `micros` microseconds later.
    pub(crate) fn after(self, micros: u64) -> Self {
        Self::at(self.micros().saturating_add(micros), self.instance())
    }
}

impl From<MergedVersion> for ResourceVersion {
    fn from(merged_version: MergedVersion) -> Self {
        merged_version.0.into()
    }
}

impl fmt::Display for MergedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for MergedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "merged version {}", self.0)
    }
}

impl InstanceTag {
    /// Makes one of 2,048 gateway instances from the lowest bits of `number`.
    pub(crate) fn new(number: u64) -> Self {
        // The mask keeps `INSTANCE_BITS` bits, so the cast loses nothing.
        Self((number & ((1 << INSTANCE_BITS) - 1)) as u16)
    }

    /// Returns the number of the gateway instance.
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

impl VersionClock {
    /// Makes a generator whose merged versions are after `floor` and not before `now`.
    pub(crate) fn starting_after(floor: MergedVersion, now: Timestamp, instance: InstanceTag) -> Self {
        let mut clock = Self { last: floor, instance };
        clock.next(now);
        clock
    }

    /// Returns the gateway instance of these merged versions.
    pub(crate) fn instance(&self) -> InstanceTag {
        self.instance
    }

    /// Returns the newest merged version.
    pub(crate) fn last(&self) -> MergedVersion {
        self.last
    }

    /// Returns a new merged version for one change.
    pub(crate) fn next(&mut self, now: Timestamp) -> MergedVersion {
        self.reach(self.last.micros().saturating_add(1).max(micros(now)))
    }

    /// Returns the merged version of this moment: all changes so far are at or before it, all later ones after it.
    pub(crate) fn present(&mut self, now: Timestamp) -> MergedVersion {
        self.reach(self.last.micros().max(micros(now)))
    }

    fn reach(&mut self, micros: u64) -> MergedVersion {
        self.last = MergedVersion::at(micros, self.instance);
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
    fn versions_increase_with_stopped_clock() {
        let instance = InstanceTag::new(7);
        let of = |micros| MergedVersion::at(micros, instance);
        let mut clock =
            VersionClock::starting_after(MergedVersion::at(10, InstanceTag::new(9)), at(100), instance);
        assert_eq!((clock.last(), clock.instance()), (of(100), instance));
        assert_eq!(clock.next(at(100)), of(101));
        assert_eq!(clock.next(at(50)), of(102));
        assert_eq!(clock.present(at(90)), of(102));
        assert_eq!(clock.present(at(200)), of(200));
        assert_eq!(clock.next(at(200)), of(201));
    }

    #[test]
    fn first_version_exceeds_floor_after_clock_set_back() {
        let instance = InstanceTag::new(7);
        let floor = MergedVersion::at(1_000, InstanceTag::new(9));
        assert_eq!(
            VersionClock::starting_after(floor, at(10), instance).last(),
            MergedVersion::at(1_001, instance)
        );
    }

    #[test]
    fn version_identifies_its_instance() {
        let (now, instance) = (Timestamp::from_second(4_000_000_000).unwrap(), InstanceTag::new(2_047));
        let merged_version = VersionClock::starting_after(MergedVersion::default(), now, instance).last();
        assert_eq!(
            (merged_version.instance(), merged_version.after(3_600_000_000).instance()),
            (instance, instance)
        );
        assert_eq!(merged_version.micros(), 4_000_000_000_000_000);
        assert!(i64::try_from(merged_version.number()).is_ok(), "as clients in Go read it");
        assert_eq!(MergedVersion::new(merged_version.number()), merged_version);
    }
}
