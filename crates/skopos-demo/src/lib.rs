//! `skopos demo`: many clusters behind one gateway, paused and broken while the user watches.
//!
//! ```text
//!  keys, `skopos demo fault` ──▶ run ──▶ stage ── a host, virtual clusters, life in them, faults; the gateway in front
//!                                 │        │
//!                                 │        └─ sample: plain numbers
//!                                 ▼
//!                               model ──▶ view (terminal) or text (lines)
//!
//!  --once: story, which does all of it without a user and checks the results
//! ```
mod args;
mod commands;
mod control;
mod faults;
mod life;
mod model;
mod run;
mod sample;
mod stage;
mod story;
mod text;
mod view;

pub use args::{DemoArgs, DemoCommand};
pub use faults::FaultName;
pub use run::{GRACE, leave_terminal, run};
