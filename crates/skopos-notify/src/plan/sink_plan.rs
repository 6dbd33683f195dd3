use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skopos_reflect::Time;

use super::guard::HeldRemovals;
use crate::entry::{EntryName, EntryOwner};
use crate::sink::SinkStep;

/// The work of one round.
#[derive(Clone, Debug, Default)]
pub struct SinkPlan {
    /// Changes, each of another name, in no order.
    pub steps: Vec<SinkStep>,
    /// What has to wait for more than a moment.
    pub held: Vec<HeldRemovals>,
    /// Names that were written, or may have been, and are to be read back.
    pub read: BTreeSet<EntryName>,
    /// Something waits for a list that is begun at this time or later.
    pub list_from: Option<Time>,
    /// When to plan again, if nothing happens before.
    pub wake_at: Option<Time>,
    /// The number of names that are not yet as they are to be, and could be.
    pub pending: usize,
    /// Whether the outside is as it is to be: nothing is to be done, waits, or is held.
    pub is_equal: bool,
    /// Names that are somebody else's outside.
    pub foreign: BTreeSet<EntryName>,
    /// Names that more than one object asks for.
    pub conflicts: Vec<NameConflict>,
    /// Names with more values than the sink takes, and how many are left out.
    pub left_out: BTreeMap<EntryName, usize>,
}

/// An object that asks for a name that another one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The name.
    pub name: EntryName,
    /// Who has it.
    pub owner: Arc<EntryOwner>,
    /// Who does not get it.
    pub loser: Arc<EntryOwner>,
}

/// What a planner has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanStats {
    /// Names that the sink does not have as they were last seen equal, without a write of ours.
    pub drift: u64,
    /// Steps that found the outside other than expected.
    pub conflicts: u64,
}
