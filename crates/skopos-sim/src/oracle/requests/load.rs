//! I15: the number of requests by minute and by second.

use std::collections::BTreeMap;
use std::time::Duration;

use super::window::{MINUTE, SECOND, Window};
use super::{Owners, text};
use crate::history::{At, CallKind, ClusterId, Fact, InformerId, TargetId, Verb};
use crate::oracle::{Case, FaultSpan, Focus, Invariant, Verdict};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    Load::of(case).check(case, verdict);
}

/// Requests by minute and by second.
struct Load {
    /// Requests of each cluster and target, with their times and whether they are lists.
    targets: BTreeMap<(ClusterId, TargetId), Vec<(At, bool)>>,
    /// Calls that may ask the server.
    calls: BTreeMap<ClusterId, Vec<At>>,
}

/// All requests for the same target.
struct Stream<'a> {
    cluster: ClusterId,
    target: TargetId,
    /// The list/watches of this target...
    stores: &'a [(InformerId, usize)],
    /// ... and their number for the budget.
    owners: usize,
    /// Times of the requests, and whether they are lists.
    requests: &'a [(At, bool)],
}

impl Stream<'_> {
    /// Returns the number of requests in a time span, and of lists among them.
    fn between(&self, from: At, to: At) -> (usize, usize) {
        let first = self.requests.partition_point(|(at, _)| *at < from);
        let end = self.requests.partition_point(|(at, _)| *at < to);
        let within = &self.requests[first..end];
        (within.len(), within.iter().filter(|(_, list)| *list).count())
    }

    /// Returns its stores with audits.
    fn audits(&self, case: &Case<'_>) -> Vec<Audits> {
        let of = |(informer, _): &(InformerId, usize)| {
            // A fifth of the interval is random, and a minute may lie within it.
            let apart = case.client_of(*informer).audit_interval?.mul_f64(0.8).saturating_sub(MINUTE);
            Some(Audits { apart, last: None })
        };
        self.stores.iter().filter_map(of).collect()
    }

    fn focus(&self) -> Focus {
        Focus { cluster: Some(self.cluster), ..Focus::default() }
    }
}

/// Automatic audits of one store. Each makes its own list.
struct Audits {
    /// Minimum interval.
    apart: Duration,
    last: Option<At>,
}

impl Audits {
    fn are_due(&self, at: At) -> bool {
        self.last.is_none_or(|last| last.plus(self.apart) <= at)
    }
}

/// Limit of a probe's list: the factory's, for all of a cluster, and with its own pace.
const PROBE: u32 = 1;

/// Maximum in any minute but the first of a lasting fault, for each list/watch.
const REQUESTS_A_MINUTE: usize = 6;
const LISTS_A_MINUTE: usize = 3;
/// Maximum for all lists of a cluster, whatever happens.
const LISTS_A_SECOND: usize = 10;
/// Maximum for each list/watch, whatever happens: a busy loop makes hundreds.
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
                    further: None,
                    initial,
                    limit,
                    ..
                } if *limit != Some(PROBE) => {
                    let list = *verb == Verb::List || *initial;
                    load.targets.entry((*cluster, *target)).or_default().push((at, list));
                }
                // Reads that need a list, and audits, do not count for the list/watch.
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
    }

    /// Checks that there is no busy loop.
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

    /// Checks the minutes of a lasting fault, from its second minute on, if it is the only fault and was the only one in the
    /// minute before.
    fn minutes(&self, case: &Case<'_>, verdict: &mut Verdict, stream: &Stream<'_>) {
        let Stream { cluster, owners, .. } = *stream;
        let mut audits = stream.audits(case);
        let asked = &case.history.names.targets[stream.target.index()];
        let strikes = |span: &&FaultSpan| span.part.has(&asked.resource, asked.namespace.as_deref());
        for span in case.weather.on(cluster).filter(strikes) {
            let end = span.healed.unwrap_or(case.lives.end);
            let mut from = span.began.plus(MINUTE);
            while from.plus(MINUTE) <= end {
                let to = from.plus(MINUTE);
                // Requests before the last minute do not count.
                let lately = At(from.0.saturating_sub(At::after_start(MINUTE).0));
                let alone = case.weather.felt(cluster, lately, to).all(|other| other.fault == span.fault);
                let informers = (0..case.history.cast.informers.len()).map(|id| InformerId(id as u16));
                let mut lives =
                    informers.filter(|id| case.cluster_of(*id) == cluster).map(|id| case.lives.informer(id));
                let began = lives.any(|life| {
                    [life.from, life.to].into_iter().flatten().any(|at| at >= lately && at <= to)
                });
                if alone && !began && !span.hits.is_empty() {
                    let (in_all, lists) = stream.between(from, to);
                    let calls = self.calls_within(cluster, to, MINUTE * 2, Duration::ZERO);
                    let more = in_all.saturating_sub(REQUESTS_A_MINUTE * owners + calls);
                    let more = more.max(lists.saturating_sub(LISTS_A_MINUTE * owners + calls));
                    let due = audits.iter_mut().filter(|audits| audits.are_due(to)).take(more.min(lists));
                    let audited = due.map(|audits| audits.last = Some(to)).count();
                    let few = audited == more;
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

    /// Checks that clients which request at once do not list at once.
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
            // Informers that are started list at once, as they should.
            let started = begun.iter().filter(|begun| **begun <= at && begun.plus(SECOND * 5) >= at).count();
            let allowed = LISTS_A_SECOND + 2 * started + self.calls_within(cluster, at, MINUTE, SECOND);
            let of = Focus { cluster: Some(cluster), ..Focus::default() };
            verdict.demand(Invariant::I15, count <= allowed, at, of, || format!("{count} lists in a second"));
        }
    }

    /// Returns the number of calls from `before` before a moment to `after` after it.
    fn calls_within(&self, cluster: ClusterId, at: At, before: Duration, after: Duration) -> usize {
        let calls = self.calls.get(&cluster).map(Vec::as_slice).unwrap_or_default();
        let from = At(at.0.saturating_sub(At::after_start(before).0));
        calls.partition_point(|call| *call <= at.plus(after)) - calls.partition_point(|call| *call < from)
    }
}
