//! What callers saw: so that a watch does not go on as if nothing had been when its caller's rights are others now.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;

use super::mark::Mark;

/// Which question of which caller: a digest of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question([u8; 32]);

/// Remembers for each question which clusters were seen, and since when those are.
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
    /// When a cluster last came into sight or went out of it.
    changed: Option<Mark>,
    /// Out of sight for open watches, and since when for the first of them.
    held: BTreeMap<ClusterId, Mark>,
    asked: Mark,
}

/// How many questions are remembered.
const MOST: usize = 4096;

/// How many clusters are remembered that are out of sight for open watches. Where there are more, of which most will have left for good,
/// whoever asks next has another sight.
const MOST_HELD: usize = 1024;

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
            let known = Known { sight: sight.clone(), changed: None, held: BTreeMap::new(), asked: now };
            all.insert(question, known);
            return;
        };
        let mut changed = !known.sight.is_subset(sight);
        for cluster in sight.difference(&known.sight) {
            changed |= known.held.remove(cluster).is_some() || !is_new(cluster);
        }
        if known.held.len() > MOST_HELD {
            known.held.clear();
            changed = true;
        }
        if changed {
            known.changed = known.changed.max(Some(now));
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

    /// An open watch is told nothing of a cluster that comes after `at`. Who goes on from a later mark would miss it.
    pub(crate) fn hold(&self, question: Question, cluster: &ClusterId, at: Mark) {
        if let Some(known) = self.known.lock().get_mut(&question) {
            known.sight.remove(cluster);
            known.held.entry(cluster.clone()).and_modify(|since| *since = at.min(*since)).or_insert(at);
        }
    }

    /// An open watch is told of a cluster again, the last change of which was at `changed`.
    pub(crate) fn regain(&self, question: Question, cluster: &ClusterId, changed: Mark) {
        if let Some(known) = self.known.lock().get_mut(&question)
            && known.held.get(cluster).is_some_and(|since| changed <= *since)
        {
            known.held.remove(cluster);
            known.sight.insert(cluster.clone());
        }
    }

    /// Whether what the question sees is what it saw at `mark`, but for what changed since.
    pub(crate) fn is_as_at(&self, question: Question, mark: Mark) -> bool {
        let all = self.known.lock();
        all.get(&question).is_none_or(|known| known.changed.is_none_or(|when| when <= mark))
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
    fn what_was_held_back_is_listed_anew_if_it_has_changed() {
        let question = Question::of(&[b"jane"]);
        let (all, b) = (set(&["a", "b"]), ClusterId::new("b").unwrap());
        for (changed, goes_on) in [(30, true), (35, false)] {
            let sights = Sights::default();
            sights.note(question, &all, Mark::new(10), |_| true);
            sights.hold(question, &b, Mark::new(30));
            sights.hold(question, &b, Mark::new(40));
            sights.regain(question, &b, Mark::new(changed));
            sights.note(question, &all, Mark::new(60), |_| true);
            assert_eq!(sights.is_as_at(question, Mark::new(50)), goes_on, "{changed}");
        }
        let sights = Sights::default();
        sights.note(question, &all, Mark::new(10), |_| true);
        sights.hold(question, &b, Mark::new(30));
        sights.note(question, &all, Mark::new(60), |_| true);
        assert!(!sights.is_as_at(question, Mark::new(50)), "nobody has looked whether it changed");
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let sights = Sights::default();
        for n in 0..MOST as u64 + 10 {
            sights.note(Question::of(&[&n.to_be_bytes()]), &set(&[]), Mark::new(n), |_| false);
        }
        assert_eq!(sights.known.lock().len(), MOST);
    }

    #[test]
    fn clusters_that_come_and_go_for_ever_leave_nothing_behind() {
        let sights = Sights::default();
        let question = Question::of(&[b"jane"]);
        for n in 0..10 * MOST_HELD as u64 {
            let cluster = set(&[&format!("c{n}")]);
            sights.note(question, &cluster, Mark::new(n), |_| true);
            sights.hold(question, cluster.first().unwrap(), Mark::new(n));
            let before = Mark::new(n.saturating_sub(1));
            let goes_on = sights.is_as_at(question, before);
            assert!(goes_on || n % (MOST_HELD as u64 + 1) == 0, "{n}");
        }
        assert!(sights.known.lock()[&question].held.len() <= MOST_HELD + 1);
    }
}
