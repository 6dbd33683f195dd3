//! Histories of objects, and the parts that a client has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// `NAMESPACE/NAME`.
pub(super) type Key = String;

/// One version of an object, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Put { uid: String, version: String },
    Deleted { uid: String },
}

/// The history of each key, and the resulting state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    steps: BTreeMap<Key, Vec<Step>>,
    state: BTreeMap<Key, (String, String)>,
}

/// The events that a client has received so far.
#[derive(Clone, Default)]
pub(super) struct Seen {
    shared: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    history: History,
    /// The number of complete lists.
    lists: usize,
    /// The keys of the list in progress.
    listing: BTreeSet<Key>,
}

impl History {
    /// Records a version of an object. A known version is not a step.
    pub(super) fn put(&mut self, key: Key, uid: String, version: String) {
        if let Some((old, _)) = self.state.get(&key)
            && *old != uid
        {
            self.delete(&key);
        }
        let now = (uid.clone(), version.clone());
        if self.state.insert(key.clone(), now.clone()) != Some(now) {
            self.steps.entry(key).or_default().push(Step::Put { uid, version });
        }
    }

    pub(super) fn put_object(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        self.put(format!("{}/{}", text("namespace"), text("name")), text("uid"), text("resourceVersion"));
    }

    pub(super) fn delete(&mut self, key: &str) {
        if let Some((uid, _)) = self.state.remove(key) {
            self.steps.entry(key.to_owned()).or_default().push(Step::Deleted { uid });
        }
    }

    pub(super) fn state(&self) -> &BTreeMap<Key, (String, String)> {
        &self.state
    }

    /// Returns the number of steps.
    pub(super) fn len(&self) -> usize {
        self.steps.values().map(Vec::len).sum()
    }

    /// Returns the first key with steps that `truth` does not have, or has in another order. Steps in between may be missing:
    /// clients that relisted know only the outcome.
    pub(super) fn invents(&self, truth: &History) -> Option<String> {
        let mut keys = self.steps.iter();
        keys.find_map(|(key, steps)| {
            let none = Vec::new();
            let all = truth.steps.get(key).unwrap_or(&none);
            let mut rest = all.iter();
            let is_within = steps.iter().all(|step| rest.any(|other| other == step));
            (!is_within).then(|| format!("{key}: {steps:?} is not within {all:?}"))
        })
    }

    /// Returns the first key with different steps.
    pub(super) fn differs(&self, truth: &History) -> Option<String> {
        let keys: BTreeSet<&Key> = self.steps.keys().chain(truth.steps.keys()).collect();
        keys.into_iter().find_map(|key| {
            let (ours, theirs) = (self.steps.get(key), truth.steps.get(key));
            (ours != theirs).then(|| format!("{key}: {ours:?} instead of {theirs:?}"))
        })
    }
}

impl Seen {
    pub(super) fn put(&self, key: Key, uid: String, version: String) {
        self.shared.lock().history.put(key, uid, version);
    }

    pub(super) fn delete(&self, key: &str) {
        self.shared.lock().history.delete(key);
    }

    /// Records the start of a list.
    pub(super) fn list_begins(&self) {
        self.shared.lock().listing.clear();
    }

    pub(super) fn listed(&self, key: Key, uid: String, version: String) {
        let mut told = self.shared.lock();
        told.listing.insert(key.clone());
        told.history.put(key, uid, version);
    }

    /// Records the end of a list: keys that it did not contain are deleted.
    pub(super) fn list_ends(&self) {
        let mut told = self.shared.lock();
        let gone: Vec<Key> =
            told.history.state.keys().filter(|key| !told.listing.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| told.history.delete(key));
        told.lists += 1;
    }

    pub(super) fn lists(&self) -> usize {
        self.shared.lock().lists
    }

    pub(super) fn history(&self) -> History {
        self.shared.lock().history.clone()
    }

    /// Returns whether the client knows exactly this state.
    pub(super) fn is_at(&self, truth: &History) -> bool {
        self.shared.lock().history.state() == truth.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(steps: &[(&str, &str, &str)]) -> History {
        let mut history = History::default();
        for (key, uid, version) in steps {
            match *version {
                "gone" => history.delete(key),
                version => history.put((*key).into(), (*uid).into(), version.into()),
            }
        }
        history
    }

    #[test]
    fn detects_lost_invented_and_reordered_changes() {
        let truth = history(&[("a", "1", "1"), ("a", "1", "2"), ("a", "1", "3"), ("b", "2", "4")]);
        let coalesced = history(&[("a", "1", "1"), ("a", "1", "3"), ("b", "2", "4")]);
        assert!(coalesced.invents(&truth).is_none() && coalesced.differs(&truth).is_some());
        assert!(truth.differs(&truth).is_none());
        for wrong in [
            history(&[("a", "1", "2"), ("a", "1", "1"), ("a", "1", "3")]),
            history(&[("a", "1", "1"), ("a", "9", "3")]),
            history(&[("a", "1", "1"), ("a", "1", "gone"), ("a", "1", "3")]),
            history(&[("c", "1", "1")]),
        ] {
            assert!(wrong.invents(&truth).is_some(), "{wrong:?}");
        }
    }
}
