//! The bounds that the design promises, and their sources.

use std::time::Duration;

/// A promised bound, and its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) within: Duration,
    pub(crate) source: &'static str,
}

/// The time until a fault is noticed, and the time until recovery, after it was both healed and noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) detect: Bound,
    pub(crate) recover: Bound,
}

/// The requests that count against the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Requests of one informer, without the probes of its resource.
    Informer,
    /// Requests of all clients, with probes: the server does not answer.
    DeadCluster,
}

/// I15: the maximum requests of an informer, or of all informers and probes together at a dead cluster, in any minute of a
/// fault.
pub(crate) const REQUESTS_PER_MINUTE: u64 = 6;
/// I15: the maximum lists of an informer in any minute of a fault.
pub(crate) const LISTS_PER_MINUTE: u64 = 2;

const fn bounds(detect: Bound, recover: Bound) -> Bounds {
    Bounds { detect, recover }
}

const fn secs(seconds: u64, source: &'static str) -> Bound {
    Bound { within: Duration::from_secs(seconds), source }
}

const LOST: &str = "bounds: RST, FIN, GOAWAY";
pub(crate) const CONNECTION_LOST: Bounds = bounds(secs(1, LOST), secs(2, LOST));

const RHYTHM: &str = "the core's rhythm at a server that is down for more than a minute: one dial every 5 s, and 1 s from the \
     dial to the content";
pub(crate) const DOWN_FOR_LONG: Bounds = bounds(secs(1, LOST), secs(6, RHYTHM));

const SILENT: &str = "bounds: black hole";
pub(crate) const BLACK_HOLE: Bounds = bounds(secs(15, SILENT), secs(2, SILENT));

const NO_HEADERS: &str = "bounds: never-answered list, headers";
pub(crate) const LIST_UNANSWERED: Bounds = bounds(secs(30, NO_HEADERS), secs(5, NO_HEADERS));
pub(crate) const WATCH_UNANSWERED: Bounds = bounds(secs(90, NO_HEADERS), secs(5, NO_HEADERS));

const STALL: &str = "bounds: stalled stream, live PING";
pub(crate) const STALLED: Bounds = bounds(secs(60, STALL), secs(5, STALL));

// A redirect is refused, not followed (row 27); the rest is the same as for any answer.
const ANSWER: &str = "rows 18 to 20, 25: known with the first answer";
const BACKOFF: &str = "`backoff_max` 30 s and up to 30 %";
pub(crate) const ANSWERED: Bounds = bounds(secs(1, ANSWER), secs(39, BACKOFF));

const ASKED_TO_WAIT: &str = "row 24: `Retry-After` 20 s and up to 10 %, or the backoff";
pub(crate) const THROTTLED: Bounds = bounds(secs(1, ANSWER), secs(39, ASKED_TO_WAIT));

const EXPIRED: &str = "row 22: one list";
pub(crate) const HISTORY_GONE: Bounds = bounds(secs(1, ANSWER), secs(2, EXPIRED));

const ROLLBACK: &str = "bounds: RV rollback";
pub(crate) const ROLLED_BACK: Bounds = bounds(secs(30, ROLLBACK), secs(2, ROLLBACK));

const DIVERGED: &str = "bounds: silent divergence";
pub(crate) const DIVERGENCE: Bounds = bounds(secs(600, DIVERGED), secs(2, DIVERGED));

const NO_END: &str = "row 35: 60 s, then a list";
pub(crate) const NO_END_BOOKMARK: Bounds = bounds(secs(60, NO_END), secs(5, NO_END));

const SLOW: &str = "row 11: 10 s without progress";
pub(crate) const SLOW_BODY: Bounds = bounds(secs(11, SLOW), secs(39, BACKOFF));

const BROKEN: &str = "rows 13, 14: the frame itself";
const BROKEN_TWICE: &str = "row 14: the object is read, or one list";
pub(crate) const BROKEN_FRAME: Bounds = bounds(secs(1, BROKEN), secs(5, BROKEN_TWICE));

const OVERSIZED: &str = "rows 16, 17: the cap is reached";
pub(crate) const HOSTILE: Bounds = bounds(secs(1, OVERSIZED), secs(39, BACKOFF));

const LOOP: &str = "row 37: counts as failing";
pub(crate) const CLOSED_IN_A_LOOP: Bounds = bounds(secs(1, LOOP), secs(39, BACKOFF));

const HARMLESS_SOURCE: &str = "nothing is lost";
pub(crate) const HARMLESS: Bounds = bounds(secs(1, HARMLESS_SOURCE), secs(2, HARMLESS_SOURCE));

pub(crate) const KILLED: Bounds = bounds(secs(1, LOST), secs(39, BACKOFF));

const GONE_MEANWHILE: &str = "bounds: RST, FIN, GOAWAY, and one list";
pub(crate) const HISTORY_GONE_MEANWHILE: Bounds = bounds(secs(1, LOST), secs(3, GONE_MEANWHILE));
