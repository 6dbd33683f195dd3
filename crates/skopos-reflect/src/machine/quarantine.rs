//! Repeated reads of quarantined objects, slowly and until they can be read. The fault may be over without an
//! event that shows it. A deletion may even have been skipped, and then no event of the key ever comes again.
//!
//! ```text
//!   quarantined ─▶ 30 s, doubled up to 5 min ─▶ read one of the keys, another each time
//!                              ▲                   ├─ broken as before, or no answer ──▶ later
//!                              │                   ├─ newer than our RV ──▶ its event is on its way: later
//!                              └───────────────────┘
//!                                                  ├─ readable, or gone ──▶ list: it heals all keys at once
//!                                                  └─ we may not read it ──▶ later, list: only that can tell
//! ```
//!
//! The read only tells whether a list is worth its price. It cannot replace one: it knows neither the selectors nor
//! when the object was deleted, and its result would be out of order. Objects without names can only be listed.

use std::time::Duration;

use skopos_wire::{ObjectKey, RawObject};

use super::*;

/// The schedule of reads of quarantined objects.
#[derive(Debug, Default)]
pub(super) struct QuarantineRetry {
    /// The time of the next attempt, or the deadline of the current one. `None`: nothing is quarantined.
    due: Option<Time>,
    in_flight: Option<RequestId>,
    /// True if a read has shown that a list will help, or that only a list can tell: the next attempt is a list.
    list_next: bool,
    /// The last key that was read.
    last_key: Option<ObjectKey>,
    /// The number of attempts. Each doubles the delay before the next.
    attempts: u32,
    /// The time at which the last object left the quarantine.
    emptied_at: Option<Time>,
}

/// The delay before the first attempt...
const INITIAL_DELAY: Duration = Duration::from_secs(30);
/// ... and the longest; a tenth is added at random.
const MAX_DELAY: Duration = Duration::from_secs(300);
/// Objects quarantined again within this time are the same trouble as before, and the delays continue to grow. Objects
/// that only watches cannot deliver would otherwise cost a list every half minute.
const RESET_AFTER: Duration = Duration::from_secs(600);

impl QuarantineRetry {
    pub(super) fn request_id(&self) -> Option<RequestId> {
        self.in_flight
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Makes the next attempt due at `to`: the server may be healthy again.
    pub(super) fn retry_now(&mut self, to: Time) {
        if self.in_flight.is_none() {
            self.due = self.due.map(|due| due.min(to));
        }
    }

    /// Moves a passed deadline to `at`: the silence was not the peer's fault.
    pub(super) fn postpone(&mut self, now: Time, at: Time) {
        if self.in_flight.is_some() {
            self.due = self.due.map(|due| if due <= now { at } else { due });
        }
    }
}

impl Machine {
    /// Updates the schedule. Call it when something may have been quarantined, or nothing is any more.
    pub(super) fn schedule_quarantine_retry(&mut self) {
        match (self.undecodable.count() > 0, self.quarantine.due) {
            (true, None) => {
                if self
                    .quarantine
                    .emptied_at
                    .is_none_or(|emptied_at| self.now.since(emptied_at) >= RESET_AFTER)
                {
                    self.quarantine.attempts = 0;
                }
                self.quarantine.due = Some(self.next_attempt_at());
            }
            (false, Some(_)) => {
                self.cancel_quarantine_read();
                self.quarantine.due = None;
                self.quarantine.list_next = false;
                self.quarantine.emptied_at = Some(self.now);
                self.deferred_relist.take_if(|relist| relist.cause == ReplaceCause::Undecodable);
            }
            _ => {}
        }
    }

    pub(super) fn on_quarantine_retry_due(&mut self, sink: &mut dyn Sink) {
        if self.quarantine.in_flight.is_some() {
            self.cancel_quarantine_read();
            return self.attempt_failed();
        }
        let key = self
            .undecodable
            .next_key(self.quarantine.last_key.as_ref())
            .filter(|_| !self.quarantine.list_next)
            .cloned();
        let Some(key) = key else {
            self.attempt_failed();
            self.quarantine.list_next = false;
            return self.relist_when_affordable(ReplaceCause::Undecodable, sink);
        };
        let until = self.affordable_at(1);
        if until > self.now {
            self.quarantine.due = Some(until);
            return;
        }
        let id = self.new_id();
        self.stats.get_requests += 1;
        self.requests.spend(self.now);
        self.quarantine.in_flight = Some(id);
        self.quarantine.due = Some(self.now + self.options.list_timeout);
        self.quarantine.last_key = Some(key.clone());
        self.actions.push_back(Action::Get(GetRequest { id, key, avoid: None, wait_for_connection: false }));
    }

    pub(super) fn on_quarantine_read(&mut self, object: Result<Option<RawObject>, BrokenItem>) {
        let readable = match (&object, &self.position) {
            (Ok(None), _) => true,
            (Ok(Some(object)), Some(position)) => {
                let is_requested = self.quarantine.last_key.as_ref() == Some(object.key());
                is_requested && object.resource_version() <= position.resource_version()
            }
            _ => false,
        };
        self.attempt_failed();
        if readable {
            self.schedule_heal(self.now);
        }
    }

    pub(super) fn on_quarantine_read_failed(&mut self, verdict: &Verdict) {
        self.attempt_failed();
        // The client may list and watch, but not read one object: then only a list can tell, at the same slow rate.
        if verdict.is_refusal() {
            self.schedule_heal(self.quarantine.due.unwrap_or(self.now));
        }
    }

    /// Handles a key that is no longer unreadable, or may not be: a list heals it.
    fn schedule_heal(&mut self, at: Time) {
        let Some(key) = self.quarantine.last_key.clone().filter(|key| self.undecodable.may_miss(key)) else {
            return;
        };
        match self.options.content {
            Content::Objects => {
                self.quarantine.list_next = true;
                self.quarantine.due = Some(at);
            }
            // A sink of changes was notified that this one is skipped, and has no content to heal.
            Content::Changes => {
                self.undecodable.mark_readable(&key);
                let open = matches!(&self.state, State::Watching(watching) if watching.opened_at.is_some());
                if open && matches!(self.reflector.condition, Condition::Degraded(_)) {
                    self.set_watching();
                }
            }
        }
    }

    /// Ends an attempt that has not healed anything yet.
    pub(super) fn attempt_failed(&mut self) {
        self.quarantine.in_flight = None;
        self.quarantine.attempts = self.quarantine.attempts.saturating_add(1);
        if self.quarantine.due.is_some() {
            self.quarantine.due = Some(self.next_attempt_at());
        }
    }

    pub(super) fn cancel_quarantine_read(&mut self) {
        if let Some(id) = self.quarantine.in_flight.take() {
            self.actions.push_back(Action::Cancel { id });
        }
    }

    fn next_attempt_at(&mut self) -> Time {
        let delay = exponential_delay(INITIAL_DELAY, MAX_DELAY, self.quarantine.attempts);
        self.now + delay + self.jitter(delay / 10)
    }
}
