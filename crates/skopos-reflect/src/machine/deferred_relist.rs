//! Deferred relists. The watch may be healthy, so it keeps running, or is reopened, until the budgets allow a list.
//! After 61 s the watch is not reopened before the list.

use std::time::Duration;

use super::*;

/// A list that is made as soon as the budgets allow it.
#[derive(Debug)]
pub(super) struct DeferredRelist {
    pub(super) cause: ReplaceCause,
    since: Time,
    pub(super) at: Time,
}

/// The maximum delay of a deferred list by reopened watches. Any minute has budget for a list, if nothing else is
/// requested in it.
const MAX_DEFERRAL: Duration = Duration::from_secs(61);

fn relist_reason(cause: ReplaceCause) -> Reason {
    match cause {
        ReplaceCause::Undecodable => "what could not be decoded is listed again".into(),
        ReplaceCause::Unproven => Reason::new(Cause::Silence, "streams do not bring what there is"),
        _ => "a new list was asked for".into(),
    }
}

fn plan_for(cause: ReplaceCause) -> ListPlan {
    if cause == ReplaceCause::Undecodable { ListPlan::undecodable() } else { ListPlan::new(cause) }
}

impl Machine {
    /// Makes a list as soon as the budgets allow it. The watch may be healthy: it keeps running until then, or is
    /// reopened meanwhile.
    pub(super) fn relist_when_affordable(&mut self, cause: ReplaceCause, sink: &mut dyn Sink) {
        let at = self.list_affordable_at(false);
        if at <= self.now {
            return self.relist(plan_for(cause), relist_reason(cause), sink);
        }
        let relist = self.deferred_relist.get_or_insert(DeferredRelist { cause, since: self.now, at });
        relist.at = at;
        // A requested list stays due when nothing needs healing any more.
        if cause == ReplaceCause::Requested {
            relist.cause = cause;
        }
    }

    pub(super) fn on_deferred_relist(&mut self, sink: &mut dyn Sink) {
        if let Some(cause) = self.deferred_relist.as_ref().map(|relist| relist.cause) {
            self.relist_when_affordable(cause, sink);
        }
    }

    /// Starts the deferred list once it is overdue because reopened watches kept using its budget.
    pub(super) fn start_overdue_list(&mut self) -> bool {
        let Some(DeferredRelist { cause, .. }) =
            self.deferred_relist.take_if(|relist| self.now.since(relist.since) >= MAX_DEFERRAL)
        else {
            return false;
        };
        self.cancel_verification();
        self.cancel_quarantine_read();
        self.stats.relists += 1;
        self.reflector.reason = Some(relist_reason(cause));
        self.start_list(plan_for(cause));
        true
    }
}
