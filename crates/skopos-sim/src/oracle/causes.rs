//! Events that must have a cause: lists and verification watches (I15), and gaps and coalesced changes that handlers get (I4).
//!
//! If the weather has been calm for as long as a client needs to recover from earlier faults, a synced list/watch lists only when
//! its server refuses to resume from its RV. A client that lists whenever a watch ends would be correct but slow, and a thousand
//! of them would cause a storm.
//!
//! ```text
//!   a list ──▶ called for by a user? an audit that is due? ──▶ none of the list/watch
//!          ──▶ a watch has ended as it began ──▶ a relist ──▶ may be reported as a gap
//!          ──▶ neither ──▶ broken
//! ```
//!
//! A verification watch checks a stream that is behind a probe. A stream that brings bookmarks, and whose reader is quick, leaves
//! no such doubt.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use super::requests::{Owners, text};
use super::{Case, Focus, Invariant, Verdict};
use crate::history::{
    At, CallKind, ClusterId, Fact, Flags, HandlerId, InformerId, Look, Seen, TargetId, Verb, Walk,
};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut causes = Causes::of(case);
    for (at, fact) in case.facts() {
        match fact {
            Fact::Looked(look) if is_settled(look) => {
                causes.settled.insert(look.informer);
            }
            Fact::WatchEnded { cluster, target, stood } if *stood < AT_ONCE => {
                causes.refused.entry((*cluster, *target)).or_default().push_back(at);
            }
            Fact::Requested { cluster, verb: Verb::Watch, target, timeout: Some(timeout), .. }
                if *timeout < A_WHILE =>
            {
                causes.looked_again(verdict, at, *cluster, *target);
            }
            Fact::Called { informer: Some(informer), kind, limit, .. } => {
                causes.called(*informer, *kind, at.plus(*limit));
            }
            Fact::Requested {
                cluster,
                verb: verb @ (Verb::List | Verb::Watch),
                target,
                further: None,
                initial,
                metadata,
                ..
            } if *verb == Verb::List || *initial => {
                let list =
                    List { at, cluster: *cluster, target: *target, streamed: *initial, metadata: *metadata };
                causes.listed(verdict, &list);
            }
            Fact::Callback { handler, flags, object, .. } => {
                causes.told(verdict, at, *handler, *flags, object);
            }
            Fact::CallbackEnded { handler, panicked: true } => drop(causes.panicked.insert(*handler, at)),
            _ => {}
        }
    }
}

/// Returns whether a store has its list, and is live.
fn is_settled(look: &Look) -> bool {
    look.synced && look.freshness.is_live() && !matches!(look.walk, Walk::Live(_))
}

/// Maximum lifetime of a watch that brought no more than a refusal.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// Time after a refusal within which a list may be made: then the minute of its budget is over.
pub(super) const PUT_OFF: Duration = Duration::from_secs(65);
/// Timeout of a watch below which it is a verification watch.
const A_WHILE: Duration = Duration::from_secs(10);
/// Bookmark interval below which bookmarks arrive in time: a stream has 15 s to catch up with a probe.
const OFTEN: Duration = Duration::from_secs(12);
/// Time that messages in flight take.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// Time within which a quick handler gets the changes of a list.
const TOLD: Duration = Duration::from_secs(5);
/// Time for which a handler that panicked may be behind, because it gets the same event again.
const BEHIND: Duration = Duration::from_secs(120);

struct Causes<'a> {
    case: &'a Case<'a>,
    owners: Owners,
    /// Stores that were seen live.
    settled: HashSet<InformerId>,
    /// Times at which watches were refused.
    refused: HashMap<(ClusterId, TargetId), VecDeque<At>>,
    /// Calls that may list.
    calls: HashMap<InformerId, Vec<Call>>,
    audited: HashMap<(InformerId, usize), At>,
    /// The last list of each store's list/watch.
    relisted: HashMap<InformerId, At>,
    panicked: HashMap<HandlerId, At>,
}

struct Call {
    audit: bool,
    /// Time until which the call may list.
    until: At,
    /// Views that were listed for it so far.
    listed: Vec<usize>,
}

struct List {
    at: At,
    cluster: ClusterId,
    target: TargetId,
    streamed: bool,
    metadata: bool,
}

impl<'a> Causes<'a> {
    fn of(case: &'a Case<'a>) -> Self {
        Self {
            case,
            owners: Owners::of(case),
            settled: HashSet::new(),
            refused: HashMap::new(),
            calls: HashMap::new(),
            audited: HashMap::new(),
            relisted: HashMap::new(),
            panicked: HashMap::new(),
        }
    }

    fn called(&mut self, informer: InformerId, kind: CallKind, until: At) {
        let audit = kind == CallKind::Audit;
        if audit || matches!(kind, CallKind::Read { .. }) {
            let call = Call { audit, until: until.plus(ON_ITS_WAY), listed: Vec::new() };
            self.calls.entry(informer).or_default().push(call);
        }
    }

    fn listed(&mut self, verdict: &mut Verdict, list: &List) {
        let owners = self.there(list.at, list.cluster, list.target);
        let judged = self.is_calm(list.at, list.cluster, &owners);
        if !list.streamed && self.was_called_for(&owners, list) {
            return;
        }
        let of_form = |informer: &InformerId| {
            self.case.history.cast.informers[informer.index()].metadata_only == list.metadata
        };
        let own: Vec<_> = owners.iter().map(|(informer, _)| *informer).filter(of_form).collect();
        let refused = !own.is_empty() && self.take_refusal(list);
        let audit = !refused && !list.streamed && list.metadata && self.is_audit_due(list, judged);
        if !audit {
            self.relisted.extend(own.into_iter().map(|informer| (informer, list.at)));
        }
        if !judged {
            return;
        }
        let of = Focus { cluster: Some(list.cluster), ..Focus::default() };
        verdict.exercise(Invariant::I15);
        verdict.demand(Invariant::I15, refused || audit, list.at, of, || {
            let what = text(&self.case.history.names, list.target);
            let how = if list.streamed { " (streamed)" } else { "" };
            let metadata = if list.metadata { ", metadata only," } else { "" };
            format!("a list of {what}{how}{metadata} without a cause")
        });
    }

    fn looked_again(&self, verdict: &mut Verdict, at: At, cluster: ClusterId, target: TargetId) {
        let interval = self.case.history.cast.clusters[cluster.index()].bookmark_interval;
        if !self.is_calm(at, cluster, &self.there(at, cluster, target)) {
            return;
        }
        let of = Focus { cluster: Some(cluster), ..Focus::default() };
        verdict.demand(Invariant::I15, interval > OFTEN, at, of, || {
            let what = text(&self.case.history.names, target);
            format!("a second look at {what}, whose stream brings a bookmark every {interval:?}")
        });
    }

    /// Returns the running informers that may have sent this request.
    fn there(&self, at: At, cluster: ClusterId, target: TargetId) -> Vec<(InformerId, usize)> {
        let there = |(informer, _): &&(InformerId, usize)| {
            let life = self.case.lives.informer(*informer);
            life.from.is_some_and(|from| from <= at) && life.to.is_none_or(|to| to.plus(ON_ITS_WAY) > at)
        };
        self.owners.all(self.case, cluster, target).iter().filter(there).copied().collect()
    }

    /// Returns whether all of them are well, and have recovered from earlier faults.
    fn is_calm(&self, at: At, cluster: ClusterId, owners: &[(InformerId, usize)]) -> bool {
        !owners.is_empty()
            && owners.iter().all(|(informer, _)| self.settled.contains(informer))
            && self.case.weather.is_forgotten(cluster, at)
    }

    /// Returns whether a call in progress, which has not listed this view yet, explains the list. Of the calls of all possible
    /// informers it uses the one with the earliest deadline. Any other order could leave a list over for which there was a call.
    fn was_called_for(&mut self, owners: &[(InformerId, usize)], list: &List) -> bool {
        for (informer, _) in owners {
            self.calls.entry(*informer).or_default().retain(|call| call.until >= list.at);
        }
        let fitting = |(informer, view): &(InformerId, usize)| {
            let metadata_only = self.case.history.cast.informers[informer.index()].metadata_only;
            let fits =
                |call: &Call| (call.audit || metadata_only) == list.metadata && !call.listed.contains(view);
            let calls = self.calls.get(informer).into_iter().flatten().enumerate();
            let first = calls.filter(|(_, call)| fits(call)).min_by_key(|(_, call)| call.until);
            first.map(|(place, call)| (call.until, *informer, place, *view))
        };
        let Some((_, informer, place, view)) = owners.iter().filter_map(fitting).min() else { return false };
        let call = self.calls.get_mut(&informer).and_then(|calls| calls.get_mut(place));
        call.map(|call| call.listed.push(view)).is_some()
    }

    /// Returns whether a watch was refused without a list so far.
    fn take_refusal(&mut self, list: &List) -> bool {
        let Some(refused) = self.refused.get_mut(&(list.cluster, list.target)) else { return false };
        while refused.front().is_some_and(|at| at.plus(PUT_OFF) < list.at) {
            refused.pop_front();
        }
        refused.pop_front().is_some()
    }

    /// Returns whether an automatic audit is due, of any informer with the same lists, because the requests do not show whose it
    /// is. If the list is known to have no other cause, it counts as that informer's last audit.
    fn is_audit_due(&mut self, list: &List, judged: bool) -> bool {
        let all = self.owners.all(self.case, list.cluster, list.target);
        let audited = |owner: &(InformerId, usize)| {
            let last = self.audited.get(owner).copied().or(self.case.lives.informer(owner.0).from)?;
            // A fifth of the interval is random.
            Some((last, last.plus(self.case.client_of(owner.0).audit_interval?.mul_f64(0.8)), *owner))
        };
        let due = all.iter().filter_map(audited).filter(|(_, due, _)| *due <= list.at).min();
        if let Some((_, _, owner)) = due.filter(|_| judged) {
            self.audited.insert(owner, list.at);
        }
        due.is_some()
    }

    /// Checks that a quick handler gets a gap only after a list, and coalesced changes only if more arrived at once than its
    /// queue holds.
    fn told(&mut self, verdict: &mut Verdict, at: At, handler: HandlerId, flags: Flags, object: &Seen) {
        let there = &self.case.history.cast.handlers[handler.index()];
        let informer = there.informer;
        let cluster = self.case.cluster_of(informer);
        let keeps_up = there.slowness.is_zero()
            && self.panicked.get(&handler).is_none_or(|panicked| panicked.plus(BEHIND) < at);
        let calm = (flags.gap || flags.coalesced)
            && keeps_up
            && self.settled.contains(&informer)
            && self.case.weather.is_forgotten(cluster, at);
        if !calm {
            return;
        }
        let relisted = self.relisted.get(&informer).is_some_and(|list| list.plus(TOLD) >= at);
        let of = Focus { handler: Some(handler), key: Some(object.key), ..self.case.focus(informer) };
        verdict.exercise(Invariant::I4);
        verdict.demand(Invariant::I4, !flags.gap || relisted, at, of, || {
            let key = self.case.key(object.key);
            format!("{}: told of a gap with {key}, and nothing was listed", there.name)
        });
        let came = self.came_just_now(informer, at);
        let overflown = came > there.capacity || relisted;
        verdict.demand(Invariant::I4, !flags.coalesced || overflown, at, of, || {
            let key = self.case.key(object.key);
            format!("{}: told in sum of {key}, though {came} changes are fewer than it may keep", there.name)
        });
    }

    /// Returns the number of a store's changes in the last moments.
    fn came_just_now(&self, informer: InformerId, at: At) -> usize {
        let since = At(at.0.saturating_sub(At::after_start(ON_ITS_WAY).0));
        let came = self.case.truth.stories(informer).iter().map(|story| {
            let events = &story.line_at(at).events;
            events.partition_point(|event| event.at <= at) - events.partition_point(|event| event.at < since)
        });
        came.sum()
    }
}
