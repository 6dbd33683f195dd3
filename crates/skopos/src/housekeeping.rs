//! What a factory does by itself: notices that the machine slept, has informers audited when it is time, forgets the gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::audit_and_heal;
use crate::deadline;
use crate::freshness::SLEEP_WORTH_TELLING;
use crate::ground::Ground;
use crate::informer::{NextAudit, Shared};
use crate::registry::Registry;
use crate::sync::{sleep, spawn};

/// Starts it, until the factory is shut down or nobody holds anything of it.
pub(crate) fn start(ground: &Arc<Ground>, registry: &Arc<Registry>) {
    let house = House { registry: registry.clone(), audits: Arc::new(Semaphore::new(AUDITS_AT_ONCE)) };
    spawn(&ground.tasks, keep_house(house, Arc::downgrade(ground), ground.stop.clone()));
}

const AUDITS_AT_ONCE: usize = 2;

/// How long after an attempt to confirm a checkpoint the next one is made.
const CONFIRM_AGAIN: Duration = Duration::from_secs(10);
/// A checkpoint that so many audits could not confirm is replaced by a list.
const CONFIRMATIONS: u64 = 3;

/// Once a second: has the machine slept, whose audit is due, what has gone.
async fn keep_house(house: House, ground: Weak<Ground>, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(Duration::from_secs(1))).await.is_some() {
        let Some(ground) = ground.upgrade() else { return };
        let slept = ground.common.sleep.tick();
        if slept >= SLEEP_WORTH_TELLING {
            house.slept(slept);
        }
        house.begin_audits(&ground);
        house.registry.forget_the_gone();
    }
}

struct House {
    registry: Arc<Registry>,
    /// Each is a list of everything: not many at once.
    audits: Arc<Semaphore>,
}

impl House {
    /// Nothing that is open is worth much now, and no age is proven: look again.
    fn slept(&self, by: Duration) {
        tracing::info!(?by, "the machine slept: every age is proven anew");
        self.registry
            .informers()
            .iter()
            .flat_map(|informer| &informer.links)
            .for_each(|link| link.handle.suspended(by));
        self.registry.probers().iter().for_each(|prober| prober.nudge());
    }

    fn begin_audits(&self, ground: &Ground) {
        let now = Instant::now();
        for informer in self.registry.informers() {
            let restored = informer.is_restored();
            {
                let mut next = informer.next_audit.lock();
                if next.confirms && !restored {
                    // A list has done it.
                    *next = next_audit(&informer);
                }
                // What a checkpoint said waits until its RV was accepted.
                if next.at.is_none_or(|due| due > now) || (restored && !informer.is_watching()) {
                    continue;
                }
                // It is not due before it is done: what waits for a server cannot pile up.
                next.at = None;
            }
            let done = AuditDone(informer.clone());
            if informer.is_failing() {
                // It would be in vain. It is looked at again soon, but when the server is back, not everything is listed at once.
                drop(done);
                let mut next = informer.next_audit.lock();
                let wait =
                    ground.options.audit_interval.unwrap_or(CONFIRM_AGAIN).mul_f64(ground.jitter() - 0.7);
                next.at = next.at.map(|at| at.min(deadline::after(wait)));
                continue;
            }
            let (stop, audits) = (informer.stop.clone(), self.audits.clone());
            ground.tasks.spawn(async move {
                let informer = &done.0;
                let audit = async {
                    let _permit = audits.acquire().await;
                    audit_and_heal(informer, deadline::after(informer.ground.options.audit_timeout)).await
                };
                stop.run_until_cancelled(audit).await;
                let made = {
                    let audits = informer.audits.lock();
                    audits.completed + audits.failed
                };
                if made.is_multiple_of(CONFIRMATIONS) && informer.is_restored() && informer.is_watching() {
                    informer.relist();
                }
            });
        }
    }
}

/// When an informer is audited next, if it is.
fn next_audit(informer: &Shared) -> NextAudit {
    let ground = &informer.ground;
    let confirms = informer.is_restored();
    let wait = if confirms { Some(CONFIRM_AGAIN) } else { ground.options.audit_interval };
    let at = wait.and_then(|wait| Instant::now().checked_add(wait.mul_f64(ground.jitter())));
    NextAudit { at, confirms }
}

/// An audit that is due or under way. When it is over, however it ended, the next one has its time.
struct AuditDone(Arc<Shared>);

impl Drop for AuditDone {
    fn drop(&mut self) {
        let next = next_audit(&self.0);
        *self.0.next_audit.lock() = next;
    }
}
