//! Doubt about a silent stream. An open stream and a live connection prove nothing: a proxy may hold the stream back, a
//! server may have forgotten it, history may have been rolled back below our RV, at which a watch is silent for ever.
//!
//! A prober reads the collection's RV every half minute, consistently ([`Input::Probed`]). If the stream has not come as
//! far after some grace, a second look is taken: a watch of 3 seconds at our RV, on another connection. A kube-apiserver
//! sends a bookmark 2 s before the end of a watch, so the look ends in one of four ways:
//!
//! * It shows a change that the stream did not bring, not even a little later: the stream is stalled, and replaced.
//! * It shows a bookmark and no such change: nothing happened up to there. The RV moves, the age is proven.
//! * It shows nothing: nothing is known. Looks go on, and after a while everything is listed again.
//! * It shows nothing and ends in order: nothing is wrong with the stream, but the server sends no bookmarks, as a kube-apiserver
//!   of Events, which it does not keep in its watch cache. The content is compared with a list of metadata
//!   ([`Sink::compare`]); where both are the same, the age is proven. From then on that takes the place of looks, once a
//!   minute while nothing happens, until a bookmark comes. Where they differ, and the stream brings nothing a moment later, it is
//!   stalled.
//! * It is refused, as the server has forgotten what was at our RV: everything is listed again.
//!
//! A probe *at* our RV proves the age of the content, unless several changes share that RV and some are missing. A stream that has
//! stood for a moment has brought them, and leaves none if it ends in order; while none stands, or just does, the probe is kept.
//!
//! A probe *below* what we had reached when it was sent, or what another had seen, means that history was rolled back, or that this
//! one server is wrong. A consistent list on another connection decides.

use std::collections::VecDeque;

use skopos_wire::{BrokenFrame, WatchEvent};

use self::comparison::{Compared, Comparing};
use super::position::Admission;
use super::*;

mod comparison;

#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Probes that the stream has not reached yet, oldest first, with rising RVs.
    probes: VecDeque<Probe>,
    look: Option<Look>,
    /// The next look comes no earlier.
    not_before: Time,
    /// Looks in a row that showed nothing.
    inconclusive: u32,
    /// How often everything was listed in vain because of doubt.
    vain_lists: u32,
    /// When a probe last confirmed our RV, or a comparison our content.
    confirmed_at: Option<Time>,
    /// When the server was back, that could not be reached before: until then no stream could bring anything.
    back_since: Time,
    /// It was told that the stream is held back, and nothing has come through since: a stream that is opened in its place
    /// is no better before it has shown something.
    held_back: bool,
    /// A look ended in order without a bookmark, and none has come since.
    sends_no_bookmarks: bool,
    /// The content is being compared with a list of metadata.
    comparing: Option<Comparing>,
    /// When a list last replaced everything.
    listed_at: Time,
    /// The last comparison that has proven our content.
    compared: Option<Compared>,
    /// When changes were last applied.
    changed_at: Time,
}

#[derive(Debug)]
struct Probe {
    sent_at: Time,
    seen_at: Time,
    resource_version: ResourceVersion,
}

/// A second look that is being taken.
#[derive(Debug)]
struct Look {
    id: RequestId,
    /// Whether it can still show something.
    running: bool,
    /// When it is over, whatever it does.
    patience: Time,
    /// It showed a change, up to this RV, that the stream has until that moment to deliver.
    missing: Option<(ResourceVersion, Time)>,
    /// It showed a bookmark, if only an old one.
    bookmarked: bool,
}

/// Lists that are made because of doubt double the time up to the next one so often.
const MOST_DOUBLINGS: u32 = 6;
/// More probes than these need not be remembered.
const PROBES: usize = 8;
/// How long the stream may take to deliver what a second look has shown: both are on their way from the same server.
const DELIVERY_GRACE: Duration = Duration::from_secs(2);
/// Content that nothing has proven for so long is about to be called stale, so that the stream is given no more time than
/// the next span: after an outage, a quiet collection in a busy cluster is proven again by a look only.
const OVERDUE: Duration = Duration::from_secs(60);
/// A probe that was answered so lately shows that the server answers.
const RECENT: Duration = Duration::from_secs(60);
/// What the stream of a server that is well takes far less than, to deliver what a probe has seen.
const SHORT_GRACE: Duration = Duration::from_secs(1);
/// How long a look may take to be answered, beside its own length.
const LOOK_OVERTIME: Duration = Duration::from_secs(7);

impl Doubt {
    pub(super) fn look_id(&self) -> Option<RequestId> {
        self.look.as_ref().filter(|look| look.running).map(|look| look.id)
    }

    /// The stream brought a bookmark: it is one that can be believed.
    pub(super) fn heard(&mut self) {
        self.sends_no_bookmarks = false;
        self.vain_lists = 0;
        self.inconclusive = 0;
        self.held_back = false;
    }

    /// Something came through.
    pub(super) fn moved(&mut self) {
        self.held_back = false;
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Another stream than the one that was doubted.
    pub(super) fn reopened(&mut self, now: Time) {
        self.comparing.take_if(|comparing| comparing.missing.is_some());
        self.inconclusive = 0;
        self.not_before = now;
    }

    /// A list has replaced everything.
    pub(super) fn listed(&mut self, cause: ReplaceCause, now: Time) {
        self.listed_at = now;
        self.compared = None;
        self.comparing = None;
        self.inconclusive = 0;
        self.held_back = false;
        if cause == ReplaceCause::Unproven {
            self.vain_lists = (self.vain_lists + 1).min(MOST_DOUBLINGS);
        }
    }

    /// When a list last replaced everything.
    pub(super) fn listed_at(&self) -> Time {
        self.listed_at
    }

    /// What a probe has seen was not brought for so long that streams are not waited for any more, while the server answers
    /// probes. Lists that were made for that double the time, so often at most.
    fn is_beyond(&self, now: Time, options: &MachineOptions, doublings: u32) -> bool {
        let (Some(oldest), Some(latest)) = (self.probes.front(), self.probes.back()) else { return false };
        let limit = options.doubt_limit.saturating_mul(1 << self.vain_lists.min(doublings));
        now.since(oldest.seen_at.max(self.back_since)) >= limit && now.since(latest.seen_at) <= RECENT
    }

    /// The server can be reached again.
    pub(super) fn returned(&mut self, now: Time) {
        self.back_since = now;
    }

    /// History was rolled back: the probes are of another time.
    pub(super) fn forget(&mut self) {
        self.probes.clear();
        self.compared = None;
    }

    /// Silence was not the peer's: nothing is judged before `at`.
    pub(super) fn postpone(&mut self, now: Time, at: Time) {
        if let Some(look) = &mut self.look {
            if look.patience <= now {
                look.patience = at;
            }
            if let Some((_, judged_at)) = &mut look.missing
                && *judged_at <= now
            {
                *judged_at = at;
            }
        }
        if let Some(comparing) = &mut self.comparing
            && comparing.until <= now
        {
            comparing.until = at;
        }
    }

    /// What was seen before a probe was sent that shows less. All of it is of another history then: nobody waits for it any more.
    fn contradicted(&mut self, sent_at: Time, resource_version: &ResourceVersion) -> Option<ResourceVersion> {
        let more = |probe: &&Probe| probe.seen_at < sent_at && probe.resource_version > *resource_version;
        let seen = self.probes.iter().find(more)?.resource_version.clone();
        self.forget();
        Some(seen)
    }

    fn remember(&mut self, probe: Probe) {
        // Answers can overtake each other; one that proves less than a later one is worth nothing.
        let useful = self.probes.back().is_none_or(|last| {
            last.resource_version <= probe.resource_version && last.sent_at <= probe.sent_at
        });
        if !useful {
            return;
        }
        if self.probes.len() == PROBES {
            // The oldest bounds the doubt, the youngest prove the most.
            self.probes.remove(1);
        }
        self.probes.push_back(probe);
    }
}

impl Machine {
    pub(super) fn on_probed(
        &mut self,
        sent_at: Time,
        resource_version: ResourceVersion,
        sink: &mut dyn Sink,
    ) {
        // The server answers: if we only wait because it did not, that may be over.
        let failing = matches!(
            self.link.condition,
            Condition::Unreachable | Condition::Retrying | Condition::ServerError
        );
        if failing {
            self.try_early();
        }
        let Some(position) = &self.position else { return };
        let seen = position.reached_by(sent_at).filter(|reached| resource_version < **reached).cloned();
        let reached = resource_version <= *position.resource_version();
        if let Some(seen) = seen.or_else(|| self.doubt.contradicted(sent_at, &resource_version)) {
            return self.on_rollback_suspected(resource_version, &seen, sink);
        }
        if reached {
            self.doubt.confirmed_at = Some(self.now);
            self.doubt.moved();
        }
        // While a list has to tell whether history was rolled back, our RV may be one of another history.
        if self.witness.is_none() && self.holds(&resource_version) {
            return self.proven(sent_at, sink);
        }
        self.doubt.remember(Probe { sent_at, seen_at: self.now, resource_version });
    }

    /// Whether the content has everything up to this RV, as far as an RV can tell: of our own RV more may be due, which a stream
    /// that stands brings at once, and one that has ended does not.
    fn holds(&self, resource_version: &ResourceVersion) -> bool {
        let standing =
            matches!(&self.state, State::Watching(watching) if watching.stands_for(SHORT_GRACE, self.now));
        self.position.as_ref().is_some_and(|position| position.holds(resource_version, standing))
    }

    /// The stream ended in order: what it had to bring of our RV it has brought, if the last of it came a moment ago.
    pub(super) fn ended_in_order(&mut self) {
        let State::Watching(watching) = &self.state else { return };
        let quiet = watching.last_frame + SHORT_GRACE <= self.now;
        if let (true, Some(position)) =
            (quiet && watching.stands_for(SHORT_GRACE, self.now), &mut self.position)
        {
            position.settle();
        }
    }

    /// Whether the oldest probe has seen our own RV, of which the stream may still bring the rest.
    fn waits_for_the_rest(&self) -> bool {
        let ours = self.resource_version();
        self.doubt.probes.front().is_some_and(|probe| Some(&probe.resource_version) == ours)
    }

    fn on_rollback_suspected(
        &mut self,
        resource_version: ResourceVersion,
        seen: &ResourceVersion,
        sink: &mut dyn Sink,
    ) {
        let listing = matches!(
            self.state,
            State::Listing(_)
                | State::Streaming(_)
                | State::Waiting { next: Next::List(_) | Next::Page(_), .. }
        );
        let reason =
            format!("the server is at resourceVersion {resource_version}, but {seen} was seen before");
        self.witness = Some(resource_version);
        if !listing {
            let mut plan = ListPlan::new(ReplaceCause::Rollback);
            plan.avoid = self.addressee_main();
            self.relist(plan, reason.into(), sink);
        }
    }

    /// The position has moved: probes that it has reached prove freshness.
    pub(super) fn on_moved(&mut self, sink: &mut dyn Sink) {
        let mut proven = None;
        while self.doubt.probes.front().is_some_and(|probe| self.holds(&probe.resource_version)) {
            proven = self.doubt.probes.pop_front().map(|probe| probe.sent_at);
        }
        if self.doubt.comparing.take_if(|comparing| comparing.missing.is_some()).is_some() {
            // The stream brings what it lacked, if not all of it yet.
            self.doubt.not_before = self.now + self.options.probe_grace;
        }
        let Some(position) = &self.position else { return };
        let reached = position.resource_version();
        let answered = match &self.doubt.look {
            Some(Look { missing: Some((missing, _)), .. }) => *missing <= *reached,
            Some(Look { missing: None, .. }) => proven.is_some() && self.doubt.probes.is_empty(),
            None => false,
        };
        if answered {
            self.cancel_look();
        }
        if let Some(sent_at) = proven {
            self.doubt.inconclusive = 0;
            self.doubt.not_before = self.now;
            if self.doubt.probes.is_empty() {
                self.doubt.comparing = None;
                self.owed.take_if(|owed| owed.cause == ReplaceCause::Unproven);
            }
            self.proven(sent_at, sink);
        }
    }

    /// When doubt next needs a decision.
    pub(super) fn doubt_timer(&self) -> Option<Time> {
        let State::Watching(watching) = &self.state else { return None };
        let opened_at = watching.opened_at?;
        if let Some(comparing) = &self.doubt.comparing {
            return Some(comparing.until);
        }
        if let Some(look) = &self.doubt.look {
            return Some(match &look.missing {
                Some((_, judged_at)) => *judged_at,
                None => look.patience,
            });
        }
        let due = match self.doubt.probes.front() {
            Some(_) if self.waits_for_the_rest() => return Some(opened_at + SHORT_GRACE),
            Some(probe) => {
                let overdue_at = self.fresh.map_or(Time::ORIGIN, |fresh| fresh + OVERDUE);
                let overdue_at = (probe.seen_at + SHORT_GRACE).max(overdue_at);
                let due = match self.doubt.sends_no_bookmarks {
                    // A comparison is a list of everything: not before the age has to be proven.
                    true => overdue_at,
                    false => overdue_at.min(probe.seen_at + self.options.probe_grace),
                };
                // A stream that is opened at our RV brings what comes after it at once: silence that one stream leaves
                // to the next is not a new one.
                due.max(opened_at + DELIVERY_GRACE)
            }
            None => {
                watching.last_frame.max(self.doubt.confirmed_at.unwrap_or_default())
                    + self.options.quiet_limit
            }
        };
        Some(due.max(self.doubt.not_before))
    }

    pub(super) fn on_doubt_timer(&mut self, sink: &mut dyn Sink) {
        if let Some(comparing) = self.doubt.comparing.take() {
            return match comparing.missing {
                Some(missing) => self.on_stalled(&missing, sink),
                None => self.on_nothing_shown(sink),
            };
        }
        match &self.doubt.look {
            Some(Look { missing: Some((missing, _)), .. }) => return self.on_stalled(&missing.clone(), sink),
            Some(_) => return self.on_look_over(sink),
            None if self.waits_for_the_rest() => return self.on_moved(sink),
            None => {}
        }
        if !(self.doubt.sends_no_bookmarks && self.compare(sink)) {
            self.take_look();
        }
    }

    fn take_look(&mut self) {
        let affordable_at = self.affordable_at(1);
        if affordable_at > self.now {
            self.doubt.not_before = affordable_at;
            return;
        }
        let (Some(position), Some(avoid)) = (&self.position, self.addressee_main()) else { return };
        let start = WatchStart::After(position.goes_on_after());
        let id = self.new_id();
        let timeout = self.options.verify_timeout;
        self.stats.watch_requests += 1;
        self.stats.second_looks += 1;
        self.requests.spend(self.now);
        self.actions.push_back(Action::Watch(WatchRequest {
            id,
            start,
            timeout,
            avoid: Some(avoid),
            patient: false,
            distrust: false,
            second_look: true,
        }));
        let patience = self.now + timeout + LOOK_OVERTIME;
        self.doubt.look = Some(Look { id, running: true, patience, missing: None, bookmarked: false });
    }

    pub(super) fn on_look_events(
        &mut self,
        events: Vec<Result<WatchEvent, BrokenFrame>>,
        sink: &mut dyn Sink,
    ) {
        for event in events {
            let (Some(position), Some(look)) = (&self.position, &mut self.doubt.look) else { return };
            let (key, resource_version) = match &event {
                Ok(
                    WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object),
                ) => (object.key(), object.resource_version()),
                Ok(WatchEvent::Bookmark { resource_version, .. }) => {
                    look.bookmarked = true;
                    if look.missing.is_none() {
                        let resource_version = resource_version.clone();
                        self.on_look_bookmark(&resource_version, sink);
                    }
                    continue;
                }
                Ok(WatchEvent::Error(status)) => {
                    return self.on_look_refused(&Verdict::of_event(status), sink);
                }
                Err(BrokenFrame { key: Some(key), resource_version: Some(resource_version), .. }) => {
                    (key, resource_version)
                }
                Err(_) => return self.on_look_over(sink),
            };
            if position.admit(key, resource_version) == Admission::New {
                let judged_at =
                    look.missing.as_ref().map_or(self.now + DELIVERY_GRACE, |(_, judged_at)| *judged_at);
                // There is something to be had: a list is not in vain.
                self.doubt.vain_lists = 0;
                // The first one is enough to judge by: it is what the stream owes us next.
                look.missing.get_or_insert_with(|| (resource_version.clone(), judged_at));
            }
        }
    }

    /// Nothing happened up to here that we do not know.
    fn on_look_bookmark(&mut self, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        self.stats.bookmarks += 1;
        let before = self.resource_version().cloned();
        let enough = self.doubt.probes.back().is_none_or(|probe| probe.resource_version <= *resource_version);
        if let Some(position) = &mut self.position {
            position.advance(resource_version, self.now);
        }
        if enough {
            self.doubt.heard();
            self.doubt.not_before = self.now + self.options.probe_grace;
            self.cancel_look();
        }
        self.flush(before, sink);
    }

    /// What there was at our RV is forgotten: only a list can tell whether we have it.
    fn on_look_refused(&mut self, verdict: &Verdict, sink: &mut dyn Sink) {
        match verdict.meaning {
            Meaning::Expired => {
                self.relist(ListPlan::new(ReplaceCause::Expired), verdict.reason.clone(), sink)
            }
            _ => self.on_look_over(sink),
        }
    }

    /// The look ended in order, as the server had been asked to end it.
    pub(super) fn on_look_closed(&mut self, sink: &mut dyn Sink) {
        let silent = self.doubt.look.as_ref().is_some_and(|look| look.missing.is_none() && !look.bookmarked);
        if silent && self.compare(sink) {
            self.doubt.sends_no_bookmarks = true;
            self.doubt.look = None;
            return;
        }
        self.on_look_over(sink);
    }

    /// The look shows nothing more.
    pub(super) fn on_look_over(&mut self, sink: &mut dyn Sink) {
        let Some(look) = &mut self.doubt.look else { return };
        if look.running {
            look.running = false;
            let id = look.id;
            self.actions.push_back(Action::Cancel { id });
        }
        if look.missing.is_some() {
            // It showed enough, and the stream still has a moment.
            return;
        }
        self.doubt.look = None;
        self.on_nothing_shown(sink);
    }

    /// Nothing tells whether anything is missing.
    fn on_nothing_shown(&mut self, sink: &mut dyn Sink) {
        self.doubt.inconclusive = self.doubt.inconclusive.saturating_add(1);
        let pause = self.options.probe_grace.saturating_mul(1 << self.doubt.inconclusive.min(3));
        self.doubt.not_before = self.now + pause + self.up_to(pause / 4);
        if self.doubt.probes.is_empty() {
            return;
        }
        let reason = Reason::new(
            Cause::Silence,
            "no data arrives, and a check could not confirm that nothing changed",
        );
        if self.is_beyond_doubt(MOST_DOUBLINGS) {
            self.relist(ListPlan::new(ReplaceCause::Unproven), reason, sink);
        } else if self.link.condition == Condition::Watching {
            // Two streams are silent and a probe is ahead of both: that is told before it is settled.
            self.link.reason = Some(reason);
            self.doubt.held_back = true;
            self.set_condition(Condition::Degraded(Degradation::Stalled));
        }
    }

    /// A second stream or a list shows, up to this RV, what this stream does not: it is replaced, at its RV and on another
    /// connection.
    fn on_stalled(&mut self, missing: &ResourceVersion, sink: &mut dyn Sink) {
        let avoid = self.addressee_main();
        let reason = format!("the stream is stalled: it never brought {missing}");
        self.stats.stalls += 1;
        self.stats.failures += 1;
        self.link.attempts = self.link.attempts.saturating_add(1);
        self.link.reason = Some(Reason::new(Cause::Silence, reason));
        self.doubt.held_back = true;
        self.set_condition(Condition::Degraded(Degradation::Stalled));
        if self.is_beyond_doubt(MOST_DOUBLINGS) {
            // Those that were opened in its place brought no more: a proxy may hold back what streams bring until they end.
            // It may as well stand until a list can be had.
            self.cancel_look();
            self.doubt.not_before = self.list_affordable_at(false) + self.options.probe_grace;
            return self.relist_when_affordable(ReplaceCause::Unproven, sink);
        }
        self.abandon(sink);
        self.doubt.not_before = self.now;
        self.wait(self.now, Next::Watch { avoid, distrust: true });
    }

    pub(super) fn is_beyond_doubt(&self, doublings: u32) -> bool {
        self.doubt.is_beyond(self.now, &self.options, doublings)
    }

    pub(super) fn cancel_look(&mut self) {
        if let Some(look) = self.doubt.look.take()
            && look.running
        {
            self.actions.push_back(Action::Cancel { id: look.id });
        }
    }
}
