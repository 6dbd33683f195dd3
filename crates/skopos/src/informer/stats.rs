//! Statistics as plain structs: for tables, metrics and tests.

use std::fmt;

use skopos_reflect::{MachineStats, Reason, ReflectorState, ReplaceCause};
use skopos_transport::TransportStats;
use skopos_wire::ResourceVersion;
use tokio::time::Instant;

use super::resource::ResourceId;
use crate::audit::report::AuditReport;
use crate::freshness::Freshness;
use crate::store::StoreStats;
use crate::sync::Mutex;

/// The state of an informer, and its counters since it was started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerStats {
    /// The resource.
    pub resource: ResourceId,
    /// The freshness of the content.
    pub freshness: Freshness,
    /// The number of objects in the store.
    pub objects: usize,
    /// The size of their JSON, in bytes.
    pub bytes: u64,
    /// The revision of the content; of a set of namespaces, the lowest.
    pub resource_version: ResourceVersion,
    /// The number of times that the server's history was reset.
    pub epoch: u64,
    /// The number of watch events that were applied.
    pub events: u64,
    /// The number of lists begun because the watch could not be continued.
    pub relists: u64,
    /// The number of failed requests.
    pub failures: u64,
    /// The number of events dropped because they were known already.
    pub duplicates: u64,
    /// The number of frames and objects that could not be decoded.
    pub undecodable: u64,
    /// The number of list requests sent; each page is one.
    pub lists_sent: u64,
    /// The number of watches opened.
    pub watches_sent: u64,
    /// The counters of the store.
    pub store: StoreStats,
    /// The list/watches: one, or one for each namespace of a set.
    pub reflectors: Vec<ReflectorStats>,
    /// The last trouble of any list/watch.
    pub last_trouble: Option<Trouble>,
    /// The results of audits.
    pub audits: AuditStats,
}

/// The state and counters of one list/watch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReflectorStats {
    /// The namespace, if the list/watch has one.
    pub namespace: Option<String>,
    /// The current state.
    pub state: ReflectorState,
    /// The counters.
    pub machine: MachineStats,
    /// The last trouble.
    pub last_trouble: Option<Trouble>,
}

/// An error of a list/watch, and its recovery.
///
/// ```
/// use skopos::transport::TransportErrorKind;
/// use skopos::{Cause, Trouble};
///
/// /// Returns whether the network swallowed the connection without a word: a matter for the team that runs the load balancer.
/// fn was_swallowed(trouble: &Trouble) -> bool {
///     matches!(trouble.origin.cause(), Cause::Connection(TransportErrorKind::PingTimeout | TransportErrorKind::HeadersDeadline { .. }))
/// }
/// # let _ = was_swallowed;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// The first error: the connection's failure, or the server's answer.
    pub origin: Reason,
    /// The last error. For a restarting server: no longer the reset of the connection, but the refusal of the next one.
    pub reason: Reason,
    /// The time of the first error.
    pub began: Instant,
    /// The time and kind of recovery; `None` while the trouble lasts.
    pub healed: Option<(Instant, Healed)>,
}

/// The kinds of recovery from a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Healed {
    /// The watch resumed where it had ended: nothing was missed.
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

/// The counters of audits, and the last report.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditStats {
    /// The number of completed audits.
    pub completed: u64,
    /// The number of audits that could not be completed.
    pub failed: u64,
    /// The number of audits that found a difference.
    pub mismatches: u64,
    /// The report of the last completed audit.
    pub last: Option<AuditReport>,
}

/// The state of a factory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FactoryStats {
    /// The number of list/watches with their stores; informers that share one count once.
    pub informers: usize,
    /// The number of synced ones.
    pub synced: usize,
    /// The number of objects in all stores.
    pub objects: usize,
    /// The size of their JSON, in bytes.
    pub bytes: u64,
    /// The number of probers: one for each resource.
    pub probers: usize,
    /// The number of probes sent.
    pub probes: u64,
    /// The number of failed probes.
    pub probe_failures: u64,
    /// The number of running tasks: list/watches, probers, handlers and one for maintenance.
    pub tasks: usize,
    /// The statistics of the connections.
    pub transport: TransportStats,
}

impl Trouble {
    /// Creates a trouble that begins now.
    fn new(reason: Reason) -> Self {
        Self { origin: reason.clone(), reason, began: Instant::now(), healed: None }
    }
}

/// A log of the last trouble of one list/watch.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    last: Mutex<Option<Trouble>>,
}

impl TroubleLog {
    /// Records a new state of the reflector.
    pub(crate) fn state(&self, state: &ReflectorState) {
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

    /// Records that a list replaced the content.
    pub(crate) fn relisted(&self, cause: ReplaceCause) {
        let now = Instant::now();
        let mut last = self.last.lock();
        match &mut *last {
            Some(trouble @ Trouble { healed: None, .. }) => {
                trouble.healed = Some((now, Healed::Relisted(cause)))
            }
            // The server ended a watch that it could no longer serve: error and recovery coincide.
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
