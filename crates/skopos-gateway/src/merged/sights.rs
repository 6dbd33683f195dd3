//! Log of the clusters that each caller saw, so that a watch does not resume after the caller's permissions have changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;

use super::mark::Mark;

/// Key of a query: a digest of the caller and the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question([u8; 32]);

/// The clusters that each query saw, and since when.
///
/// Only the latest queries are kept, and none over a restart. A forgotten caller is assumed to have seen what it sees
/// now. At worst, until its next list, a client lacks old objects of a cluster for which it got the permission meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    known: Mutex<HashMap<Question, Known>>,
}

#[derive(Debug)]
struct Known {
    sight: BTreeSet<ClusterId>,
    /// The mark at which an already filled cluster last became visible, or any became invisible.
    changed: Option<Mark>,
    /// The clusters that are suspended for open watches, with the earliest start of the suspension.
    held: BTreeMap<ClusterId, Mark>,
    asked: Mark,
}

/// Maximum number of queries that are kept.
const MOST: usize = 4096;

/// Maximum number of suspended clusters per query. Most of a larger set have probably left for good; the next query then
/// counts as changed.
const MOST_HELD: usize = 1024;

// === impl Question ===

impl Question {
    /// Makes the key of these parts.
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
    /// Records that the query saw these clusters at `now`. `is_new` returns whether a cluster that became visible had no
    /// content before.
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

    /// Records that a cluster became visible to an open watch, which misses nothing of it.
    pub(crate) fn join(&self, question: Question, cluster: &ClusterId) {
        if let Some(known) = self.known.lock().get_mut(&question) {
            known.sight.insert(cluster.clone());
        }
    }

    /// Records that an open watch gets nothing of a cluster after `at`. A watch that resumes from a later mark would miss
    /// it.
    pub(crate) fn hold(&self, question: Question, cluster: &ClusterId, at: Mark) {
        if let Some(known) = self.known.lock().get_mut(&question) {
            known.sight.remove(cluster);
            known.held.entry(cluster.clone()).and_modify(|since| *since = at.min(*since)).or_insert(at);
        }
    }

    /// Records that an open watch gets events of a cluster again. `changed` is the mark of the cluster's last change.
    pub(crate) fn regain(&self, question: Question, cluster: &ClusterId, changed: Mark) {
        if let Some(known) = self.known.lock().get_mut(&question)
            && known.held.get(cluster).is_some_and(|since| changed <= *since)
        {
            known.held.remove(cluster);
            known.sight.insert(cluster.clone());
        }
    }

    /// Returns whether the query sees the same clusters as at `mark`, apart from later changes of their content.
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
