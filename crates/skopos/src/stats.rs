//! Figures as plain structs: for tables, metrics and tests.

use std::fmt;

use skopos_reflect::{LinkState, MachineStats, Reason, ReplaceCause};
use skopos_transport::TransportStats;
use skopos_wire::ResourceVersion;
use tokio::time::Instant;

use crate::audit::report::AuditReport;
use crate::freshness::Freshness;
use crate::resource::ResourceId;
use crate::store::StoreStats;
use crate::sync::Mutex;

/// How an informer stands, and what it has done since it was started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerStats {
    /// The kind of object.
    pub resource: ResourceId,
    /// How old its content is.
    pub freshness: Freshness,
    /// Objects in the store.
    pub objects: usize,
    /// The size of their JSON.
    pub bytes: u64,
    /// The revision of the content; of a set of namespaces, the lowest.
    pub resource_version: ResourceVersion,
    /// How often the server's history began anew.
    pub epoch: u64,
    /// Watch events applied.
    pub events: u64,
    /// Lists begun because the watch could not be continued.
    pub relists: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Events dropped because they were known already.
    pub duplicates: u64,
    /// Frames and objects that could not be decoded.
    pub undecodable: u64,
    /// List requests sent; each page is one.
    pub lists_sent: u64,
    /// Watches opened.
    pub watches_sent: u64,
    /// What the store counted.
    pub store: StoreStats,
    /// The lists and watches: one, or one for each namespace of a set.
    pub links: Vec<LinkStats>,
    /// The last trouble of any of them.
    pub last_trouble: Option<Trouble>,
    /// What audits found.
    pub audits: AuditStats,
}

/// How one list/watch stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkStats {
    /// The namespace, where the list/watch is of one.
    pub namespace: Option<String>,
    /// How it stands.
    pub state: LinkState,
    /// What it has done.
    pub machine: MachineStats,
    /// The last trouble.
    pub last_trouble: Option<Trouble>,
}

/// Something that went wrong with a list/watch, and how it went right again.
///
/// ```
/// use skopos::transport::Death;
/// use skopos::{Cause, Trouble};
///
/// /// Whether the network swallowed the connection without a word: a matter for whoever keeps the load balancer.
/// fn was_swallowed(trouble: &Trouble) -> bool {
///     matches!(trouble.origin.cause(), Cause::Connection(Death::PingTimeout | Death::HeadersDeadline { .. }))
/// }
/// # let _ = was_swallowed;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What it began with: what the connection died of, what the server answered.
    pub origin: Reason,
    /// What came last of it. Of a server that is restarted: no longer that the connection was reset, but that the next
    /// one is refused.
    pub reason: Reason,
    /// When it began.
    pub began: Instant,
    /// When and how it ended; `None` while it lasts.
    pub healed: Option<(Instant, Healed)>,
}

/// How a trouble ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Healed {
    /// The watch went on where it had ended: nothing was missed.
    Resumed,
    /// Everything was listed again.
    Relisted(ReplaceCause),
}

impl fmt::Display for Healed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self {
            Self::Resumed => return f.write_str("watch resumed where it had ended"),
            Self::Relisted(cause) => cause,
        };
        f.write_str(match cause {
            ReplaceCause::Initial => "first list",
            ReplaceCause::Expired => "listed again: the server had forgotten our resource version",
            ReplaceCause::TooLargeResourceVersion => "listed again: the server never caught up",
            ReplaceCause::Rollback => "listed again: the server's history went back",
            ReplaceCause::Unproven => "listed again: nothing proved that the watch was complete",
            ReplaceCause::Undecodable => "listed again: an event could not be decoded",
            ReplaceCause::ServerReadError => "listed again: the server could not read an object",
            ReplaceCause::Requested => "listed again as asked",
            _ => "listed again",
        })
    }
}

/// What audits found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditStats {
    /// Audits completed.
    pub completed: u64,
    /// Audits that could not be completed.
    pub failed: u64,
    /// Audits that found a difference.
    pub mismatches: u64,
    /// The last that was completed.
    pub last: Option<AuditReport>,
}

/// How a factory stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FactoryStats {
    /// Lists/watches with their stores; informers that share one count once.
    pub informers: usize,
    /// Those that have synced.
    pub synced: usize,
    /// Objects in all stores.
    pub objects: usize,
    /// The size of their JSON.
    pub bytes: u64,
    /// Probers: one for each kind of object.
    pub probers: usize,
    /// Probes sent.
    pub probes: u64,
    /// Probes that failed.
    pub probe_failures: u64,
    /// Tasks of the factory that run now: list/watches, probers, handlers and one for housekeeping.
    pub tasks: usize,
    /// The connections.
    pub transport: TransportStats,
}

impl Trouble {
    /// One that begins now.
    fn new(reason: Reason) -> Self {
        Self { origin: reason.clone(), reason, began: Instant::now(), healed: None }
    }
}

/// Remembers the last trouble of one list/watch.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    last: Mutex<Option<Trouble>>,
}

impl TroubleLog {
    /// The link's state has changed.
    pub(crate) fn state(&self, state: &LinkState) {
        let mut last = self.last.lock();
        let condition = &state.condition;
        let failing = condition.is_failing() || matches!(condition, skopos_reflect::Condition::Degraded(_));
        match &mut *last {
            Some(Trouble { healed: None, reason, .. }) if failing => {
                if let Some(newer) = &state.reason {
                    *reason = newer.clone();
                }
            }
            Some(trouble @ Trouble { healed: None, .. }) if condition.is_watching() => {
                trouble.healed = Some((Instant::now(), Healed::Resumed));
            }
            _ if failing => {
                let reason = state.reason.clone().unwrap_or_else(|| condition.to_string().into());
                *last = Some(Trouble::new(reason));
            }
            _ => {}
        }
    }

    /// A list replaced the content.
    pub(crate) fn relisted(&self, cause: ReplaceCause) {
        let now = Instant::now();
        let mut last = self.last.lock();
        match &mut *last {
            Some(trouble @ Trouble { healed: None, .. }) => {
                trouble.healed = Some((now, Healed::Relisted(cause)))
            }
            // The server ended a watch that it could no longer serve: trouble and cure are one.
            _ if cause != ReplaceCause::Initial => {
                let healed = Healed::Relisted(cause);
                let trouble = Trouble::new(healed.to_string().into());
                *last = Some(Trouble { healed: Some((now, healed)), ..trouble });
            }
            _ => {}
        }
    }

    pub(crate) fn last(&self) -> Option<Trouble> {
        self.last.lock().clone()
    }
}
