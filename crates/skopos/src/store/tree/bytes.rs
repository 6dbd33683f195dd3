use std::sync::Arc;

use skopos_wire::ObjectKey;

/// A key of a tree, which is a text: keys are compared and ordered by their bytes.
pub(crate) trait Bytes {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
}

impl Bytes for ObjectKey {
    fn bytes(&self) -> &[u8] {
        self.sort_bytes()
    }
}

impl Bytes for str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Bytes for Arc<str> {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Returns a fast hash that only has to distinguish the few dozen keys of a leaf. Keys that collide on purpose cost a
/// comparison each, no more.
pub(super) fn hash_of<Q: Bytes + ?Sized>(key: &Q) -> u32 {
    let (words, rest) = key.bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = words.iter().chain([&last]).fold(key.bytes().len() as u64, |hash, word| {
        // Multiplying by an odd number with well distributed bits moves differences into the upper half.
        let hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 29
    });
    (hash >> 32) as u32
}
