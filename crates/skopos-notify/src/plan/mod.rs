//! The pure half: what is to be done outside, given what the cluster says, how sure that is, and what is there.
//!
//! ```text
//!  view ────────┐                            ┌─▶ steps
//!               ├─▶ evidence ─▶ guard ─▶ plan ┼─▶ held, with a reason
//!  observation ─┘                            └─▶ when to look again
//! ```
//!
//! Nothing here waits, reads a clock, or knows a sink.

mod decision;
mod evidence;
mod guard;
mod name_state;
mod names;
mod options;
mod outside;
mod planner;
#[cfg(test)]
mod properties;
mod resting;
mod sink_plan;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::planner::PROBE_INTERVAL;
pub use self::{
    evidence::Removal,
    guard::{HeldRemovals, HoldReason},
    options::PlanOptions,
    planner::Planner,
    sink_plan::{NameConflict, PlanStats, SinkPlan},
    view::{DesiredEntries, DesiredView},
};
