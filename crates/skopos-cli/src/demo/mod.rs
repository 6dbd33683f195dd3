//! `skopos demo`: live state kept, aged and recovered before one's eyes.
//!
//! ```text
//!  keys, `skopos demo fault` ──▶ run ──▶ stage ── test server, its world, its faults; informers
//!                                 │        │
//!                                 │        └─ sample: plain numbers
//!                                 ▼
//!                               model ──▶ view (terminal) or text (lines)
//! ```
mod control;
mod faults;
mod model;
mod run;
mod stage;
mod text;
mod view;

pub(crate) use faults::FaultName;
pub(crate) use run::{leave_terminal, run};
