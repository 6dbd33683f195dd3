//! The nodes of a tree: insertion, removal, splits of full nodes, and merges of thin ones.

use std::hint::black_box;
use std::mem;
use std::sync::Arc;

use super::TreeItem;
use super::bounds::ChildBounds;
use super::bytes::{Bytes, hash_of};
use super::sizes::{FANOUT, LEAF_CAPACITY};
use super::slots::Slots;

pub(super) enum TreeNode<I: TreeItem> {
    Leaf(Arc<Leaf<I>>),
    Inner(Arc<Inner<I>>),
}

pub(super) struct Leaf<I: TreeItem> {
    /// The hashes: `hashes[n]` belongs to `items[n]`; the rest is meaningless.
    pub(super) hashes: [u32; LEAF_CAPACITY],
    /// The items, sorted by key.
    pub(super) items: Slots<I>,
}

pub(super) struct Inner<I: TreeItem> {
    /// The bounds: `bounds[n]` is greater than every key in `children[n]`, and not greater than any in `children[n + 1]`.
    pub(super) bounds: ChildBounds<I::Key>,
    pub(super) children: Vec<TreeNode<I>>,
}

/// The result of an insertion below a node.
pub(super) enum Inserted<I: TreeItem> {
    Replaced(I),
    Added,
    /// The node was full and has moved its upper part to a new right neighbour, whose keys begin at the bound.
    Split(I::Key, TreeNode<I>),
}

impl<I: TreeItem> TreeNode<I> {
    pub(super) fn size(&self) -> usize {
        match self {
            TreeNode::Leaf(leaf) => leaf.items.len(),
            TreeNode::Inner(inner) => inner.children.len(),
        }
    }

    /// Returns the maximum size of a node of this kind.
    pub(super) fn capacity(&self) -> usize {
        match self {
            TreeNode::Leaf(_) => LEAF_CAPACITY,
            TreeNode::Inner(_) => FANOUT,
        }
    }

    pub(super) fn insert(&mut self, hash: u32, item: I) -> Inserted<I> {
        match self {
            TreeNode::Leaf(leaf) => Arc::make_mut(leaf).insert(hash, item),
            TreeNode::Inner(inner) => Arc::make_mut(inner).insert(hash, item),
        }
    }

    pub(super) fn remove<Q: Bytes + ?Sized>(&mut self, hash: u32, key: &Q) -> Option<I> {
        match self {
            TreeNode::Leaf(leaf) => Arc::make_mut(leaf).remove(hash, key),
            TreeNode::Inner(inner) => Arc::make_mut(inner).remove(hash, key),
        }
    }

    /// Merges the right neighbour into this node; its keys begin at `bound`.
    fn absorb(&mut self, bound: I::Key, right: TreeNode<I>) {
        match (self, right) {
            (TreeNode::Leaf(left), TreeNode::Leaf(right)) => {
                let (left, mut right) = (Arc::make_mut(left), Arc::unwrap_or_clone(right));
                let at = left.items.len();
                left.hashes[at..at + right.items.len()].copy_from_slice(&right.hashes[..right.items.len()]);
                left.items.append(mem::take(&mut right.items));
            }
            (TreeNode::Inner(left), TreeNode::Inner(right)) => {
                let (left, mut right) = (Arc::make_mut(left), Arc::unwrap_or_clone(right));
                left.bounds.append(bound, right.bounds);
                left.children.append(&mut right.children);
            }
            // Neighbours have the same depth.
            _ => debug_assert!(false, "a leaf beside an inner node"),
        }
    }
}

impl<I: TreeItem> Leaf<I> {
    pub(super) fn from_items(items: Vec<I>) -> Self {
        let mut hashes = [0; LEAF_CAPACITY];
        hashes.iter_mut().zip(&items).for_each(|(hash, item)| *hash = hash_of(item.key()));
        Self { hashes, items: items.into_iter().collect() }
    }

    pub(super) fn find<Q: Bytes + ?Sized>(&self, hash: u32, key: &Q) -> Option<usize> {
        // All of them without a branch, which compilers turn into a few wide comparisons.
        let mut candidates = 0u32;
        for (at, other) in self.hashes.iter().enumerate() {
            candidates |= u32::from(*other == hash) << at;
        }
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize;
            if self.items.get(at)?.has_key(key.bytes()) {
                return Some(at);
            }
            candidates &= candidates - 1;
        }
        None
    }

    fn insert(&mut self, hash: u32, item: I) -> Inserted<I> {
        if let Some(known) = self.find(hash, item.key()).and_then(|at| self.items.get_mut(at)) {
            return Inserted::Replaced(mem::replace(known, item));
        }
        let at = self.items.partition_point(|other| other.key() < item.key());
        if self.items.len() < LEAF_CAPACITY {
            self.put_at(at, hash, item);
            return Inserted::Added;
        }
        let cut = cut_for(at, LEAF_CAPACITY);
        let mut right = Leaf { hashes: [0; LEAF_CAPACITY], items: self.items.split_off(cut) };
        right.hashes[..LEAF_CAPACITY - cut].copy_from_slice(&self.hashes[cut..]);
        // The bound is the key of the first item on the right, old or new.
        let bound = right.items.get(0).filter(|_| at != cut).unwrap_or(&item).key().clone();
        if at < cut {
            self.put_at(at, hash, item);
        } else {
            right.put_at(at - cut, hash, item);
        }
        Inserted::Split(bound, TreeNode::Leaf(Arc::new(right)))
    }

    fn put_at(&mut self, at: usize, hash: u32, item: I) {
        self.hashes.copy_within(at..self.items.len(), at + 1);
        self.hashes[at] = hash;
        self.items.insert(at, item);
    }

    fn remove<Q: Bytes + ?Sized>(&mut self, hash: u32, key: &Q) -> Option<I> {
        let at = self.find(hash, key)?;
        self.hashes.copy_within(at + 1..self.items.len(), at);
        self.items.remove(at)
    }

    fn touch(&self) {
        black_box(self.items.iter().fold(0, |sum: usize, item| sum.wrapping_add(item.touch())));
    }
}

impl<I: TreeItem> Inner<I> {
    pub(super) fn child_of<Q: Bytes + ?Sized>(&self, key: &Q) -> usize {
        self.bounds.child_of(key)
    }

    fn insert(&mut self, hash: u32, item: I) -> Inserted<I> {
        let child = self.child_of(item.key());
        let (bound, node) = match self.children[child].insert(hash, item) {
            Inserted::Split(bound, node) => (bound, node),
            done => return done,
        };
        self.bounds.insert(child, bound);
        self.children.insert(child + 1, node);
        if self.children.len() <= FANOUT {
            return Inserted::Added;
        }
        let cut = cut_for(child + 1, FANOUT);
        let (between, right) = self.bounds.split_off(cut);
        let right = Inner { bounds: right, children: self.children.split_off(cut) };
        match between {
            Some(bound) => Inserted::Split(bound, TreeNode::Inner(Arc::new(right))),
            None => Inserted::Added, // not reached: cut is at least 1
        }
    }

    fn remove<Q: Bytes + ?Sized>(&mut self, hash: u32, key: &Q) -> Option<I> {
        let child = self.child_of(key);
        let removed = self.children[child].remove(hash, key)?;
        match self.children[child].size() {
            0 => {
                self.children.remove(child);
                if self.bounds.len() > 0 {
                    self.bounds.remove(child.saturating_sub(1));
                }
            }
            1..MERGE_THRESHOLD => self.merge_around(child),
            _ => {}
        }
        Some(removed)
    }

    /// Merges a thin child with a neighbour, if one has room.
    fn merge_around(&mut self, child: usize) {
        let pairs = [child.checked_sub(1), Some(child)].into_iter().flatten();
        let fits = |left: &usize| {
            self.children
                .get(left + 1)
                .is_some_and(|right| self.children[*left].size() + right.size() <= right.capacity())
        };
        if let Some(left) = pairs.into_iter().find(fits) {
            let bound = self.bounds.remove(left);
            let right = self.children.remove(left + 1);
            self.children[left].absorb(bound, right);
        }
    }
}

impl<I: TreeItem> Clone for TreeNode<I> {
    fn clone(&self) -> Self {
        match self {
            TreeNode::Leaf(leaf) => TreeNode::Leaf(leaf.clone()),
            TreeNode::Inner(inner) => TreeNode::Inner(inner.clone()),
        }
    }
}

impl<I: TreeItem> Clone for Leaf<I> {
    fn clone(&self) -> Self {
        self.touch();
        Self { hashes: self.hashes, items: self.items.clone() }
    }
}

impl<I: TreeItem> Drop for Leaf<I> {
    fn drop(&mut self) {
        self.touch();
    }
}

impl<I: TreeItem> Clone for Inner<I> {
    fn clone(&self) -> Self {
        Self { bounds: self.bounds.clone(), children: self.children.clone() }
    }
}

impl<I: TreeItem> Default for Leaf<I> {
    fn default() -> Self {
        Self { hashes: [0; LEAF_CAPACITY], items: Slots::default() }
    }
}

/// The size below which a node is merged with a neighbour.
const MERGE_THRESHOLD: usize = LEAF_CAPACITY / 4;

/// Returns where a full node splits after an insertion at `at`: in the middle. For insertions in order (names that count
/// up) it splits at the end, so that full nodes remain.
fn cut_for(at: usize, full: usize) -> usize {
    if at >= full { full } else { full / 2 }
}
