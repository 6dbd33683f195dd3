//! Calls that must return, and shutdowns that must be complete: I13, I16; and the results of calls for I9 and I20.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Case, Focus, Invariant, Verdict};
use crate::history::{At, CallId, CallKind, ClientId, Fact, InformerId, Outcome};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    calls(case, verdict);
    ends(case, verdict);
}

/// Maximum excess over a limit.
const GRACE: Duration = Duration::from_millis(50);

struct Call {
    at: At,
    client: ClientId,
    informer: Option<InformerId>,
    kind: CallKind,
    limit: Duration,
}

impl Call {
    fn of(&self, case: &Case<'_>) -> Focus {
        let cluster = Some(case.history.cast.clients[self.client.index()].cluster);
        Focus { cluster, informer: self.informer, ..Focus::default() }
    }
}

fn calls(case: &Case<'_>, verdict: &mut Verdict) {
    let mut open: BTreeMap<CallId, Call> = BTreeMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Called { call, client, informer, kind, limit } => {
                let this = Call { at, client: *client, informer: *informer, kind: *kind, limit: *limit };
                open.insert(*call, this);
            }
            Fact::Returned { call, outcome } => {
                let Some(call) = open.remove(call) else { continue };
                returned(case, verdict, at, &call, outcome);
            }
            _ => {}
        }
    }
    for call in open.values() {
        let due = call.at.plus(call.limit + GRACE + case.weather.starved(call.at, case.lives.end));
        verdict.demand(Invariant::I13, due > case.lives.end, due, call.of(case), || {
            format!("{:?}, made at {} with a limit of {:?}, has not returned", call.kind, call.at, call.limit)
        });
    }
}

fn returned(case: &Case<'_>, verdict: &mut Verdict, at: At, call: &Call, outcome: &Outcome) {
    let took = at.since(call.at).saturating_sub(case.weather.starved(call.at, at));
    let cluster = case.history.cast.clients[call.client.index()].cluster;
    let in_trouble = !case.weather.is_clear(cluster, call.at, at);
    if in_trouble || matches!(outcome, Outcome::NotInTime { .. }) {
        verdict.exercise(Invariant::I13);
    }
    verdict.demand(Invariant::I13, took <= call.limit + GRACE, at, call.of(case), || {
        format!("{:?} with a limit of {:?} took {took:?}", call.kind, call.limit)
    });
    match (call.kind, outcome) {
        (CallKind::WaitSynced, Outcome::NotInTime { named }) => {
            verdict.exercise(Invariant::I20);
            verdict.demand(Invariant::I20, *named, at, call.of(case), || {
                format!("a sync that failed after {took:?} names no cause")
            });
        }
        (CallKind::WaitFor { rv }, Outcome::NotInTime { .. }) => {
            // It waited for the whole limit, and did not give up before.
            verdict.exercise(Invariant::I9);
            verdict.demand(Invariant::I9, at.since(call.at) + GRACE >= call.limit, at, call.of(case), || {
                format!("waiting for RV {rv} was given up after {took:?} of {:?}", call.limit)
            });
        }
        (_, Outcome::HistoryBroken) => {
            let went_back = case.truth.rollbacks(cluster).any(|went| went <= at);
            verdict.exercise(Invariant::I19);
            verdict.demand(Invariant::I19, went_back, at, call.of(case), || {
                format!("{:?} was told that history is broken, and it never went back", call.kind)
            });
        }
        _ => {}
    }
    // After a shutdown a call fails at once, whatever it is and whenever it was made.
    if let Some(shut) = case.lives.shut(call.client).filter(|shut| *shut < at) {
        let took = at.since(shut.max(call.at)).saturating_sub(case.weather.starved(shut.max(call.at), at));
        let told = matches!(outcome, Outcome::Closed | Outcome::Done | Outcome::Refused);
        let at_once = took <= GRACE && (told || call.at <= shut);
        verdict.exercise(Invariant::I16);
        verdict.demand(Invariant::I16, at_once, at, call.of(case), || {
            format!("{:?} after the shutdown took {took:?} and gave {outcome:?}", call.kind)
        });
    }
}

/// Time after which requests in flight may still arrive.
const IN_FLIGHT: Duration = Duration::from_secs(2);

fn ends(case: &Case<'_>, verdict: &mut Verdict) {
    for (at, fact) in case.facts() {
        match fact {
            Fact::Callback { handler, .. } => {
                let life = case.lives.handler(*handler);
                let over = life.to.is_some_and(|to| to < at);
                let informer = case.history.cast.handlers[handler.index()].informer;
                let of = Focus { handler: Some(*handler), ..case.focus(informer) };
                if over {
                    let name = &case.history.cast.handlers[handler.index()].name;
                    verdict.violate(
                        Invariant::I16,
                        at,
                        of,
                        format!("{name} was called after it had ended at {:?}", life.to),
                    );
                }
            }
            Fact::HandlerRemoved { .. } => verdict.count(Invariant::I16, true),
            Fact::Shutdown { client, tasks, connections } => {
                let of = Focus {
                    cluster: Some(case.history.cast.clients[client.index()].cluster),
                    ..Focus::default()
                };
                verdict.exercise(Invariant::I16);
                verdict.demand(Invariant::I16, *tasks == 0 && *connections == 0, at, of, || {
                    let name = &case.history.cast.clients[client.index()].name;
                    format!("{name} was shut down, and {tasks} tasks and {connections} connections are left")
                });
            }
            Fact::Requested { cluster, .. } => {
                let mut clients = (0..)
                    .map(ClientId)
                    .zip(&case.history.cast.clients)
                    .filter(|(_, c)| c.cluster == *cluster);
                let all_shut =
                    clients.all(|(id, _)| case.lives.shut(id).is_some_and(|shut| shut.plus(IN_FLIGHT) < at));
                if all_shut {
                    let of = Focus { cluster: Some(*cluster), ..Focus::default() };
                    verdict.violate(
                        Invariant::I16,
                        at,
                        of,
                        "a request though every client was shut down".to_owned(),
                    );
                }
            }
            _ => {}
        }
    }
}
