//! Deterministic simulation: the unchanged client under virtual time, against simulated API servers, through a network
//! that fails; and an oracle that judges what was recorded.
//!
//! ```text
//!  seed ──▶ plan ──▶ cluster ◀── net (faults) ──▶ client ◀── users
//!                       │             │              │          │
//!                       └─────────────┴── history ───┴──────────┘ ──▶ oracle ──▶ report
//! ```
//!
//! One seed decides everything, and gives one trace, byte for byte.

pub mod history;
