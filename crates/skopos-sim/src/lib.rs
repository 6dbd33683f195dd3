//! Deterministic simulation: the unchanged client under virtual time, against simulated API servers, through a faulty network; and
//! an oracle that judges the recorded history.
//!
//! ```text
//!  seed ──▶ plan ──▶ cluster ◀── net (faults) ──▶ client ◀── users
//!                       │             │              │          │
//!                       └─────────────┴── history ───┴──────────┘ ──▶ oracle ──▶ report
//! ```
//!
//! One seed determines everything, and gives one trace, byte for byte.

pub mod cluster;
pub mod fault;
pub mod gate;
pub mod gateway;
pub mod history;
pub mod net;
pub mod notifier;
pub mod oracle;
pub mod plan;
pub mod report;
mod run;
pub mod timeline;
pub mod users;

pub use self::run::run;

/// Hides planned panics from the output.
pub fn quiet_planned_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let planned =
            panic.payload().downcast_ref::<String>().is_some_and(|text| text == users::PLANNED_PANIC);
        if !planned {
            loud(panic);
        }
    }));
}
