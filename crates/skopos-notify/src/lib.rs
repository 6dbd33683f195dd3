//! Keeps the outside equal to a Kubernetes cluster.
//!
//! ```text
//!  desired (pure, from snapshots) ─┐
//!  observation of the sink ────────┴▶ plan (pure: evidence, guard, order) ─▶ steps ─▶ sink ─▶ read back
//! ```
//!
//! There is no queue of events: the work is the difference between the desired and the observed state. So nothing grows with an
//! outage, and a restart needs no special case. One number describes the state: the age of the cluster's state that the outside
//! was last seen equal to.

pub mod config;
pub mod desired;
mod entry;
pub mod event;
pub mod http;
mod inserts;
mod packed;
mod plan;
pub mod service;
pub mod sink;
mod template;

pub use self::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue, Readiness};
pub use self::packed::Packed;
pub use self::plan::{
    DesiredEntries, DesiredView, HeldRemovals, HoldReason, NameConflict, PlanOptions, PlanStats, Planner,
    Removal, SinkPlan,
};

/// Returns the name of a sink as a part of a file name.
fn file_name(sink: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    sink.chars().map(plain).collect()
}
