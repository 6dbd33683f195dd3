//! The pure half: plans the changes outside, given the cluster's view, the evidence for it, and the observed outside.
//!
//! ```text
//!  view ────────┐                            ┌─▶ steps
//!               ├─▶ evidence ─▶ guard ─▶ plan ┼─▶ held, with a reason
//!  observation ─┘                            └─▶ when to look again
//! ```
//!
//! This module does not wait, reads no clock, and knows no sink.

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

pub use self::evidence::Removal;
pub use self::guard::{HeldRemovals, HoldReason};
pub use self::options::PlanOptions;
pub(crate) use self::planner::PROBE_INTERVAL;
pub use self::planner::Planner;
pub use self::sink_plan::{NameConflict, PlanStats, SinkPlan};
pub use self::view::{DesiredEntries, DesiredView};
