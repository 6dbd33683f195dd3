//! I15: what is asked beside lists and watches: probes, reads of single objects, further pages.

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

/// In any minute: every 24 to 30 s...
const PROBES_A_MINUTE: usize = 3;
/// ... and after those that failed within 2, 4 and 8 s, and then 10; of each a fifth less.
const PROBES_A_MINUTE_IN_TROUBLE: usize = 10;
/// Those that are refused may be asked of so many scopes, as not all of them may be readable.
const SCOPES: usize = 3;
/// In any minute, of each list/watch: it has no more for all of its requests.
const READS_A_MINUTE: usize = 6;
/// A page that could not be had is asked for again a second later at the earliest; it may be sent twice where a connection dies.
const SAME_PAGE_A_SECOND: usize = 2;
/// In any minute: a page is tried five times, and of lists there are three at most.
const SAME_PAGE_A_MINUTE: usize = 15;

/// Who asks for a kind of object: requests that bear no selectors are known by no more than that.
#[derive(Default)]
struct Kind {
    clients: BTreeSet<ClientId>,
    /// Raw watches: each has probes of its own.
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

    /// What a request is about, and who may have made it.
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
    /// How many scopes may be asked one after the other for one probe, of all clients.
    fn scopes(&self) -> usize {
        let of = |client| self.scopes.iter().filter(|(other, _)| other == client).count();
        self.clients.iter().map(|client| of(client).min(SCOPES)).sum::<usize>() + self.probers
    }
}

/// The factory's probes: at their own pace, once for each call that wants one, and when a link is back.
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

/// Reads of single objects: of what could not be decoded, of what is set aside, and for who calls for one.
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
                // The answer may be had from the cache for a third of the time, and only then be asked for.
                calls.entry(of_kind).or_insert_with(|| Window::of(MINUTE * 2)).count(at);
            }
            _ => {}
        }
    }
}

/// Further pages: of a list that gets on each is another.
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
