//! Comparison of a store with a list while events flow, without false alarms.
//!
//! The list is a consistent one, at revision `L`. The store's content is taken twice: `before` the list was sent, at
//! revision `b <= L`, and `after`, at `a >= L`. An object's resource version tells since when it has not changed. So
//!
//! - an object in the list that has not changed since before `b` (rv < b) must be in `before`, in the same version;
//! - an object in `after` that has not changed since `L` (rv <= L) must be in the list, in the same version;
//! - an object in `after` with a version beyond the content's own (rv > a) belongs to a history that was replaced, and has
//!   not been replaced itself: the list cannot have that version;
//! - if `a = L`, an object in the list that changed at `b` must be in `after`, in the same version. It need not be in
//!   `before`: several changes may share that revision, and the last of them may have been in flight.
//!
//! The comparison claims nothing about other objects that changed in between; the next audit sees them.

use std::cmp::Ordering::*;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use crate::informer::quarantine::UnreadableObjects;
use crate::store::Digest;

/// One object that differs between a store and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub key: ObjectKey,
    /// The kind of difference.
    pub kind: DifferenceKind,
}

/// The kinds of difference between a store and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The server has the object, the store does not.
    Missing,
    /// Both have the object, with another uid or resource version.
    Different,
    /// The store has the object, the server does not.
    Phantom,
}

/// A comparison in progress. Needs 16 bytes per object.
#[derive(Debug)]
pub(super) struct Comparison {
    before: ResourceVersion,
    /// The hash of (uid, resource version), by the hash of the key.
    listed: HashMap<u64, u64>,
    /// Objects that changed at `before` and that the earlier content lacks in this version.
    late: HashMap<u64, (ObjectKey, DifferenceKind)>,
    found: Differences,
}

/// The differences that a comparison found.
#[derive(Clone, Debug, Default)]
pub(super) struct Differences {
    keys: HashSet<u64>,
    pub(super) examples: Vec<Difference>,
    /// The number of differing objects that the server does not have.
    phantoms: usize,
    /// The number of objects in the list.
    pub(super) listed: usize,
    /// The digest of the list.
    pub(super) digest: Digest,
}

impl Comparison {
    /// Returns the digest of the objects listed so far.
    pub(super) fn digest(&self) -> Digest {
        self.found.digest
    }

    pub(super) fn new(before: ResourceVersion) -> Self {
        Self { before, listed: HashMap::new(), late: HashMap::new(), found: Differences::default() }
    }

    /// Adds one object of the list. `known` is the store's object with this key before the list was sent.
    pub(super) fn listed(&mut self, object: &RawObject, known: Option<&RawObject>) {
        let (key, version) = (hash_of(object.key()), version_hash(object));
        self.listed.insert(key, version);
        self.found.listed += 1;
        self.found.digest.add(object.key(), object.uid(), object.resource_version());
        let kind = match known {
            None => DifferenceKind::Missing,
            Some(known) if version_hash(known) != version => DifferenceKind::Different,
            Some(_) => return,
        };
        match object.resource_version().cmp(&self.before) {
            Less => self.found.add(object.key(), kind),
            Equal => drop(self.late.insert(key, (object.key().clone(), kind))),
            Greater => {}
        }
    }

    /// Returns the differences now that the list at `list` is complete. `after` is the store's content and its RV, at or
    /// past the list's, or `None` if the store never reached it.
    pub(super) fn differences<'a>(
        &self,
        list: &ResourceVersion,
        after: Option<(&ResourceVersion, impl Iterator<Item = &'a RawObject>)>,
    ) -> Differences {
        let mut found = self.found.clone();
        let Some((reached, objects)) = after else { return found };
        let mut late = if reached == list { self.late.clone() } else { HashMap::new() };
        for object in objects {
            let (key, version) = (hash_of(object.key()), version_hash(object));
            let listed = self.listed.get(&key);
            if listed == Some(&version) {
                late.remove(&key);
                continue;
            }
            let rv = object.resource_version();
            if rv <= list || rv > reached {
                let kind = listed.map_or(DifferenceKind::Phantom, |_| DifferenceKind::Different);
                found.add(object.key(), kind);
            }
        }
        late.values().for_each(|(key, kind)| found.add(key, *kind));
        found
    }
}

impl Differences {
    const MAX_EXAMPLES: usize = 10;

    fn add(&mut self, key: &ObjectKey, kind: DifferenceKind) {
        if !self.keys.insert(hash_of(key)) {
            return;
        }
        self.phantoms += usize::from(kind == DifferenceKind::Phantom);
        if self.examples.len() < Self::MAX_EXAMPLES {
            self.examples.push(Difference { key: key.clone(), kind });
        }
    }

    /// Returns whether all differences are known: objects that could not be read. An object that the server no longer has
    /// is not one of those.
    pub(super) fn are_known(&self, unreadable: &UnreadableObjects) -> bool {
        let keys: HashSet<u64> = unreadable.keys.iter().map(hash_of).collect();
        self.phantoms == 0 && self.keys.difference(&keys).count() <= unreadable.nameless
    }

    /// Returns the number of objects that differ.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }
}

fn version_hash(object: &RawObject) -> u64 {
    hash_of(&(object.uid(), object.resource_version()))
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use skopos_wire::Limits;

    use super::*;

    fn object(name: &str, uid: &str, rv: u64) -> RawObject {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{rv}"}}}}"#
        );
        RawObject::scan(Bytes::from(json), &Limits::default()).unwrap()
    }

    fn compare(
        before: (u64, &[RawObject]),
        list: (u64, &[RawObject]),
        after: Option<(u64, &[RawObject])>,
    ) -> Vec<Difference> {
        let known: BTreeMap<_, _> = before.1.iter().map(|o| (o.key().clone(), o)).collect();
        let mut comparison = Comparison::new(before.0.into());
        for object in list.1 {
            comparison.listed(object, known.get(object.key()).copied());
        }
        let reached = after.map_or(0, |(reached, _)| reached).into();
        comparison.differences(&list.0.into(), after.map(|(_, after)| (&reached, after.iter()))).examples
    }

    fn difference(name: &str, kind: DifferenceKind) -> Difference {
        Difference { key: ObjectKey::namespaced("ns", name), kind }
    }

    #[test]
    fn equal_content_has_no_differences() {
        let all = [object("a", "1", 3), object("b", "2", 5)];
        assert_eq!(compare((5, &all), (9, &all), Some((9, &all))), []);
    }

    #[test]
    fn changes_in_flight_are_no_differences() {
        let before = [object("deleted", "1", 1), object("changed", "2", 2), object("later", "3", 3)];
        let list = [object("changed", "2", 7), object("later", "3", 3), object("new", "4", 8)];
        let after = [object("changed", "2", 7), object("later", "3", 12), object("newest", "5", 11)];
        assert_eq!(compare((5, &before), (10, &list), Some((12, &after))), []);
    }

    #[test]
    fn each_kind_of_difference_is_found_once() {
        let before = [object("old", "1", 2), object("ghost", "2", 3), object("reborn", "3", 4)];
        let list = [object("old", "1", 3), object("lost", "4", 5), object("reborn", "9", 5)];
        assert_eq!(
            compare((6, &before), (6, &list), Some((6, &before))),
            [
                difference("old", DifferenceKind::Different),
                difference("lost", DifferenceKind::Missing),
                difference("reborn", DifferenceKind::Different),
                difference("ghost", DifferenceKind::Phantom),
            ]
        );
    }

    #[test]
    fn only_unreadable_objects_are_known_differences() {
        let differences = |left: &[RawObject]| {
            let mut comparison = Comparison::new(5.into());
            [object("a", "1", 3), object("b", "2", 4)].iter().for_each(|o| comparison.listed(o, None));
            comparison.differences(&5.into(), Some((&5.into(), left.iter())))
        };
        let unreadable = |names: &[&str], nameless| {
            let keys = names.iter().map(|name| ObjectKey::namespaced("ns", *name)).collect();
            UnreadableObjects { keys, nameless }
        };
        let found = differences(&[]);
        assert!(found.are_known(&unreadable(&["a", "b", "c"], 0)) && found.are_known(&unreadable(&["b"], 1)));
        assert!(!found.are_known(&unreadable(&["a", "c"], 0)) && !found.are_known(&unreadable(&[], 1)));
        let phantom = differences(&[object("c", "3", 1)]);
        assert!(!phantom.are_known(&unreadable(&["a", "b", "c"], 3)), "the server has it no more");
    }

    #[test]
    fn rest_of_revision_must_arrive_by_recheck() {
        let (first, second) = (object("a", "1", 5), object("b", "2", 5));
        let before = [first.clone()];
        let both = [first, second];
        assert_eq!(compare((5, &before), (5, &both), Some((5, &both))), [], "it has come");
        assert_eq!(compare((5, &before), (5, &both), None), [], "it may come");
        assert_eq!(
            compare((5, &before), (5, &both), Some((5, &before))),
            [difference("b", DifferenceKind::Missing)]
        );
        assert_eq!(
            compare((5, &before), (5, &both), Some((6, &before))),
            [],
            "it may have been deleted since"
        );
    }

    #[test]
    fn finds_objects_left_from_other_history() {
        let kept = [object("a", "1", 100)];
        assert_eq!(
            compare((60, &kept), (60, &[]), Some((60, &kept))),
            [difference("a", DifferenceKind::Phantom)]
        );
        let list = [object("a", "1", 70)];
        assert_eq!(
            compare((60, &kept), (80, &list), Some((80, &kept))),
            [difference("a", DifferenceKind::Different)]
        );
        let newer = [object("a", "1", 100)];
        assert_eq!(compare((60, &kept), (80, &list), Some((100, &newer))), [], "it has come since");
    }

    #[test]
    fn finds_missed_change_after_first_snapshot() {
        let before = [object("a", "1", 2)];
        let list = [object("a", "1", 7)];
        assert_eq!(
            compare((5, &before), (9, &list), Some((9, &before))),
            [difference("a", DifferenceKind::Different)]
        );
        assert_eq!(
            compare((5, &before), (9, &list), None),
            [],
            "nothing can be claimed before the store got there"
        );
    }
}
