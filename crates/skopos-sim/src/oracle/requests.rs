//! What is asked of the servers: I5 and I15.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::{Case, Focus, Invariant, Verdict};
use crate::history::{
    At, CallKind, ClusterId, Fact, InformerId, Look, Names, Selection, Target, TargetId, Verb, Walk,
};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    resumed(case, verdict);
    apart(case, verdict);
    heeded(case, verdict);
    Load::of(case).check(case, verdict);
}

// ---- I5

/// A watch was asked for from an RV.
struct Asked {
    at: At,
    epoch: u32,
    rv: u64,
    /// The RV of the store so long before that no request can have been on its way for longer, and when that was.
    before: Option<(At, u64)>,
}

fn resumed(case: &Case<'_>, verdict: &mut Verdict) {
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
                // One that is older than the memory has to be, and only one, stays.
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

/// The store has reached what the watch was asked from.
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

/// A request may have been on its way so long, and from before what the store has reached since.
const ON_ITS_WAY: Duration = Duration::from_secs(100);

fn seen_before(at: At, view: usize, looks: &VecDeque<(At, Look)>) -> Option<(At, u64)> {
    let (seen, look) = looks.iter().rev().find(|(seen, _)| seen.plus(ON_ITS_WAY) < at)?;
    let same_history = looks.back().is_some_and(|(_, last)| last.epoch == look.epoch);
    look.views.get(view).filter(|_| same_history).map(|view| (*seen, view.rv))
}

fn not_before(case: &Case<'_>, verdict: &mut Verdict, informer: InformerId, watch: &Asked) {
    let Some((seen, rv)) = watch.before else { return };
    // Several changes may share an RV, of which the store may have some.
    verdict.demand(Invariant::I5, watch.rv + 1 >= rv, watch.at, case.focus(informer), || {
        let name = case.name(informer);
        format!("{name}: a watch from RV {}, though the store was at RV {rv} at {seen}", watch.rv)
    });
}

/// Whose requests are whose: by what they are about.
struct Owners {
    by_target: HashMap<(ClusterId, Target), Vec<(InformerId, usize)>>,
}

impl Owners {
    fn of(case: &Case<'_>) -> Self {
        let mut by_target: HashMap<_, Vec<_>> = HashMap::new();
        for (id, informer) in (0..).map(InformerId).zip(&case.history.cast.informers) {
            let resource = &case.history.names.resources[informer.resource.index()];
            for (view, target) in targets(resource, &informer.selection).into_iter().enumerate() {
                by_target.entry((case.cluster_of(id), target)).or_default().push((id, view));
            }
        }
        Self { by_target }
    }

    fn all(&self, case: &Case<'_>, cluster: ClusterId, target: TargetId) -> &[(InformerId, usize)] {
        let target = case.history.names.targets[target.index()].clone();
        self.by_target.get(&(cluster, target)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The one list/watch that can have asked, if there is but one.
    fn only(
        &self,
        case: &Case<'_>,
        cluster: ClusterId,
        target: TargetId,
        at: At,
    ) -> Option<(InformerId, usize)> {
        let alive = |(informer, _): &&(InformerId, usize)| {
            let life = case.lives.informer(*informer);
            life.from.is_some_and(|from| from <= at) && life.to.is_none_or(|to| to.plus(ON_ITS_WAY) > at)
        };
        let mut alive = self.all(case, cluster, target).iter().filter(alive);
        let only = alive.next().copied();
        only.filter(|_| alive.next().is_none())
    }
}

/// What the requests of an informer are about: one for each view.
fn targets(resource: &str, selection: &Selection) -> Vec<Target> {
    let target = |namespace: Option<&String>| Target {
        resource: resource.to_owned(),
        namespace: namespace.cloned(),
        labels: selection.label_selector(),
        fields: selection.field_selector(),
    };
    match selection.namespaces.as_slice() {
        [] => vec![target(None)],
        namespaces => namespaces.iter().map(|namespace| target(Some(namespace))).collect(),
    }
}

fn text(names: &Names, target: TargetId) -> String {
    let Target { resource, namespace, labels, fields } = &names.targets[target.index()];
    let place = namespace.as_ref().map_or(String::new(), |namespace| format!(" in {namespace}"));
    let selectors: String =
        [labels, fields].into_iter().filter(|text| !text.is_empty()).map(|text| format!(" {text}")).collect();
    format!("{resource}{place}{selectors}")
}

// ---- I14

/// What lists and watches do to each other: nothing, as they do not share connections.
fn apart(case: &Case<'_>, verdict: &mut Verdict) {
    let mut carries_watches: HashMap<(ClusterId, u32), bool> = HashMap::new();
    for (at, fact) in case.facts() {
        let Fact::Requested { cluster, connection, verb, target, .. } = fact else { continue };
        let watch = *verb == Verb::Watch;
        let alike = *carries_watches.entry((*cluster, *connection)).or_insert(watch) == watch;
        let of = Focus { cluster: Some(*cluster), ..Focus::default() };
        verdict.demand(Invariant::I14, alike, at, of, || {
            let what = text(&case.history.names, *target);
            format!("connection {connection} carries watches, and other requests too: {verb:?} of {what}")
        });
    }
}

// ---- I15

/// Requests by minute and by second.
struct Load {
    /// Of each cluster and target.
    targets: BTreeMap<(ClusterId, TargetId), Vec<(At, bool)>>,
    /// Calls that may ask the server.
    calls: BTreeMap<ClusterId, Vec<At>>,
}

/// All requests about the same.
struct Stream<'a> {
    cluster: ClusterId,
    target: TargetId,
    /// The list/watches that are about that...
    stores: &'a [(InformerId, usize)],
    /// ... and how many they count for.
    owners: usize,
    /// When they were made, and whether of lists.
    requests: &'a [(At, bool)],
}

impl Stream<'_> {
    /// The requests of a span of time, and the lists among them.
    fn between(&self, from: At, to: At) -> (usize, usize) {
        let first = self.requests.partition_point(|(at, _)| *at < from);
        let end = self.requests.partition_point(|(at, _)| *at < to);
        let within = &self.requests[first..end];
        (within.len(), within.iter().filter(|(_, list)| *list).count())
    }

    /// How far apart the audits of its stores are at least; none if they are not audited, or are several.
    fn audits_apart(&self, case: &Case<'_>) -> Option<Duration> {
        let [(informer, _)] = self.stores else { return None };
        let interval = case.client_of(*informer).audit_interval?;
        // A fifth of the interval is drawn, and a minute is as long as it is.
        Some(interval.mul_f64(0.8).saturating_sub(MINUTE))
    }

    fn focus(&self) -> Focus {
        Focus { cluster: Some(self.cluster), ..Focus::default() }
    }
}

/// The moments of the last so long.
struct Window {
    length: Duration,
    moments: VecDeque<At>,
}

impl Window {
    fn of(length: Duration) -> Self {
        Self { length, moments: VecDeque::new() }
    }

    /// One more moment, not before the last; gives how many there are within the length that ends with it.
    fn count(&mut self, at: At) -> usize {
        self.moments.push_back(at);
        while self.moments.front().is_some_and(|first| first.plus(self.length) <= at) {
            self.moments.pop_front();
        }
        self.moments.len()
    }
}

/// A list with this limit is a probe: the factory's, for all of a cluster, and with a pace of its own.
const PROBE: u32 = 1;
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// In any minute but the first of a fault that lasts; of each list/watch.
const REQUESTS_A_MINUTE: usize = 6;
const LISTS_A_MINUTE: usize = 3;
/// Of all lists of a cluster, whatever happens.
const LISTS_A_SECOND: usize = 10;
/// Of each list/watch, whatever happens: a loop that spins makes hundreds.
const REQUESTS_A_SECOND: usize = 6;

impl Load {
    fn of(case: &Case<'_>) -> Self {
        let mut load = Self { targets: BTreeMap::new(), calls: BTreeMap::new() };
        for (at, fact) in case.facts() {
            match fact {
                Fact::Requested {
                    cluster,
                    verb: verb @ (Verb::List | Verb::Watch),
                    target,
                    further: false,
                    initial,
                    limit,
                    ..
                } if *limit != Some(PROBE) => {
                    let list = *verb == Verb::List || *initial;
                    load.targets.entry((*cluster, *target)).or_default().push((at, list));
                }
                // A read whose answer has to be listed, an audit: whoever asks so is not the list/watch.
                Fact::Called { client, kind: CallKind::Read { .. } | CallKind::Audit, .. } => {
                    let cluster = case.history.cast.clients[client.index()].cluster;
                    load.calls.entry(cluster).or_default().push(at);
                }
                _ => {}
            }
        }
        load
    }

    fn check(&self, case: &Case<'_>, verdict: &mut Verdict) {
        let owners = Owners::of(case);
        for ((cluster, target), requests) in &self.targets {
            let stores = owners.all(case, *cluster, *target);
            let owners = stores.len().max(1);
            let stream = Stream { cluster: *cluster, target: *target, stores, owners, requests };
            self.bursts(case, verdict, &stream);
            self.minutes(case, verdict, &stream);
        }
        for cluster in (0..case.history.cast.clusters.len()).map(|id| ClusterId(id as u8)) {
            self.storm(case, verdict, cluster);
        }
        dials(case, verdict);
    }

    /// Nobody spins.
    fn bursts(&self, case: &Case<'_>, verdict: &mut Verdict, stream: &Stream<'_>) {
        let mut window = Window::of(SECOND);
        for (at, _) in stream.requests {
            let count = window.count(*at);
            let allowed =
                REQUESTS_A_SECOND * stream.owners + self.calls_within(stream.cluster, *at, MINUTE, SECOND);
            verdict.demand(Invariant::I15, count <= allowed, *at, stream.focus(), || {
                format!("{count} requests of {} in a second", text(&case.history.names, stream.target))
            });
        }
    }

    /// In a fault that lasts, from its second minute on, while it is the only one.
    fn minutes(&self, case: &Case<'_>, verdict: &mut Verdict, stream: &Stream<'_>) {
        let Stream { cluster, owners, .. } = *stream;
        let apart = stream.audits_apart(case);
        let mut audited: Option<At> = None;
        for span in case.weather.on(cluster) {
            let end = span.healed.unwrap_or(case.lives.end);
            let mut from = span.began.plus(MINUTE);
            while from.plus(MINUTE) <= end {
                let to = from.plus(MINUTE);
                let alone = case.weather.felt(cluster, span.began, to).all(|other| other.fault == span.fault);
                let informers = (0..case.history.cast.informers.len()).map(|id| InformerId(id as u16));
                let mut lives =
                    informers.filter(|id| case.cluster_of(*id) == cluster).map(|id| case.lives.informer(id));
                let began = lives.any(|life| {
                    [life.from, life.to].into_iter().flatten().any(|at| at >= span.began && at <= to)
                });
                if alone && !began && !span.hits.is_empty() {
                    let (in_all, lists) = stream.between(from, to);
                    let calls = self.calls_within(cluster, to, MINUTE * 2, Duration::ZERO);
                    let more = in_all.saturating_sub(REQUESTS_A_MINUTE * owners + calls);
                    let more = more.max(lists.saturating_sub(LISTS_A_MINUTE * owners + calls));
                    // An audit that nobody called for is a list of its own, now and then.
                    let audit = more == 1
                        && lists > 0
                        && apart.is_some_and(|apart| audited.is_none_or(|last| last.plus(apart) <= to));
                    if audit {
                        audited = Some(to);
                    }
                    let few = more == 0 || audit;
                    verdict.exercise(Invariant::I15);
                    verdict.demand(Invariant::I15, few, to, stream.focus(), || {
                        let what = text(&case.history.names, stream.target);
                        format!("{in_all} requests of {what} ({lists} of them lists) in the minute from {from} of fault {}", span.number)
                    });
                }
                from = to;
            }
        }
    }

    /// All that ask at once do not list at once.
    fn storm(&self, case: &Case<'_>, verdict: &mut Verdict, cluster: ClusterId) {
        let of_cluster = self.targets.iter().filter(|((there, _), _)| *there == cluster);
        let mut lists: Vec<At> = of_cluster
            .flat_map(|(_, requests)| requests)
            .filter(|(_, list)| *list)
            .map(|(at, _)| *at)
            .collect();
        lists.sort_unstable();
        let mut begun: Vec<At> = (0..case.history.cast.informers.len())
            .map(|id| InformerId(id as u16))
            .filter(|id| case.cluster_of(*id) == cluster)
            .filter_map(|id| case.lives.informer(id).from)
            .collect();
        begun.sort_unstable();
        let mut window = Window::of(SECOND);
        for at in lists {
            let count = window.count(at);
            // Informers that are started list at once: that is what they are for.
            let started = begun.iter().filter(|begun| **begun <= at && begun.plus(SECOND * 5) >= at).count();
            let allowed = LISTS_A_SECOND + 2 * started + self.calls_within(cluster, at, MINUTE, SECOND);
            let of = Focus { cluster: Some(cluster), ..Focus::default() };
            verdict.demand(Invariant::I15, count <= allowed, at, of, || format!("{count} lists in a second"));
        }
    }

    /// How many calls were made from `before` before a moment to `after` after it.
    fn calls_within(&self, cluster: ClusterId, at: At, before: Duration, after: Duration) -> usize {
        let calls = self.calls.get(&cluster).map(Vec::as_slice).unwrap_or_default();
        let from = At(at.0.saturating_sub(At::after_start(before).0));
        calls.partition_point(|call| *call <= at.plus(after)) - calls.partition_point(|call| *call < from)
    }
}

/// A client that cannot connect tries it once a second at most.
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

/// Not all ways to a server are equally long.
const GRACE: Duration = Duration::from_millis(100);

/// Who is told to come again later does so: of a list/watch that is known to be the only one to ask so.
fn heeded(case: &Case<'_>, verdict: &mut Verdict) {
    let owners = Owners::of(case);
    let mut last: HashMap<(InformerId, usize), At> = HashMap::new();
    for (at, fact) in case.facts() {
        let Fact::Requested { cluster, verb: verb @ (Verb::Watch | Verb::List), target, .. } = fact else {
            continue;
        };
        let Some(owner) = owners.only(case, *cluster, *target, at) else { continue };
        // Lists are also made by audits and for readers.
        if *verb == Verb::List {
            continue;
        }
        let Some(before) = last.insert(owner, at) else { continue };
        let span = case.weather.on(*cluster).find(|span| span.began < before && span.is_in_force(at));
        let Some(wish) = span.and_then(|span| span.retry_after) else { continue };
        if !case.weather.felt(*cluster, before, at).all(|span| span.retry_after == Some(wish)) {
            continue;
        }
        if at.since(before) <= GRACE {
            // A second look and a watch that is opened again, each sent before the other's answer could be there.
            continue;
        }
        verdict.exercise(Invariant::I15);
        verdict.demand(Invariant::I15, at.since(before) + GRACE >= wish, at, case.focus(owner.0), || {
            let (name, passed) = (case.name(owner.0), at.since(before));
            format!("{name}: told to come again in {wish:?}, it came after {passed:?}")
        });
    }
}
