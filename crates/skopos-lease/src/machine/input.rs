use std::time::Duration;

use skopos_wire::ResourceVersion;

use crate::record::{Record, Spec};

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// The moment of [`Machine::poll_timeout`](super::Machine::poll_timeout) has come.
    Timeout,
    /// The watch shows the Lease.
    Seen(Record),
    /// The watch shows that it was deleted, at this version.
    Deleted(ResourceVersion),
    /// Changes of it may have been missed.
    Unsure,
    /// A request has ended.
    Answered { id: u64, outcome: Outcome },
    /// Whether the candidate can do its work.
    Fit(bool),
    /// No work runs in the term.
    Idle,
    /// The candidate no longer stands.
    Stop,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This is the Lease, read or written.
    Is(Record),
    /// There is none (404).
    Missing,
    /// It has another version, or exists already (409).
    Conflict,
    /// Nothing is known, for this reason: not even whether a write was stored.
    Failed(String),
}

/// What is to be done.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Action {
    /// Read the Lease.
    Read { id: u64, within: Duration },
    /// Replace that version of the Lease; without one, create it.
    Write { id: u64, within: Duration, base: Option<Record>, spec: Spec },
}
