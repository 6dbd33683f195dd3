//! I26: a server that is well is never called stale or degraded.

use super::{Case, Invariant, Verdict};
use crate::history::{At, Fact, Look, Walk};

/// Time after its start within which an informer has synced.
const STARTED: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut started: Vec<Option<At>> = vec![None; case.history.cast.informers.len()];
    for (at, fact) in case.facts() {
        match fact {
            Fact::InformerStarted { informer } => started[informer.index()] = Some(at),
            Fact::InformerStopped { informer } => started[informer.index()] = None,
            Fact::Looked(look) if !matches!(look.walk, Walk::Live(_) | Walk::Answer(_)) => {
                let begun = started[look.informer.index()];
                if begun.is_some_and(|begun| begun.plus(STARTED) < at) {
                    looked(case, verdict, at, look);
                }
            }
            _ => {}
        }
    }
}

fn looked(case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look) {
    let cluster = case.cluster_of(look.informer);
    let over = case.lives.informer(look.informer).to.is_some_and(|to| to <= at);
    if over || !case.weather.is_well(cluster, at) {
        return;
    }
    if case.weather.lacks_bookmarks(cluster, at) {
        // Without bookmarks no event proves that the watch is up to date.
        verdict.exercise(Invariant::I26);
    }
    let degraded = look.standing.condition == "degraded";
    verdict.demand(
        Invariant::I26,
        look.freshness.is_live() && !degraded,
        at,
        case.focus(look.informer),
        || {
            format!(
                "{}: {}, {}, though nothing is wrong with its server",
                case.name(look.informer),
                super::stores::word(&look.freshness),
                look.standing.condition
            )
        },
    );
}
