//! What has to have a cause: lists and second looks (I15), and gaps and merged changes that handlers are told of (I4).
//!
//! Where the weather has been calm for as long as a client may need to get over what was before, a list/watch that has synced lists
//! only when its server refuses to go on from where it stands. Whoever listed whenever a watch ends would be right in everything, and
//! slow, and a storm when a thousand of them do it.
//!
//! ```text
//!   a list ──▶ called for by a user? an audit that is due? ──▶ none of the list/watch
//!          ──▶ a watch has ended as it began ──▶ a relist ──▶ may be told of as a gap
//!          ──▶ neither ──▶ broken
//! ```
//!
//! A second look is taken at a stream that has not come as far as a probe. One that brings bookmarks, and is listened to, leaves no
//! such doubt.

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

/// Whether a store has its list, and is called live.
fn is_settled(look: &Look) -> bool {
    look.synced && look.freshness.is_live() && !matches!(look.walk, Walk::Live(_))
}

/// A watch that ends so soon has brought no more than a refusal.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// So long after a refusal a list may be made: then the minute of its budget is over, and it was made.
pub(super) const PUT_OFF: Duration = Duration::from_secs(65);
/// A watch that is to stand for less than this is a second look.
const A_WHILE: Duration = Duration::from_secs(10);
/// A stream has 15 s to come as far as a probe, and its bookmarks come sooner than that where they come so often.
const OFTEN: Duration = Duration::from_secs(12);
/// What is on its way still.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// So soon who keeps up is told of what a list has changed.
const TOLD: Duration = Duration::from_secs(5);
/// Who panics is given the same again, and falls behind meanwhile.
const BEHIND: Duration = Duration::from_secs(120);

struct Causes<'a> {
    case: &'a Case<'a>,
    owners: Owners,
    /// Stores that were seen to be live.
    settled: HashSet<InformerId>,
    /// When watches were refused.
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
    /// It may list until then.
    until: At,
    /// What was listed for it so far.
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

    /// Who may have asked this, and is there.
    fn there(&self, at: At, cluster: ClusterId, target: TargetId) -> Vec<(InformerId, usize)> {
        let there = |(informer, _): &&(InformerId, usize)| {
            let life = self.case.lives.informer(*informer);
            life.from.is_some_and(|from| from <= at) && life.to.is_none_or(|to| to.plus(ON_ITS_WAY) > at)
        };
        self.owners.all(self.case, cluster, target).iter().filter(there).copied().collect()
    }

    /// Whether all of them are well, and have got over what was before.
    fn is_calm(&self, at: At, cluster: ClusterId, owners: &[(InformerId, usize)]) -> bool {
        !owners.is_empty()
            && owners.iter().all(|(informer, _)| self.settled.contains(informer))
            && self.case.weather.is_forgotten(cluster, at)
    }

    /// For a call that may be under way, and has not listed this part yet: of all calls of all who may have asked, that which has to
    /// be done first. Any other order could leave a list over for which there was a call.
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

    /// Whether a watch was refused for which nothing was listed yet.
    fn take_refusal(&mut self, list: &List) -> bool {
        let Some(refused) = self.refused.get_mut(&(list.cluster, list.target)) else { return false };
        while refused.front().is_some_and(|at| at.plus(PUT_OFF) < list.at) {
            refused.pop_front();
        }
        refused.pop_front().is_some()
    }

    /// Whether an audit that nobody called for is due, of anybody who lists the same: which of them it is of cannot be seen. When it
    /// is known to be no list of another cause, it is the last.
    fn is_audit_due(&mut self, list: &List, judged: bool) -> bool {
        let all = self.owners.all(self.case, list.cluster, list.target);
        let audited = |owner: &(InformerId, usize)| {
            let last = self.audited.get(owner).copied().or(self.case.lives.informer(owner.0).from)?;
            // A fifth of the interval is drawn.
            Some((last, last.plus(self.case.client_of(owner.0).audit_interval?.mul_f64(0.8)), *owner))
        };
        let due = all.iter().filter_map(audited).filter(|(_, due, _)| *due <= list.at).min();
        if let Some((_, _, owner)) = due.filter(|_| judged) {
            self.audited.insert(owner, list.at);
        }
        due.is_some()
    }

    /// Who keeps up is told of a gap where there was a list, and of changes in sum where more came at once than is kept.
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

    /// How many changes of a store were made in the last moments.
    fn came_just_now(&self, informer: InformerId, at: At) -> usize {
        let since = At(at.0.saturating_sub(At::after_start(ON_ITS_WAY).0));
        let came = self.case.truth.stories(informer).iter().map(|story| {
            let events = &story.line_at(at).events;
            events.partition_point(|event| event.at <= at) - events.partition_point(|event| event.at < since)
        });
        came.sum()
    }
}
