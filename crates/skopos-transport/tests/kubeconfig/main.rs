//! The rules by which kubectl reads kubeconfigs, one test each (docs/kubeconfig.md is their table). Skopos is held to each,
//! and so is kubectl itself where it is installed (`SKOPOS_KUBECTL=1`: it has to be).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod certificates;
mod files;
mod plugins;
mod users;
mod world;
