//! Maintenance of a factory: detects that the machine was suspended, starts due audits of informers, and prunes dropped
//! informers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context::FactoryContext;
use super::registry::InformerRegistry;
use crate::audit::AuditPermit;
use crate::freshness::MIN_REPORTED_SUSPEND;
use crate::informer::{InformerInner, NextAudit};
use crate::sync::{deadline, sleep, spawn};

/// Starts the task. It runs until the factory is shut down or its last handle is dropped.
pub(crate) fn start(context: &Arc<FactoryContext>, registry: &Arc<InformerRegistry>) {
    let maintenance =
        Maintenance { registry: registry.clone(), audits: Arc::new(Semaphore::new(MAX_CONCURRENT_AUDITS)) };
    spawn(&context.tasks, run(maintenance, Arc::downgrade(context), context.stop.clone()));
}

const MAX_CONCURRENT_AUDITS: usize = 2;

/// The interval between attempts to confirm a checkpoint.
const CONFIRM_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The number of audits after which an unconfirmed checkpoint is replaced by a list.
const MAX_CONFIRM_ATTEMPTS: u64 = 3;

/// Checks once a second for a suspend of the machine, starts due audits, and prunes dropped informers.
async fn run(maintenance: Maintenance, context: Weak<FactoryContext>, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(Duration::from_secs(1))).await.is_some() {
        let Some(context) = context.upgrade() else { return };
        let slept = context.freshness.sleep.tick();
        if slept >= MIN_REPORTED_SUSPEND {
            maintenance.handle_suspend(slept);
        }
        maintenance.begin_audits(&context);
        maintenance.registry.prune();
    }
}

struct Maintenance {
    registry: Arc<InformerRegistry>,
    /// The permits of audits. Each audit is a list of everything: not many at once.
    audits: Arc<Semaphore>,
}

impl Maintenance {
    /// Handles a suspend of the machine: open streams are suspect now, and no age is proven, so everything is checked
    /// again.
    fn handle_suspend(&self, by: Duration) {
        tracing::info!(?by, "the machine slept: every age is proven again");
        self.registry
            .informers()
            .iter()
            .flat_map(|informer| &informer.reflectors)
            .for_each(|reflector| reflector.handle.suspended(by));
        self.registry.probers().iter().for_each(|prober| prober.request_probe());
    }

    fn begin_audits(&self, context: &FactoryContext) {
        for informer in self.registry.informers() {
            let Some(due) = due(&informer) else { continue };
            let done = AuditDone(informer.clone());
            let (stop, audits) = (informer.stop.clone(), self.audits.clone());
            let limit = context.options.audit_timeout;
            context.tasks.spawn(async move {
                let informer = &done.0;
                let audit = async {
                    let _concurrency = audits.acquire().await;
                    let deadline = deadline::after(limit);
                    let Ok(permit) = AuditPermit::acquire(informer, deadline).await else { return };
                    // Another caller's audit may have confirmed the restored content meanwhile.
                    let parts = due.parts(informer);
                    parts.iter().for_each(|part| informer.reflectors[*part].comparison_started());
                    if !parts.is_empty() {
                        let _ = permit.audit_and_heal(&parts, deadline).await;
                    }
                };
                stop.run_until_cancelled(audit).await;
                let made = {
                    let audits = informer.audits.lock();
                    audits.completed + audits.failed
                };
                if made.is_multiple_of(MAX_CONFIRM_ATTEMPTS) {
                    informer
                        .confirmable()
                        .into_iter()
                        .for_each(|part| informer.reflectors[part].handle.relist());
                }
            });
        }
    }
}

/// The reason for an audit.
#[derive(Clone, Copy)]
enum AuditReason {
    /// To confirm restored content whose RV the server has accepted.
    Confirmation,
    /// To prove an age that only a comparison can prove.
    Unproven,
    Interval,
}

impl AuditReason {
    /// Returns the parts that are to be audited now.
    fn parts(self, informer: &InformerInner) -> Vec<usize> {
        match self {
            Self::Confirmation => informer.confirmable(),
            Self::Unproven => informer.parts_needing_comparison(),
            Self::Interval => informer.auditable(),
        }
    }
}

/// Returns the audit that is due, if any. An informer has at most one pending audit, so audits cannot pile up behind a slow
/// server.
fn due(informer: &InformerInner) -> Option<AuditReason> {
    let now = Instant::now();
    let mut next = informer.next_audit.lock();
    let times = next.as_mut()?;
    let is_due = |due: AuditReason, at: Option<Instant>| {
        (at.is_some_and(|at| at <= now) && !due.parts(informer).is_empty()).then_some(due)
    };
    let due = is_due(AuditReason::Confirmation, Some(times.confirms_at))
        .or_else(|| is_due(AuditReason::Unproven, Some(now)))
        .or_else(|| is_due(AuditReason::Interval, times.at));
    if due.is_some() {
        *next = None;
    } else if times.at.is_some_and(|at| at <= now) {
        // It is checked again soon, but when the server is back, not everything is listed at once.
        let options = &informer.context.options;
        let wait = options.audit_interval.map(|interval| interval.mul_f64(informer.context.jitter() - 0.7));
        times.at = wait.map(deadline::after);
    }
    due
}

/// Returns when an informer is audited next.
fn next_audit(informer: &InformerInner) -> NextAudit {
    let context = &informer.context;
    let jitter = context.jitter();
    let after = |wait: Duration| deadline::after(wait.mul_f64(jitter));
    NextAudit { at: context.options.audit_interval.map(after), confirms_at: after(CONFIRM_RETRY_INTERVAL) }
}

/// A guard of a running audit. When the audit is over, however it ended, the guard schedules the next one.
struct AuditDone(Arc<InformerInner>);

impl Drop for AuditDone {
    fn drop(&mut self) {
        let next = next_audit(&self.0);
        *self.0.next_audit.lock() = Some(next);
    }
}
