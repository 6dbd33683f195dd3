//! The list/watch protocol as a pure state machine, without I/O, clock and tokio. Its inputs are events with their
//! times, its outputs are actions, and its results go to the [`Sink`].

mod backoff;
mod classify;
mod deferred_relist;
mod input;
mod listing;
mod options;
mod position;
mod quarantine;
mod reason;
mod reflector;
mod stall;
mod stats;
mod streaming;
mod timers;
mod undecodable;
mod waiting;
mod watching;

use std::collections::VecDeque;
use std::time::Duration;

use skopos_wire::ResourceVersion;

pub use self::backoff::exponential_delay;
use self::backoff::{Backoff, Budget};
use self::classify::{Meaning, Verdict};
use self::deferred_relist::DeferredRelist;
pub use self::input::{
    Action, BrokenItem, Failure, GetRequest, Input, ListRequest, RequestId, Trouble, WatchRequest, WatchStart,
};
use self::listing::{ListPlan, Listing};
pub use self::options::{Content, InitialList, MachineOptions, Resume};
use self::position::Position;
use self::quarantine::QuarantineRetry;
pub use self::reason::{Cause, Reason};
pub use self::reflector::{Condition, Degradation, ReflectorState};
use self::stall::StallDetector;
pub use self::stats::MachineStats;
use self::streaming::Streaming;
use self::undecodable::{Fetching, SuspectFrame, Undecodable};
use self::watching::Watching;
use crate::{Change, ReplaceCause, Sink, Time};

/// One list/watch reflector, which keeps a [`Sink`] equal to a collection on a server.
///
/// ```text
///                 ┌───────────────── 410, rollback, audit: list again ◀───────────────┐
///                 ▼                                                                   │
///   ┌─▶ Listing (pages) ──complete──▶ Watching ──ended, lost, 5xx──▶ Waiting ──▶ Watching (same RV)
///   │             ▲                      ▲   │
///   │  no end     │ not served           │   └─ undecodable, twice ─▶ Fetching (one object) ─▶ Watching
///   └── Streaming (WatchList) ──end bookmark                │
///                                                           └─▶ Listing
/// ```
///
/// A `Waiting` may come between any two of them. The rules, each with its reason in its module:
///
/// * The first list is a consistent read, and so is every later one.
/// * A lost connection, a clean end, a 5xx or a 429 never cause a list: the watch resumes at the same RV, or at the one
///   before it where more changes may be due at ours.
/// * The RV moves only past changes that were applied. A frame that cannot be decoded stops the stream; the RV stays.
/// * An object that no read can decode is quarantined and reported. It is read again after 30 s, and then less and less
///   often, down to every 5 minutes, until it can be read.
/// * RVs never go back, unless two consistent reads agree that the server's did. That begins a new epoch.
/// * A stream is suspected to be stalled by probes from outside ([`Input::Probed`]), and a verification watch decides.
/// * Any minute has at most six requests (a page counts with its list) and at most two lists, whatever the failure.
/// * A list is finite: pages that never end are given up for a list in one piece. A list that exceeds
///   [`MachineOptions::max_list_objects`] or [`MachineOptions::max_list_bytes`] is given up at that point.
///
/// # How to drive it
///
/// ```text
///  loop {
///      while let Some(action) = machine.poll_action() { begin or cancel the request }
///      wait for the first of: something about a request, machine.poll_timeout()
///      machine.handle(now, what happened, &mut sink)
///  }
/// ```
///
/// It never panics, in whatever order the inputs come, and ignores inputs for requests that it gave up.
#[derive(Debug)]
pub struct Machine {
    options: MachineOptions,
    rng: fastrand::Rng,
    /// The time of the current input.
    now: Time,
    state: State,
    reflector: ReflectorState,
    /// True if the sink has not received the reflector's current state.
    link_changed: bool,
    actions: VecDeque<Action>,
    next_id: u64,
    stats: MachineStats,

    /// The position of the sink's content; `None` before the first list.
    position: Option<Position>,
    epoch: u64,
    /// The latest proof of freshness in this epoch.
    fresh: Option<Time>,
    /// The RV of a consistent read that was lower than our position. A second such read confirms a rollback.
    rollback_candidate: Option<ResourceVersion>,
    stall: StallDetector,
    undecodable: Undecodable,
    quarantine: QuarantineRetry,

    backoff: Backoff,
    /// The budget of requests, pages aside.
    requests: Budget,
    /// The budget of lists that the server began to make.
    lists: Budget,
    /// The budget of recoveries: returns of the server after it could not be reached.
    recoveries: Budget,
    /// A list that is deferred until the budgets allow it.
    deferred_relist: Option<DeferredRelist>,
    /// True if no connection could be made since the last response.
    outage: bool,
    /// The number of consecutive responses that our RV is in the future.
    too_large: u32,
    /// True if the server is believed to support streamed lists (WatchList).
    watch_list_supported: bool,
    /// True if continue tokens have lived long enough so far.
    pages_work: bool,
    /// The number of consecutive lists that were restarted because a page came too late.
    restarted_lists: u32,
    /// The changes of the current batch; kept for its capacity.
    changes: Vec<Change>,
}

/// The state of the machine.
#[derive(Debug)]
enum State {
    /// No request is in flight; the next step is due at `until`.
    Waiting { until: Time, next: Next },
    /// A list or a page of it was requested or is being received.
    Listing(Listing),
    /// A streamed list was requested or is being received, up to its end bookmark.
    Streaming(Streaming),
    /// A watch was requested or is open.
    Watching(Watching),
    /// One object is being read because its event could not be decoded.
    Fetching(Fetching),
    /// The final state.
    Stopped,
}

/// The step after a wait.
#[derive(Debug)]
enum Next {
    List(ListPlan),
    Page(Listing),
    Watch { avoid: Option<RequestId>, retire_avoided: bool },
    Fetch(SuspectFrame),
}

/// The addressee of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressee {
    Main,
    Verification,
    /// A read of a quarantined object.
    QuarantineRead,
    Unknown,
}

/// The maximum number of requests in any minute, pages aside, under any failure (I15).
const MAX_REQUESTS_PER_MINUTE: usize = 6;
/// The maximum number of lists among them (I15).
const MAX_LISTS_PER_MINUTE: usize = 2;
/// The maximum number of budget renewals in a minute. A server that returns after an outage gets new budgets, so that
/// one that restarts ten times in a row is followed each time. Beyond that, it is a server that keeps failing.
const MAX_RECOVERIES_PER_MINUTE: usize = 10;

impl Machine {
    /// Creates a machine that starts at once: [`poll_timeout`](Machine::poll_timeout) is `now`.
    ///
    /// The same seed and the same inputs give the same actions.
    pub fn new(options: MachineOptions, seed: u64, now: Time) -> Self {
        let plan = ListPlan::new(ReplaceCause::Initial);
        let next = if options.resume.is_some() {
            Next::Watch { avoid: None, retire_avoided: false }
        } else {
            Next::List(plan)
        };
        // The content to resume was reached before any probe was sent: a probe in flight that shows a lower RV is of
        // another history.
        let begin_at = match options.content {
            Content::Objects => Position::from_checkpoint,
            // A caller that follows changes alone states its own position.
            Content::Changes => Position::new,
        };
        let position =
            options.resume.as_ref().map(|resume| begin_at(resume.resource_version.clone(), Time::ORIGIN));
        Machine {
            rng: fastrand::Rng::with_seed(seed),
            now,
            state: State::Waiting { until: now, next },
            reflector: ReflectorState::new(now),
            link_changed: true,
            actions: VecDeque::new(),
            next_id: 1,
            stats: MachineStats::default(),
            position,
            epoch: options.resume.as_ref().map_or(0, |resume| resume.epoch),
            fresh: None,
            rollback_candidate: None,
            stall: StallDetector::default(),
            undecodable: Undecodable::default(),
            quarantine: QuarantineRetry::default(),
            backoff: Backoff::default(),
            requests: Budget::new(MAX_REQUESTS_PER_MINUTE),
            lists: Budget::new(MAX_LISTS_PER_MINUTE),
            recoveries: Budget::new(MAX_RECOVERIES_PER_MINUTE),
            deferred_relist: None,
            outage: false,
            too_large: 0,
            watch_list_supported: options.initial == InitialList::Streamed
                && options.content == Content::Objects,
            pages_work: true,
            restarted_lists: 0,
            changes: Vec::new(),
            options,
        }
    }

    /// Handles an input at `now`, writes the results to the sink, and decides what to do next.
    ///
    /// `now` must not decrease; an earlier time than the last is taken as the last.
    pub fn handle(&mut self, now: Time, input: Input, sink: &mut dyn Sink) {
        if matches!(self.state, State::Stopped) {
            return;
        }
        self.now = self.now.max(now);
        self.step(input, sink);
        if self.link_changed {
            self.link_changed = false;
            sink.state(&self.reflector);
        }
    }

    /// Returns the next action, if any. Call it until it returns `None`, after each [`handle`](Machine::handle).
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the time at which [`Input::Timeout`] is due if no other input comes first. It changes with every input.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timer()
    }

    /// Returns whether the machine was stopped, or the transport was shut down.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped)
    }

    /// Returns the reflector state.
    pub fn state(&self) -> &ReflectorState {
        &self.reflector
    }

    /// Returns the RV of the sink's content; `None` before the first list.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.position.as_ref().map(Position::resource_version)
    }

    /// Returns the epoch: the number of the content's stretch of unbroken history.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether the server is still believed to support streamed lists (WatchList). Once false it stays false, and
    /// other reflectors to the same server can skip the attempt with [`InitialList::Paged`].
    pub fn watch_list_supported(&self) -> bool {
        self.watch_list_supported
    }

    /// Returns the counters.
    pub fn stats(&self) -> &MachineStats {
        &self.stats
    }

    /// Dispatches an input by the current state.
    fn step(&mut self, input: Input, sink: &mut dyn Sink) {
        match input {
            Input::Stop => self.stop(None, sink),
            Input::Timeout => self.on_timeout(sink),
            Input::Probed { sent_at, resource_version } => self.on_probed(sent_at, resource_version, sink),
            Input::Compared { sent_at, compared_at, resource_version } => {
                self.on_compared(sent_at, compared_at, &resource_version, sink);
            }
            Input::Differs { resource_version } => self.on_differs(resource_version),
            Input::Relist => self.on_relist(sink),
            Input::RetryNow => {
                self.retry_early();
                self.quarantine.retry_now(self.now);
            }
            Input::Suspended { by } => self.on_suspended(by, sink),

            Input::Opened { id } => match (self.addressee(id), &self.state) {
                (Addressee::Main, State::Listing(_)) => self.on_list_opened(sink),
                (Addressee::Main, State::Streaming(_)) => self.on_stream_opened(sink),
                (Addressee::Main, State::Watching(_)) => self.on_watch_opened(),
                _ => {}
            },
            Input::Items { id, items } => {
                if self.addressee(id) == Addressee::Main {
                    self.on_items(items, sink);
                }
            }
            Input::ListEnd { id, resource_version, continue_token } => {
                if self.addressee(id) == Addressee::Main {
                    self.on_list_end(resource_version, continue_token, sink);
                }
            }
            Input::Events { id, events } => match (self.addressee(id), &self.state) {
                (Addressee::Main, State::Streaming(_)) => self.on_initial_events(events, sink),
                (Addressee::Main, State::Watching(_)) => self.on_events(events, sink),
                (Addressee::Verification, _) => self.on_verification_events(events, sink),
                _ => {}
            },
            Input::Got { id, object } => match self.addressee(id) {
                Addressee::Main => self.on_got(object, sink),
                Addressee::QuarantineRead => self.on_quarantine_read(object),
                Addressee::Verification | Addressee::Unknown => {}
            },
            Input::Closed { id } => match (self.addressee(id), &self.state) {
                (Addressee::Main, State::Streaming(_)) => {
                    self.on_stream_failed(
                        Verdict::new(Meaning::Lost, "the streamed list ended before it was complete"),
                        sink,
                    );
                }
                (Addressee::Main, State::Watching(_)) => self.on_watch_closed(sink),
                (Addressee::Verification, _) => self.on_verification_closed(sink),
                _ => {}
            },
            Input::Failed { id, failure } => self.on_failed(id, &failure, sink),
        }
    }

    fn on_failed(&mut self, id: RequestId, failure: &Failure, sink: &mut dyn Sink) {
        match self.addressee(id) {
            Addressee::Main => {}
            Addressee::Verification => return self.end_verification(sink),
            Addressee::QuarantineRead => {
                return self.on_quarantine_read_failed(&Verdict::from_failure(failure));
            }
            Addressee::Unknown => return,
        }
        let verdict = Verdict::from_failure(failure);
        match &self.state {
            State::Listing(_) => self.on_list_failed(verdict, sink),
            State::Streaming(_) => self.on_stream_failed(verdict, sink),
            State::Watching(_) => self.on_watch_failed(verdict, sink),
            State::Fetching(_) => self.on_get_failed(verdict, sink),
            State::Waiting { .. } | State::Stopped => {}
        }
    }

    fn addressee(&self, id: RequestId) -> Addressee {
        let main = match &self.state {
            State::Listing(listing) => Some(listing.id),
            State::Streaming(streaming) => Some(streaming.id),
            State::Watching(watching) => Some(watching.id),
            State::Fetching(fetching) => Some(fetching.id),
            State::Waiting { .. } | State::Stopped => None,
        };
        if main == Some(id) {
            Addressee::Main
        } else if self.stall.verification_id() == Some(id) {
            Addressee::Verification
        } else if self.quarantine.request_id() == Some(id) {
            Addressee::QuarantineRead
        } else {
            Addressee::Unknown
        }
    }

    /// Continues with the next step after a wait.
    fn proceed(&mut self, next: Next, sink: &mut dyn Sink) {
        match next {
            Next::List(plan) => self.start_list(plan),
            Next::Page(listing) => self.retry_page(listing, sink),
            Next::Watch { avoid, retire_avoided } => self.start_watch(avoid, retire_avoided),
            Next::Fetch(suspect) => self.start_get(suspect),
        }
    }

    /// Reopens the watch on another connection, at the same RV, after the process was suspended. The peer may have gone
    /// without a trace, and silence no longer means anything.
    fn on_suspended(&mut self, by: Duration, sink: &mut dyn Sink) {
        match &self.state {
            State::Watching(watching) => {
                let avoid = Some(watching.id);
                self.cancel_all(sink);
                self.reflector.reason = Some(format!("the process was suspended for {by:?}").into());
                self.wait(self.now, Next::Watch { avoid, retire_avoided: true });
            }
            State::Waiting { .. } => self.retry_early(),
            _ => {}
        }
    }

    /// Cancels all requests and the staged list.
    fn cancel_all(&mut self, sink: &mut dyn Sink) {
        self.cancel_verification();
        self.cancel_quarantine_read();
        let begun = match &self.state {
            State::Listing(listing) | State::Waiting { next: Next::Page(listing), .. } => listing.begun,
            State::Streaming(streaming) => streaming.has_begun(),
            _ => false,
        };
        let id = match &self.state {
            State::Listing(listing) => Some(listing.id),
            State::Streaming(streaming) => Some(streaming.id),
            State::Watching(watching) => Some(watching.id),
            State::Fetching(fetching) => Some(fetching.id),
            State::Waiting { .. } | State::Stopped => None,
        };
        if let Some(id) = id {
            self.actions.push_back(Action::Cancel { id });
        }
        if begun {
            sink.abort_replace();
        }
        self.state =
            State::Waiting { until: self.now, next: Next::Watch { avoid: None, retire_avoided: false } };
    }

    fn stop(&mut self, reason: Option<Reason>, sink: &mut dyn Sink) {
        self.cancel_all(sink);
        self.state = State::Stopped;
        self.set_condition(Condition::Stopped);
        self.reflector.reason = reason;
        self.reflector.retry_at = None;
    }

    fn new_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Sets the condition of the reflector. `since` changes only with the condition.
    fn set_condition(&mut self, condition: Condition) {
        if self.reflector.condition != condition {
            self.reflector.condition = condition;
            self.reflector.since = self.now;
        }
        self.link_changed = true;
    }

    /// Clears the past failures: the reflector works.
    fn settle(&mut self) {
        // Each counted attempt also has a reason.
        if self.reflector.reason.is_some() || self.reflector.retry_at.is_some() {
            self.reflector.attempts = 0;
            self.reflector.reason = None;
            self.reflector.retry_at = None;
            self.link_changed = true;
        }
    }

    /// Records and reports that the sink has everything that the server had at `at`, up to our RV.
    fn record_proof(&mut self, at: Time, sink: &mut dyn Sink) {
        self.stall.record_proof(at);
        self.report_proof(at, sink);
    }

    fn report_proof(&mut self, at: Time, sink: &mut dyn Sink) {
        if self.fresh.is_none_or(|fresh| at > fresh) {
            self.fresh = Some(at);
            sink.fresh_as_of(at);
        }
    }

    /// Returns a random duration up to `span`, so that many reflectors do not act at the same moment.
    fn jitter(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.rng.f64())
    }
}

#[cfg(test)]
mod tests;
