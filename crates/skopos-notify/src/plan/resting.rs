use std::collections::{BTreeMap, BTreeSet};

use super::decision::Decision;
use super::sink_plan::{NameConflict, SinkPlan};
use crate::entry::EntryName;
use crate::sink::Serving;

/// Decisions of names that need no work. A name is decided again when its view or its outside has changed.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// The number of serving values of each name.
    names: BTreeMap<EntryName, usize>,
    serving: usize,
    foreign: BTreeSet<EntryName>,
    left_out: BTreeMap<EntryName, usize>,
    conflicts: BTreeMap<EntryName, Vec<NameConflict>>,
}

impl Resting {
    /// Returns the number of their values that get traffic.
    pub(super) fn serving(&self) -> usize {
        self.serving
    }

    /// Returns whether a name rests.
    pub(super) fn contains(&self, name: &EntryName) -> bool {
        self.names.contains_key(name)
    }

    /// Puts a name to rest.
    pub(super) fn insert(&mut self, name: &EntryName, decision: &Decision) {
        let serving = active(decision);
        self.serving += serving;
        self.names.insert(name.clone(), serving);
        if decision.foreign {
            self.foreign.insert(name.clone());
        }
        if decision.left_out > 0 {
            self.left_out.insert(name.clone(), decision.left_out);
        }
        if !decision.losers.is_empty() {
            self.conflicts.insert(name.clone(), decision.conflicts(name).collect());
        }
    }

    /// Takes a name out.
    pub(super) fn remove(&mut self, name: &EntryName) {
        if let Some(serving) = self.names.remove(name) {
            self.serving -= serving;
            self.foreign.remove(name);
            self.left_out.remove(name);
            self.conflicts.remove(name);
        }
    }

    /// Adds the problems of resting names to a plan.
    pub(super) fn describe(&self, plan: &mut SinkPlan) {
        plan.foreign.extend(self.foreign.iter().cloned());
        plan.left_out.extend(self.left_out.iter().map(|(name, count)| (name.clone(), *count)));
        plan.conflicts.extend(self.conflicts.values().flatten().cloned());
    }
}

/// Counts the values that get traffic.
pub(super) fn active(decision: &Decision) -> usize {
    decision.members.values().filter(|serving| **serving == Serving::Active).count()
}
