//! `skopos demo`: live state kept, aged and recovered before one's eyes.
mod control;
mod faults;
mod model;
mod text;
mod view;

pub(crate) use faults::FaultName;
