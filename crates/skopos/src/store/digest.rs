use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use skopos_wire::{ObjectKey, ResourceVersion};

/// A fingerprint of a set of objects: of the key, uid and RV of each, in any order.
///
/// A store updates its own with every change. An audit computes another from a new list of metadata; if the two differ at
/// the same RV, the store has lost something. Two different sets have the same digest with a probability of about 2⁻⁶⁴. Not
/// stable across versions of this crate: of a stored digest, only equality is meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    objects: u64,
    sum: u64,
}

impl Digest {
    /// The digest of no objects.
    pub const EMPTY: Digest = Digest { objects: 0, sum: 0 };

    /// Adds an object.
    pub fn add(&mut self, key: &ObjectKey, uid: &str, rv: &ResourceVersion) {
        self.objects = self.objects.wrapping_add(1);
        self.sum = self.sum.wrapping_add(fingerprint(key, uid, rv));
    }

    /// Removes an object that was added before.
    pub fn remove(&mut self, key: &ObjectKey, uid: &str, rv: &ResourceVersion) {
        self.objects = self.objects.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(fingerprint(key, uid, rv));
    }

    /// Adds all objects of another digest, which must have no object in common with this one.
    pub fn merge(&mut self, other: Digest) {
        self.objects = self.objects.wrapping_add(other.objects);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> u64 {
        self.objects
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.objects, self.sum)
    }
}

fn fingerprint(key: &ObjectKey, uid: &str, rv: &ResourceVersion) -> u64 {
    // SipHash: sums of weaker hashes can be made to cancel out by regular names and counting versions.
    let mut hasher = DefaultHasher::new();
    (key, uid, rv).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_each_part_does() {
        let of = |parts: &[(&str, &str, u64)]| {
            let mut digest = Digest::EMPTY;
            parts
                .iter()
                .for_each(|(name, uid, rv)| digest.add(&ObjectKey::cluster(name), uid, &(*rv).into()));
            digest
        };
        let both = of(&[("a", "u1", 1), ("b", "u2", 2)]);
        assert_eq!(both, of(&[("b", "u2", 2), ("a", "u1", 1)]));
        for other in [
            [("c", "u1", 1), ("b", "u2", 2)],
            [("a", "u2", 1), ("b", "u1", 2)],
            [("a", "u1", 2), ("b", "u2", 1)],
        ] {
            assert_ne!(both, of(&other));
        }
        let mut one = both;
        one.remove(&ObjectKey::cluster("a"), "u1", &1.into());
        assert_eq!(one, of(&[("b", "u2", 2)]));
    }

    #[test]
    fn two_sets_together_are_one() {
        let of = |names: &[&str]| {
            let mut digest = Digest::EMPTY;
            names.iter().for_each(|name| digest.add(&ObjectKey::cluster(name), "u", &1.into()));
            digest
        };
        let mut together = of(&["a", "b"]);
        together.merge(of(&["c"]));
        assert_eq!((together, together.objects()), (of(&["a", "b", "c"]), 3));
        assert!(together.to_string().starts_with("3:") && together.to_string().len() == 2 + 16);
        assert_eq!(Digest::EMPTY.to_string(), "0:0000000000000000");
    }
}
