use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Pair(Arc<str>, Arc<u32>);

impl TreeItem for Pair {
    type Key = Arc<str>;
    fn key(&self) -> &Arc<str> {
        &self.0
    }
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.1, &other.1)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Remove(u16),
    RemoveRange(u16, u16),
    Touch(u16),
    Hold,
    Rebuild,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..600u16;
    let step = prop_oneof![
        12 => (key(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
        6 => key().prop_map(Step::Remove),
        1 => (key(), 0..200u16).prop_map(|(k, n)| Step::RemoveRange(k, n)),
        2 => key().prop_map(Step::Touch),
        1 => Just(Step::Hold),
        1 => Just(Step::Rebuild),
    ];
    prop::collection::vec(step, 1..1500)
}

/// Returns a name: some share a prefix shorter or longer than a node's, some are prefixes of each other, and some end with
/// NULs.
fn name(key: u16) -> Arc<str> {
    let (kind, n) = (key % 5, key / 5);
    match kind {
        0 => format!("ns\0deployment-{n:04}"),
        1 => format!("ns\0{}{n:03}", "long-".repeat(11)),
        2 => format!("ns\0deployment-{}", "\0".repeat(usize::from(n))),
        3 => "a".repeat(usize::from(n)),
        _ => format!("{n}"),
    }
    .into()
}

fn pair(key: u16, value: u32) -> Pair {
    Pair(name(key), Arc::new(value))
}

type Model = BTreeMap<Arc<str>, u32>;

fn check(tree: &Tree<Pair>, model: &Model) {
    assert_eq!(tree.len(), model.len());
    assert!(tree.iter().map(|p| (&p.0, *p.1)).eq(model.iter().map(|(k, v)| (k, *v))));
    check_node(&tree.root, true);
}

/// Checks that every node is within its bounds, and all leaves at one depth; returns the depth.
fn check_node(node: &TreeNode<Pair>, root: bool) -> usize {
    assert!(node.size() <= node.capacity());
    assert!(root || node.size() > 0);
    match node {
        TreeNode::Leaf(leaf) => {
            assert!(leaf.items.iter().zip(leaf.hashes).all(|(i, h)| hash_of(i.key()) == h));
            0
        }
        TreeNode::Inner(inner) => {
            assert!(!root || inner.children.len() > 1);
            assert_eq!(inner.bounds.len() + 1, inner.children.len());
            let depths: Vec<_> = inner.children.iter().map(|child| check_node(child, false)).collect();
            assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
            depths[0] + 1
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::testing::cases(24), ..ProptestConfig::default() })]

    #[test]
    fn tree_matches_sorted_map_and_keeps_held_copies(steps in steps()) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::new());
        let mut held: Vec<(Tree<Pair>, Model)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(k, v) => {
                    prop_assert_eq!(tree.insert(pair(k, v)).map(|p| *p.1), model.insert(name(k), v));
                }
                Step::Remove(k) => {
                    prop_assert_eq!(tree.remove(&name(k)).map(|p| *p.1), model.remove(&name(k)));
                }
                Step::RemoveRange(k, n) => for k in k..k + n {
                    prop_assert_eq!(tree.remove(&name(k)).map(|p| *p.1), model.remove(&name(k)));
                },
                Step::Touch(k) => {
                    prop_assert_eq!(tree.get(&name(k)).map(|p| *p.1), model.get(&name(k)).copied());
                    if let Some(p) = tree.get_mut(&name(k)) {
                        p.1 = Arc::new(7);
                        model.insert(name(k), 7);
                    }
                    let from = tree.seek(|other| *other < name(k)).map(|p| &p.0);
                    prop_assert!(from.eq(model.range(name(k)..).map(|(k, _)| k)));
                }
                Step::Hold => held.push((tree.clone(), model.clone())),
                Step::Rebuild => tree = Tree::from_sorted(tree.iter().cloned().collect()),
            }
        }
        check(&tree, &model);
        for (old_tree, old_model) in &held {
            check(old_tree, old_model);
            check_diff(old_tree, old_model, &tree, &model);
        }
    }
}

/// Checks that applying the differences to the old tree gives the new one, also if the walk is interrupted and resumed.
fn check_diff(old: &Tree<Pair>, old_model: &Model, new: &Tree<Pair>, new_model: &Model) {
    let mut patched = old_model.clone();
    let mut after = None;
    loop {
        let mut seen = 0;
        let behind = after.clone();
        let walk = diff(old, new, behind.as_ref(), |a, b| {
            if seen == 7 {
                return ControlFlow::Break(());
            }
            seen += 1;
            after = a.or(b).map(|p| p.0.clone());
            match (a, b) {
                (Some(a), Some(b)) => {
                    assert_eq!(a.0, b.0);
                    assert_eq!(patched.insert(b.0.clone(), *b.1), Some(*a.1));
                }
                (Some(a), None) => assert_eq!(patched.remove(&a.0), Some(*a.1)),
                (None, Some(b)) => assert_eq!(patched.insert(b.0.clone(), *b.1), None),
                (None, None) => unreachable!(),
            }
            ControlFlow::Continue(())
        });
        if walk.is_continue() {
            break;
        }
    }
    assert_eq!(&patched, new_model);
}

#[test]
fn names_that_count_up_fill_their_leaves() {
    let mut tree = Tree::new();
    for key in 0..3200 {
        tree.insert(Pair(format!("pod-{key:04}").into(), Arc::new(0)));
    }
    let mut leaves = 0;
    let mut iter = tree.iter();
    while iter.leaf.is_some() {
        leaves += 1;
        iter.next_leaf();
    }
    assert_eq!(leaves, 3200 / LEAF_CAPACITY);
}

#[test]
fn a_change_shares_all_but_its_path() {
    let before = Tree::from_sorted((0..3000).map(|k| pair(k * 5, 0)).collect());
    let mut after = before.clone();
    after.insert(pair(1500 * 5, 1));
    let mut compared = 0;
    let _ = diff(&before, &after, None, |_, _| {
        compared += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(compared, 1);
    let (mut left, mut right) = (before.iter(), after.iter());
    let mut different = 0;
    while let (Some(a), Some(b)) = (left.leaf, right.leaf) {
        different += usize::from(!Arc::ptr_eq(a, b));
        left.next_leaf();
        right.next_leaf();
    }
    assert_eq!(different, 1);
}
