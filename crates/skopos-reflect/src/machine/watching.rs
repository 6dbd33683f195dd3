//! The watch: applies changes as they happen, and handles its end.

use std::ops::ControlFlow;

use skopos_wire::{BrokenFrame, WatchEvent};

use super::position::{Admission, Position};
use super::*;

/// A watch that was requested or is open.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) id: RequestId,
    /// The time of the response headers; `None` before.
    pub(super) opened_at: Option<Time>,
    /// Until opened: the deadline of the response. Then: the time by which the server should have ended the stream.
    pub(super) deadline: Time,
    /// The time at which the past failures are cleared even if the stream stays silent.
    pub(super) settles_at: Option<Time>,
    /// The time of the last frame; before the first, the time of opening.
    pub(super) last_frame: Time,
    /// The RV at the start of the watch: an event between it and our position is out of order.
    started_after: ResourceVersion,
    timeout: Duration,
    /// True if it brought anything new.
    pub(super) progressed: bool,
    /// True if no connection could be made before it was opened.
    after_outage: bool,
}

/// A stream that was open this long was a stable one, whatever it brought.
const MIN_STABLE_TIME: Duration = Duration::from_secs(10);
/// A stream that is open this long without a frame has recovered.
const RECOVERY_DELAY: Duration = Duration::from_secs(5);
/// The maximum delay before a stream that brought changes is reopened.
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(20);
/// The number of consecutive responses "our RV is in the future" after which the client believes them.
const MAX_TOO_LARGE_RESPONSES: u32 = 4;
/// The maximum doublings of the 90 s stall limit while watches get no response: a collection that changes is then listed
/// at least every six minutes.
const MAX_UNANSWERED_DOUBLINGS: u32 = 2;

impl Watching {
    /// Returns whether it was a stable stream, so that its end is no part of the past failures.
    pub(super) fn was_stable(&self, now: Time) -> bool {
        self.open_for(MIN_STABLE_TIME, now)
    }

    /// Returns whether it was opened at least `time` ago.
    pub(super) fn open_for(&self, time: Duration, now: Time) -> bool {
        self.opened_at.is_some_and(|opened_at| now.since(opened_at) >= time)
    }
}

impl Machine {
    pub(super) fn start_watch(&mut self, avoid: Option<RequestId>, retire_avoided: bool) {
        if self.position.is_none() {
            return self.start_list(ListPlan::new(ReplaceCause::Initial));
        }
        if self.start_overdue_list() {
            return;
        }
        let Some(position) = &self.position else { return };
        let (after, started_after) = (position.resume_after(), position.resource_version().clone());
        let until = self.affordable_at(1);
        if until > self.now {
            return self.wait_for_budget(until, Next::Watch { avoid, retire_avoided });
        }
        // No watch is open until the response. The reader of the state decides how long that counts as a renewal.
        if self.reflector.condition == Condition::Watching {
            self.set_condition(Condition::Connecting);
        }
        let id = self.new_id();
        let timeout = self.watch_timeout();
        self.stats.watch_requests += 1;
        self.requests.spend(self.now);
        self.actions.push_back(Action::Watch(WatchRequest {
            id,
            start: WatchStart::After(after),
            timeout,
            avoid,
            wait_for_connection: self.outage,
            retire_avoided,
            verification: false,
        }));
        self.state = State::Watching(Watching {
            id,
            opened_at: None,
            deadline: self.now + self.options.watch_headers_timeout,
            settles_at: None,
            last_frame: self.now,
            started_after,
            timeout,
            progressed: false,
            after_outage: false,
        });
    }

    /// Turns the stream of a complete list into a watch.
    pub(super) fn continue_as_watch(&mut self, id: RequestId, timeout: Duration) {
        let Some(position) = &self.position else { return };
        self.state = State::Watching(Watching {
            id,
            opened_at: None,
            deadline: self.now,
            settles_at: None,
            last_frame: self.now,
            started_after: position.resource_version().clone(),
            timeout,
            progressed: true,
            after_outage: false,
        });
        self.on_watch_opened();
        self.settle();
    }

    /// Returns a random length for a watch, in whole seconds as the server counts them.
    pub(super) fn watch_timeout(&mut self) -> Duration {
        let (shortest, longest) = self.options.watch_timeout;
        let (shortest, longest) = (shortest.as_secs(), longest.as_secs());
        Duration::from_secs(self.rng.u64(shortest.min(longest)..=longest.max(shortest)))
    }

    pub(super) fn on_watch_opened(&mut self) {
        let after_outage = self.on_success();
        let troubled = self.reflector.reason.is_some();
        if troubled {
            self.stall.on_reopened(self.now);
        }
        let State::Watching(watching) = &mut self.state else { return };
        watching.opened_at = Some(self.now);
        watching.last_frame = self.now;
        watching.deadline = self.now + watching.timeout + self.options.watch_overtime;
        watching.after_outage = after_outage;
        watching.settles_at = troubled.then_some(self.now + RECOVERY_DELAY);
        self.reflector.retry_at = None;
        self.set_watching();
    }

    /// Sets the condition of a reflector whose watch is open.
    pub(super) fn set_watching(&mut self) {
        let stalled = self.stall.is_held_back().then_some(Degradation::Stalled);
        let degradation = self.undecodable.degradation().or(stalled);
        self.set_condition(degradation.map_or(Condition::Watching, Condition::Degraded));
        self.reflector.undecodable = self.undecodable.count();
        self.schedule_quarantine_retry();
    }

    /// Applies one batch: all its changes become visible at once.
    pub(super) fn on_events(&mut self, events: Vec<Result<WatchEvent, BrokenFrame>>, sink: &mut dyn Sink) {
        if let State::Watching(watching) = &mut self.state {
            watching.last_frame = self.now;
        }
        let before = self.resource_version().cloned();
        let mut end = None;
        for event in events {
            if let ControlFlow::Break(last) = self.on_event(event, sink) {
                end = Some(last);
                break;
            }
        }
        self.flush(before, sink);
        match end {
            None => {}
            Some(StreamEnd::Error(verdict)) => {
                self.cancel_watch();
                self.on_watch_failed(verdict, sink);
            }
            Some(StreamEnd::Broken(frame)) => {
                self.cancel_watch();
                self.on_broken_frame(&frame, sink);
            }
            Some(StreamEnd::TooManyKeys) => {
                let reason = "changes without an end share one resourceVersion";
                self.relist(ListPlan::new(ReplaceCause::Unproven), reason.into(), sink);
            }
        }
    }

    fn on_event(
        &mut self,
        event: Result<WatchEvent, BrokenFrame>,
        sink: &mut dyn Sink,
    ) -> ControlFlow<StreamEnd> {
        match event {
            Ok(event @ (WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_))) => {
                self.admit(event, sink);
                if self.position.as_ref().is_some_and(Position::is_at_key_limit) {
                    return ControlFlow::Break(StreamEnd::TooManyKeys);
                }
            }
            Ok(WatchEvent::Bookmark { resource_version, .. }) => {
                self.stats.bookmarks += 1;
                let moved = self
                    .position
                    .as_mut()
                    .is_some_and(|position| position.advance(&resource_version, self.now));
                // A bookmark that only repeats the position does not show that a held-back stream flows again.
                if moved || !self.stall.is_held_back() {
                    self.stall.record_bookmark();
                    self.progressed();
                }
            }
            Ok(WatchEvent::Error(status)) => {
                return ControlFlow::Break(StreamEnd::Error(Verdict::from_event(&status)));
            }
            Err(frame) => {
                if self.stops_stream(&frame, sink) {
                    return ControlFlow::Break(StreamEnd::Broken(Box::new(frame)));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn admit(&mut self, event: WatchEvent, sink: &mut dyn Sink) {
        let (Some(position), State::Watching(watching)) = (&mut self.position, &self.state) else { return };
        let Some(object) = event.object() else { return };
        match position.admit(object.key(), object.resource_version()) {
            Admission::New => {
                position.mark_applied(object.key(), object.resource_version(), self.now);
                self.stats.changes += 1;
                self.undecodable.mark_readable(object.key());
                sink.event(&event);
                self.changes.extend(match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Change::Put(object)),
                    WatchEvent::Deleted(object) => Some(Change::Deleted(object)),
                    WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => None,
                });
                self.progressed();
            }
            Admission::Duplicate if *object.resource_version() > watching.started_after => {
                self.stats.disordered += 1
            }
            Admission::Duplicate => self.stats.duplicates += 1,
        }
    }

    /// Records that the stream brought something new.
    fn progressed(&mut self) {
        if let State::Watching(watching) = &mut self.state {
            watching.progressed = true;
            watching.settles_at = None;
        }
        self.too_large = 0;
        self.stall.record_progress();
        self.settle();
    }

    /// Passes the batch to the sink, and updates the stall detector for the position reached.
    pub(super) fn flush(&mut self, before: Option<ResourceVersion>, sink: &mut dyn Sink) {
        let Some(position) = &self.position else { return };
        if !self.changes.is_empty() {
            let reached = position.resource_version().clone();
            self.retract_comparison(&reached, sink);
            sink.apply(&mut self.changes, &reached);
            self.changes.clear();
        } else if before.as_ref() != Some(position.resource_version()) {
            sink.advance(position.resource_version());
        } else {
            return;
        }
        if matches!(&self.state, State::Watching(watching) if watching.opened_at.is_some()) {
            self.set_watching_if_changed();
        }
        self.on_moved(sink);
    }

    fn set_watching_if_changed(&mut self) {
        let degraded = matches!(self.reflector.condition, Condition::Degraded(_));
        if degraded || self.undecodable.degradation().is_some() {
            self.set_watching();
        }
    }

    fn cancel_watch(&mut self) {
        if let State::Watching(watching) = &self.state {
            let id = watching.id;
            self.actions.push_back(Action::Cancel { id });
        }
    }

    /// Handles a stream that the server ended between two frames, without an error. That is the normal end of a watch.
    pub(super) fn on_watch_closed(&mut self, sink: &mut dyn Sink) {
        self.ended_in_order();
        self.on_watch_over(None, sink);
    }

    pub(super) fn on_watch_failed(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        if self.must_list_instead(&verdict) {
            self.stats.failures += 1;
            self.reflector.attempts = self.reflector.attempts.saturating_add(1);
            return self.relist(ListPlan::new(ReplaceCause::Unproven), verdict.reason, sink);
        }
        let plan = |cause| ListPlan::new(cause);
        match verdict.meaning {
            Meaning::Expired => self.relist(plan(ReplaceCause::Expired), verdict.reason, sink),
            Meaning::ServerReadError => {
                self.relist(plan(ReplaceCause::ServerReadError), verdict.reason, sink)
            }
            Meaning::TooLargeResourceVersion => {
                // A server that lags behind another one catches up: retry, also on another server.
                self.too_large += 1;
                if self.too_large >= MAX_TOO_LARGE_RESPONSES {
                    self.too_large = 0;
                    self.relist(plan(ReplaceCause::TooLargeResourceVersion), verdict.reason, sink);
                } else {
                    self.retry_watch(verdict, sink);
                }
            }
            Meaning::Malformed => self.on_broken_stream(verdict, sink),
            Meaning::Lost => self.on_watch_over(Some(verdict), sink),
            _ => self.retry_watch(verdict, sink),
        }
    }

    /// Returns whether a list must replace the watch: watches get no response, so their changes are unknown, but lists
    /// may get one.
    fn must_list_instead(&self, verdict: &Verdict) -> bool {
        let unanswered = matches!(&self.state, State::Watching(watching) if watching.opened_at.is_none());
        unanswered
            && matches!(verdict.meaning, Meaning::TimedOut | Meaning::Lost)
            && self.exceeds_stall_limit(MAX_UNANSWERED_DOUBLINGS)
    }

    /// Waits with the delay for this failure, then watches again at the same RV.
    pub(super) fn retry_watch(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        let avoid = self.watch_id();
        self.cancel_verification();
        self.fail(verdict, Next::Watch { avoid, retire_avoided: false }, sink);
    }

    /// Handles the end of an open stream. A stream that showed life is reopened at once if enough budget remains. One
    /// that ends again and again, or without a frame, is a failure like any other.
    fn on_watch_over(&mut self, verdict: Option<Verdict>, sink: &mut dyn Sink) {
        let State::Watching(watching) = &self.state else { return };
        let avoid = None;
        let opened_at = watching.opened_at;
        let stable = watching.was_stable(self.now);
        let progressed = watching.progressed;
        let alive = opened_at.is_some() && (progressed || watching.after_outage || verdict.is_some());
        self.cancel_verification();
        let promptly = stable || (alive && self.requests.is_ample(self.now));
        if stable {
            self.backoff.reset();
        } else if promptly {
            // A quick retry is a step of the backoff too, so that later ones are spread over the minute.
            self.backoff.fail(&self.options, &mut self.rng);
        }
        if promptly {
            let spread =
                if verdict.is_some() { Duration::from_millis(500) } else { Duration::from_millis(100) };
            let until = self.now + self.jitter(spread);
            if let Some(verdict) = verdict {
                self.stats.failures += 1;
                self.reflector.attempts = self.reflector.attempts.saturating_add(1);
                self.reflector.reason = Some(verdict.reason);
                self.set_condition(Condition::Retrying);
            }
            return self.wait(until, Next::Watch { avoid, retire_avoided: false });
        }
        let verdict = verdict.unwrap_or_else(|| {
            let lived = opened_at.map_or(Duration::ZERO, |opened_at| self.now.since(opened_at));
            Verdict::new(Meaning::Lost, format!("the server ended the watch after {lived:.1?}"))
        });
        let longest = if progressed { MAX_REOPEN_DELAY } else { self.options.backoff_max.saturating_mul(2) };
        self.fail_within(verdict, Next::Watch { avoid, retire_avoided: false }, longest, sink);
    }

    /// Handles a watch without a response, or a stream that the server should have ended long ago.
    pub(super) fn on_watch_overdue(&mut self, sink: &mut dyn Sink) {
        let State::Watching(watching) = &self.state else { return };
        let (id, opened) = (watching.id, watching.opened_at.is_some());
        self.actions.push_back(Action::Cancel { id });
        if opened {
            self.on_watch_over(None, sink);
        } else {
            self.on_watch_failed(Verdict::new(Meaning::TimedOut, "no answer to a watch"), sink);
        }
    }

    pub(super) fn watch_id(&self) -> Option<RequestId> {
        match &self.state {
            State::Watching(watching) => Some(watching.id),
            _ => None,
        }
    }
}

/// The cause for which the client ends a stream.
enum StreamEnd {
    Error(Verdict),
    Broken(Box<BrokenFrame>),
    /// More changes share our RV than the limit.
    TooManyKeys,
}
