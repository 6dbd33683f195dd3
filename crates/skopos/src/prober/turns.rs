//! Rotation of a probe's targets. Some subscribers may read only their own objects, or use a version that is no longer
//! served, and only the server's refusal shows which.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use skopos_reflect::Target;

/// The rotation. While no target answers, it alternates between the most promising target and the one that was not asked
/// for longest. So an answering target is found soon among many that do not answer, and none is left out.
#[derive(Default)]
pub(super) struct Turns {
    /// The target that answered last.
    answered: Option<Way>,
    /// The targets that have failed since they answered, with the number of the last failure.
    failed: BTreeMap<Way, u64>,
    failures: u64,
    /// True if the next turn belongs to the target that was not asked for longest.
    longest_waiting: bool,
}

impl Turns {
    /// Removes the target whose turn it is from the candidates and returns it.
    pub(super) fn take(&self, candidates: &mut Candidates) -> Option<(Way, Target)> {
        let next = candidates.iter().min_by_key(|(way, candidate)| {
            let hope = (self.answered.as_ref() == Some(*way), candidate.stands);
            (Reverse((!self.longest_waiting).then_some(hope)), self.failed.get(*way))
        });
        let way = next?.0.clone();
        let target = candidates.remove(&way)?.target;
        Some((way, target))
    }

    pub(super) fn answered(&mut self, way: Way) {
        self.failed.remove(&way);
        self.answered = Some(way);
        self.longest_waiting = false;
    }

    pub(super) fn failed(&mut self, way: Way) {
        self.answered.take_if(|answered| *answered == way);
        self.failures += 1;
        self.failed.insert(way, self.failures);
        self.longest_waiting = !self.longest_waiting;
    }

    /// Drops targets that can no longer be asked.
    pub(super) fn forget_the_gone(&mut self, candidates: &Candidates) {
        self.failed.retain(|way, _| candidates.contains_key(way));
    }
}

/// The targets that can be asked, the whole cluster first.
pub(super) type Candidates = BTreeMap<Way, Candidate>;

/// A target that can be asked.
pub(super) struct Candidate {
    pub(super) target: Target,
    /// True if a list/watch of this target is open: then the server most likely answers.
    pub(super) stands: bool,
}

/// The properties by which the server distinguishes targets: it may answer one and refuse the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    namespace: Option<String>,
    name: Option<String>,
    version: String,
}

impl Way {
    pub(super) fn of(target: &Target) -> Self {
        Self { namespace: target.namespace.clone(), name: target.name(), version: target.version.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `standing` targets whose list/watch is open, and one whose list/watch is not.
    fn candidates(standing: usize) -> Candidates {
        let candidate = |(namespace, stands): (String, bool)| {
            let target = Target::new("", "v1", "pods").in_namespace(namespace);
            (Way::of(&target), Candidate { target, stands })
        };
        let standing = (0..standing).map(|n| (format!("a{n}"), true));
        standing.chain([("z".to_owned(), false)]).map(candidate).collect()
    }

    #[test]
    fn one_that_does_not_stand_has_its_turn_though_none_answers_of_those_that_do() {
        let mut turns = Turns::default();
        let asked = (0..40).map(|_| {
            let (way, target) = turns.take(&mut candidates(10)).unwrap();
            turns.failed(way);
            target.namespace.unwrap()
        });
        let asked: Vec<String> = asked.collect();
        assert!((2..=4).contains(&asked.iter().filter(|namespace| *namespace == "z").count()), "{asked:?}");
    }
}
