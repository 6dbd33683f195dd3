//! The timers of the machine: the next one, and its effect.

use super::*;

/// The lag above which a late timer is our own fault and not the peer's.
const MAX_OWN_LAG: Duration = Duration::from_secs(1);
/// The maximum extension that the peer then gets.
const MAX_EXTENSION: Duration = Duration::from_secs(5);

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A wait is over.
    Proceed,
    /// The deadline of the peer has passed.
    Deadline,
    /// The reflector has recovered.
    Settle,
    /// The stall detector needs a decision.
    Stall,
    /// The budgets allow the deferred list.
    DeferredRelist,
    /// The next read of a quarantined object is due.
    QuarantineRead,
}

impl Machine {
    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers().into_iter().flatten().map(|(at, _)| at).min()
    }

    pub(super) fn on_timeout(&mut self, sink: &mut dyn Sink) {
        let Some((at, _)) = self.due_timer() else { return };
        let lag = self.now.since(at);
        if lag > MAX_OWN_LAG {
            // The process was not running (no CPU, a stopped process): data from the peer may be unread.
            self.postpone(lag);
        }
        let Some((_, timer)) = self.due_timer() else { return };
        match timer {
            Timer::Proceed => {
                let state = std::mem::replace(&mut self.state, State::Stopped);
                if let State::Waiting { next, .. } = state {
                    self.proceed(next, sink);
                }
            }
            Timer::Deadline => self.on_deadline(sink),
            Timer::Settle => {
                if let State::Watching(watching) = &mut self.state {
                    watching.settles_at = None;
                }
                self.settle();
            }
            Timer::Stall => self.on_stall_timer(sink),
            Timer::DeferredRelist => self.on_deferred_relist(sink),
            Timer::QuarantineRead => self.on_quarantine_retry_due(sink),
        }
    }

    /// Returns the first timer that is due.
    fn due_timer(&self) -> Option<(Time, Timer)> {
        self.timers().into_iter().flatten().filter(|(at, _)| *at <= self.now).min()
    }

    fn timers(&self) -> [Option<(Time, Timer)>; 5] {
        match &self.state {
            State::Waiting { until, .. } => [Some((*until, Timer::Proceed)), None, None, None, None],
            State::Listing(listing) => [Some((listing.deadline, Timer::Deadline)), None, None, None, None],
            State::Streaming(streaming) => {
                [Some((streaming.deadline, Timer::Deadline)), None, None, None, None]
            }
            State::Fetching(fetching) => [Some((fetching.deadline, Timer::Deadline)), None, None, None, None],
            State::Watching(watching) => [
                Some((watching.deadline, Timer::Deadline)),
                watching.settles_at.map(|at| (at, Timer::Settle)),
                self.stall_timer().map(|at| (at, Timer::Stall)),
                self.deferred_relist.as_ref().map(|relist| (relist.at, Timer::DeferredRelist)),
                // Before the stream is open, nothing shows that the server is well.
                self.quarantine
                    .due()
                    .filter(|_| watching.opened_at.is_some())
                    .map(|at| (at, Timer::QuarantineRead)),
            ],
            State::Stopped => [None; 5],
        }
    }

    fn on_deadline(&mut self, sink: &mut dyn Sink) {
        let silent = |what: &str| Verdict::new(Meaning::TimedOut, what);
        match &self.state {
            State::Listing(listing) => {
                let id = listing.id;
                self.actions.push_back(Action::Cancel { id });
                self.on_list_failed(silent("the list made no progress"), sink);
            }
            State::Fetching(fetching) => {
                let id = fetching.id;
                self.actions.push_back(Action::Cancel { id });
                self.on_get_failed(silent("no answer to the read of an object"), sink);
            }
            State::Streaming(_) => self.on_stream_overdue(sink),
            State::Watching(_) => self.on_watch_overdue(sink),
            State::Waiting { .. } | State::Stopped => {}
        }
    }

    /// Gives the peer time: extends the deadlines that have passed.
    fn postpone(&mut self, lag: Duration) {
        let at = self.now + lag.min(MAX_EXTENSION);
        let now = self.now;
        let extend = |deadline: &mut Time| {
            if *deadline <= now {
                *deadline = at;
            }
        };
        match &mut self.state {
            State::Listing(listing) => extend(&mut listing.deadline),
            State::Streaming(streaming) => extend(&mut streaming.deadline),
            State::Fetching(fetching) => extend(&mut fetching.deadline),
            State::Watching(watching) => {
                extend(&mut watching.deadline);
                self.stall.postpone(now, at);
                self.quarantine.postpone(now, at);
            }
            State::Waiting { .. } | State::Stopped => {}
        }
    }
}
