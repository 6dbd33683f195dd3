//! I15: the pace of retries of clients that cannot connect, and of those that got `Retry-After`.

use std::collections::HashMap;
use std::time::Duration;

use super::Owners;
use super::window::Window;
use crate::history::{At, ClusterId, Fact, InformerId, Verb};
use crate::oracle::{Case, FaultSpan, Focus, Invariant, Verdict};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    dials(case, verdict);
    heeded(case, verdict);
}

/// Maximum number of dials: a client that cannot connect retries once a second at most.
const DIALS: usize = 12;
const DIALS_WITHIN: Duration = Duration::from_secs(10);

fn dials(case: &Case<'_>, verdict: &mut Verdict) {
    let mut windows: HashMap<(ClusterId, u16), Window> = HashMap::new();
    for (at, fact) in case.facts() {
        let Fact::DialFailed { cluster, client } = fact else { continue };
        let window = windows.entry((*cluster, *client)).or_insert_with(|| Window::of(DIALS_WITHIN));
        let count = window.count(at);
        let of = Focus { cluster: Some(*cluster), ..Focus::default() };
        verdict.demand(Invariant::I15, count <= DIALS, at, of, || {
            format!("client-{client} has tried to connect {count} times within {DIALS_WITHIN:?}")
        });
    }
}

/// A watch is reopened within 100 ms, and the latencies of the servers differ.
const GRACE: Duration = Duration::from_millis(150);

/// Checks that `Retry-After` is heeded by a list/watch that is known to be the only sender of its requests.
fn heeded(case: &Case<'_>, verdict: &mut Verdict) {
    let owners = Owners::of(case);
    let mut last: HashMap<(InformerId, usize), At> = HashMap::new();
    for (at, fact) in case.facts() {
        let Fact::Requested { cluster, verb: verb @ (Verb::Watch | Verb::List), target, .. } = fact else {
            continue;
        };
        let Some(owner) = owners.only(case, *cluster, *target, at) else { continue };
        // Audits and readers make lists too.
        if *verb == Verb::List {
            continue;
        }
        let Some(before) = last.insert(owner, at) else { continue };
        let strikes = |span: &FaultSpan| case.strikes(span, owner.0, Some(owner.1));
        let mut spans = case.weather.on(*cluster).filter(|span| strikes(span));
        let span = spans.find(|span| span.began < before && span.is_in_force(at));
        let Some(wish) = span.and_then(|span| span.retry_after) else { continue };
        let mut felt = case.felt_by(owner.0, Some(owner.1), before, at);
        if !felt.all(|span| span.retry_after == Some(wish)) {
            continue;
        }
        if at.since(before) <= GRACE {
            // A verification watch and a reopened watch, each sent before the other's answer could arrive.
            continue;
        }
        verdict.exercise(Invariant::I15);
        verdict.demand(Invariant::I15, at.since(before) + GRACE >= wish, at, case.focus(owner.0), || {
            let (name, passed) = (case.name(owner.0), at.since(before));
            format!("{name}: told to come again in {wish:?}, it came after {passed:?}")
        });
    }
}
