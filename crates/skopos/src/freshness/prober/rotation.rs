//! Rotation of a probe's targets. Some subscribers may read only their own objects, or use a version that is no longer
//! served, and only the server's refusal shows which.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use skopos_reflect::Target;

/// The rotation. While no target answers, it alternates between the most promising target and the one that was not asked
/// for longest. So an answering target is found soon among many that do not answer, and none is left out.
#[derive(Default)]
pub(super) struct TargetRotation {
    /// The target that answered last.
    answered: Option<ProbeKey>,
    /// The targets that have failed since they answered, with the number of the last failure.
    failed: BTreeMap<ProbeKey, u64>,
    failures: u64,
    /// True if the next turn belongs to the target that was not asked for longest.
    longest_waiting: bool,
}

impl TargetRotation {
    /// Removes the target whose turn it is from the candidates and returns it.
    pub(super) fn take(&self, candidates: &mut Candidates) -> Option<(ProbeKey, Target)> {
        let next = candidates.iter().min_by_key(|(key, candidate)| {
            let hope = (self.answered.as_ref() == Some(*key), candidate.is_watching);
            (Reverse((!self.longest_waiting).then_some(hope)), self.failed.get(*key))
        });
        let key = next?.0.clone();
        let target = candidates.remove(&key)?.target;
        Some((key, target))
    }

    pub(super) fn answered(&mut self, key: ProbeKey) {
        self.failed.remove(&key);
        self.answered = Some(key);
        self.longest_waiting = false;
    }

    pub(super) fn failed(&mut self, key: ProbeKey) {
        self.answered.take_if(|answered| *answered == key);
        self.failures += 1;
        self.failed.insert(key, self.failures);
        self.longest_waiting = !self.longest_waiting;
    }

    /// Drops targets that can no longer be asked.
    pub(super) fn prune(&mut self, candidates: &Candidates) {
        self.failed.retain(|key, _| candidates.contains_key(key));
    }
}

/// The targets that can be asked, the whole cluster first.
pub(super) type Candidates = BTreeMap<ProbeKey, Candidate>;

/// A target that can be asked.
pub(super) struct Candidate {
    pub(super) target: Target,
    /// True if a list/watch of this target is open: then the server most likely answers.
    pub(super) is_watching: bool,
}

/// The properties by which the server distinguishes targets: it may answer one and refuse the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProbeKey {
    namespace: Option<String>,
    name: Option<String>,
    version: String,
}

impl ProbeKey {
    pub(super) fn new(target: &Target) -> Self {
        Self { namespace: target.namespace.clone(), name: target.name(), version: target.version.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `watching` targets whose list/watch is open, and one whose list/watch is not.
    fn candidates(watching: usize) -> Candidates {
        let candidate = |(namespace, is_watching): (String, bool)| {
            let target = Target::new("", "v1", "pods").in_namespace(namespace);
            (ProbeKey::new(&target), Candidate { target, is_watching })
        };
        let watching = (0..watching).map(|n| (format!("a{n}"), true));
        watching.chain([("z".to_owned(), false)]).map(candidate).collect()
    }

    #[test]
    fn unwatched_target_gets_turn_despite_failures() {
        let mut rotation = TargetRotation::default();
        let asked = (0..40).map(|_| {
            let (key, target) = rotation.take(&mut candidates(10)).unwrap();
            rotation.failed(key);
            target.namespace.unwrap()
        });
        let asked: Vec<String> = asked.collect();
        assert!((2..=4).contains(&asked.iter().filter(|namespace| *namespace == "z").count()), "{asked:?}");
    }
}
