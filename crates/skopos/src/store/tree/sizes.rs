//! Sizes of a tree's nodes.

/// The maximum number of items in a leaf. More make the tree lower, and the copy that a change makes larger.
pub(super) const LEAF_CAPACITY: usize = 32;
/// The maximum number of children of an inner node. Higher, because look-ups pay for every level.
pub(super) const FANOUT: usize = 64;
