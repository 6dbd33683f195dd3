//! The bounds between the children of an inner node, arranged so that finding a child reads few cache lines.
//!
//! The keys of one node begin alike (`namespace-013 NUL deployment-00…`). Their common prefix is stored once, and the first
//! eight bytes after it as one number, all of that within the node. Finding the child compares numbers that are adjacent in
//! memory and are fetched together. Only bounds whose number equals the requested key's are read from their own memory. The
//! keys themselves are shared separately, because most changes do not change them.

use std::hint::black_box;
use std::sync::Arc;

use super::bytes::Bytes;
use super::sizes::FANOUT;

/// Sorted keys, fewer than [`FANOUT`], or temporarily as many. See the module's documentation.
#[derive(Clone)]
pub(super) struct ChildBounds<K> {
    keys: Arc<Vec<K>>,
    /// The common prefix of all keys: the first `shared` bytes.
    prefix: [u8; MAX_PREFIX],
    shared: usize,
    /// The numbers after the prefix: `heads[n]` is that of `keys[n]`; behind them is the greatest number.
    heads: [u64; FANOUT],
}

/// The maximum length of the prefix. Longer prefixes are shared in part; then more keys have equal heads, and are compared
/// in full.
const MAX_PREFIX: usize = 40;

impl<K: Bytes + Clone> ChildBounds<K> {
    pub(super) fn new(keys: Vec<K>) -> Self {
        let mut bounds =
            Self { keys: Arc::new(keys), prefix: [0; MAX_PREFIX], shared: 0, heads: [u64::MAX; FANOUT] };
        bounds.arrange();
        bounds
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of bounds that are not greater than the key, which is the index of the child that the key belongs
    /// to.
    pub(super) fn child_of<Q: Bytes + ?Sized>(&self, key: &Q) -> usize {
        let bytes = key.bytes();
        let prefix = &self.prefix[..self.shared];
        let start = &bytes[..bytes.len().min(self.shared)];
        if start != prefix {
            // The key is before all bounds or after all, and a key that is a prefix of a bound is before it.
            return if start < prefix { 0 } else { self.keys.len() };
        }
        let head = head_of(bytes, self.shared);
        let smaller = self.smaller_heads(head);
        if self.heads.get(smaller) != Some(&head) {
            return smaller;
        }
        smaller + self.keys[smaller..].iter().take_while(|bound| bound.bytes() <= bytes).count()
    }

    /// Returns the number of smaller heads, without a branch that would be mispredicted half of the time.
    fn smaller_heads(&self, head: u64) -> usize {
        // Reads each cache line once, so that they are fetched in parallel and not one after the other.
        const LINE: usize = 8;
        black_box(self.heads.iter().step_by(LINE).fold(0, |all, head| all | head));
        let mut smaller = 0;
        let mut step = FANOUT / 2;
        while step > 0 {
            smaller += usize::from(self.heads[smaller + step - 1] < head) * step;
            step /= 2;
        }
        smaller + usize::from(self.heads[smaller] < head)
    }

    /// Returns the number of bounds that are `before`, which must hold for a prefix of the keys.
    pub(super) fn partition_point(&self, before: impl Fn(&K) -> bool) -> usize {
        self.keys.partition_point(before)
    }

    pub(super) fn insert(&mut self, at: usize, key: K) {
        Arc::make_mut(&mut self.keys).insert(at, key);
        self.arrange();
    }

    pub(super) fn remove(&mut self, at: usize) -> K {
        let key = Arc::make_mut(&mut self.keys).remove(at);
        self.arrange();
        key
    }

    /// Splits off the bounds from `at` on, as the bounds of a right neighbour, and returns the one between the two.
    pub(super) fn split_off(&mut self, at: usize) -> (Option<K>, Self) {
        let keys = Arc::make_mut(&mut self.keys);
        let right = Self::new(keys.split_off(at));
        let between = keys.pop();
        self.arrange();
        (between, right)
    }

    /// Appends the bounds of the right neighbour, after the one between the two.
    pub(super) fn append(&mut self, between: K, right: Self) {
        let keys = Arc::make_mut(&mut self.keys);
        keys.push(between);
        keys.extend(Arc::unwrap_or_clone(right.keys));
        self.arrange();
    }

    fn arrange(&mut self) {
        let (first, last) = match self.keys.as_slice() {
            [] => (&[][..], &[][..]),
            [first, .., last] => (first.bytes(), last.bytes()),
            [only] => (only.bytes(), only.bytes()),
        };
        // Sorted, so the common prefix of the first and the last is common to all.
        self.shared = first.iter().zip(last).take(MAX_PREFIX).take_while(|(a, b)| a == b).count();
        self.prefix[..self.shared].copy_from_slice(&first[..self.shared]);
        self.heads = [u64::MAX; FANOUT];
        for (head, key) in self.heads.iter_mut().zip(&*self.keys) {
            *head = head_of(key.bytes(), self.shared);
        }
    }
}

/// Returns the eight bytes after the first `skip`, as a number with the same order. A shorter key is padded with zeros, so
/// that equal numbers do not mean equal bytes.
fn head_of(bytes: &[u8], skip: usize) -> u64 {
    let rest = bytes.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(head)
        }
    }
}
