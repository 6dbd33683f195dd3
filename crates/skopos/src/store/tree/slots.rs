//! The items of a leaf, stored within the leaf: one pointer less to follow, and so one cache line less to wait for.

use std::hint::black_box;

use super::sizes::LEAF_CAPACITY;

/// Up to [`LEAF_CAPACITY`] items in order.
pub(super) struct Slots<I> {
    len: usize,
    /// The slots; the first `len` hold an item, the others none.
    items: [Option<I>; LEAF_CAPACITY],
}

impl<I> Slots<I> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&I> {
        self.items.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut I> {
        self.items.get_mut(at)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &I> {
        self.items[..self.len].iter().flatten()
    }

    /// Returns the number of items that are `before`, which must hold for those at the start and for no other.
    pub(super) fn partition_point(&self, before: impl Fn(&I) -> bool) -> usize {
        self.items[..self.len].partition_point(|item| item.as_ref().is_some_and(&before))
    }

    /// Inserts an item before the one at `at`. There must be room.
    pub(super) fn insert(&mut self, at: usize, item: I) {
        self.items[at..=self.len].rotate_right(1);
        self.items[at] = Some(item);
        self.len += 1;
    }

    /// Removes the item at `at` and returns it.
    pub(super) fn remove(&mut self, at: usize) -> Option<I> {
        let removed = self.items.get_mut(at)?.take()?;
        self.items[at..self.len].rotate_left(1);
        self.len -= 1;
        Some(removed)
    }

    /// Splits off the items from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let right = self.items[at..self.len].iter_mut().filter_map(Option::take).collect();
        self.len = at;
        right
    }

    /// Appends the items of the right neighbour. There must be room.
    pub(super) fn append(&mut self, right: Self) {
        right.items.into_iter().flatten().for_each(|item| self.insert(self.len, item));
    }

    /// Reads a part of each cache line of the items, so that the processor fetches all of them while it finds out which it
    /// needs.
    pub(super) fn touch(&self) {
        const LINE: usize = 8;
        black_box(self.items.iter().step_by(LINE).filter(|item| item.is_some()).count());
    }
}

impl<I> FromIterator<I> for Slots<I> {
    /// Takes up to [`LEAF_CAPACITY`] items.
    fn from_iter<T: IntoIterator<Item = I>>(items: T) -> Self {
        let mut slots = Self::default();
        for (slot, item) in slots.items.iter_mut().zip(items) {
            *slot = Some(item);
            slots.len += 1;
        }
        slots
    }
}

impl<I: Clone> Clone for Slots<I> {
    fn clone(&self) -> Self {
        Self { len: self.len, items: self.items.clone() }
    }
}

impl<I> Default for Slots<I> {
    fn default() -> Self {
        Self { len: 0, items: [const { None }; LEAF_CAPACITY] }
    }
}
