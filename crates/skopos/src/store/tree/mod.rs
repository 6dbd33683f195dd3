//! A persistent ordered map: a B+tree whose nodes are shared between the writer and every snapshot.
//!
//! ```text
//!   snapshot at RV 7 ──▶ root ─┬─▶ leaf  leaf  leaf
//!                              │    ▲           ▲
//!   writer, next RV  ──▶ root'─┴────┴─▶ leaf' ──┘      only what changed is copied, and that once per batch
//! ```
//!
//! Cloning a [`Tree`] copies one pointer. A change copies the nodes on its path that a snapshot shares, and changes the
//! others in place (`Arc::make_mut`), so that a batch pays for each node once. A leaf has 32 bits of hash for each item: a
//! look-up compares words instead of following pointers into 32 objects, and touches one object, the right one. The module
//! `bounds` describes how the path to the leaf is found.
//!
//! Nodes are merged when they become thin, but never rebalanced by borrowing: depth is uniform, deletions reduce occupancy,
//! and an empty node is removed at once.

mod bounds;
mod bytes;
mod node;
mod sizes;
mod slots;
mod walk;

use std::mem;
use std::sync::Arc;

use bounds::ChildBounds;
pub(crate) use bytes::Bytes;
use bytes::hash_of;
use node::{Inner, Inserted, Leaf, TreeNode};
use sizes::{FANOUT, LEAF_CAPACITY};
pub(crate) use walk::{Iter, diff};

/// An item of a tree, with its own key.
pub(crate) trait TreeItem: Clone {
    /// The key, which defines the order. It must not change while the item is in a tree.
    type Key: Bytes + Ord + Clone;

    /// Returns the key of this item.
    fn key(&self) -> &Self::Key;

    /// Returns whether this item's key has these bytes. Should read as little memory as possible.
    fn has_key(&self, bytes: &[u8]) -> bool {
        self.key().bytes() == bytes
    }

    /// Returns true if both are certainly the same, for example the same allocation. [`diff`] skips such pairs.
    fn is_same(&self, _other: &Self) -> bool {
        false
    }

    /// Reads the memory that cloning or dropping this item will write to. Reading it for all items of a leaf before the
    /// first is changed lets the processor fetch it in parallel instead of one after another.
    fn touch(&self) -> usize {
        0
    }
}

/// The persistent map. See the module's documentation.
#[derive(Clone)]
pub(crate) struct Tree<I: TreeItem> {
    root: TreeNode<I>,
    len: usize,
}

impl<I: TreeItem> Tree<I> {
    /// Creates an empty tree.
    pub(crate) fn new() -> Self {
        Self { root: TreeNode::Leaf(Arc::default()), len: 0 }
    }

    /// Creates a tree of items that are sorted by key, without duplicates.
    pub(crate) fn from_sorted(items: Vec<I>) -> Self {
        debug_assert!(items.is_sorted_by(|a, b| a.key() < b.key()));
        let len = items.len();
        let mut level = in_chunks(items, LEAF_CAPACITY, |items| {
            (items[0].key().clone(), TreeNode::Leaf(Arc::new(Leaf::from_items(items))))
        });
        while level.len() > 1 {
            level = in_chunks(level, FANOUT, |nodes| {
                let first = nodes[0].0.clone();
                let bounds = ChildBounds::new(nodes[1..].iter().map(|(first, _)| first.clone()).collect());
                let children = nodes.into_iter().map(|(_, node)| node).collect();
                (first, TreeNode::Inner(Arc::new(Inner { bounds, children })))
            });
        }
        match level.pop() {
            Some((_, root)) => Self { root, len },
            None => Self::new(),
        }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item with this key.
    pub(crate) fn get<Q: Bytes + ?Sized>(&self, key: &Q) -> Option<&I> {
        let hash = hash_of(key);
        let mut node = &self.root;
        loop {
            match node {
                TreeNode::Leaf(leaf) => {
                    leaf.items.touch();
                    return leaf.find(hash, key).and_then(|at| leaf.items.get(at));
                }
                TreeNode::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    /// Returns the item with this key, to be changed in place; its key must not change. Copies nodes that snapshots share.
    pub(crate) fn get_mut<Q: Bytes + ?Sized>(&mut self, key: &Q) -> Option<&mut I> {
        self.get(key)?;
        let hash = hash_of(key);
        let mut node = &mut self.root;
        loop {
            match node {
                TreeNode::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    let at = leaf.find(hash, key)?;
                    return leaf.items.get_mut(at);
                }
                TreeNode::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    let child = inner.child_of(key);
                    node = &mut inner.children[child];
                }
            }
        }
    }

    /// Inserts an item, and returns the one of the same key that it replaces.
    pub(crate) fn insert(&mut self, item: I) -> Option<I> {
        match self.root.insert(hash_of(item.key()), item) {
            Inserted::Replaced(old) => return Some(old),
            Inserted::Added => {}
            Inserted::Split(bound, right) => {
                let left = mem::replace(&mut self.root, TreeNode::Leaf(Arc::default()));
                self.root = TreeNode::Inner(Arc::new(Inner {
                    bounds: ChildBounds::new(vec![bound]),
                    children: vec![left, right],
                }));
            }
        }
        self.len += 1;
        None
    }

    /// Removes the item with this key and returns it.
    pub(crate) fn remove<Q: Bytes + ?Sized>(&mut self, key: &Q) -> Option<I> {
        // A key that does not exist must not cost a copied path.
        self.get(key)?;
        let removed = self.root.remove(hash_of(key), key)?;
        self.len -= 1;
        while let TreeNode::Inner(inner) = &self.root {
            match inner.children.as_slice() {
                [] => self.root = TreeNode::Leaf(Arc::default()),
                [only] => self.root = only.clone(),
                _ => break,
            }
        }
        Some(removed)
    }

    /// Returns all items in order.
    pub(crate) fn iter(&self) -> Iter<'_, I> {
        self.seek(|_| false)
    }

    /// Returns the items in order, from the first whose key is not `before`. `before` must hold for a prefix of the keys
    /// and for no other.
    pub(crate) fn seek(&self, before: impl Fn(&I::Key) -> bool) -> Iter<'_, I> {
        Iter::seek(&self.root, before)
    }
}

impl<I: TreeItem> Default for Tree<I> {
    fn default() -> Self {
        Self::new()
    }
}

/// Packs items into nodes of at most `full`, leaving room for a few more before they split.
fn in_chunks<T, R>(items: Vec<T>, full: usize, mut make: impl FnMut(Vec<T>) -> R) -> Vec<R> {
    let packed = full * 7 / 8;
    let mut made = Vec::with_capacity(items.len().div_ceil(packed));
    let mut items = items.into_iter();
    loop {
        let mut chunk = Vec::with_capacity(items.len().min(packed));
        chunk.extend(items.by_ref().take(packed));
        if chunk.is_empty() {
            return made;
        }
        made.push(make(chunk));
    }
}

#[cfg(test)]
mod tests;
