//! What the design promises, and where.

use std::time::Duration;

/// A promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) within: Duration,
    pub(crate) source: &'static str,
}

/// How soon a fault is noticed, and how soon it is over after both it was healed and noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) detect: Bound,
    pub(crate) recover: Bound,
}

/// What a server in trouble may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// By one informer, the probes of its kind aside.
    Informer,
    /// By everybody, probes included: nobody answers.
    DeadCluster,
}

/// I15: requests of an informer, and at a dead cluster of all informers and probes together, in any minute of a fault.
pub(crate) const REQUESTS_PER_MINUTE: u64 = 6;
/// I15: lists of an informer in any minute of a fault.
pub(crate) const LISTS_PER_MINUTE: u64 = 2;

const fn bounds(detect: Bound, recover: Bound) -> Bounds {
    Bounds { detect, recover }
}

const fn secs(seconds: u64, source: &'static str) -> Bound {
    Bound { within: Duration::from_secs(seconds), source }
}

const LOST: &str = "bounds: RST, FIN, GOAWAY";
pub(crate) const CONNECTION_LOST: Bounds = bounds(secs(1, LOST), secs(2, LOST));

const SILENT: &str = "bounds: black hole";
pub(crate) const BLACK_HOLE: Bounds = bounds(secs(15, SILENT), secs(2, SILENT));

const NO_HEADERS: &str = "bounds: never-answered list, headers";
pub(crate) const LIST_UNANSWERED: Bounds = bounds(secs(30, NO_HEADERS), secs(5, NO_HEADERS));
pub(crate) const WATCH_UNANSWERED: Bounds = bounds(secs(90, NO_HEADERS), secs(5, NO_HEADERS));

const STALL: &str = "bounds: stalled stream, live PING";
pub(crate) const STALLED: Bounds = bounds(secs(60, STALL), secs(5, STALL));
