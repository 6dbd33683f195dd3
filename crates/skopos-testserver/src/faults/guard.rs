//! Guards of faults: a fault ends with its guard.

use std::sync::Arc;

use super::connection::BlackHole;
use super::{Fault, FaultRule, Faults, Match};

/// Fault without a matcher yet.
#[derive(Debug)]
#[must_use = "a fault strikes once `on` or `everywhere` is called"]
pub struct Injection {
    faults: Faults,
    fault: Fault,
}

/// Guard of an active fault. Dropping or healing it ends the fault; [`FaultGuard::keep`] leaves it active.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct FaultGuard {
    faults: Faults,
    active_fault: Option<ActiveFault>,
}

#[derive(Debug)]
enum ActiveFault {
    Rule(Arc<FaultRule>),
    BlackHole(Arc<BlackHole>),
}

impl Injection {
    pub(super) fn new(faults: Faults, fault: Fault) -> Self {
        Self { faults, fault }
    }

    /// Applies the fault to the matching requests, from now on.
    pub fn on(self, matching: Match) -> FaultGuard {
        let rule = FaultRule::new(self.faults.next_id(), self.fault, matching);
        let rule = self.faults.add(rule);
        FaultGuard { faults: self.faults, active_fault: Some(ActiveFault::Rule(rule)) }
    }

    /// Applies the fault to all requests.
    pub fn everywhere(self) -> FaultGuard {
        self.on(Match::any())
    }
}

impl FaultGuard {
    pub(super) fn from_black_hole(faults: Faults, hole: Arc<BlackHole>) -> Self {
        Self { faults, active_fault: Some(ActiveFault::BlackHole(hole)) }
    }

    /// Limits the fault to `times` requests (or frames, for faults of single frames). Has no effect on black holes.
    pub fn times(self, times: u64) -> Self {
        if let Some(ActiveFault::Rule(rule)) = &self.active_fault {
            rule.limit_to(times);
        }
        self
    }

    /// Returns how often the fault applied; for a black hole, the number of connections in it.
    pub fn hits(&self) -> u64 {
        match &self.active_fault {
            Some(ActiveFault::Rule(rule)) => rule.hits(),
            Some(ActiveFault::BlackHole(hole)) => hole.members() as u64,
            None => 0,
        }
    }

    /// Waits until the fault applied `times` times. Returns at once for black holes.
    pub async fn wait_hits(&self, times: u64) {
        if let Some(ActiveFault::Rule(rule)) = &self.active_fault {
            rule.wait_hits(times).await;
        }
    }

    /// Ends the fault.
    pub fn heal(self) {
        drop(self);
    }

    /// Leaves the fault active as long as the server lives.
    pub fn keep(mut self) {
        self.active_fault = None;
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        match self.active_fault.take() {
            Some(ActiveFault::Rule(rule)) => self.faults.remove(&rule),
            Some(ActiveFault::BlackHole(hole)) => self.faults.remove_hole(&hole),
            None => {}
        }
    }
}
