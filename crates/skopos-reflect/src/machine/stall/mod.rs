//! Stall detection for silent streams. An open stream and a live connection prove nothing. A proxy may hold the stream
//! back, or a server may have forgotten it. History may have been rolled back below our RV, where a watch stays silent
//! without end.
//!
//! A prober reads the collection's RV every half minute, consistently ([`Input::Probed`]). If the stream has not
//! reached it after some grace, the client opens a verification watch: 3 seconds at our RV, on another connection.
//! A kube-apiserver sends a bookmark 2 s before the end of a watch, so it ends in one of these ways:
//!
//! * It shows a change that the stream does not bring, even a little later: the stream is stalled, and replaced.
//! * It shows a bookmark and no such change: nothing happened up to that RV. The RV moves, and the age is proven.
//! * It shows nothing: nothing is known. Verification continues, and after a while everything is listed again.
//! * It shows nothing and ends in order: the stream may be healthy, but the server sends no bookmarks. A kube-apiserver
//!   does so for Events, which it does not keep in its watch cache. The content is compared with a list of metadata
//!   ([`Sink::compare`]); if both are the same, the age is proven. Comparisons then replace verification watches, once a
//!   minute while nothing happens, until a bookmark comes. If they differ, and the stream brings nothing a moment
//!   later, it is stalled.
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

use self::comparison::{Comparison, ComparisonProof};
use super::position::Admission;
use super::*;

mod comparison;

#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// Probes that the stream has not reached yet, oldest first, with rising RVs.
    probes: VecDeque<Probe>,
    verification: Option<VerificationWatch>,
    /// The earliest time of the next verification watch.
    not_before: Time,
    /// The number of consecutive verification watches that showed nothing.
    inconclusive: u32,
    /// The number of lists made for a suspected stall that did not decide it.
    inconclusive_lists: u32,
    /// The time at which a probe last confirmed our RV, or a comparison our content.
    confirmed_at: Option<Time>,
    /// The time at which the unreachable server returned: until then no stream could bring anything.
    recovered_at: Time,
    /// True if the stream was reported as held back, and nothing has come through since. A stream opened in its place
    /// counts as held back too until it brings something.
    held_back: bool,
    /// True if a verification watch ended in order without a bookmark, and none has come since.
    sends_no_bookmarks: bool,
    /// The comparison of the content with a list of metadata, while it runs.
    comparison: Option<Comparison>,
    /// The time at which a list last replaced everything.
    listed_at: Time,
    /// The last comparison that proved our content.
    comparison_proof: Option<ComparisonProof>,
    /// The time at which changes were last applied.
    changed_at: Time,
}

#[derive(Debug)]
struct Probe {
    sent_at: Time,
    seen_at: Time,
    resource_version: ResourceVersion,
}

/// A verification watch in progress.
#[derive(Debug)]
struct VerificationWatch {
    id: RequestId,
    /// True while it can still show something.
    running: bool,
    /// The deadline of the watch.
    deadline: Time,
    /// A change shown by the watch, up to this RV, and the deadline for the stream to deliver it.
    missing: Option<(ResourceVersion, Time)>,
    /// True if it showed a bookmark, even an old one.
    bookmarked: bool,
}

/// The maximum doublings of the time to the next list for a suspected stall.
const MAX_DOUBLINGS: u32 = 6;
/// The maximum number of probes remembered.
const MAX_PROBES: usize = 8;
/// The time that the stream has to deliver a change that a verification watch showed: both come from the same server.
const DELIVERY_GRACE: Duration = Duration::from_secs(2);
/// The proof age at which the stream gets only [`SHORT_GRACE`] more: the content is about to be called stale. After an
/// outage, only a verification watch can prove a quiet collection in a busy cluster again.
const PROOF_OVERDUE_AFTER: Duration = Duration::from_secs(60);
/// The maximum age of a probe response that shows that the server answers.
const MAX_PROBE_AGE: Duration = Duration::from_secs(60);
/// A grace far above the time in which a healthy server's stream delivers changes that a probe has seen.
const SHORT_GRACE: Duration = Duration::from_secs(1);
/// The time that a verification watch has for its response, beyond its own length.
const VERIFICATION_OVERTIME: Duration = Duration::from_secs(7);

impl StallDetector {
    pub(super) fn verification_id(&self) -> Option<RequestId> {
        self.verification.as_ref().filter(|watch| watch.running).map(|watch| watch.id)
    }

    /// Records a bookmark on the stream: the stream can be trusted.
    pub(super) fn record_bookmark(&mut self) {
        self.sends_no_bookmarks = false;
        self.inconclusive_lists = 0;
        self.inconclusive = 0;
        self.held_back = false;
    }

    /// Records that the stream brought something.
    pub(super) fn record_progress(&mut self) {
        self.held_back = false;
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Resets the suspicion for a new stream.
    pub(super) fn on_reopened(&mut self, now: Time) {
        self.comparison.take_if(|comparison| comparison.missing.is_some());
        self.inconclusive = 0;
        self.not_before = now;
    }

    /// Records a list that replaced everything.
    pub(super) fn record_list(&mut self, cause: ReplaceCause, now: Time) {
        self.listed_at = now;
        self.comparison_proof = None;
        self.comparison = None;
        self.inconclusive = 0;
        self.held_back = false;
        if cause == ReplaceCause::Unproven {
            self.inconclusive_lists = (self.inconclusive_lists + 1).min(MAX_DOUBLINGS);
        }
    }

    /// Returns the time at which a list last replaced everything.
    pub(super) fn listed_at(&self) -> Time {
        self.listed_at
    }

    /// Returns whether a suspected stall lasted too long: a probe's change was missing beyond the limit while the server
    /// answers probes. Lists made for that double the limit, at most `doublings` times.
    fn exceeds_limit(&self, now: Time, options: &MachineOptions, doublings: u32) -> bool {
        let (Some(oldest), Some(latest)) = (self.probes.front(), self.probes.back()) else { return false };
        let limit = options.stall_limit.saturating_mul(1 << self.inconclusive_lists.min(doublings));
        now.since(oldest.seen_at.max(self.recovered_at)) >= limit
            && now.since(latest.seen_at) <= MAX_PROBE_AGE
    }

    /// Records that the server can be reached again.
    pub(super) fn record_recovery(&mut self, now: Time) {
        self.recovered_at = now;
    }

    /// Drops the probes and the proof of the last comparison: they are of a history that was rolled back.
    pub(super) fn clear_probes(&mut self) {
        self.probes.clear();
        self.comparison_proof = None;
    }

    /// Moves passed deadlines to `at`: the silence was not the peer's fault.
    pub(super) fn postpone(&mut self, now: Time, at: Time) {
        if let Some(watch) = &mut self.verification {
            if watch.deadline <= now {
                watch.deadline = at;
            }
            if let Some((_, deadline)) = &mut watch.missing
                && *deadline <= now
            {
                *deadline = at;
            }
        }
        if let Some(comparison) = &mut self.comparison
            && comparison.deadline <= now
        {
            comparison.deadline = at;
        }
    }

    /// Returns an RV that was seen before the sending of a probe that shows a lower one. All earlier probes are then of
    /// another history, and are dropped.
    fn contradicting_version(
        &mut self,
        sent_at: Time,
        resource_version: &ResourceVersion,
    ) -> Option<ResourceVersion> {
        let more = |probe: &&Probe| probe.seen_at < sent_at && probe.resource_version > *resource_version;
        let seen = self.probes.iter().find(more)?.resource_version.clone();
        self.clear_probes();
        Some(seen)
    }

    fn push_probe(&mut self, probe: Probe) {
        // Responses can overtake each other; one that proves less than a later one has no value.
        let useful = self.probes.back().is_none_or(|last| {
            last.resource_version <= probe.resource_version && last.sent_at <= probe.sent_at
        });
        if !useful {
            return;
        }
        if self.probes.len() == MAX_PROBES {
            // The oldest bounds the suspicion, the latest prove the most.
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
            self.reflector.condition,
            Condition::Unreachable | Condition::Retrying | Condition::ServerError
        );
        if failing {
            self.retry_early();
        }
        let Some(position) = &self.position else { return };
        let seen = position.reached_by(sent_at).filter(|reached| resource_version < **reached).cloned();
        let reached = resource_version <= *position.resource_version();
        if let Some(seen) = seen.or_else(|| self.stall.contradicting_version(sent_at, &resource_version)) {
            return self.on_rollback_suspected(resource_version, &seen, sink);
        }
        if reached {
            self.stall.confirmed_at = Some(self.now);
            self.stall.record_progress();
        }
        // While a list has to decide on a rollback, our RV may be of another history.
        if self.rollback_candidate.is_none() && self.covers(&resource_version) {
            return self.record_proof(sent_at, sink);
        }
        self.stall.push_probe(Probe { sent_at, seen_at: self.now, resource_version });
    }

    /// Returns whether the content has everything up to this RV, as far as an RV can tell. More changes may be due at
    /// our own RV: an open stream brings them at once, one that has ended does not.
    fn covers(&self, resource_version: &ResourceVersion) -> bool {
        let stream_open =
            matches!(&self.state, State::Watching(watching) if watching.open_for(SHORT_GRACE, self.now));
        self.position.as_ref().is_some_and(|position| position.covers(resource_version, stream_open))
    }

    /// Records that the stream ended in order: it has brought all changes at our RV if its last frame came a moment ago.
    pub(super) fn ended_in_order(&mut self) {
        let State::Watching(watching) = &self.state else { return };
        let quiet = watching.last_frame + SHORT_GRACE <= self.now;
        if let (true, Some(position)) =
            (quiet && watching.open_for(SHORT_GRACE, self.now), &mut self.position)
        {
            position.settle();
        }
    }

    /// Returns whether the oldest probe saw our own RV, at which the stream may still bring more.
    fn oldest_probe_is_at_position(&self) -> bool {
        let ours = self.resource_version();
        self.stall.probes.front().is_some_and(|probe| Some(&probe.resource_version) == ours)
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
        self.rollback_candidate = Some(resource_version);
        if !listing {
            let mut plan = ListPlan::new(ReplaceCause::Rollback);
            plan.avoid = self.watch_id();
            self.relist(plan, reason.into(), sink);
        }
    }

    /// Handles a new position: probes that it has reached prove freshness.
    pub(super) fn on_moved(&mut self, sink: &mut dyn Sink) {
        let mut proven = None;
        while self.stall.probes.front().is_some_and(|probe| self.covers(&probe.resource_version)) {
            proven = self.stall.probes.pop_front().map(|probe| probe.sent_at);
        }
        if self.stall.comparison.take_if(|comparison| comparison.missing.is_some()).is_some() {
            // The stream brings the missing changes, if not all of them yet.
            self.stall.not_before = self.now + self.options.probe_grace;
        }
        let Some(position) = &self.position else { return };
        let reached = position.resource_version();
        let answered = match &self.stall.verification {
            Some(VerificationWatch { missing: Some((missing, _)), .. }) => *missing <= *reached,
            Some(VerificationWatch { missing: None, .. }) => proven.is_some() && self.stall.probes.is_empty(),
            None => false,
        };
        if answered {
            self.cancel_verification();
        }
        if let Some(sent_at) = proven {
            self.stall.inconclusive = 0;
            self.stall.not_before = self.now;
            if self.stall.probes.is_empty() {
                self.stall.comparison = None;
                self.deferred_relist.take_if(|relist| relist.cause == ReplaceCause::Unproven);
            }
            self.record_proof(sent_at, sink);
        }
    }

    /// Returns the time at which the stall detector needs its next decision.
    pub(super) fn stall_timer(&self) -> Option<Time> {
        let State::Watching(watching) = &self.state else { return None };
        let opened_at = watching.opened_at?;
        if let Some(comparison) = &self.stall.comparison {
            return Some(comparison.deadline);
        }
        if let Some(watch) = &self.stall.verification {
            return Some(match &watch.missing {
                Some((_, deadline)) => *deadline,
                None => watch.deadline,
            });
        }
        let due = match self.stall.probes.front() {
            Some(_) if self.oldest_probe_is_at_position() => return Some(opened_at + SHORT_GRACE),
            Some(probe) => {
                let overdue_at = self.fresh.map_or(Time::ORIGIN, |fresh| fresh + PROOF_OVERDUE_AFTER);
                let overdue_at = (probe.seen_at + SHORT_GRACE).max(overdue_at);
                let due = match self.stall.sends_no_bookmarks {
                    // A comparison is a list of everything: not before the age has to be proven.
                    true => overdue_at,
                    false => overdue_at.min(probe.seen_at + self.options.probe_grace),
                };
                // A stream opened at our RV brings later changes at once: silence that passes from one stream to the
                // next is not new.
                due.max(opened_at + DELIVERY_GRACE)
            }
            None => {
                watching.last_frame.max(self.stall.confirmed_at.unwrap_or_default())
                    + self.options.quiet_limit
            }
        };
        Some(due.max(self.stall.not_before))
    }

    pub(super) fn on_stall_timer(&mut self, sink: &mut dyn Sink) {
        if let Some(comparison) = self.stall.comparison.take() {
            return match comparison.missing {
                Some(missing) => self.on_stalled(&missing, sink),
                None => self.on_inconclusive(sink),
            };
        }
        match &self.stall.verification {
            Some(VerificationWatch { missing: Some((missing, _)), .. }) => {
                return self.on_stalled(&missing.clone(), sink);
            }
            Some(_) => return self.end_verification(sink),
            None if self.oldest_probe_is_at_position() => return self.on_moved(sink),
            None => {}
        }
        if !(self.stall.sends_no_bookmarks && self.compare(sink)) {
            self.start_verification();
        }
    }

    fn start_verification(&mut self) {
        let affordable_at = self.affordable_at(1);
        if affordable_at > self.now {
            self.stall.not_before = affordable_at;
            return;
        }
        let (Some(position), Some(avoid)) = (&self.position, self.watch_id()) else { return };
        let start = WatchStart::After(position.resume_after());
        let id = self.new_id();
        let timeout = self.options.verify_timeout;
        self.stats.watch_requests += 1;
        self.stats.verification_watches += 1;
        self.requests.spend(self.now);
        self.actions.push_back(Action::Watch(WatchRequest {
            id,
            start,
            timeout,
            avoid: Some(avoid),
            wait_for_connection: false,
            retire_avoided: false,
            verification: true,
        }));
        let deadline = self.now + timeout + VERIFICATION_OVERTIME;
        self.stall.verification =
            Some(VerificationWatch { id, running: true, deadline, missing: None, bookmarked: false });
    }

    pub(super) fn on_verification_events(
        &mut self,
        events: Vec<Result<WatchEvent, BrokenFrame>>,
        sink: &mut dyn Sink,
    ) {
        for event in events {
            let (Some(position), Some(watch)) = (&self.position, &mut self.stall.verification) else {
                return;
            };
            let (key, resource_version) = match &event {
                Ok(
                    WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object),
                ) => (object.key(), object.resource_version()),
                Ok(WatchEvent::Bookmark { resource_version, .. }) => {
                    watch.bookmarked = true;
                    if watch.missing.is_none() {
                        let resource_version = resource_version.clone();
                        self.on_verification_bookmark(&resource_version, sink);
                    }
                    continue;
                }
                Ok(WatchEvent::Error(status)) => {
                    return self.on_verification_refused(&Verdict::from_event(status), sink);
                }
                Err(BrokenFrame { key: Some(key), resource_version: Some(resource_version), .. }) => {
                    (key, resource_version)
                }
                Err(_) => return self.end_verification(sink),
            };
            if position.admit(key, resource_version) == Admission::New {
                let deadline =
                    watch.missing.as_ref().map_or(self.now + DELIVERY_GRACE, |(_, deadline)| *deadline);
                // There are changes to list, so a list would help.
                self.stall.inconclusive_lists = 0;
                // The first change is enough for a decision: it is the next one that the stream owes us.
                watch.missing.get_or_insert_with(|| (resource_version.clone(), deadline));
            }
        }
    }

    /// Handles a bookmark of a verification watch: nothing happened up to it that we do not know.
    fn on_verification_bookmark(&mut self, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        self.stats.bookmarks += 1;
        let before = self.resource_version().cloned();
        let enough = self.stall.probes.back().is_none_or(|probe| probe.resource_version <= *resource_version);
        if let Some(position) = &mut self.position {
            position.advance(resource_version, self.now);
        }
        if enough {
            self.stall.record_bookmark();
            self.stall.not_before = self.now + self.options.probe_grace;
            self.cancel_verification();
        }
        self.flush(before, sink);
    }

    /// Handles a refused verification watch. If the history at our RV is forgotten, only a list can tell whether we have
    /// all changes.
    fn on_verification_refused(&mut self, verdict: &Verdict, sink: &mut dyn Sink) {
        match verdict.meaning {
            Meaning::Expired => {
                self.relist(ListPlan::new(ReplaceCause::Expired), verdict.reason.clone(), sink)
            }
            _ => self.end_verification(sink),
        }
    }

    /// Handles a verification watch that the server ended in order, as requested.
    pub(super) fn on_verification_closed(&mut self, sink: &mut dyn Sink) {
        let silent = self
            .stall
            .verification
            .as_ref()
            .is_some_and(|watch| watch.missing.is_none() && !watch.bookmarked);
        if silent && self.compare(sink) {
            self.stall.sends_no_bookmarks = true;
            self.stall.verification = None;
            return;
        }
        self.end_verification(sink);
    }

    /// Ends a verification watch that can show nothing more.
    pub(super) fn end_verification(&mut self, sink: &mut dyn Sink) {
        let Some(watch) = &mut self.stall.verification else { return };
        if watch.running {
            watch.running = false;
            let id = watch.id;
            self.actions.push_back(Action::Cancel { id });
        }
        if watch.missing.is_some() {
            // It showed enough, and the stream still has a moment.
            return;
        }
        self.stall.verification = None;
        self.on_inconclusive(sink);
    }

    /// Handles a verification watch or a comparison that did not tell whether anything is missing.
    fn on_inconclusive(&mut self, sink: &mut dyn Sink) {
        self.stall.inconclusive = self.stall.inconclusive.saturating_add(1);
        let pause = self.options.probe_grace.saturating_mul(1 << self.stall.inconclusive.min(3));
        self.stall.not_before = self.now + pause + self.jitter(pause / 4);
        if self.stall.probes.is_empty() {
            return;
        }
        let reason = Reason::new(
            Cause::Silence,
            "no data arrives, and a check could not confirm that nothing changed",
        );
        if self.exceeds_stall_limit(MAX_DOUBLINGS) {
            self.relist(ListPlan::new(ReplaceCause::Unproven), reason, sink);
        } else if self.reflector.condition == Condition::Watching {
            // Two streams are silent and a probe is ahead of both: report that before it is settled.
            self.reflector.reason = Some(reason);
            self.stall.held_back = true;
            self.set_condition(Condition::Degraded(Degradation::Stalled));
        }
    }

    /// Replaces the stalled stream, at its RV and on another connection: a second stream or a list showed changes up to
    /// this RV that the stream did not bring.
    fn on_stalled(&mut self, missing: &ResourceVersion, sink: &mut dyn Sink) {
        let avoid = self.watch_id();
        let reason = format!("the stream is stalled: it never brought {missing}");
        self.stats.stalls += 1;
        self.stats.failures += 1;
        self.reflector.attempts = self.reflector.attempts.saturating_add(1);
        self.reflector.reason = Some(Reason::new(Cause::Silence, reason));
        self.stall.held_back = true;
        self.set_condition(Condition::Degraded(Degradation::Stalled));
        if self.exceeds_stall_limit(MAX_DOUBLINGS) {
            // The streams opened in its place brought no more: a proxy may hold back events until the stream ends. The
            // stream may as well stay open until a list is affordable.
            self.cancel_verification();
            self.stall.not_before = self.list_affordable_at(false) + self.options.probe_grace;
            return self.relist_when_affordable(ReplaceCause::Unproven, sink);
        }
        self.cancel_all(sink);
        self.stall.not_before = self.now;
        self.wait(self.now, Next::Watch { avoid, retire_avoided: true });
    }

    pub(super) fn exceeds_stall_limit(&self, doublings: u32) -> bool {
        self.stall.exceeds_limit(self.now, &self.options, doublings)
    }

    pub(super) fn cancel_verification(&mut self) {
        if let Some(watch) = self.stall.verification.take()
            && watch.running
        {
            self.actions.push_back(Action::Cancel { id: watch.id });
        }
    }
}
