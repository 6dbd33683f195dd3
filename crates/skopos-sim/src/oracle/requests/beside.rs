//! I15: requests beside lists and watches: probes, reads of single objects, further pages.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::window::{MINUTE, SECOND, Window};
use super::{Owners, text};
use crate::history::{At, CallKind, ClientId, ClusterId, Fact, InformerId, TargetId, Verb};
use crate::oracle::{Case, Focus, Invariant, Verdict};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let kinds = Kinds::of(case);
    probes(case, verdict, &kinds);
    reads(case, verdict, &kinds);
    pages(case, verdict);
}

/// Maximum in any minute: one every 24 to 30 s...
const PROBES_A_MINUTE: usize = 3;
/// ... and after failures within 2, 4 and 8 s, and then 10 s; each a fifth less.
const PROBES_A_MINUTE_IN_TROUBLE: usize = 10;
/// Maximum number of scopes for a refused probe, because not all of them may be readable.
const SCOPES: usize = 3;
/// Maximum in any minute for each list/watch, which is its budget for all requests.
const READS_A_MINUTE: usize = 6;
/// Maximum in a second. A failed page is requested again after a second at the earliest; it may be sent twice where a connection
/// dies.
const SAME_PAGE_A_SECOND: usize = 2;
/// Maximum in any minute: a page is tried five times, and there are at most three lists.
const SAME_PAGE_A_MINUTE: usize = 15;

/// Users of a kind of object. Requests without selectors are attributed by no more than that.
#[derive(Default)]
struct Kind {
    clients: BTreeSet<ClientId>,
    /// Number of raw watches. Each has its own probes.
    probers: usize,
    scopes: BTreeSet<(ClientId, Option<String>)>,
    list_watches: usize,
}

struct Kinds<'a>(HashMap<(ClusterId, &'a str), Kind>);

impl<'a> Kinds<'a> {
    fn of(case: &'a Case<'_>) -> Self {
        let mut kinds: HashMap<_, Kind> = HashMap::new();
        for (id, informer) in (0..).map(InformerId).zip(&case.history.cast.informers) {
            let resource = case.history.names.resources[informer.resource.index()].as_str();
            let kind = kinds.entry((case.cluster_of(id), resource)).or_default();
            let namespaces = &informer.selection.namespaces;
            let everything = namespaces.is_empty().then_some(None);
            kind.clients.insert(informer.client);
            for scope in namespaces.iter().cloned().map(Some).chain(everything) {
                kind.scopes.insert((informer.client, scope));
                kind.list_watches += 1;
            }
        }
        for watcher in &case.history.cast.watchers {
            let resource = case.history.names.resources[watcher.resource.index()].as_str();
            let cluster = case.history.cast.clients[watcher.client.index()].cluster;
            let kind = kinds.entry((cluster, resource)).or_default();
            kind.list_watches += 1;
            kind.probers += 1;
        }
        Self(kinds)
    }

    /// Returns the kind of a request, and its possible senders.
    fn of_request(
        &self,
        case: &'a Case<'_>,
        cluster: ClusterId,
        target: TargetId,
    ) -> Option<(&'a str, &Kind)> {
        let resource = case.history.names.targets[target.index()].resource.as_str();
        Some((resource, self.0.get(&(cluster, resource))?))
    }
}

impl Kind {
    /// Returns the number of scopes that may be tried for one probe, for all clients.
    fn scopes(&self) -> usize {
        let of = |client| self.scopes.iter().filter(|(other, _)| other == client).count();
        self.clients.iter().map(|client| of(client).min(SCOPES)).sum::<usize>() + self.probers
    }
}

/// Checks the factory's probes: at their own pace, once for each call that wants one, and when a link is back.
fn probes(case: &Case<'_>, verdict: &mut Verdict, kinds: &Kinds<'_>) {
    let mut probes: HashMap<(ClusterId, &str), Window> = HashMap::new();
    let mut occasions: HashMap<(ClusterId, &str), Window> = HashMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Requested { cluster, verb: Verb::Probe, target, .. } => {
                let Some((resource, kind)) = kinds.of_request(case, *cluster, *target) else { continue };
                let minute = || Window::of(MINUTE);
                let count = probes.entry((*cluster, resource)).or_insert_with(minute).count(at);
                let called = occasions.get_mut(&(*cluster, resource)).map_or(0, |window| window.there(at));
                let calm = case.weather.is_clear(*cluster, before(at, MINUTE), at);
                let allowed = if calm {
                    PROBES_A_MINUTE * (kind.clients.len() + kind.probers) + called
                } else {
                    (PROBES_A_MINUTE_IN_TROUBLE + called) * kind.scopes()
                };
                if !calm {
                    verdict.exercise(Invariant::I15);
                }
                verdict.demand(Invariant::I15, count <= allowed, at, of(*cluster), || {
                    format!(
                        "{count} probes of {resource} in a minute, of which {called} may have been called for"
                    )
                });
            }
            Fact::Requested { cluster, verb: Verb::Watch, target, .. } => {
                let Some((resource, _)) = kinds.of_request(case, *cluster, *target) else { continue };
                occasions.entry((*cluster, resource)).or_insert_with(|| Window::of(MINUTE)).count(at);
            }
            Fact::Called { informer: Some(informer), kind, .. } if wants_a_probe(*kind) => {
                let of_kind = (case.cluster_of(*informer), resource_of(case, *informer));
                occasions.entry(of_kind).or_insert_with(|| Window::of(MINUTE)).count(at);
            }
            _ => {}
        }
    }
}

fn wants_a_probe(call: CallKind) -> bool {
    matches!(call, CallKind::Read { .. } | CallKind::ReadOne { .. })
}

/// Checks reads of single objects: undecodable objects, quarantined objects, and calls of users.
fn reads(case: &Case<'_>, verdict: &mut Verdict, kinds: &Kinds<'_>) {
    let mut reads: HashMap<(ClusterId, &str), Window> = HashMap::new();
    let mut calls: HashMap<(ClusterId, &str), Window> = HashMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Requested { cluster, verb: Verb::Get, target, .. } => {
                let Some((resource, kind)) = kinds.of_request(case, *cluster, *target) else { continue };
                let count = reads.entry((*cluster, resource)).or_insert_with(|| Window::of(MINUTE)).count(at);
                let called = calls.get_mut(&(*cluster, resource)).map_or(0, |window| window.there(at));
                let allowed = READS_A_MINUTE * kind.list_watches + called;
                if count > called {
                    verdict.exercise(Invariant::I15);
                }
                verdict.demand(Invariant::I15, count <= allowed, at, of(*cluster), || {
                    format!(
                        "{count} reads of single {resource} in a minute, of which {called} were called for"
                    )
                });
            }
            Fact::Called { informer: Some(informer), kind: CallKind::ReadOne { .. }, .. } => {
                let of_kind = (case.cluster_of(*informer), resource_of(case, *informer));
                // The answer may come from the cache for a third of the time, and only then be requested.
                calls.entry(of_kind).or_insert_with(|| Window::of(MINUTE * 2)).count(at);
            }
            _ => {}
        }
    }
}

/// Checks further pages. Each page of a progressing list is a different one.
fn pages(case: &Case<'_>, verdict: &mut Verdict) {
    let owners = Owners::of(case);
    let mut pages: HashMap<(ClusterId, TargetId, u64), (Window, Window)> = HashMap::new();
    let mut audits: HashMap<(ClusterId, &str), Window> = HashMap::new();
    for (at, fact) in case.facts() {
        if let Fact::Called { informer: Some(informer), kind: CallKind::Audit, .. } = fact {
            let of_kind = (case.cluster_of(*informer), resource_of(case, *informer));
            audits.entry(of_kind).or_insert_with(|| Window::of(MINUTE)).count(at);
        }
        let Fact::Requested { cluster, target, further: Some(page), .. } = fact else { continue };
        let resource = case.history.names.targets[target.index()].resource.as_str();
        let called = audits.get_mut(&(*cluster, resource)).map_or(0, |window| window.there(at));
        let (second, minute) = pages
            .entry((*cluster, *target, *page))
            .or_insert_with(|| (Window::of(SECOND), Window::of(MINUTE)));
        let (at_once, in_all) = (second.count(at), minute.count(at));
        let owners = owners.all(case, *cluster, *target).len().max(1);
        if in_all > 1 {
            verdict.exercise(Invariant::I15);
        }
        let few =
            at_once <= SAME_PAGE_A_SECOND * owners + called && in_all <= SAME_PAGE_A_MINUTE * owners + called;
        verdict.demand(Invariant::I15, few, at, of(*cluster), || {
            let what = text(&case.history.names, *target);
            format!(
                "the same page of {what} {at_once} times in a second, {in_all} times in a minute, of which {called} may have been \
                 called for"
            )
        });
    }
}

fn resource_of<'a>(case: &'a Case<'_>, informer: InformerId) -> &'a str {
    let resource = case.history.cast.informers[informer.index()].resource;
    &case.history.names.resources[resource.index()]
}

fn before(at: At, time: Duration) -> At {
    At(at.0.saturating_sub(At::after_start(time).0))
}

fn of(cluster: ClusterId) -> Focus {
    Focus { cluster: Some(cluster), ..Focus::default() }
}
