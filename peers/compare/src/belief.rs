//! What a client has been told of the objects, against what they are.

use std::collections::{BTreeMap, BTreeSet};

use peer_protocol::{EventLine, Version, What, digest};

/// Objects by `namespace/name`.
pub(crate) type Objects = BTreeMap<String, Version>;

/// The digest that a client's store has if it holds these.
pub(crate) fn digest_of(objects: &Objects) -> String {
    digest(objects.iter().map(|(key, version)| (key.as_str(), version.uid.as_str(), version.rv.as_str())))
}

/// What a client's handler knows.
#[derive(Debug, Default)]
pub(crate) struct Belief {
    /// What it takes to be there.
    pub(crate) objects: Objects,
    /// A list that replaces everything once it is complete.
    replacing: Option<Objects>,
    /// Deletions that it was told of, by uid.
    deleted: BTreeSet<String>,
    /// Names at which it was told of a change from one object to another, instead of a deletion and an addition.
    pub(crate) crossings: BTreeSet<String>,
}

impl Belief {
    /// Takes in a line of the client.
    pub(crate) fn take(&mut self, what: &What) {
        match what {
            What::Event(event) => self.event(event),
            What::Replacing => self.replacing = Some(Objects::new()),
            What::Replaced => {
                if let Some(objects) = self.replacing.take() {
                    let crossed = |(key, new): &(&String, &Version)| {
                        self.objects
                            .get(*key)
                            .is_some_and(|old| old.uid != new.uid && !self.deleted.contains(&old.uid))
                    };
                    self.crossings.extend(objects.iter().filter(crossed).map(|(key, _)| key.clone()));
                    self.objects = objects;
                }
            }
            _ => {}
        }
    }

    /// Which of these uids it was never told to be gone.
    pub(crate) fn untold<'a>(&self, gone: impl IntoIterator<Item = &'a String>) -> usize {
        gone.into_iter().filter(|uid| !self.deleted.contains(*uid)).count()
    }

    /// At how many names it is wrong.
    pub(crate) fn differences(&self, truth: &Objects) -> usize {
        let wrong = truth.iter().filter(|(key, version)| self.objects.get(*key) != Some(version)).count();
        wrong + self.objects.keys().filter(|key| !truth.contains_key(*key)).count()
    }

    fn event(&mut self, event: &EventLine) {
        let version = Version { uid: event.uid.clone(), rv: event.rv.clone() };
        if !event.change.leaves_object() {
            self.deleted.insert(version.uid.clone());
            self.objects.remove(&event.key);
            return;
        }
        if let Some(replacing) = self.replacing.as_mut().filter(|_| event.initial) {
            replacing.insert(event.key.clone(), version);
            return;
        }
        let old = self.objects.insert(event.key.clone(), version);
        if old.is_some_and(|old| old.uid != event.uid) {
            self.crossings.insert(event.key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use peer_protocol::Change;

    use super::*;

    fn event(change: Change, initial: bool, name: &str, uid: &str, rv: &str) -> What {
        let (key, uid, rv) = (name.to_owned(), uid.to_owned(), rv.to_owned());
        What::Event(EventLine { change, initial, key, uid, rv, old: None })
    }

    fn truth(objects: &[(&str, &str, &str)]) -> Objects {
        let version = |uid: &str, rv: &str| Version { uid: uid.to_owned(), rv: rv.to_owned() };
        objects.iter().map(|(name, uid, rv)| ((*name).to_owned(), version(uid, rv))).collect()
    }

    #[test]
    fn only_update_across_objects_is_crossing() {
        let mut belief = Belief::default();
        belief.take(&event(Change::Added, true, "a", "u1", "1"));
        belief.take(&event(Change::Deleted, false, "a", "u1", "2"));
        belief.take(&event(Change::Added, false, "a", "u2", "3"));
        assert!(belief.crossings.is_empty());
        belief.take(&event(Change::Updated, false, "a", "u3", "4"));
        assert_eq!(belief.crossings.len(), 1);
        assert_eq!(belief.untold(&["u1".to_owned(), "u2".to_owned()]), 1);
    }

    #[test]
    fn a_replacement_counts_when_it_is_complete() {
        let mut belief = Belief::default();
        belief.take(&event(Change::Applied, false, "a", "u1", "1"));
        belief.take(&event(Change::Applied, false, "b", "u2", "1"));
        belief.take(&What::Replacing);
        belief.take(&event(Change::Applied, true, "b", "u3", "2"));
        assert_eq!(belief.differences(&truth(&[("a", "u1", "1"), ("b", "u2", "1")])), 0);
        belief.take(&What::Replaced);
        assert_eq!(belief.differences(&truth(&[("b", "u3", "2")])), 0);
        assert_eq!(belief.differences(&truth(&[("a", "u1", "1"), ("b", "u2", "1")])), 2);
        assert_eq!(belief.crossings.len(), 1);
        assert_eq!(belief.untold(&["u1".to_owned()]), 1);
    }
}
