//! The leader election of one candidate as a pure state machine: observations with their times go in, reads and writes come out.
//!
//! ```text
//!            due, write done                 lost, expired, unfit, stopped ...
//!  Standby ───────────────────▶ Leading ──────────────────────────────────────▶ Ending
//!     ▲                          renews                                            │ no work runs any more:
//!     └────────────────────────────────────────────────────────────────────────────┘ released where it is still ours
//! ```
//!
//! Two terms do not overlap, because a term ends 0.8 durations after its last renewal was sent. The candidate that takes the
//! Lease has seen that renewal, or a later change, a whole duration before: its write requires the very version that it saw.
//! Sending comes before storing, and storing before seeing. A renewal whose response is lost extends nothing here, and makes
//! others wait longer.
//!
//! A missing Lease has no version: a candidate that creates one may be the second to do so after the holder's was deleted. So
//! the created Lease is a claim. It leads a duration later, by a write that requires that very claim.
//!
//! A server restored from a backup has an older version than the one seen. A read that began after that one was seen shows
//! it. The Lease's content is then old, and its holder may still lead. A candidate takes it one duration later, even if it
//! names no holder.

mod input;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use skopos_reflect::Time;
use skopos_wire::ResourceVersion;

pub(crate) use self::input::{Action, Input, Outcome};
use crate::end_reason::EndReason;
use crate::options::Timing;
use crate::record::{Record, Spec, micro_time};
use crate::status::Status;

/// One candidate for one Lease.
pub(crate) struct Machine {
    identity: String,
    timing: Timing,
    rng: fastrand::Rng,
    now: Time,
    /// The wall clock for the times in the Lease, which are for people.
    wall: Timestamp,
    phase: Phase,
    /// The Lease as last observed; `None` before the first response.
    observed: Option<Observation>,
    /// True if the Lease may have changed in an unknown way.
    stale: bool,
    pending: Option<Pending>,
    last_request: u64,
    actions: VecDeque<Action>,
    /// Our latest writes, with any outcome. A Lease with our name, but the time of none of them, is a namesake's.
    renewals: VecDeque<Renewal>,
    /// The version known when the current read was sent.
    read_after: Option<ResourceVersion>,
    /// The number of consecutive conflicts, without a newer version of the Lease.
    conflicts: u32,
    /// The number of consecutive failed requests; `problem` is the error of the last one.
    failures: u32,
    problem: Option<String>,
    /// The earliest time of the next request.
    not_before: Time,
    fitness: Fitness,
    stopping: bool,
}

/// The Lease, the time of its last change by a holder, and the time since which it can have no holder.
struct Observation {
    lease: Option<Record>,
    renewed_at: Time,
    /// The time at which it was released, deleted, or first seen.
    since: Time,
    /// True if it is older than a version seen before.
    restored: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Standby,
    Leading(Leading),
    /// `closed`: no work may begin in the term any more.
    Ending {
        number: u64,
        until: Time,
        reason: EndReason,
        closed: bool,
    },
    Stopped,
}

#[derive(Clone, Debug)]
struct Leading {
    number: u64,
    until: Time,
    renew_at: Time,
    since: Time,
    /// True if the Lease was taken although the candidate was unfit, because no other candidate took it.
    unfit: bool,
}

/// A write of ours, identified by its time.
struct Renewal {
    time: String,
    /// True if it creates a Lease: a holder whose Lease was deleted may still lead.
    claims: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u64,
    sent_at: Time,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Read,
    Acquire,
    Renew,
    Release,
}

#[derive(Debug)]
enum Fitness {
    Fit,
    /// The time since which it is unfit.
    Unfit(Time),
}

/// The time after which a candidate that leads although unfit, because there was no other, checks again for another.
const UNFIT_RECHECK_INTERVAL: Duration = Duration::from_secs(600);
/// The reason why a missing Lease cannot be created.
const CANNOT_CREATE_MESSAGE: &str =
    "404: the Lease cannot be created; create its namespace, or have the server serve Leases";
/// The number of renewals whose responses may still be on their way.
const MAX_RENEWALS: usize = 32;

impl Machine {
    pub(crate) fn new(identity: String, timing: Timing, seed: u64, now: Time) -> Self {
        Self {
            identity,
            timing,
            rng: fastrand::Rng::with_seed(seed),
            now,
            wall: Timestamp::UNIX_EPOCH,
            phase: Phase::Standby,
            observed: None,
            stale: false,
            pending: None,
            last_request: 0,
            actions: VecDeque::new(),
            renewals: VecDeque::new(),
            read_after: None,
            conflicts: 0,
            failures: 0,
            problem: None,
            not_before: now,
            fitness: Fitness::Fit,
            stopping: false,
        }
    }

    /// Handles an input at `now`, on a clock that counts suspension.
    pub(crate) fn handle(&mut self, now: Time, wall: Timestamp, input: Input) {
        self.now = self.now.max(now);
        self.wall = wall;
        // First of all, a term whose time is over ends.
        self.expire();
        match input {
            Input::Timeout => {}
            Input::Observed(record) => {
                self.resume();
                self.observe(Some(record));
            }
            Input::Deleted(version) => {
                self.resume();
                let is_later = |seen: &Observation| {
                    seen.lease.as_ref().is_some_and(|known| known.resource_version > version)
                };
                if !self.observed.as_ref().is_some_and(is_later) {
                    self.observe(None);
                }
            }
            Input::Stale => self.stale = true,
            Input::Answered { id, outcome } => self.on_outcome(id, outcome),
            Input::Fit(fit) => self.set_fit(fit),
            Input::Idle => self.on_idle(),
            Input::Stop => {
                self.stopping = true;
                self.end_term(EndReason::Stopped);
                if matches!(self.phase, Phase::Standby) {
                    self.phase = Phase::Stopped;
                }
            }
        }
        self.step_down_if_needed();
        self.send();
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the time at which [`Input::Timeout`] is due if no other input comes first.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let request = (self.pending.is_none()).then(|| self.request_at()).flatten();
        let end = match &self.phase {
            Phase::Leading(leading) => Some(leading.until.min(self.unfit_at().unwrap_or(leading.until))),
            Phase::Ending { until, .. } if *until > self.now => Some(*until),
            _ => None,
        };
        request.into_iter().chain(end).min()
    }

    pub(crate) fn status(&self) -> Status {
        match (&self.phase, &self.observed) {
            (Phase::Leading(leading), _) => Status::Leader { number: leading.number },
            (Phase::Ending { number, reason, .. }, _) => {
                Status::Ending { number: *number, reason: reason.clone() }
            }
            (Phase::Stopped, _) => Status::Stopped,
            (Phase::Standby, None) => Status::Starting,
            (Phase::Standby, Some(seen)) => {
                let holder = seen.lease.as_ref().and_then(|lease| lease.spec.holder.clone());
                match self.now.since(seen.renewed_at) > self.timing.duration * 2 {
                    true => Status::NoLeader,
                    false => Status::Standby { holder },
                }
            }
        }
    }

    /// Returns the number of the term in which work may run, and its end.
    pub(crate) fn term(&self) -> Option<(u64, Time)> {
        match &self.phase {
            Phase::Leading(leading) => Some((leading.number, leading.until)),
            Phase::Ending { number, until, .. } => Some((*number, *until)),
            _ => None,
        }
    }

    /// Returns the UID of the Lease as last observed.
    pub(crate) fn lease_uid(&self) -> Option<&Arc<str>> {
        Some(&self.lease()?.uid)
    }

    /// Returns the error of the last request, if it failed.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped) && self.pending.is_none()
    }

    fn expire(&mut self) {
        if matches!(&self.phase, Phase::Leading(leading) if leading.until <= self.now) {
            self.end_now(EndReason::Expired);
        }
    }

    /// Observes the Lease in its current state, as far as known.
    fn observe(&mut self, lease: Option<Record>) {
        let known = self.observed.as_ref().and_then(|seen| seen.lease.as_ref());
        if let (Some(known), Some(new)) = (known, &lease)
            && new.resource_version <= known.resource_version
        {
            return;
        }
        let renewed = match (known, &lease) {
            (Some(known), Some(new)) => new.spec.is_renewal_of(&known.spec),
            (None, None) => self.observed.is_none(),
            _ => true,
        };
        let before = self.observed.take().filter(|_| !renewed);
        let renewed_at = before.as_ref().map_or(self.now, |seen| seen.renewed_at);
        let restored = before.as_ref().is_some_and(|seen| seen.restored);
        let since = before.map_or(self.now, |seen| seen.since);
        self.observed = Some(Observation { lease, renewed_at, since, restored });
        self.conflicts = 0;
        match self.lease().map(|lease| &lease.spec) {
            None => self.end_now(EndReason::Deleted),
            Some(spec) if !self.is_ours(spec) => {
                self.end_now(EndReason::Lost { holder: spec.holder.clone() })
            }
            Some(_) => {}
        }
    }

    /// Handles a Lease that is older than one seen before: the server was restored, without our renewals.
    fn on_restored(&mut self, lease: Record) {
        self.renewals.clear();
        self.observed =
            Some(Observation { lease: Some(lease), renewed_at: self.now, since: self.now, restored: true });
        self.end_now(EndReason::Restored);
    }

    fn lease(&self) -> Option<&Record> {
        self.observed.as_ref()?.lease.as_ref()
    }

    fn is_ours(&self, spec: &Spec) -> bool {
        spec.holder.as_ref() == Some(&self.identity) && self.renewal_of(spec).is_some()
    }

    /// Returns our write that has the time of this Lease.
    fn renewal_of(&self, spec: &Spec) -> Option<&Renewal> {
        let renewed = spec.renewed.as_ref()?;
        self.renewals.iter().find(|renewal| renewal.time == *renewed)
    }

    fn is_claim(&self) -> bool {
        let renewal = self.lease().and_then(|lease| self.renewal_of(&lease.spec));
        renewal.is_some_and(|renewal| renewal.claims)
    }

    fn on_outcome(&mut self, id: u64, outcome: Outcome) {
        let Some(pending) = self.pending.take_if(|pending| pending.id == id) else { return };
        if pending.purpose == Purpose::Read && !matches!(outcome, Outcome::Failed(_)) {
            self.stale = false;
        }
        // The Lease cannot be created, because the resource or its namespace is missing.
        let cannot_create = matches!(outcome, Outcome::Missing)
            && pending.purpose == Purpose::Acquire
            && self.lease().is_none();
        if !matches!(outcome, Outcome::Failed(_)) && !cannot_create {
            (self.failures, self.problem) = (0, None);
        }
        match outcome {
            Outcome::Is(record) => {
                let known = self.read_after.take().filter(|_| pending.purpose == Purpose::Read);
                if known.is_some_and(|known| record.resource_version < known) {
                    self.on_restored(record);
                } else {
                    self.observe(Some(record));
                    self.on_written(pending);
                }
            }
            Outcome::Missing if cannot_create => {
                self.problem = Some(CANNOT_CREATE_MESSAGE.to_owned());
                self.failures = self.failures.saturating_add(1);
                self.back_off(self.failures);
            }
            Outcome::Missing => self.observe(None),
            // Another client wrote, or a request of ours that was given up was stored after all.
            Outcome::Conflict => {
                self.stale = true;
                // After the first conflict the Lease is read at once.
                if self.conflicts > 0 {
                    self.back_off(self.conflicts);
                }
                self.conflicts = self.conflicts.saturating_add(1);
            }
            Outcome::Failed(problem) => {
                self.problem = Some(problem);
                self.failures = self.failures.saturating_add(1);
                self.back_off(self.failures);
                if pending.purpose == Purpose::Release {
                    self.on_released();
                }
            }
        }
    }

    /// Sends nothing for a pause that grows with the number of consecutive failures.
    fn back_off(&mut self, consecutive: u32) {
        let pause = self.timing.renew_interval.mul_f64(0.25 + 0.25 * self.rng.f64());
        let pause = pause * consecutive.min(8);
        self.not_before =
            self.now + if self.is_leading() { pause.min(self.timing.request_timeout / 4) } else { pause };
    }

    /// Ends the pause after failed requests, because the watch shows that the server answers again.
    fn resume(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.not_before = self.now;
        }
    }

    /// Handles a write that was stored.
    fn on_written(&mut self, pending: Pending) {
        let (until, is_claim) = (pending.sent_at + self.timing.valid, self.is_claim());
        match (pending.purpose, &mut self.phase) {
            (Purpose::Acquire, _) if is_claim => {}
            (Purpose::Acquire, Phase::Standby | Phase::Stopped) if until > self.now => {
                let number = self.lease().map_or(0, |lease| lease.spec.transitions);
                let renew_at = pending.sent_at + self.timing.renew_interval;
                let unfit = matches!(self.fitness, Fitness::Unfit(_));
                self.phase = Phase::Leading(Leading { number, until, renew_at, since: self.now, unfit });
                if self.stopping {
                    self.end_term(EndReason::Stopped);
                }
            }
            (Purpose::Renew, Phase::Leading(leading)) => {
                leading.until = leading.until.max(until);
                leading.renew_at = pending.sent_at + self.timing.renew_interval;
            }
            (Purpose::Release, _) => self.on_released(),
            _ => {}
        }
    }

    fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading(_))
    }

    /// Ends the term and all work in it.
    fn end_now(&mut self, reason: EndReason) {
        self.end_term(reason);
        if let Phase::Ending { until, .. } = &mut self.phase {
            *until = (*until).min(self.now);
        }
    }

    /// Ends the term; work that must be finished has until its original end.
    fn end_term(&mut self, reason: EndReason) {
        if let Phase::Leading(leading) = &self.phase {
            self.phase =
                Phase::Ending { number: leading.number, until: leading.until, reason, closed: false };
        }
    }

    /// Handles a term without running work. Some may have begun just now, so the Lease is released only if none runs after
    /// work was told that the term is over.
    fn on_idle(&mut self) {
        let Phase::Ending { until, closed, .. } = &mut self.phase else { return };
        if !std::mem::replace(closed, true) {
            *until = (*until).min(self.now);
            return;
        }
        let is_ours = self.lease().is_some_and(|lease| self.is_ours(&lease.spec));
        // After an expired term the candidate competes again, and its write supersedes any that was stored meanwhile.
        let to_release = is_ours && !matches!(&self.phase, Phase::Ending { reason: EndReason::Expired, .. });
        if !to_release {
            self.on_released();
        } else if self.pending.is_none() {
            self.write(Purpose::Release);
        }
    }

    fn on_released(&mut self) {
        if matches!(self.phase, Phase::Ending { .. }) {
            self.phase = if self.stopping { Phase::Stopped } else { Phase::Standby };
        }
    }

    fn set_fit(&mut self, fit: bool) {
        match (&self.fitness, fit) {
            (_, true) => {
                self.fitness = Fitness::Fit;
                if let Phase::Leading(leading) = &mut self.phase {
                    leading.unfit = false;
                }
            }
            (Fitness::Fit, false) => self.fitness = Fitness::Unfit(self.now),
            (Fitness::Unfit(_), false) => {}
        }
    }

    /// Returns the time at which the term ends because the candidate is unfit.
    fn unfit_at(&self) -> Option<Time> {
        let (Fitness::Unfit(since), Phase::Leading(leading)) = (&self.fitness, &self.phase) else {
            return None;
        };
        let limit = if leading.unfit { UNFIT_RECHECK_INTERVAL } else { self.timing.unfit_limit };
        Some(leading.since.max(*since) + limit)
    }

    /// Ends the term for another candidate.
    fn step_down_if_needed(&mut self) {
        if !self.is_leading() {
            return;
        }
        let preferred = self.lease().and_then(|lease| lease.spec.preferred.clone());
        if let Some(holder) = preferred.filter(|preferred| *preferred != self.identity) {
            self.end_term(EndReason::Preferred { holder });
        } else if self.unfit_at().is_some_and(|at| at <= self.now) {
            self.end_term(EndReason::Unfit);
        }
    }

    /// Returns the time of the next request, if one is due.
    fn request_at(&self) -> Option<Time> {
        let wanted = match &self.phase {
            _ if self.stale => self.now,
            Phase::Leading(leading) => leading.renew_at,
            Phase::Standby => self.acquire_at(),
            Phase::Ending { .. } | Phase::Stopped => return None,
        };
        Some(wanted.max(self.not_before))
    }

    /// Returns the time at which this candidate may take the Lease.
    fn acquire_at(&self) -> Time {
        let Some(seen) = &self.observed else { return self.now };
        // An unfit candidate gives way to others.
        let delay = match self.fitness {
            Fitness::Fit => Duration::ZERO,
            Fitness::Unfit(_) => self.timing.duration * 2,
        };
        let Some(lease) = &seen.lease else { return seen.since + delay };
        let spec = &lease.spec;
        if seen.restored {
            return seen.since + self.timing.duration.max(spec.duration.unwrap_or_default()) + delay;
        }
        if spec.holder.is_none() {
            let is_other = |preferred: &String| *preferred != self.identity;
            let after = if spec.preferred.as_ref().is_some_and(is_other) {
                self.timing.duration
            } else {
                Duration::ZERO
            };
            return seen.since + after + delay;
        }
        if self.is_ours(spec) {
            let wait = if self.is_claim() { self.timing.duration } else { Duration::ZERO };
            return seen.since + wait;
        }
        seen.renewed_at + spec.duration.unwrap_or(self.timing.duration) + delay
    }

    fn send(&mut self) {
        if self.pending.is_some() || self.request_at().is_none_or(|at| at > self.now) {
            return;
        }
        match &self.phase {
            _ if self.stale || self.observed.is_none() => self.read(),
            Phase::Leading(_) => self.write(Purpose::Renew),
            _ => self.write(Purpose::Acquire),
        }
    }

    fn read(&mut self) {
        self.read_after = self.lease().map(|lease| lease.resource_version.clone());
        let id = self.begin(Purpose::Read);
        self.actions.push_back(Action::Read { id, within: self.timing.request_timeout });
    }

    fn write(&mut self, purpose: Purpose) {
        let id = self.begin(purpose);
        let base = self.observed.as_ref().and_then(|seen| seen.lease.clone());
        let before = base.as_ref().map(|lease| lease.spec.clone()).unwrap_or_default();
        let claims = base.is_none() && !self.timing.acquire_on_create;
        let renewed = Some(self.next_renewal(claims));
        let spec = match purpose {
            // The same release as client-go's.
            Purpose::Release => {
                Spec { holder: None, duration: Some(Duration::from_secs(1)), renewed, ..before }
            }
            Purpose::Renew => Spec {
                holder: Some(self.identity.clone()),
                duration: Some(self.timing.duration),
                renewed,
                ..before
            },
            Purpose::Acquire | Purpose::Read => Spec {
                holder: Some(self.identity.clone()),
                // Others must not take a claim before we do.
                duration: Some(self.timing.duration * if claims { 2 } else { 1 }),
                acquired: renewed.clone(),
                renewed,
                // A new term, even after one of ours.
                transitions: before.transitions.saturating_add(1),
                preferred: None,
            },
        };
        self.actions.push_back(Action::Write { id, within: self.timing.request_timeout, base, spec });
    }

    fn begin(&mut self, purpose: Purpose) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        self.pending = Some(Pending { id, sent_at: self.now, purpose });
        id
    }

    /// Returns the time for the next renewal, different from all before, whatever the wall clock shows.
    fn next_renewal(&mut self, claims: bool) -> String {
        let mut wall = self.wall;
        let mut text = micro_time(wall);
        while self.renewals.iter().any(|renewal| renewal.time == text) {
            wall += jiff::SignedDuration::from_micros(1);
            text = micro_time(wall);
        }
        if self.renewals.len() == MAX_RENEWALS {
            self.renewals.pop_front();
        }
        self.renewals.push_back(Renewal { time: text.clone(), claims });
        text
    }
}

#[cfg(test)]
mod overlap_tests;
#[cfg(test)]
mod tests;
