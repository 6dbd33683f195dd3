//! First lists: they arrive in spite of faults that permit them (I12), their absence is detected (I11), and a successful wait for
//! one means that it arrived (I20).

use std::collections::HashMap;
use std::time::Duration;

use super::weather::FaultSpan;
use super::{Case, Invariant, Verdict};
use crate::history::{At, CallId, CallKind, ClusterId, Fact, InformerId, Look, Outcome, Walk};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let firsts = Firsts::of(case);
    for (informer, at) in &firsts.promised {
        firsts.is_there(case, verdict, *informer, *at);
    }
    for informer in (0..case.history.cast.informers.len()).map(|id| InformerId(id as u16)) {
        let spans = case.weather.on(case.cluster_of(informer));
        for span in spans.filter(|span| case.strikes(span, informer, None)) {
            if let Some(bound) = span.detect {
                let bound = if span.number == SLOW_BODY { bound } else { NO_LIST };
                firsts.is_noticed(case, verdict, informer, span, bound);
            }
            if span.spares_lists && !span.lies {
                firsts.comes(case, verdict, informer, span);
            }
        }
    }
}

/// Catalogue number of slow bodies: a body that arrives byte by byte progresses.
const SLOW_BODY: u8 = 11;
/// Time within which a missing first list has failed at least once.
const NO_LIST: Duration = Duration::from_secs(30);
/// Time within which a first list arrives in pages, if pages arrive, and streams do not.
const IN_PAGES: Duration = Duration::from_secs(60);
/// Slack of a bound: the time until the next look.
const SLACK: Duration = Duration::from_secs(3);

struct Firsts<'a> {
    looks: Vec<Vec<(At, &'a Look)>>,
    /// Informers whose wait for sync succeeded, with the times.
    promised: Vec<(InformerId, At)>,
    /// Times and clusters of requests for further pages.
    pages: Vec<(ClusterId, At)>,
}

impl<'a> Firsts<'a> {
    fn of(case: &'a Case<'_>) -> Self {
        let mut waits: HashMap<CallId, InformerId> = HashMap::new();
        let mut firsts = Self {
            looks: vec![Vec::new(); case.history.cast.informers.len()],
            promised: Vec::new(),
            pages: Vec::new(),
        };
        for (at, fact) in case.facts() {
            match fact {
                Fact::Looked(look) if !matches!(look.walk, Walk::Live(_)) => {
                    firsts.looks[look.informer.index()].push((at, look));
                }
                Fact::Requested { cluster, further: Some(_), .. } => firsts.pages.push((*cluster, at)),
                Fact::Called { call, kind: CallKind::WaitSynced, informer: Some(informer), .. } => {
                    waits.insert(*call, *informer);
                }
                Fact::Returned { call, outcome: Outcome::Done } => {
                    firsts.promised.extend(waits.get(call).map(|informer| (*informer, at)));
                }
                _ => {}
            }
        }
        firsts
    }

    /// Returns the look at a store that is valid at a moment.
    fn at(&self, informer: InformerId, at: At) -> Option<&'a Look> {
        let looks = &self.looks[informer.index()];
        let seen = looks.partition_point(|(seen, _)| *seen <= at);
        seen.checked_sub(1).map(|last| looks[last].1)
    }

    /// Checks I20: a successful wait has ended with a list.
    fn is_there(&self, case: &Case<'_>, verdict: &mut Verdict, informer: InformerId, at: At) {
        let due = at.plus(case.history.cast.look_interval + case.weather.starved(at, case.lives.end));
        if !case.lives.informer(informer).covers(at, due) {
            return;
        }
        let Some(look) = self.at(informer, due) else { return };
        verdict.exercise(Invariant::I20);
        verdict.demand(Invariant::I20, look.synced, at, case.focus(informer), || {
            format!("{}: waiting for the first list ended well, and there was none", case.name(informer))
        });
    }

    /// Checks I11: a first list that is refused, not answered, or arrives only byte by byte, fails within its bound.
    fn is_noticed(
        &self,
        case: &Case<'_>,
        verdict: &mut Verdict,
        informer: InformerId,
        span: &FaultSpan,
        bound: Duration,
    ) {
        let Some((due, look)) = self.when_due(case, informer, span, bound) else { return };
        // Many small pages may take long.
        let progresses = self.pages.iter().any(|(cluster, at)| {
            *cluster == case.cluster_of(informer) && *at <= due && at.plus(bound) >= due
        });
        if look.synced || progresses {
            return;
        }
        verdict.exercise(Invariant::I11);
        verdict.demand(Invariant::I11, look.standing.failures > 0, due, case.focus(informer), || {
            let name = case.name(informer);
            format!("{name}: no list after {bound:?} of fault {}, and nothing has failed yet", span.number)
        });
    }

    /// Checks I12: a first list arrives, though none is streamed.
    fn comes(&self, case: &Case<'_>, verdict: &mut Verdict, informer: InformerId, span: &FaultSpan) {
        let Some((due, look)) = self.when_due(case, informer, span, IN_PAGES) else { return };
        verdict.exercise(Invariant::I12);
        verdict.demand(Invariant::I12, look.synced, due, case.focus(informer), || {
            let (name, within) = (case.name(informer), IN_PAGES);
            format!("{name}: no list within {within:?} of fault {}, which need not keep it", span.number)
        });
    }

    /// Returns the moment this long after a store began under this fault and no other, and the look at it then.
    fn when_due(
        &self,
        case: &Case<'_>,
        informer: InformerId,
        span: &FaultSpan,
        bound: Duration,
    ) -> Option<(At, &'a Look)> {
        let life = case.lives.informer(informer);
        let begun = life.from?;
        let met = begun.max(span.began);
        if self.at(informer, met).is_some_and(|look| look.synced) {
            return None;
        }
        let due = met.plus(bound + SLACK);
        let alone = case.felt_by(informer, None, begun, due).all(|other| other.fault == span.fault);
        let lasts = span.healed.is_none_or(|healed| healed > due) && due <= case.lives.end;
        (alone && lasts && !span.hits.is_empty() && life.covers(begun, due)).then_some(())?;
        Some((due, self.at(informer, due)?))
    }
}
