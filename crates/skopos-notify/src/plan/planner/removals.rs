//! Objections to the removals of a plan.

use std::collections::BTreeSet;

use skopos_reflect::Time;

use super::round::Round;
use super::{Planner, REMOVAL_PAUSE};
use crate::entry::EntryName;
use crate::plan::decision::{Decision, Loss, LossKind};
use crate::plan::evidence::{Removal, Strength};
use crate::plan::guard::HoldReason;
use crate::plan::sink_plan::SinkPlan;
use crate::sink::Serving;

/// Objection to a loss.
enum Objection {
    /// No objection.
    None,
    /// It is slightly too early.
    Moment,
    /// It must wait for this reason.
    Hold(HoldReason),
}

impl Planner {
    /// Carries out the losses without an objection.
    pub(super) fn guarded(
        &mut self,
        now: Time,
        mut decisions: Vec<(EntryName, Decision)>,
        plan: &mut SinkPlan,
        round: &mut Round,
    ) -> Vec<(EntryName, Decision)> {
        let mut allowed = Vec::new();
        for (index, (name, decision)) in decisions.iter_mut().enumerate() {
            let mut losses = std::mem::take(&mut decision.losses);
            let removal = |loss: &Loss| Removal { name: name.clone(), value: Some(loss.value.clone()) };
            losses.retain(|loss| match self.question(now, name, decision, loss, plan, round) {
                Objection::None => true,
                Objection::Moment => false,
                Objection::Hold(reason) => {
                    round.hold(reason, removal(loss));
                    false
                }
            });
            // A failing or terminating value is used while there is no other, as kube-proxy does it. This is not reported.
            if let Some(loss) = self.keep_last(name, decision, &mut losses)
                && loss.kind >= LossKind::Surplus
            {
                round.hold(HoldReason::LastOne, removal(&loss));
            }
            allowed.extend(losses.into_iter().map(|loss| (index, removal(&loss), loss)));
        }
        let (finished, losing): (Vec<_>, Vec<_>) =
            allowed.into_iter().partition(|(_, _, loss)| loss.kind == LossKind::Drained);
        let before: usize = decisions.iter().map(|(_, decision)| decision.served()).sum();
        let due: usize = decisions.iter().map(|(_, decision)| decision.serving()).sum();
        // Names that rest serve what is outside.
        let after = self.outside.serving() - before + due - losing.len();
        let (replacing, mut losing): (Vec<_>, Vec<_>) = losing.into_iter().partition(|(_, removal, _)| {
            let replaced = round.replaced.entry(removal.name.clone()).or_default();
            let is_replaced = *replaced < self.guard.replaceable(&removal.name);
            *replaced += usize::from(is_replaced);
            is_replaced
        });
        let is_approved = losing.iter().all(|(_, removal, _)| self.approved.contains(removal));
        if is_approved && !losing.is_empty() {
            self.guard.reset();
        } else if !losing.is_empty() && !self.guard.allows(after, &self.options) {
            let held;
            (losing, held) = losing.into_iter().partition(|(_, removal, _)| self.approved.contains(removal));
            held.into_iter().for_each(|(_, removal, _)| round.hold(HoldReason::Fraction, removal));
        }
        let (left, more_at) = self.guard.left(now, &self.options);
        if losing.len() > left {
            losing
                .split_off(left)
                .into_iter()
                .for_each(|(_, removal, _)| round.hold(HoldReason::Rate, removal));
            round.wake(more_at);
        }
        for (_, removal, _) in &losing {
            *round.lost.entry(removal.name.clone()).or_default() += 1;
        }
        for (index, removal, loss) in losing.into_iter().chain(replacing) {
            decisions[index].1.allow(&loss);
            round.losing.insert(removal);
        }
        for (index, _, loss) in finished {
            decisions[index].1.allow(&loss);
        }
        decisions
    }

    /// Returns the objection to one loss, considered on its own.
    fn question(
        &mut self,
        now: Time,
        name: &EntryName,
        decision: &Decision,
        loss: &Loss,
        plan: &mut SinkPlan,
        round: &mut Round,
    ) -> Objection {
        let removal = Removal { name: name.clone(), value: Some(loss.value.clone()) };
        let mut question = Objection::None;
        // A drained value has no traffic to lose.
        if !loss.is_wanted && loss.kind != LossKind::Drained {
            let confirm = self.options.confirm;
            let whole = Removal { name: name.clone(), value: None };
            let about = if decision.owner.is_none() { whole } else { removal.clone() };
            let (since, strength) = self.evidence.missing(now, &about, confirm);
            if let Strength::ListFrom(at) = strength {
                question = Objection::Hold(HoldReason::Unconfirmed);
                plan.list_from = Some(plan.list_from.map_or(at, |known| known.min(at)));
            } else if since + REMOVAL_PAUSE > now {
                question = Objection::Moment;
                round.behind = true;
                round.wake(Some(since + REMOVAL_PAUSE));
            }
            round.missing.insert(about);
        }
        if self.approved.contains(&removal) {
            question = Objection::None;
        }
        if round.age > self.options.max_age { Objection::Hold(HoldReason::Stale) } else { question }
    }

    /// Takes one loss back if a name that is asked for would be left without any value.
    fn keep_last(&self, name: &EntryName, decision: &Decision, losses: &mut Vec<Loss>) -> Option<Loss> {
        if !self.options.keep_last || decision.owner.is_none() {
            return None;
        }
        let lost: BTreeSet<_> =
            losses.iter().filter(|loss| loss.kind != LossKind::Drained).map(|loss| &loss.value).collect();
        let stays = decision
            .members
            .iter()
            .any(|(value, serving)| *serving == Serving::Active && !lost.contains(value));
        if stays || lost.is_empty() {
            return None;
        }
        let position =
            (0..losses.len()).min_by_key(|index| (losses[*index].kind, losses[*index].value.clone()))?;
        let removal = Removal { name: name.clone(), value: Some(losses[position].value.clone()) };
        (!self.approved.contains(&removal)).then(|| losses.remove(position))
    }
}
