//! Repeated reads of objects that are set aside, slowly and until they can be read. The fault may be over without an
//! event that shows it. A deletion may even have been skipped, and then no event of the key ever comes again.
//!
//! ```text
//!   set aside ─▶ 30 s, doubled up to 5 min ─▶ read one of the keys, another each time
//!                            ▲                   ├─ broken as before, or no answer ──▶ later
//!                            │                   ├─ newer than our RV ──▶ its event is on its way: later
//!                            └───────────────────┘
//!                                                ├─ readable, or gone ──▶ list: it heals all keys at once
//!                                                └─ we may not read it ──▶ later, list: only that can tell
//! ```
//!
//! The read only tells whether a list is worth its price. It cannot replace one: it knows neither the selectors nor
//! when the object was deleted, and its result would be out of order. Objects without names can only be listed.

use std::time::Duration;

use skopos_wire::{ObjectKey, RawObject};

use super::*;

/// The schedule of these reads.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// The time of the next attempt, or the deadline of the current one. `None`: nothing is set aside.
    due: Option<Time>,
    under_way: Option<RequestId>,
    /// True if a read has shown that a list will help, or that only a list can tell: the next attempt is a list.
    promising: bool,
    /// The last key that was read.
    last: Option<ObjectKey>,
    /// The number of attempts. Each doubles the delay before the next.
    attempts: u32,
    /// The time at which the last object was no longer set aside.
    over: Option<Time>,
}

/// The delay before the first attempt...
const FIRST: Duration = Duration::from_secs(30);
/// ... and the longest; a tenth is added at random.
const LONGEST: Duration = Duration::from_secs(300);
/// Objects set aside again within this time are the same trouble as before, and the delays continue to grow. Objects
/// that only watches cannot deliver would otherwise cost a list every half minute.
const CALM: Duration = Duration::from_secs(600);

impl Again {
    pub(super) fn request(&self) -> Option<RequestId> {
        self.under_way
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Makes the next attempt due at `to`: the server may be healthy again.
    pub(super) fn hasten(&mut self, to: Time) {
        if self.under_way.is_none() {
            self.due = self.due.map(|due| due.min(to));
        }
    }

    /// Moves a passed deadline to `at`: the silence was not the peer's fault.
    pub(super) fn postpone(&mut self, now: Time, at: Time) {
        if self.under_way.is_some() {
            self.due = self.due.map(|due| if due <= now { at } else { due });
        }
    }
}

impl Machine {
    /// Updates the schedule. Call it when something may have been set aside, or nothing is any more.
    pub(super) fn plan_to_read_again(&mut self) {
        match (self.broken.count() > 0, self.again.due) {
            (true, None) => {
                if self.again.over.is_none_or(|over| self.now.since(over) >= CALM) {
                    self.again.attempts = 0;
                }
                self.again.due = Some(self.later());
            }
            (false, Some(_)) => {
                self.cancel_reading();
                self.again.due = None;
                self.again.promising = false;
                self.again.over = Some(self.now);
                self.owed.take_if(|owed| owed.cause == ReplaceCause::Undecodable);
            }
            _ => {}
        }
    }

    pub(super) fn on_time_to_read_again(&mut self, sink: &mut dyn Sink) {
        if self.again.under_way.is_some() {
            self.cancel_reading();
            return self.read_in_vain();
        }
        let key = self.broken.after(self.again.last.as_ref()).filter(|_| !self.again.promising).cloned();
        let Some(key) = key else {
            self.read_in_vain();
            self.again.promising = false;
            return self.relist_when_affordable(ReplaceCause::Undecodable, sink);
        };
        let until = self.affordable_at(1);
        if until > self.now {
            self.again.due = Some(until);
            return;
        }
        let id = self.new_id();
        self.stats.get_requests += 1;
        self.requests.spend(self.now);
        self.again.under_way = Some(id);
        self.again.due = Some(self.now + self.options.list_patience);
        self.again.last = Some(key.clone());
        self.actions.push_back(Action::Get(GetRequest { id, key, avoid: None, patient: false }));
    }

    pub(super) fn on_read_again(&mut self, object: Result<Option<RawObject>, BrokenItem>) {
        let settled = match (&object, &self.position) {
            (Ok(None), _) => true,
            (Ok(Some(object)), Some(position)) => {
                let is_asked_for = self.again.last.as_ref() == Some(object.key());
                is_asked_for && object.resource_version() <= position.resource_version()
            }
            _ => false,
        };
        self.read_in_vain();
        if settled {
            self.can_be_healed(self.now);
        }
    }

    pub(super) fn on_read_again_failed(&mut self, verdict: &Verdict) {
        self.read_in_vain();
        // The client may list and watch, but not read one object: then only a list can tell, at the same slow rate.
        if verdict.is_refusal() {
            self.can_be_healed(self.again.due.unwrap_or(self.now));
        }
    }

    /// Handles a key that is no longer unreadable, or may not be: a list heals it.
    fn can_be_healed(&mut self, at: Time) {
        let Some(key) = self.again.last.clone().filter(|key| self.broken.awaits(key)) else { return };
        match self.options.content {
            Content::Objects => {
                self.again.promising = true;
                self.again.due = Some(at);
            }
            // A sink of changes was told that this one is skipped, and has no content to heal.
            Content::Changes => {
                self.broken.readable(&key);
                let stands = matches!(&self.state, State::Watching(watching) if watching.opened_at.is_some());
                if stands && matches!(self.link.condition, Condition::Degraded(_)) {
                    self.set_standing();
                }
            }
        }
    }

    /// Ends an attempt that has not healed anything yet.
    pub(super) fn read_in_vain(&mut self) {
        self.again.under_way = None;
        self.again.attempts = self.again.attempts.saturating_add(1);
        if self.again.due.is_some() {
            self.again.due = Some(self.later());
        }
    }

    pub(super) fn cancel_reading(&mut self) {
        if let Some(id) = self.again.under_way.take() {
            self.actions.push_back(Action::Cancel { id });
        }
    }

    fn later(&mut self) -> Time {
        let delay = FIRST.saturating_mul(1 << self.again.attempts.min(8)).min(LONGEST);
        self.now + delay + self.up_to(delay / 10)
    }
}
