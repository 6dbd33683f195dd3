//! The list/watch protocol as a pure state machine, without I/O, clock and tokio. Its inputs are events with their
//! times, its outputs are actions, and its results go to the [`Sink`].

mod again;
mod backoff;
mod broken;
mod classify;
mod doubt;
mod input;
mod link;
mod listing;
mod options;
mod owed;
mod position;
mod reason;
mod stats;
mod streaming;
mod timers;
mod waiting;
mod watching;

use std::collections::VecDeque;
use std::time::Duration;

use skopos_wire::ResourceVersion;

pub use self::input::{
    Action, BrokenItem, Failure, GetRequest, Input, ListRequest, RequestId, Trouble, WatchRequest, WatchStart,
};
pub use self::link::{Condition, Degradation, LinkState};
pub use self::options::{Content, InitialList, MachineOptions, Resume};
pub use self::reason::{Cause, Reason};
pub use self::stats::MachineStats;

use self::again::Again;
use self::backoff::{Backoff, Budget};
use self::broken::{Broken, Resolving, Suspect};
use self::classify::{Meaning, Verdict};
use self::doubt::Doubt;
use self::listing::{ListPlan, Listing};
use self::owed::Owed;
use self::position::Position;
use self::streaming::Streaming;
use self::watching::Watching;
use crate::{Change, ReplaceCause, Sink, Time};

/// One list/watch link, which keeps a [`Sink`] equal to a collection on a server.
///
/// ```text
///                 ┌───────────────── 410, rollback, audit: list again ◀───────────────┐
///                 ▼                                                                   │
///   ┌─▶ Listing (pages) ──complete──▶ Watching ──ended, lost, 5xx──▶ Waiting ──▶ Watching (same RV)
///   │             ▲                      ▲   │
///   │  no end     │ not served           │   └─ undecodable, twice ─▶ Resolving (one object) ─▶ Watching
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
/// * An object that no read can decode is set aside and reported. It is read again after 30 s, and then less and less
///   often, down to every 5 minutes, until it can be read.
/// * RVs never go back, unless two consistent reads agree that the server's did. That begins a new epoch.
/// * Doubt about a silent stream comes from outside ([`Input::Probed`]), and a second look settles it.
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
    link: LinkState,
    /// True if the sink has not received the link's current state.
    link_changed: bool,
    actions: VecDeque<Action>,
    next_id: u64,
    stats: MachineStats,

    /// The position of the sink's content; `None` before the first list.
    position: Option<Position>,
    epoch: u64,
    /// The latest proof of freshness in this epoch.
    fresh: Option<Time>,
    /// A consistent read whose RV was lower than our position: one witness of a rollback.
    witness: Option<ResourceVersion>,
    doubt: Doubt,
    broken: Broken,
    again: Again,

    backoff: Backoff,
    /// The budget of requests, pages aside.
    requests: Budget,
    /// The budget of lists that the server began to make.
    lists: Budget,
    /// The budget of returns of the server after it could not be reached.
    returns: Budget,
    /// A list that waits for the budgets.
    owed: Option<Owed>,
    /// True if no connection could be made since the last response.
    outage: bool,
    /// The number of consecutive responses that our RV is in the future.
    too_large: u32,
    /// True if streamed lists are worth trying.
    streams_lists: bool,
    /// True if continue tokens have lived long enough so far.
    pages_work: bool,
    /// The number of consecutive lists that were restarted because a page came too late.
    torn_lists: u32,
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
    Resolving(Resolving),
    /// The final state.
    Stopped,
}

/// The step after a wait.
#[derive(Debug)]
enum Next {
    List(ListPlan),
    Page(Listing),
    Watch { avoid: Option<RequestId>, distrust: bool },
    Resolve(Suspect),
}

/// The addressee of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressee {
    Main,
    SecondLook,
    /// A read of an object that is set aside.
    Again,
    Nobody,
}

/// The maximum number of requests in any minute, pages aside, under any failure (I15).
const REQUESTS: usize = 6;
/// The maximum number of lists among them (I15).
const LISTS: usize = 2;
/// The maximum number of budget renewals in a minute. A server that returns after an outage gets new budgets, so that
/// one that restarts ten times in a row is followed each time. Beyond that, it is a server that keeps failing.
const RETURNS: usize = 10;

// === impl Machine ===

impl Machine {
    /// Creates a machine that starts at once: [`poll_timeout`](Machine::poll_timeout) is `now`.
    ///
    /// The same seed and the same inputs give the same actions.
    pub fn new(options: MachineOptions, seed: u64, now: Time) -> Self {
        let plan = ListPlan::new(ReplaceCause::Initial);
        let next = if options.resume.is_some() {
            Next::Watch { avoid: None, distrust: false }
        } else {
            Next::List(plan)
        };
        // The content to resume was reached before any probe was sent: a probe in flight that shows a lower RV is of
        // another history.
        let begin_at = match options.content {
            Content::Objects => Position::kept,
            // A caller that follows changes alone states its own position.
            Content::Changes => Position::new,
        };
        let position =
            options.resume.as_ref().map(|resume| begin_at(resume.resource_version.clone(), Time::ORIGIN));
        Machine {
            rng: fastrand::Rng::with_seed(seed),
            now,
            state: State::Waiting { until: now, next },
            link: LinkState::new(now),
            link_changed: true,
            actions: VecDeque::new(),
            next_id: 1,
            stats: MachineStats::default(),
            position,
            epoch: options.resume.as_ref().map_or(0, |resume| resume.epoch),
            fresh: None,
            witness: None,
            doubt: Doubt::default(),
            broken: Broken::default(),
            again: Again::default(),
            backoff: Backoff::default(),
            requests: Budget::new(REQUESTS),
            lists: Budget::new(LISTS),
            returns: Budget::new(RETURNS),
            owed: None,
            outage: false,
            too_large: 0,
            streams_lists: options.initial == InitialList::Streamed && options.content == Content::Objects,
            pages_work: true,
            torn_lists: 0,
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
            sink.state(&self.link);
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

    /// Returns the link state.
    pub fn state(&self) -> &LinkState {
        &self.link
    }

    /// Returns the RV of the sink's content; `None` before the first list.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.position.as_ref().map(Position::resource_version)
    }

    /// Returns the epoch: the number of the content's stretch of unbroken history.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether the server is still believed to stream lists. Once false it stays false, and other links to the
    /// same server can skip the attempt with [`InitialList::Paged`].
    pub fn streams_lists(&self) -> bool {
        self.streams_lists
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
                self.try_early();
                self.again.hasten(self.now);
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
                (Addressee::SecondLook, _) => self.on_look_events(events, sink),
                _ => {}
            },
            Input::Got { id, object } => match self.addressee(id) {
                Addressee::Main => self.on_got(object, sink),
                Addressee::Again => self.on_read_again(object),
                Addressee::SecondLook | Addressee::Nobody => {}
            },
            Input::Closed { id } => match (self.addressee(id), &self.state) {
                (Addressee::Main, State::Streaming(_)) => {
                    self.on_stream_failed(
                        Verdict::new(Meaning::Lost, "the streamed list ended before it was complete"),
                        sink,
                    );
                }
                (Addressee::Main, State::Watching(_)) => self.on_watch_closed(sink),
                (Addressee::SecondLook, _) => self.on_look_closed(sink),
                _ => {}
            },
            Input::Failed { id, failure } => self.on_failed(id, &failure, sink),
        }
    }

    fn on_failed(&mut self, id: RequestId, failure: &Failure, sink: &mut dyn Sink) {
        match self.addressee(id) {
            Addressee::Main => {}
            Addressee::SecondLook => return self.on_look_over(sink),
            Addressee::Again => return self.on_read_again_failed(&Verdict::of(failure)),
            Addressee::Nobody => return,
        }
        let verdict = Verdict::of(failure);
        match &self.state {
            State::Listing(_) => self.on_list_failed(verdict, sink),
            State::Streaming(_) => self.on_stream_failed(verdict, sink),
            State::Watching(_) => self.on_watch_failed(verdict, sink),
            State::Resolving(_) => self.on_get_failed(verdict, sink),
            State::Waiting { .. } | State::Stopped => {}
        }
    }

    fn addressee(&self, id: RequestId) -> Addressee {
        let main = match &self.state {
            State::Listing(listing) => Some(listing.id),
            State::Streaming(streaming) => Some(streaming.id),
            State::Watching(watching) => Some(watching.id),
            State::Resolving(resolving) => Some(resolving.id),
            State::Waiting { .. } | State::Stopped => None,
        };
        if main == Some(id) {
            Addressee::Main
        } else if self.doubt.look_id() == Some(id) {
            Addressee::SecondLook
        } else if self.again.request() == Some(id) {
            Addressee::Again
        } else {
            Addressee::Nobody
        }
    }

    /// Continues with the next step after a wait.
    fn proceed(&mut self, next: Next, sink: &mut dyn Sink) {
        match next {
            Next::List(plan) => self.start_list(plan),
            Next::Page(listing) => self.retry_page(listing, sink),
            Next::Watch { avoid, distrust } => self.start_watch(avoid, distrust),
            Next::Resolve(suspect) => self.start_get(suspect),
        }
    }

    /// Reopens the watch on another connection, at the same RV, after the process was suspended. The peer may have gone
    /// without a trace, and silence no longer means anything.
    fn on_suspended(&mut self, by: Duration, sink: &mut dyn Sink) {
        match &self.state {
            State::Watching(watching) => {
                let avoid = Some(watching.id);
                self.abandon(sink);
                self.link.reason = Some(format!("the process stood still for {by:?}").into());
                self.wait(self.now, Next::Watch { avoid, distrust: true });
            }
            State::Waiting { .. } => self.try_early(),
            _ => {}
        }
    }

    /// Cancels all requests and the staged list.
    fn abandon(&mut self, sink: &mut dyn Sink) {
        self.cancel_look();
        self.cancel_reading();
        let begun = match &self.state {
            State::Listing(listing) | State::Waiting { next: Next::Page(listing), .. } => listing.begun,
            State::Streaming(streaming) => streaming.has_begun(),
            _ => false,
        };
        let id = match &self.state {
            State::Listing(listing) => Some(listing.id),
            State::Streaming(streaming) => Some(streaming.id),
            State::Watching(watching) => Some(watching.id),
            State::Resolving(resolving) => Some(resolving.id),
            State::Waiting { .. } | State::Stopped => None,
        };
        if let Some(id) = id {
            self.actions.push_back(Action::Cancel { id });
        }
        if begun {
            sink.abort_replace();
        }
        self.state = State::Waiting { until: self.now, next: Next::Watch { avoid: None, distrust: false } };
    }

    fn stop(&mut self, reason: Option<Reason>, sink: &mut dyn Sink) {
        self.abandon(sink);
        self.state = State::Stopped;
        self.set_condition(Condition::Stopped);
        self.link.reason = reason;
        self.link.retry_at = None;
    }

    fn new_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Sets the condition of the link. `since` changes only with the condition.
    fn set_condition(&mut self, condition: Condition) {
        if self.link.condition != condition {
            self.link.condition = condition;
            self.link.since = self.now;
        }
        self.link_changed = true;
    }

    /// Clears the past failures: the link works.
    fn settle(&mut self) {
        // Each counted attempt also has a reason.
        if self.link.reason.is_some() || self.link.retry_at.is_some() {
            self.link.attempts = 0;
            self.link.reason = None;
            self.link.retry_at = None;
            self.link_changed = true;
        }
    }

    /// Records and reports that the sink has everything that the server had at `at`, up to our RV.
    fn proven(&mut self, at: Time, sink: &mut dyn Sink) {
        self.doubt.proven(at);
        self.tell_proven(at, sink);
    }

    fn tell_proven(&mut self, at: Time, sink: &mut dyn Sink) {
        if self.fresh.is_none_or(|fresh| at > fresh) {
            self.fresh = Some(at);
            sink.fresh_as_of(at);
        }
    }

    /// Returns a random duration up to `span`, so that many links do not act at the same moment.
    fn up_to(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.rng.f64())
    }
}

#[cfg(test)]
mod tests;
