use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use skopos_reflect::Time;

use crate::entry::EntryName;
use crate::plan::evidence::Removal;
use crate::plan::guard::HoldReason;

/// Intermediate results of one plan.
#[derive(Default)]
pub(super) struct Round {
    pub(super) age: Duration,
    pub(super) held: BTreeMap<HoldReason, BTreeSet<Removal>>,
    /// What is outside and not wanted.
    pub(super) missing: BTreeSet<Removal>,
    /// What loses its traffic.
    pub(super) losing: BTreeSet<Removal>,
    /// How many of these each name has.
    pub(super) lost: BTreeMap<EntryName, usize>,
    /// Numbers of losses by name of which others have taken the place.
    pub(super) replaced: BTreeMap<EntryName, usize>,
    /// The outside is not yet as it is to be.
    pub(super) behind: bool,
    pub(super) wake_at: Option<Time>,
}

impl Round {
    pub(super) fn hold(&mut self, reason: HoldReason, removal: Removal) {
        self.held.entry(reason).or_default().insert(removal);
    }

    pub(super) fn wake(&mut self, at: Option<Time>) {
        self.wake_at = [self.wake_at, at].into_iter().flatten().min();
    }
}
