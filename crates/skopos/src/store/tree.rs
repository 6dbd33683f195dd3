//! A persistent ordered map: a B+tree whose nodes are shared between the writer and every snapshot.
//!
//! ```text
//!   snapshot at RV 7 ──▶ root ─┬─▶ leaf  leaf  leaf
//!                              │    ▲           ▲
//!   writer, next RV  ──▶ root'─┴────┴─▶ leaf' ──┘      only what changed is copied, and that once per batch
//! ```
//!
//! Cloning a [`Tree`] copies one pointer. A change copies the nodes on its path that somebody else still sees, and
//! changes those in place that nobody sees (`Arc::make_mut`), so that a batch pays for each node once. A leaf keeps 32
//! bits of hash for each item: a look-up compares words instead of following pointers into 32 objects, and touches
//! one object, the right one. How the way down to the leaf is found is said in `bounds`.
//!
//! Nodes are merged when they become thin, but never rebalanced by borrowing: depth is uniform, occupancy is what
//! deletions leave of it, and an empty node is taken out at once.

mod bounds;
mod bytes;
mod slots;

use std::hint::black_box;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use bounds::Bounds;
use bytes::hash_of;
use slots::Slots;

pub(crate) use bytes::Bytes;

/// What a tree holds: something that knows its own key.
pub(crate) trait Item: Clone {
    /// The key, which gives the order. It must not change while the item is in a tree.
    type Key: Bytes + Ord + Clone;

    /// The key of this item.
    fn key(&self) -> &Self::Key;

    /// Whether this is the item of the key that has these bytes. To be told with as few looks at memory as can be.
    fn has_key(&self, bytes: &[u8]) -> bool {
        self.key().bytes() == bytes
    }

    /// True if both are certainly the same, as when they are the same allocation. [`diff`] passes over such pairs.
    fn is_same(&self, _other: &Self) -> bool {
        false
    }

    /// Reads the memory that cloning or dropping this item will write to. Asking for all of a leaf before touching the
    /// first lets the processor fetch them side by side instead of one after another.
    fn touch(&self) -> usize {
        0
    }
}

/// The persistent map. See the module's documentation.
#[derive(Clone)]
pub(crate) struct Tree<I: Item> {
    root: Node<I>,
    len: usize,
}

impl<I: Item> Tree<I> {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self { root: Node::Leaf(Arc::default()), len: 0 }
    }

    /// A tree of items that are sorted by key and have no key twice.
    pub(crate) fn from_sorted(items: Vec<I>) -> Self {
        debug_assert!(items.is_sorted_by(|a, b| a.key() < b.key()));
        let len = items.len();
        let mut level =
            in_chunks(items, NODE, |items| (items[0].key().clone(), Node::Leaf(Arc::new(Leaf::of(items)))));
        while level.len() > 1 {
            level = in_chunks(level, FANOUT, |nodes| {
                let first = nodes[0].0.clone();
                let bounds = Bounds::new(nodes[1..].iter().map(|(first, _)| first.clone()).collect());
                let children = nodes.into_iter().map(|(_, node)| node).collect();
                (first, Node::Inner(Arc::new(Inner { bounds, children })))
            });
        }
        match level.pop() {
            Some((_, root)) => Self { root, len },
            None => Self::new(),
        }
    }

    /// The number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The item of this key.
    pub(crate) fn get<Q: Bytes + ?Sized>(&self, key: &Q) -> Option<&I> {
        let hash = hash_of(key);
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    leaf.items.touch();
                    return leaf.find(hash, key).and_then(|at| leaf.items.get(at));
                }
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    /// The item of this key, to be changed in place; its key must stay the same. Copies what snapshots share.
    pub(crate) fn get_mut<Q: Bytes + ?Sized>(&mut self, key: &Q) -> Option<&mut I> {
        self.get(key)?;
        let hash = hash_of(key);
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    let at = leaf.find(hash, key)?;
                    return leaf.items.get_mut(at);
                }
                Node::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    let child = inner.child_of(key);
                    node = &mut inner.children[child];
                }
            }
        }
    }

    /// Puts an item in, and returns the one of the same key that it replaces.
    pub(crate) fn insert(&mut self, item: I) -> Option<I> {
        match self.root.insert(hash_of(item.key()), item) {
            Inserted::Replaced(old) => return Some(old),
            Inserted::Added => {}
            Inserted::Split(bound, right) => {
                let left = mem::replace(&mut self.root, Node::Leaf(Arc::default()));
                self.root = Node::Inner(Arc::new(Inner {
                    bounds: Bounds::new(vec![bound]),
                    children: vec![left, right],
                }));
            }
        }
        self.len += 1;
        None
    }

    /// Takes the item of this key out.
    pub(crate) fn remove<Q: Bytes + ?Sized>(&mut self, key: &Q) -> Option<I> {
        // A key that is not there must not cost a copied path.
        self.get(key)?;
        let removed = self.root.remove(hash_of(key), key)?;
        self.len -= 1;
        while let Node::Inner(inner) = &self.root {
            match inner.children.as_slice() {
                [] => self.root = Node::Leaf(Arc::default()),
                [only] => self.root = only.clone(),
                _ => break,
            }
        }
        Some(removed)
    }

    /// All items in order.
    pub(crate) fn iter(&self) -> Iter<'_, I> {
        self.seek(|_| false)
    }

    /// The items in order, beginning with the first whose key is not `before`. `before` must hold for a prefix of the
    /// keys and for no other.
    pub(crate) fn seek(&self, before: impl Fn(&I::Key) -> bool) -> Iter<'_, I> {
        let mut iter = Iter { path: Vec::with_capacity(4), leaf: None, at: 0 };
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    iter.leaf = Some(leaf);
                    iter.at = leaf.items.partition_point(|item| before(item.key()));
                    iter.settle();
                    return iter;
                }
                Node::Inner(inner) => {
                    let child = inner.bounds.partition_point(&before);
                    iter.path.push((inner, child));
                    node = &inner.children[child];
                }
            }
        }
    }
}

impl<I: Item> Default for Tree<I> {
    fn default() -> Self {
        Self::new()
    }
}

/// Walks over what differs between two trees in key order, beginning behind `after`, until `visit` breaks off. Leaves
/// and items that both share are passed over without a look at their keys.
pub(crate) fn diff<I: Item>(
    old: &Tree<I>,
    new: &Tree<I>,
    after: Option<&I::Key>,
    mut visit: impl FnMut(Option<&I>, Option<&I>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let behind = |key: &I::Key| after.is_some_and(|after| key <= after);
    let (mut left, mut right) = (old.seek(behind), new.seek(behind));
    loop {
        if left.skip_shared_leaf(&mut right) {
            continue;
        }
        match (left.peek(), right.peek()) {
            (None, None) => return ControlFlow::Continue(()),
            (Some(a), Some(b)) if a.is_same(b) => {
                left.advance();
                right.advance();
            }
            (Some(a), Some(b)) if a.key() == b.key() => {
                visit(Some(a), Some(b))?;
                left.advance();
                right.advance();
            }
            (Some(a), b) if b.is_none_or(|b| a.key() < b.key()) => {
                visit(Some(a), None)?;
                left.advance();
            }
            (_, b) => {
                visit(None, b)?;
                right.advance();
            }
        }
    }
}

/// Items of a tree in key order.
pub(crate) struct Iter<'a, I: Item> {
    path: Vec<(&'a Inner<I>, usize)>,
    leaf: Option<&'a Arc<Leaf<I>>>,
    at: usize,
}

impl<'a, I: Item> Iter<'a, I> {
    /// The item that `next` will return.
    pub(crate) fn peek(&self) -> Option<&'a I> {
        self.leaf?.items.get(self.at)
    }

    fn advance(&mut self) {
        self.at += 1;
        self.settle();
    }

    /// Moves to the next leaf if this one is at its end.
    fn settle(&mut self) {
        while self.leaf.is_some_and(|leaf| self.at >= leaf.items.len()) {
            self.next_leaf();
        }
    }

    fn next_leaf(&mut self) {
        self.leaf = None;
        self.at = 0;
        while let Some((inner, child)) = self.path.last_mut() {
            *child += 1;
            let Some(mut node) = inner.children.get(*child) else {
                self.path.pop();
                continue;
            };
            while let Node::Inner(inner) = node {
                self.path.push((inner, 0));
                node = &inner.children[0];
            }
            if let Node::Leaf(leaf) = node {
                self.leaf = Some(leaf);
            }
            return;
        }
    }

    /// If both stand at the start of one and the same leaf, moves both behind it.
    fn skip_shared_leaf(&mut self, other: &mut Self) -> bool {
        let shared = self.at == 0
            && other.at == 0
            && matches!((self.leaf, other.leaf), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        if shared {
            for iter in [self, other] {
                iter.next_leaf();
                iter.settle();
            }
        }
        shared
    }
}

impl<'a, I: Item> Iterator for Iter<'a, I> {
    type Item = &'a I;

    fn next(&mut self) -> Option<&'a I> {
        let item = self.peek()?;
        self.advance();
        Some(item)
    }
}

// === the nodes ===

enum Node<I: Item> {
    Leaf(Arc<Leaf<I>>),
    Inner(Arc<Inner<I>>),
}

struct Leaf<I: Item> {
    /// `hashes[n]` belongs to `items[n]`; what lies behind means nothing.
    hashes: [u32; NODE],
    /// Sorted by key.
    items: Slots<I>,
}

struct Inner<I: Item> {
    /// `bounds[n]` is greater than every key in `children[n]`, and not greater than any in `children[n + 1]`.
    bounds: Bounds<I::Key>,
    children: Vec<Node<I>>,
}

/// What became of an insertion below a node.
enum Inserted<I: Item> {
    Replaced(I),
    Added,
    /// The node was full and has given its upper part to a new right neighbour, whose keys begin at the bound.
    Split(I::Key, Node<I>),
}

impl<I: Item> Node<I> {
    fn size(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.items.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    /// The most that a node of this kind may have.
    fn most(&self) -> usize {
        match self {
            Node::Leaf(_) => NODE,
            Node::Inner(_) => FANOUT,
        }
    }

    fn insert(&mut self, hash: u32, item: I) -> Inserted<I> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).insert(hash, item),
            Node::Inner(inner) => Arc::make_mut(inner).insert(hash, item),
        }
    }

    fn remove<Q: Bytes + ?Sized>(&mut self, hash: u32, key: &Q) -> Option<I> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).remove(hash, key),
            Node::Inner(inner) => Arc::make_mut(inner).remove(hash, key),
        }
    }

    /// Takes in the right neighbour, whose keys begin at `bound`.
    fn absorb(&mut self, bound: I::Key, right: Node<I>) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                let (left, mut right) = (Arc::make_mut(left), Arc::unwrap_or_clone(right));
                let at = left.items.len();
                left.hashes[at..at + right.items.len()].copy_from_slice(&right.hashes[..right.items.len()]);
                left.items.append(mem::take(&mut right.items));
            }
            (Node::Inner(left), Node::Inner(right)) => {
                let (left, mut right) = (Arc::make_mut(left), Arc::unwrap_or_clone(right));
                left.bounds.append(bound, right.bounds);
                left.children.append(&mut right.children);
            }
            // Neighbours have the same depth.
            _ => debug_assert!(false, "a leaf beside an inner node"),
        }
    }
}

impl<I: Item> Leaf<I> {
    fn of(items: Vec<I>) -> Self {
        let mut hashes = [0; NODE];
        hashes.iter_mut().zip(&items).for_each(|(hash, item)| *hash = hash_of(item.key()));
        Self { hashes, items: items.into_iter().collect() }
    }

    fn find<Q: Bytes + ?Sized>(&self, hash: u32, key: &Q) -> Option<usize> {
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
        if self.items.len() < NODE {
            self.put_at(at, hash, item);
            return Inserted::Added;
        }
        let cut = cut_for(at, NODE);
        let mut right = Leaf { hashes: [0; NODE], items: self.items.split_off(cut) };
        right.hashes[..NODE - cut].copy_from_slice(&self.hashes[cut..]);
        // The key is that of the first item of the right, whichever that is.
        let bound = right.items.get(0).filter(|_| at != cut).unwrap_or(&item).key().clone();
        if at < cut {
            self.put_at(at, hash, item);
        } else {
            right.put_at(at - cut, hash, item);
        }
        Inserted::Split(bound, Node::Leaf(Arc::new(right)))
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

impl<I: Item> Inner<I> {
    fn child_of<Q: Bytes + ?Sized>(&self, key: &Q) -> usize {
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
            Some(bound) => Inserted::Split(bound, Node::Inner(Arc::new(right))),
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
            1..THIN => self.merge_around(child),
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
                .is_some_and(|right| self.children[*left].size() + right.size() <= right.most())
        };
        if let Some(left) = pairs.into_iter().find(fits) {
            let bound = self.bounds.remove(left);
            let right = self.children.remove(left + 1);
            self.children[left].absorb(bound, right);
        }
    }
}

impl<I: Item> Clone for Node<I> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(leaf) => Node::Leaf(leaf.clone()),
            Node::Inner(inner) => Node::Inner(inner.clone()),
        }
    }
}

impl<I: Item> Clone for Leaf<I> {
    fn clone(&self) -> Self {
        self.touch();
        Self { hashes: self.hashes, items: self.items.clone() }
    }
}

impl<I: Item> Drop for Leaf<I> {
    fn drop(&mut self) {
        self.touch();
    }
}

impl<I: Item> Clone for Inner<I> {
    fn clone(&self) -> Self {
        Self { bounds: self.bounds.clone(), children: self.children.clone() }
    }
}

impl<I: Item> Default for Leaf<I> {
    fn default() -> Self {
        Self { hashes: [0; NODE], items: Slots::default() }
    }
}

/// The most items of a leaf. More make the tree lower, and the copy that a change leaves behind larger.
const NODE: usize = 32;
/// The most children of an inner node. Higher, because look-ups pay for every level.
const FANOUT: usize = 64;
/// A node with fewer is merged with a neighbour.
const THIN: usize = NODE / 4;

/// Where a full node splits when something was put in at `at`: in the middle, except that whoever appends in order
/// (names that count up) leaves full nodes behind.
fn cut_for(at: usize, full: usize) -> usize {
    if at >= full { full } else { full / 2 }
}

/// Packs items into nodes of which `full` is the most, leaving room for a few more before they split.
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
