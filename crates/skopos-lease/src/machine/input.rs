use std::time::Duration;

use skopos_wire::ResourceVersion;

use crate::record::{Record, Spec};

/// An input of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    /// The time of [`Machine::poll_timeout`](super::Machine::poll_timeout) has come.
    Timeout,
    /// The watch shows the Lease.
    Observed(Record),
    /// The watch shows that the Lease was deleted, at this version.
    Deleted(ResourceVersion),
    /// Changes of the Lease may have been missed.
    Stale,
    /// A request has ended.
    Answered { id: u64, outcome: Outcome },
    /// The candidate became fit or unfit for its work.
    Fit(bool),
    /// No work runs in the term.
    Idle,
    /// The candidacy ends.
    Stop,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The Lease, read or written.
    Is(Record),
    /// There is no Lease (404).
    Missing,
    /// The Lease has another version, or exists already (409).
    Conflict,
    /// The outcome is unknown for this reason, including whether a write was stored.
    Failed(String),
}

/// An action that the driver executes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Action {
    /// Read the Lease.
    Read { id: u64, within: Duration },
    /// Replace that version of the Lease; without one, create it.
    Write { id: u64, within: Duration, base: Option<Record>, spec: Spec },
}
