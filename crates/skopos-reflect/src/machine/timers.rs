//! The timers of the machine: the next one, and its effect.

use super::*;

/// The lag above which a late timer is our own fault and not the peer's.
const OWN_LAG: Duration = Duration::from_secs(1);
/// The maximum extension that the peer then gets.
const EXTENSION: Duration = Duration::from_secs(5);

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A wait is over.
    Proceed,
    /// The peer was silent too long.
    Patience,
    /// The link has recovered.
    Settle,
    /// Doubt needs a decision.
    Doubt,
    /// The budgets allow the deferred list.
    Owed,
    /// The next read of an object that is set aside is due.
    Again,
}

impl Machine {
    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers().into_iter().flatten().map(|(at, _)| at).min()
    }

    pub(super) fn on_timeout(&mut self, sink: &mut dyn Sink) {
        let Some((at, _)) = self.due_timer() else { return };
        let lag = self.now.since(at);
        if lag > OWN_LAG {
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
            Timer::Patience => self.on_patience_lost(sink),
            Timer::Settle => {
                if let State::Watching(watching) = &mut self.state {
                    watching.settles_at = None;
                }
                self.settle();
            }
            Timer::Doubt => self.on_doubt_timer(sink),
            Timer::Owed => self.on_owed(sink),
            Timer::Again => self.on_time_to_read_again(sink),
        }
    }

    /// Returns the first timer that is due.
    fn due_timer(&self) -> Option<(Time, Timer)> {
        self.timers().into_iter().flatten().filter(|(at, _)| *at <= self.now).min()
    }

    fn timers(&self) -> [Option<(Time, Timer)>; 5] {
        match &self.state {
            State::Waiting { until, .. } => [Some((*until, Timer::Proceed)), None, None, None, None],
            State::Listing(listing) => [Some((listing.patience, Timer::Patience)), None, None, None, None],
            State::Streaming(streaming) => {
                [Some((streaming.patience, Timer::Patience)), None, None, None, None]
            }
            State::Resolving(resolving) => {
                [Some((resolving.patience, Timer::Patience)), None, None, None, None]
            }
            State::Watching(watching) => [
                Some((watching.patience, Timer::Patience)),
                watching.settles_at.map(|at| (at, Timer::Settle)),
                self.doubt_timer().map(|at| (at, Timer::Doubt)),
                self.owed.as_ref().map(|owed| (owed.at, Timer::Owed)),
                // Before the stream is open, nothing shows that the server is well.
                self.again.due().filter(|_| watching.opened_at.is_some()).map(|at| (at, Timer::Again)),
            ],
            State::Stopped => [None; 5],
        }
    }

    fn on_patience_lost(&mut self, sink: &mut dyn Sink) {
        let silent = |what: &str| Verdict::new(Meaning::TimedOut, what);
        match &self.state {
            State::Listing(listing) => {
                let id = listing.id;
                self.actions.push_back(Action::Cancel { id });
                self.on_list_failed(silent("the list made no progress"), sink);
            }
            State::Resolving(resolving) => {
                let id = resolving.id;
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
        let at = self.now + lag.min(EXTENSION);
        let now = self.now;
        let extend = |patience: &mut Time| {
            if *patience <= now {
                *patience = at;
            }
        };
        match &mut self.state {
            State::Listing(listing) => extend(&mut listing.patience),
            State::Streaming(streaming) => extend(&mut streaming.patience),
            State::Resolving(resolving) => extend(&mut resolving.patience),
            State::Watching(watching) => {
                extend(&mut watching.patience);
                self.doubt.postpone(now, at);
                self.again.postpone(now, at);
            }
            State::Waiting { .. } | State::Stopped => {}
        }
    }
}
