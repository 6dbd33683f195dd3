use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skopos_reflect::Time;

use super::guard::HeldRemovals;
use crate::entry::{EntryName, EntryOwner};
use crate::sink::SinkStep;

/// Work of one round.
#[derive(Clone, Debug, Default)]
pub struct SinkPlan {
    /// Changes, each of another name, in no order.
    pub steps: Vec<SinkStep>,
    /// Removals that wait for more than a moment.
    pub held: Vec<HeldRemovals>,
    /// Names that were written, or may have been, and must be read back.
    pub read: BTreeSet<EntryName>,
    /// Start time from which a list can confirm what waits for one.
    pub list_from: Option<Time>,
    /// Time of the next plan, if nothing happens before.
    pub wake_at: Option<Time>,
    /// Number of names that are not yet as wanted, and could be.
    pub pending: usize,
    /// True if the outside is as wanted: no step is due, waits, or is held.
    pub is_equal: bool,
    /// Names that belong to another writer outside.
    pub foreign: BTreeSet<EntryName>,
    /// Names that more than one object asks for.
    pub conflicts: Vec<NameConflict>,
    /// Names with more values than the sink takes, with the number left out.
    pub left_out: BTreeMap<EntryName, usize>,
}

/// An object that asks for a name that another object has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The name.
    pub name: EntryName,
    /// The object that has the name.
    pub owner: Arc<EntryOwner>,
    /// The object that does not get it.
    pub loser: Arc<EntryOwner>,
}

/// Counters of a planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanStats {
    /// Names that differ from when they were last seen equal, without a write of ours.
    pub drift: u64,
    /// Steps that found the outside different from the expected state.
    pub conflicts: u64,
}
