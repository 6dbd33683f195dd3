//! Doubt about a silent stream. An open stream and a live connection prove nothing. A proxy may hold the stream back, or a
//! server may have forgotten it. History may have been rolled back below our RV, where a watch stays silent without end.
//!
//! A prober reads the collection's RV every half minute, consistently ([`Input::Probed`]). If the stream has not
//! reached it after some grace, the client takes a second look: a watch of 3 seconds at our RV, on another connection.
//! A kube-apiserver sends a bookmark 2 s before the end of a watch, so the look ends in one of these ways:
//!
//! * It shows a change that the stream does not bring, even a little later: the stream is stalled, and replaced.
//! * It shows a bookmark and no such change: nothing happened up to that RV. The RV moves, and the age is proven.
//! * It shows nothing: nothing is known. Looks continue, and after a while everything is listed again.
//! * It shows nothing and ends in order: the stream may be healthy, but the server sends no bookmarks. A kube-apiserver
//!   does so for Events, which it does not keep in its watch cache. The content is compared with a list of metadata
//!   ([`Sink::compare`]); if both are the same, the age is proven. Comparisons then replace looks, once a minute while
//!   nothing happens, until a bookmark comes. If they differ, and the stream brings nothing a moment later, it is
//!   stalled.
//! * It is refused, because the server has forgotten the history at our RV: everything is listed again.
//!
//! A probe *at* our RV proves the age of the content, unless several changes share that RV and some are missing. A
//! stream that was open for a moment has brought them, and leaves none if it ends in order. While no stream is open, or
//! one has just opened, the probe is kept.
//!
//! A probe may be *below* the RV that we had reached when it was sent, or that another probe had seen. Then history was
//! rolled back, or this one server is wrong. A consistent list on another connection decides.

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
    /// The earliest time of the next look.
    not_before: Time,
    /// The number of consecutive looks that showed nothing.
    inconclusive: u32,
    /// The number of lists made because of doubt that did not settle it.
    vain_lists: u32,
    /// The time at which a probe last confirmed our RV, or a comparison our content.
    confirmed_at: Option<Time>,
    /// The time at which the unreachable server returned: until then no stream could bring anything.
    back_since: Time,
    /// True if the stream was reported as held back, and nothing has come through since. A stream opened in its place
    /// counts as held back too until it brings something.
    held_back: bool,
    /// True if a look ended in order without a bookmark, and none has come since.
    sends_no_bookmarks: bool,
    /// The comparison of the content with a list of metadata, while it runs.
    comparing: Option<Comparing>,
    /// The time at which a list last replaced everything.
    listed_at: Time,
    /// The last comparison that proved our content.
    compared: Option<Compared>,
    /// The time at which changes were last applied.
    changed_at: Time,
}

#[derive(Debug)]
struct Probe {
    sent_at: Time,
    seen_at: Time,
    resource_version: ResourceVersion,
}

/// A second look in progress.
#[derive(Debug)]
struct Look {
    id: RequestId,
    /// True while it can still show something.
    running: bool,
    /// The deadline of the look.
    patience: Time,
    /// A change shown by the look, up to this RV, and the deadline for the stream to deliver it.
    missing: Option<(ResourceVersion, Time)>,
    /// True if it showed a bookmark, even an old one.
    bookmarked: bool,
}

/// The maximum doublings of the time to the next list because of doubt.
const MOST_DOUBLINGS: u32 = 6;
/// The maximum number of probes remembered.
const PROBES: usize = 8;
/// The time that the stream has to deliver a change that a second look showed: both come from the same server.
const DELIVERY_GRACE: Duration = Duration::from_secs(2);
/// The proof age at which the stream gets only [`SHORT_GRACE`] more: the content is about to be called stale. After an
/// outage, only a look can prove a quiet collection in a busy cluster again.
const OVERDUE: Duration = Duration::from_secs(60);
/// The maximum age of a probe response that shows that the server answers.
const RECENT: Duration = Duration::from_secs(60);
/// A grace far above the time in which a healthy server's stream delivers changes that a probe has seen.
const SHORT_GRACE: Duration = Duration::from_secs(1);
/// The time that a look has for its response, beyond its own length.
const LOOK_OVERTIME: Duration = Duration::from_secs(7);

impl Doubt {
    pub(super) fn look_id(&self) -> Option<RequestId> {
        self.look.as_ref().filter(|look| look.running).map(|look| look.id)
    }

    /// Records a bookmark on the stream: the stream can be trusted.
    pub(super) fn heard(&mut self) {
        self.sends_no_bookmarks = false;
        self.vain_lists = 0;
        self.inconclusive = 0;
        self.held_back = false;
    }

    /// Records that the stream brought something.
    pub(super) fn moved(&mut self) {
        self.held_back = false;
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Resets the doubt for a new stream.
    pub(super) fn reopened(&mut self, now: Time) {
        self.comparing.take_if(|comparing| comparing.missing.is_some());
        self.inconclusive = 0;
        self.not_before = now;
    }

    /// Records a list that replaced everything.
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

    /// Returns the time at which a list last replaced everything.
    pub(super) fn listed_at(&self) -> Time {
        self.listed_at
    }

    /// Returns whether doubt lasted too long: a probe's change was missing beyond the limit while the server answers
    /// probes. Lists made for that double the limit, at most `doublings` times.
    fn is_beyond(&self, now: Time, options: &MachineOptions, doublings: u32) -> bool {
        let (Some(oldest), Some(latest)) = (self.probes.front(), self.probes.back()) else { return false };
        let limit = options.doubt_limit.saturating_mul(1 << self.vain_lists.min(doublings));
        now.since(oldest.seen_at.max(self.back_since)) >= limit && now.since(latest.seen_at) <= RECENT
    }

    /// Records that the server can be reached again.
    pub(super) fn returned(&mut self, now: Time) {
        self.back_since = now;
    }

    /// Drops the probes and the comparison: they are of a history that was rolled back.
    pub(super) fn forget(&mut self) {
        self.probes.clear();
        self.compared = None;
    }

    /// Moves passed deadlines to `at`: the silence was not the peer's fault.
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

    /// Returns an RV that was seen before the sending of a probe that shows a lower one. All earlier probes are then of
    /// another history, and are dropped.
    fn contradicted(&mut self, sent_at: Time, resource_version: &ResourceVersion) -> Option<ResourceVersion> {
        let more = |probe: &&Probe| probe.seen_at < sent_at && probe.resource_version > *resource_version;
        let seen = self.probes.iter().find(more)?.resource_version.clone();
        self.forget();
        Some(seen)
    }

    fn remember(&mut self, probe: Probe) {
        // Responses can overtake each other; one that proves less than a later one has no value.
        let useful = self.probes.back().is_none_or(|last| {
            last.resource_version <= probe.resource_version && last.sent_at <= probe.sent_at
        });
        if !useful {
            return;
        }
        if self.probes.len() == PROBES {
            // The oldest bounds the doubt, the latest prove the most.
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
        // The server answers: a wait caused by an unreachable server may be over.
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
        // While a list has to decide on a rollback, our RV may be of another history.
        if self.witness.is_none() && self.holds(&resource_version) {
            return self.proven(sent_at, sink);
        }
        self.doubt.remember(Probe { sent_at, seen_at: self.now, resource_version });
    }

    /// Returns whether the content has everything up to this RV, as far as an RV can tell. More changes may be due at
    /// our own RV: an open stream brings them at once, one that has ended does not.
    fn holds(&self, resource_version: &ResourceVersion) -> bool {
        let standing =
            matches!(&self.state, State::Watching(watching) if watching.stands_for(SHORT_GRACE, self.now));
        self.position.as_ref().is_some_and(|position| position.holds(resource_version, standing))
    }

    /// Records that the stream ended in order: it has brought all changes at our RV if its last frame came a moment ago.
    pub(super) fn ended_in_order(&mut self) {
        let State::Watching(watching) = &self.state else { return };
        let quiet = watching.last_frame + SHORT_GRACE <= self.now;
        if let (true, Some(position)) =
            (quiet && watching.stands_for(SHORT_GRACE, self.now), &mut self.position)
        {
            position.settle();
        }
    }

    /// Returns whether the oldest probe saw our own RV, at which the stream may still bring more.
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

    /// Handles a new position: probes that it has reached prove freshness.
    pub(super) fn on_moved(&mut self, sink: &mut dyn Sink) {
        let mut proven = None;
        while self.doubt.probes.front().is_some_and(|probe| self.holds(&probe.resource_version)) {
            proven = self.doubt.probes.pop_front().map(|probe| probe.sent_at);
        }
        if self.doubt.comparing.take_if(|comparing| comparing.missing.is_some()).is_some() {
            // The stream brings the missing changes, if not all of them yet.
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

    /// Returns the time at which doubt needs its next decision.
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
                // A stream opened at our RV brings later changes at once: silence that passes from one stream to the
                // next is not new.
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
                // There are changes to list, so a list would help.
                self.doubt.vain_lists = 0;
                // The first change is enough for a decision: it is the next one that the stream owes us.
                look.missing.get_or_insert_with(|| (resource_version.clone(), judged_at));
            }
        }
    }

    /// Handles a bookmark of a look: nothing happened up to it that we do not know.
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

    /// Handles a refused look. If the history at our RV is forgotten, only a list can tell whether we have all changes.
    fn on_look_refused(&mut self, verdict: &Verdict, sink: &mut dyn Sink) {
        match verdict.meaning {
            Meaning::Expired => {
                self.relist(ListPlan::new(ReplaceCause::Expired), verdict.reason.clone(), sink)
            }
            _ => self.on_look_over(sink),
        }
    }

    /// Handles a look that the server ended in order, as requested.
    pub(super) fn on_look_closed(&mut self, sink: &mut dyn Sink) {
        let silent = self.doubt.look.as_ref().is_some_and(|look| look.missing.is_none() && !look.bookmarked);
        if silent && self.compare(sink) {
            self.doubt.sends_no_bookmarks = true;
            self.doubt.look = None;
            return;
        }
        self.on_look_over(sink);
    }

    /// Ends a look that can show nothing more.
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

    /// Handles a look or a comparison that did not tell whether anything is missing.
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
            // Two streams are silent and a probe is ahead of both: report that before it is settled.
            self.link.reason = Some(reason);
            self.doubt.held_back = true;
            self.set_condition(Condition::Degraded(Degradation::Stalled));
        }
    }

    /// Replaces the stalled stream, at its RV and on another connection: a second stream or a list showed changes up to
    /// this RV that the stream did not bring.
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
            // The streams opened in its place brought no more: a proxy may hold back events until the stream ends. The
            // stream may as well stay open until a list is affordable.
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
