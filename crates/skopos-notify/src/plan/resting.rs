use std::collections::{BTreeMap, BTreeSet};

use super::decision::Decision;
use super::sink_plan::{NameConflict, SinkPlan};
use crate::entry::EntryName;

/// Problems of names that need no work. A name is decided again when its view or its outside has changed.
#[derive(Debug, Default)]
pub(super) struct Resting {
    foreign: BTreeSet<EntryName>,
    left_out: BTreeMap<EntryName, usize>,
    conflicts: BTreeMap<EntryName, Vec<NameConflict>>,
}

impl Resting {
    /// Puts a name to rest.
    pub(super) fn insert(&mut self, name: &EntryName, decision: &Decision) {
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
        self.foreign.remove(name);
        self.left_out.remove(name);
        self.conflicts.remove(name);
    }

    /// Adds the problems of resting names to a plan.
    pub(super) fn describe(&self, plan: &mut SinkPlan) {
        plan.foreign.extend(self.foreign.iter().cloned());
        plan.left_out.extend(self.left_out.iter().map(|(name, count)| (name.clone(), *count)));
        plan.conflicts.extend(self.conflicts.values().flatten().cloned());
    }
}
