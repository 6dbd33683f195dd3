//! What callers saw: so that a watch does not go on as if nothing had been when its caller's rights are others now.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;

use super::mark::Mark;

/// Which question of which caller: a digest of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question([u8; 32]);

/// Remembers for each question which clusters were seen, and since when those are that came into sight or out of it.
///
/// Only the latest questions are remembered, and none over a restart. Who is forgotten is believed to have seen what he
/// sees now: at worst a client lacks old objects of a cluster that it got the right to while it was away, until it lists.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    known: Mutex<HashMap<Question, Known>>,
}

#[derive(Debug)]
struct Known {
    sight: BTreeSet<ClusterId>,
    changed: BTreeMap<ClusterId, Mark>,
    asked: Mark,
}

/// How many questions are remembered.
const MOST: usize = 4096;

// === impl Question ===

impl Question {
    /// The question that is made of these parts.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

// === impl Sights ===

impl Sights {
    /// The question was asked, and saw these clusters at `now`. `is_new` says of a cluster that came into sight that it had
    /// nothing to show before.
    pub(crate) fn note(
        &self,
        question: Question,
        sight: &BTreeSet<ClusterId>,
        now: Mark,
        is_new: impl Fn(&ClusterId) -> bool,
    ) {
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(&question) else {
            if all.len() >= MOST {
                let oldest = all.iter().min_by_key(|(_, known)| known.asked).map(|(question, _)| *question);
                oldest.and_then(|question| all.remove(&question));
            }
            let known = Known { sight: sight.clone(), changed: BTreeMap::new(), asked: now };
            all.insert(question, known);
            return;
        };
        for cluster in sight.difference(&known.sight).filter(|cluster| !is_new(cluster)) {
            known.changed.insert(cluster.clone(), now);
        }
        for cluster in known.sight.difference(sight) {
            known.changed.insert(cluster.clone(), now);
        }
        known.sight.clone_from(sight);
        known.asked = now;
    }

    /// A cluster came into the sight of an open watch, which misses nothing of it.
    pub(crate) fn join(&self, question: Question, cluster: &ClusterId) {
        if let Some(known) = self.known.lock().get_mut(&question) {
            known.sight.insert(cluster.clone());
        }
    }

    /// Whether what the question sees is what it saw at `mark`, but for what changed since.
    pub(crate) fn is_as_at(&self, question: Question, mark: Mark) -> bool {
        let all = self.known.lock();
        all.get(&question).is_none_or(|known| known.changed.values().all(|when| *when <= mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<ClusterId> {
        names.iter().map(|name| ClusterId::new(name).unwrap()).collect()
    }

    #[test]
    fn a_right_that_is_new_or_gone_ends_what_was_before() {
        let sights = Sights::default();
        let question = Question::of(&[b"jane", b"list pods"]);
        let note = |names: &[&str], now| sights.note(question, &set(names), Mark::new(now), |_| false);
        note(&["a"], 10);
        assert!(sights.is_as_at(question, Mark::new(5)));
        note(&["a", "b"], 20);
        assert!(!sights.is_as_at(question, Mark::new(19)) && sights.is_as_at(question, Mark::new(20)));
        note(&["b"], 30);
        assert!(!sights.is_as_at(question, Mark::new(29)) && sights.is_as_at(question, Mark::new(30)));
        assert!(
            sights.is_as_at(Question::of(&[b"joe", b"list pods"]), Mark::new(1)),
            "others are not concerned"
        );
    }

    #[test]
    fn a_cluster_that_is_new_itself_is_no_new_right() {
        let sights = Sights::default();
        let question = Question::of(&[b"jane"]);
        sights.note(question, &set(&["a"]), Mark::new(10), |_| false);
        sights.join(question, set(&["b"]).first().unwrap());
        sights.note(question, &set(&["a", "b"]), Mark::new(20), |_| false);
        sights.note(question, &set(&["a", "b", "c"]), Mark::new(30), |_| true);
        assert!(sights.is_as_at(question, Mark::new(10)));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let sights = Sights::default();
        for n in 0..MOST as u64 + 10 {
            sights.note(Question::of(&[&n.to_be_bytes()]), &set(&[]), Mark::new(n), |_| false);
        }
        assert_eq!(sights.known.lock().len(), MOST);
    }
}
