//! Shrinking of a plan while it still shows a violation.

use std::time::Duration;

use super::{GatewayPlan, NotifierPlan, Plan};

/// Returns the smallest plan, found in at most `attempts` runs, for which `shows` is still true.
pub fn shrink(plan: &Plan, attempts: usize, shows: impl Fn(&Plan) -> bool) -> Plan {
    let mut smaller = Smaller { best: plan.clone(), left: attempts, shows };
    loop {
        let before = smaller.best.clone();
        smaller.cut_short();
        smaller.drop_from(|plan| &mut plan.faults);
        smaller.drop_clients();
        smaller.drop_users();
        smaller.drop_visitors();
        smaller.drop_notifiers();
        smaller.drop_from(|plan| &mut plan.bursts);
        if smaller.best == before || smaller.left == 0 {
            return smaller.best;
        }
    }
}

struct Smaller<F> {
    best: Plan,
    left: usize,
    shows: F,
}

impl<F: Fn(&Plan) -> bool> Smaller<F> {
    fn try_one(&mut self, mut plan: Plan) -> bool {
        // A client that begins with the content of a removed one begins with nothing.
        let there = plan.clients.len();
        plan.clients
            .iter_mut()
            .for_each(|client| client.restores = client.restores.filter(|one| *one < there));
        if self.left == 0 || plan == self.best {
            return false;
        }
        self.left -= 1;
        let shows = (self.shows)(&plan);
        if shows {
            self.best = plan;
        }
        shows
    }

    /// Shortens the plan: to half the time, then three quarters, and so on.
    fn cut_short(&mut self) {
        let mut step = self.best.length / 2;
        while step > Duration::from_secs(5) {
            let mut plan = self.best.clone();
            plan.length -= step.min(plan.length);
            plan.faults.retain(|fault| fault.strikes.earliest() < plan.length);
            plan.bursts.retain(|burst| burst.at < plan.length);
            plan.clients.retain(|client| client.starts < plan.length);
            plan.notifier.services.retain(|burst| burst.at < plan.length);
            plan.notifier.troubles.retain(|trouble| trouble.at + trouble.lasts < plan.length);
            plan.notifier.edits.retain(|edit| edit.at < plan.length);
            plan.notifier.processes.retain(|process| process.starts < plan.length);
            if !self.try_one(plan) {
                step /= 2;
            }
        }
    }

    /// Removes ranges of elements: all, half of them, a quarter, down to single ones.
    fn drop_from<T>(&mut self, elements: impl Fn(&mut Plan) -> &mut Vec<T>) {
        let mut many = elements(&mut self.best).len();
        while many > 0 {
            let mut at = elements(&mut self.best).len();
            while at >= many {
                let mut plan = self.best.clone();
                elements(&mut plan).drain(at - many..at);
                self.try_one(plan);
                at = at.min(elements(&mut self.best).len()).saturating_sub(many);
            }
            many /= 2;
        }
    }

    fn drop_visitors(&mut self) {
        if self.best.gateway.is_there() {
            self.try_one(Plan { gateway: GatewayPlan::default(), ..self.best.clone() });
        }
        self.drop_from(|plan| &mut plan.gateway.visitors);
    }

    fn drop_notifiers(&mut self) {
        if !self.best.notifier.is_there() {
            return;
        }
        self.try_one(Plan { notifier: NotifierPlan::default(), ..self.best.clone() });
        self.drop_from(|plan| &mut plan.notifier.processes);
        self.drop_from(|plan| &mut plan.notifier.troubles);
        self.drop_from(|plan| &mut plan.notifier.edits);
        self.drop_from(|plan| &mut plan.notifier.services);
    }

    fn drop_clients(&mut self) {
        self.drop_from(|plan| &mut plan.clients);
    }

    fn drop_users(&mut self) {
        for client in 0..self.best.clients.len() {
            self.drop_from(|plan| &mut plan.clients[client].watchers);
            self.drop_from(|plan| &mut plan.clients[client].informers);
            for informer in 0..self.best.clients[client].informers.len() {
                self.drop_from(|plan| &mut plan.clients[client].informers[informer].handlers);
                self.drop_from(|plan| &mut plan.clients[client].informers[informer].readers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrink_drops_irrelevant_parts() {
        let plan = Plan::mixed(3);
        let wanted = plan.faults[1].clone();
        let smaller = shrink(&plan, 2000, |plan| plan.faults.contains(&wanted));
        assert_eq!(smaller.faults, [wanted]);
        assert!(smaller.clients.is_empty() && smaller.bursts.is_empty(), "{smaller:?}");
    }
}
