//! Calibration: scripts for an API server, a client's view when it plays one, and the comparison of two such histories.
//!
//! ```text
//!  scripts/*.yaml, matrix ─▶ Script ─▶ play, on any Target ─▶ history ─┬─▶ golden/*.json   (the real server, recorded)
//!                                                                      └─▶ compare ◀── differences.yaml
//! ```
//!
//! It is compiled twice: into this crate's test, which needs only the recorded histories, and into the program under
//! `peers/calibration`, which also records them from a server made of Kubernetes' own libraries.

#![allow(dead_code, reason = "each of the two programs uses a part")]

pub(crate) mod client;
pub(crate) mod compare;
pub(crate) mod contract;
pub(crate) mod golden;
pub(crate) mod matrix;
pub(crate) mod normal;
pub(crate) mod play;
pub(crate) mod script;
pub(crate) mod target;
