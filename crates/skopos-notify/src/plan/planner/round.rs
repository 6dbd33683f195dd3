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
    /// Values that are outside and not wanted.
    pub(super) missing: BTreeSet<Removal>,
    /// Values that lose their traffic.
    pub(super) losing: BTreeSet<Removal>,
    /// Number of losses of each name.
    pub(super) lost: BTreeMap<EntryName, usize>,
    /// Number of losses of each name whose values others have replaced.
    pub(super) replaced: BTreeMap<EntryName, usize>,
    /// True if the outside is not yet as wanted.
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
