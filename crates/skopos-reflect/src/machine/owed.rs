//! Lists that are owed: nothing has to be known to be wrong with the watch, so it goes on until the budgets have a list, or is
//! opened again meanwhile; but not for ever.

use std::time::Duration;

use super::*;

/// A list that is made as soon as the budgets have one.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) cause: ReplaceCause,
    since: Time,
    pub(super) at: Time,
}

/// So long the watch may be opened again before a list that is owed. A minute has one, if nothing else is asked for in it.
const PATIENCE_OF_OWED: Duration = Duration::from_secs(61);

fn owed_because(cause: ReplaceCause) -> Reason {
    match cause {
        ReplaceCause::Undecodable => "what could not be decoded is listed again".into(),
        ReplaceCause::Unproven => Reason::new(Cause::Silence, "streams do not bring what there is"),
        _ => "a new list was asked for".into(),
    }
}

fn plan(cause: ReplaceCause) -> ListPlan {
    if cause == ReplaceCause::Undecodable { ListPlan::undecodable() } else { ListPlan::new(cause) }
}

impl Machine {
    /// A list for which nothing has to be known to be wrong with the watch: that goes on until the list can be had, or is opened
    /// again meanwhile.
    pub(super) fn relist_when_affordable(&mut self, cause: ReplaceCause, sink: &mut dyn Sink) {
        let at = self.list_affordable_at(false);
        if at <= self.now {
            return self.relist(plan(cause), owed_because(cause), sink);
        }
        let owed = self.owed.get_or_insert(Owed { cause, since: self.now, at });
        owed.at = at;
        // What somebody asked for is owed also when nothing has to be healed any more.
        if cause == ReplaceCause::Requested {
            owed.cause = cause;
        }
    }

    pub(super) fn on_owed(&mut self, sink: &mut dyn Sink) {
        if let Some(cause) = self.owed.as_ref().map(|owed| owed.cause) {
            self.relist_when_affordable(cause, sink);
        }
    }

    /// Makes the list that is owed for so long that watches opened again and again took what it needs.
    pub(super) fn start_overdue_list(&mut self) -> bool {
        let Some(Owed { cause, .. }) =
            self.owed.take_if(|owed| self.now.since(owed.since) >= PATIENCE_OF_OWED)
        else {
            return false;
        };
        self.cancel_look();
        self.cancel_reading();
        self.stats.relists += 1;
        self.link.reason = Some(owed_because(cause));
        self.start_list(plan(cause));
        true
    }
}
