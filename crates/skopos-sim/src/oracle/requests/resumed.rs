//! I5: the RVs from which watches and lists begin.

use std::collections::{HashMap, VecDeque};

use super::{ON_ITS_WAY, Owners, text};
use crate::history::{At, Fact, InformerId, Look, Verb, Walk};
use crate::oracle::{Case, Focus, Invariant, Verdict};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let owners = Owners::of(case);
    let mut looks: HashMap<InformerId, VecDeque<(At, Look)>> = HashMap::new();
    let mut asked: HashMap<(InformerId, usize), Asked> = HashMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Looked(look) if look.synced && !matches!(look.walk, Walk::Live(_)) => {
                for (view, seen) in look.views.iter().enumerate() {
                    if let Some(watch) = asked.remove(&(look.informer, view))
                        && watch.epoch == look.epoch
                    {
                        reached(case, verdict, at, look.informer, &watch, seen.rv);
                        not_before(case, verdict, look.informer, &watch);
                    }
                }
                let looks = looks.entry(look.informer).or_default();
                looks.push_back((at, Look::clone(look)));
                // Only one look older than the maximum time in flight is kept.
                while looks.get(1).is_some_and(|(next, _)| next.plus(ON_ITS_WAY) < at) {
                    looks.pop_front();
                }
            }
            Fact::Requested { cluster, verb: Verb::Watch, target, rv, initial: false, .. } => {
                let of = Focus { cluster: Some(*cluster), ..Focus::default() };
                let from = rv.filter(|rv| *rv > 0);
                verdict.demand(Invariant::I5, from.is_some(), at, of, || {
                    format!("a watch of {} from RV {rv:?}: from anywhere", text(&case.history.names, *target))
                });
                let (Some(rv), Some((informer, view))) = (from, owners.only(case, *cluster, *target, at))
                else {
                    continue;
                };
                let Some(looks) = looks.get(&informer) else { continue };
                if let Some((_, last)) = looks.back() {
                    let before = seen_before(at, view, looks);
                    asked.insert((informer, view), Asked { at, epoch: last.epoch, rv, before });
                }
            }
            Fact::Requested { cluster, verb: Verb::List, target, rv, .. }
            | Fact::Requested { cluster, verb: Verb::Watch, target, rv, initial: true, .. } => {
                let of = Focus { cluster: Some(*cluster), ..Focus::default() };
                verdict.exercise(Invariant::I5);
                verdict.demand(Invariant::I5, *rv != Some(0), at, of, || {
                    format!("a list of {} from RV 0: of any age", text(&case.history.names, *target))
                });
            }
            _ => {}
        }
    }
}

/// A watch that was requested from an RV.
struct Asked {
    at: At,
    epoch: u32,
    rv: u64,
    /// The store's last RV so early that no later request can still be in flight, with its time.
    before: Option<(At, u64)>,
}

/// Judges a watch once the store has reached the RV that the watch was requested from.
fn reached(case: &Case<'_>, verdict: &mut Verdict, at: At, informer: InformerId, watch: &Asked, rv: u64) {
    verdict.exercise(Invariant::I5);
    verdict.demand(Invariant::I5, rv >= watch.rv, at, case.focus(informer), || {
        format!(
            "{}: a watch from RV {} was asked for at {}, and the store is at RV {rv}: what lies between is skipped",
            case.name(informer),
            watch.rv,
            watch.at
        )
    });
}

fn seen_before(at: At, view: usize, looks: &VecDeque<(At, Look)>) -> Option<(At, u64)> {
    let (seen, look) = looks.iter().rev().find(|(seen, _)| seen.plus(ON_ITS_WAY) < at)?;
    let same_history = looks.back().is_some_and(|(_, last)| last.epoch == look.epoch);
    look.views.get(view).filter(|_| same_history).map(|view| (*seen, view.rv))
}

fn not_before(case: &Case<'_>, verdict: &mut Verdict, informer: InformerId, watch: &Asked) {
    let Some((seen, rv)) = watch.before else { return };
    // Several changes may share an RV, and the store may have some of them.
    verdict.demand(Invariant::I5, watch.rv + 1 >= rv, watch.at, case.focus(informer), || {
        let name = case.name(informer);
        format!("{name}: a watch from RV {}, though the store was at RV {rv} at {seen}", watch.rv)
    });
}
