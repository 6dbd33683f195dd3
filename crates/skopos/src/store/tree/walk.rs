//! Walks through a tree in order, and through two at once, skipping the parts that they share.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::node::{Inner, Leaf, TreeNode};
use super::{Tree, TreeItem};

/// An iterator over the items of a tree in key order.
pub(crate) struct Iter<'a, I: TreeItem> {
    path: Vec<(&'a Inner<I>, usize)>,
    pub(super) leaf: Option<&'a Arc<Leaf<I>>>,
    at: usize,
}

impl<'a, I: TreeItem> Iter<'a, I> {
    /// Creates the iterator of [`Tree::seek`].
    pub(super) fn seek(root: &'a TreeNode<I>, before: impl Fn(&I::Key) -> bool) -> Self {
        let mut iter = Self { path: Vec::with_capacity(4), leaf: None, at: 0 };
        let mut node = root;
        loop {
            match node {
                TreeNode::Leaf(leaf) => {
                    iter.leaf = Some(leaf);
                    iter.at = leaf.items.partition_point(|item| before(item.key()));
                    iter.settle();
                    return iter;
                }
                TreeNode::Inner(inner) => {
                    let child = inner.bounds.partition_point(&before);
                    iter.path.push((inner, child));
                    node = &inner.children[child];
                }
            }
        }
    }

    /// Returns the item that `next` will return.
    pub(crate) fn peek(&self) -> Option<&'a I> {
        self.leaf?.items.get(self.at)
    }

    fn advance(&mut self) {
        self.at += 1;
        self.settle();
    }

    /// Moves to the next leaf at the end of this one.
    fn settle(&mut self) {
        while self.leaf.is_some_and(|leaf| self.at >= leaf.items.len()) {
            self.next_leaf();
        }
    }

    pub(super) fn next_leaf(&mut self) {
        self.leaf = None;
        self.at = 0;
        while let Some((inner, child)) = self.path.last_mut() {
            *child += 1;
            let Some(mut node) = inner.children.get(*child) else {
                self.path.pop();
                continue;
            };
            while let TreeNode::Inner(inner) = node {
                self.path.push((inner, 0));
                node = &inner.children[0];
            }
            if let TreeNode::Leaf(leaf) = node {
                self.leaf = Some(leaf);
            }
            return;
        }
    }

    /// Moves both iterators behind their leaf if both are at the start of the same leaf. Returns whether they were.
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

impl<'a, I: TreeItem> Iterator for Iter<'a, I> {
    type Item = &'a I;

    fn next(&mut self) -> Option<&'a I> {
        let item = self.peek()?;
        self.advance();
        Some(item)
    }
}

/// Walks over the differences between two trees in key order, beginning after `after`, until `visit` breaks off. Leaves and
/// items that both share are skipped without reading their keys.
pub(crate) fn diff<I: TreeItem>(
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
