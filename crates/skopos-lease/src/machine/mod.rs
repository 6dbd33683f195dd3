//! Whether this candidate leads, as a pure state machine: what was observed and when goes in, what is to be read and written
//! comes out.
//!
//! ```text
//!            due, write done                 lost, expired, unfit, stopped ...
//!  Standby ───────────────────▶ Leading ──────────────────────────────────────▶ Ending
//!     ▲                          renews                                            │ no work runs any more:
//!     └────────────────────────────────────────────────────────────────────────────┘ released where it is still ours
//! ```
//!
//! Why two terms do not overlap: a term ends 0.8 durations after its last renewal was sent. Whoever takes the Lease has seen that
//! renewal, or a later change, a whole duration before, because the write demands the very version that was seen. Sending comes
//! before storing, and storing before seeing. A renewal whose answer is lost extends nothing here, and makes others wait longer.
//!
//! A Lease that is not there has no version: whoever creates one may be the second to do so after its holder's was deleted. So what
//! is created is a claim, and leads a duration later, by a write that demands that very claim.
//!
//! A server that is restored from a backup has an older version than was seen. A read that began after that one was seen tells it. What the
//! Lease says then is old, and its holder may still lead. A candidate takes it one duration later, also where it names no holder.

mod input;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use skopos_reflect::Time;
use skopos_wire::ResourceVersion;

pub(crate) use self::input::{Action, Input, Outcome};
use crate::candidate::Status;
use crate::options::Timing;
use crate::record::{Record, Spec, micro_time};

/// One candidate for one Lease.
pub(crate) struct Machine {
    identity: String,
    timing: Timing,
    rng: fastrand::Rng,
    now: Time,
    /// For the times in the Lease, which are for people.
    wall: Timestamp,
    phase: Phase,
    /// The Lease as it was observed last; `None` before the first answer.
    seen: Option<Seen>,
    /// Something happened to the Lease that is not known.
    unsure: bool,
    pending: Option<Pending>,
    last_request: u64,
    actions: VecDeque<Action>,
    /// Our latest writes, whatever became of them. A Lease that bears the time of none of them and our name is a namesake's.
    renewals: VecDeque<Renewal>,
    /// The version that was known when the read that is under way was sent.
    read_after: Option<ResourceVersion>,
    /// Conflicts in a row, without a newer version of the Lease.
    conflicts: u32,
    /// Failed requests in a row, and why the last one did.
    failures: u32,
    problem: Option<String>,
    /// No request is sent before.
    not_before: Time,
    fitness: Fitness,
    stopping: bool,
}

/// The Lease, when its holder last changed it, and since when nobody can be holding it.
struct Seen {
    lease: Option<Record>,
    renewed_at: Time,
    /// When it was released, deleted, or first seen.
    since: Time,
    /// It is older than what was seen before.
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
    /// Nobody else has taken the Lease, so it was taken although the candidate was unfit.
    unfit: bool,
}

/// A write of ours, known by the time that it bears.
struct Renewal {
    time: String,
    /// It creates a Lease, and a holder whose Lease was deleted may still lead.
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
    /// Since when.
    Unfit(Time),
}

/// Why a term ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// Another candidate has the Lease.
    Lost {
        /// Its identity; `None` where the Lease was released by somebody else.
        holder: Option<String>,
    },
    /// No renewal was acknowledged in time.
    Expired,
    /// The Lease was deleted.
    Deleted,
    /// The server has an older version of the Lease than before: it was restored from a backup.
    Restored,
    /// The Lease names another candidate as the preferred one.
    Preferred {
        /// Its identity.
        holder: String,
    },
    /// The candidate could not do its work.
    Unfit,
    /// The election was stopped.
    Stopped,
}

/// A candidate that leads although it is unfit, as there was no other, tries again after so long whether there is one.
const UNFIT_AGAIN: Duration = Duration::from_secs(600);
/// Why a Lease cannot be created that is not there.
const NOWHERE: &str =
    "404: the Lease cannot be created; create its namespace, or have the server serve Leases";
/// Renewals whose answers may still be on their way.
const RENEWALS: usize = 32;

// === impl Machine ===

impl Machine {
    pub(crate) fn new(identity: String, timing: Timing, seed: u64, now: Time) -> Self {
        Self {
            identity,
            timing,
            rng: fastrand::Rng::with_seed(seed),
            now,
            wall: Timestamp::UNIX_EPOCH,
            phase: Phase::Standby,
            seen: None,
            unsure: false,
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

    /// Takes in what happened at `now`, on a clock that counts suspension.
    pub(crate) fn handle(&mut self, now: Time, wall: Timestamp, input: Input) {
        self.now = self.now.max(now);
        self.wall = wall;
        // Whatever has come, a term that is over is over first.
        self.expire();
        match input {
            Input::Timeout => {}
            Input::Seen(record) => self.observe(Some(record)),
            Input::Deleted(version) => {
                let is_later =
                    |seen: &Seen| seen.lease.as_ref().is_some_and(|known| known.resource_version > version);
                if !self.seen.as_ref().is_some_and(is_later) {
                    self.observe(None);
                }
            }
            Input::Unsure => self.unsure = true,
            Input::Answered { id, outcome } => self.answered(id, outcome),
            Input::Fit(fit) => self.set_fit(fit),
            Input::Idle => self.idle(),
            Input::Stop => {
                self.stopping = true;
                self.end(EndReason::Stopped);
                if matches!(self.phase, Phase::Standby) {
                    self.phase = Phase::Stopped;
                }
            }
        }
        self.make_room();
        self.send();
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Input::Timeout`] is due, if nothing else happens before.
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
        match (&self.phase, &self.seen) {
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

    /// The term that work may run in, and until when.
    pub(crate) fn term(&self) -> Option<(u64, Time)> {
        match &self.phase {
            Phase::Leading(leading) => Some((leading.number, leading.until)),
            Phase::Ending { number, until, .. } => Some((*number, *until)),
            _ => None,
        }
    }

    /// Returns the UID of the Lease as it was observed last.
    pub(crate) fn lease_uid(&self) -> Option<&Arc<str>> {
        Some(&self.lease()?.uid)
    }

    /// Why the last request failed, if it did.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped) && self.pending.is_none()
    }

    fn expire(&mut self) {
        if matches!(&self.phase, Phase::Leading(leading) if leading.until <= self.now) {
            self.over(EndReason::Expired);
        }
    }

    /// The Lease as it is now, or as far as is known.
    fn observe(&mut self, lease: Option<Record>) {
        let known = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        if let (Some(known), Some(new)) = (known, &lease)
            && new.resource_version <= known.resource_version
        {
            return;
        }
        let renewed = match (known, &lease) {
            (Some(known), Some(new)) => new.spec.is_renewal_of(&known.spec),
            (None, None) => self.seen.is_none(),
            _ => true,
        };
        let before = self.seen.take().filter(|_| !renewed);
        let renewed_at = before.as_ref().map_or(self.now, |seen| seen.renewed_at);
        let restored = before.as_ref().is_some_and(|seen| seen.restored);
        let since = before.map_or(self.now, |seen| seen.since);
        self.seen = Some(Seen { lease, renewed_at, since, restored });
        self.conflicts = 0;
        match self.lease().map(|lease| &lease.spec) {
            None => self.over(EndReason::Deleted),
            Some(spec) if !self.is_ours(spec) => self.over(EndReason::Lost { holder: spec.holder.clone() }),
            Some(_) => {}
        }
    }

    /// The Lease is older than what was seen: the server was restored, and our renewals never were.
    fn restored(&mut self, lease: Record) {
        self.renewals.clear();
        self.seen = Some(Seen { lease: Some(lease), renewed_at: self.now, since: self.now, restored: true });
        self.over(EndReason::Restored);
    }

    fn lease(&self) -> Option<&Record> {
        self.seen.as_ref()?.lease.as_ref()
    }

    fn is_ours(&self, spec: &Spec) -> bool {
        spec.holder.as_ref() == Some(&self.identity) && self.renewal_of(spec).is_some()
    }

    /// The write of ours that a Lease bears the time of.
    fn renewal_of(&self, spec: &Spec) -> Option<&Renewal> {
        let renewed = spec.renewed.as_ref()?;
        self.renewals.iter().find(|renewal| renewal.time == *renewed)
    }

    fn is_claim(&self) -> bool {
        let renewal = self.lease().and_then(|lease| self.renewal_of(&lease.spec));
        renewal.is_some_and(|renewal| renewal.claims)
    }

    fn answered(&mut self, id: u64, outcome: Outcome) {
        let Some(pending) = self.pending.take_if(|pending| pending.id == id) else { return };
        if pending.purpose == Purpose::Read && !matches!(outcome, Outcome::Failed(_)) {
            self.unsure = false;
        }
        // What cannot be created because something is missing has no place.
        let is_nowhere = matches!(outcome, Outcome::Missing)
            && pending.purpose == Purpose::Acquire
            && self.lease().is_none();
        if !matches!(outcome, Outcome::Failed(_)) && !is_nowhere {
            (self.failures, self.problem) = (0, None);
        }
        match outcome {
            Outcome::Is(record) => {
                let known = self.read_after.take().filter(|_| pending.purpose == Purpose::Read);
                if known.is_some_and(|known| record.resource_version < known) {
                    self.restored(record);
                } else {
                    self.observe(Some(record));
                    self.done(pending);
                }
            }
            Outcome::Missing if is_nowhere => {
                self.problem = Some(NOWHERE.to_owned());
                self.failures = self.failures.saturating_add(1);
                self.pause(self.failures);
            }
            Outcome::Missing => self.observe(None),
            // Somebody else wrote, or a request of ours that was given up came after all.
            Outcome::Conflict => {
                self.unsure = true;
                // The first is read after at once.
                if self.conflicts > 0 {
                    self.pause(self.conflicts);
                }
                self.conflicts = self.conflicts.saturating_add(1);
            }
            Outcome::Failed(problem) => {
                self.problem = Some(problem);
                self.failures = self.failures.saturating_add(1);
                self.pause(self.failures);
                if pending.purpose == Purpose::Release {
                    self.released();
                }
            }
        }
    }

    /// Sends nothing for a moment, which grows with what went wrong in a row.
    fn pause(&mut self, in_a_row: u32) {
        let pause = self.timing.renewal.mul_f64(0.25 + 0.25 * self.rng.f64());
        let pause = pause * in_a_row.min(8);
        self.not_before = self.now + if self.leads() { pause.min(self.timing.attempt / 4) } else { pause };
    }

    /// A write was stored.
    fn done(&mut self, pending: Pending) {
        let (until, is_claim) = (pending.sent_at + self.timing.valid, self.is_claim());
        match (pending.purpose, &mut self.phase) {
            (Purpose::Acquire, _) if is_claim => {}
            (Purpose::Acquire, Phase::Standby | Phase::Stopped) if until > self.now => {
                let number = self.lease().map_or(0, |lease| lease.spec.transitions);
                let renew_at = pending.sent_at + self.timing.renewal;
                let unfit = matches!(self.fitness, Fitness::Unfit(_));
                self.phase = Phase::Leading(Leading { number, until, renew_at, since: self.now, unfit });
                if self.stopping {
                    self.end(EndReason::Stopped);
                }
            }
            (Purpose::Renew, Phase::Leading(leading)) => {
                leading.until = leading.until.max(until);
                leading.renew_at = pending.sent_at + self.timing.renewal;
            }
            (Purpose::Release, _) => self.released(),
            _ => {}
        }
    }

    fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading(_))
    }

    /// The term ends, and work may no longer go on.
    fn over(&mut self, reason: EndReason) {
        self.end(reason);
        if let Phase::Ending { until, .. } = &mut self.phase {
            *until = (*until).min(self.now);
        }
    }

    /// The term ends; what is still to be finished in it has until its end.
    fn end(&mut self, reason: EndReason) {
        if let Phase::Leading(leading) = &self.phase {
            self.phase =
                Phase::Ending { number: leading.number, until: leading.until, reason, closed: false };
        }
    }

    /// No work runs in the term. Some may have begun just now: only when it was told that the term is over, and still none runs, is the Lease
    /// let go.
    fn idle(&mut self) {
        let Phase::Ending { until, closed, .. } = &mut self.phase else { return };
        if !std::mem::replace(closed, true) {
            *until = (*until).min(self.now);
            return;
        }
        let is_ours = self.lease().is_some_and(|lease| self.is_ours(&lease.spec));
        // After a loss by silence it is stood for again, and with it goes what may have been written meanwhile.
        let to_release = is_ours && !matches!(&self.phase, Phase::Ending { reason: EndReason::Expired, .. });
        if !to_release {
            self.released();
        } else if self.pending.is_none() {
            self.write(Purpose::Release);
        }
    }

    fn released(&mut self) {
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

    /// When the term ends because the candidate is unfit.
    fn unfit_at(&self) -> Option<Time> {
        let (Fitness::Unfit(since), Phase::Leading(leading)) = (&self.fitness, &self.phase) else {
            return None;
        };
        let limit = if leading.unfit { UNFIT_AGAIN } else { self.timing.unfit_limit };
        Some(leading.since.max(*since) + limit)
    }

    /// Ends the term for another candidate.
    fn make_room(&mut self) {
        if !self.leads() {
            return;
        }
        let preferred = self.lease().and_then(|lease| lease.spec.preferred.clone());
        if let Some(holder) = preferred.filter(|preferred| *preferred != self.identity) {
            self.end(EndReason::Preferred { holder });
        } else if self.unfit_at().is_some_and(|at| at <= self.now) {
            self.end(EndReason::Unfit);
        }
    }

    /// When the next request is to be sent, if one is.
    fn request_at(&self) -> Option<Time> {
        let wanted = match &self.phase {
            _ if self.unsure => self.now,
            Phase::Leading(leading) => leading.renew_at,
            Phase::Standby => self.due(),
            Phase::Ending { .. } | Phase::Stopped => return None,
        };
        Some(wanted.max(self.not_before))
    }

    /// When this candidate may take the Lease.
    fn due(&self) -> Time {
        let Some(seen) = &self.seen else { return self.now };
        // An unfit candidate lets others go first.
        let behind = match self.fitness {
            Fitness::Fit => Duration::ZERO,
            Fitness::Unfit(_) => self.timing.duration * 2,
        };
        let Some(lease) = &seen.lease else { return seen.since + behind };
        let spec = &lease.spec;
        if seen.restored {
            return seen.since + self.timing.duration.max(spec.duration.unwrap_or_default()) + behind;
        }
        if spec.holder.is_none() {
            let is_other = |preferred: &String| *preferred != self.identity;
            let after = if spec.preferred.as_ref().is_some_and(is_other) {
                self.timing.duration
            } else {
                Duration::ZERO
            };
            return seen.since + after + behind;
        }
        if self.is_ours(spec) {
            let wait = if self.is_claim() { self.timing.duration } else { Duration::ZERO };
            return seen.since + wait;
        }
        seen.renewed_at + spec.duration.unwrap_or(self.timing.duration) + behind
    }

    fn send(&mut self) {
        if self.pending.is_some() || self.request_at().is_none_or(|at| at > self.now) {
            return;
        }
        match &self.phase {
            _ if self.unsure || self.seen.is_none() => self.read(),
            Phase::Leading(_) => self.write(Purpose::Renew),
            _ => self.write(Purpose::Acquire),
        }
    }

    fn read(&mut self) {
        self.read_after = self.lease().map(|lease| lease.resource_version.clone());
        let id = self.begin(Purpose::Read);
        self.actions.push_back(Action::Read { id, within: self.timing.attempt });
    }

    fn write(&mut self, purpose: Purpose) {
        let id = self.begin(purpose);
        let base = self.seen.as_ref().and_then(|seen| seen.lease.clone());
        let before = base.as_ref().map(|lease| lease.spec.clone()).unwrap_or_default();
        let claims = base.is_none() && !self.timing.create_at_once;
        let renewed = Some(self.next_renewal(claims));
        let spec = match purpose {
            // As client-go releases it.
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
                // Others do not take a claim before we do.
                duration: Some(self.timing.duration * if claims { 2 } else { 1 }),
                acquired: renewed.clone(),
                renewed,
                // A term of its own, also after one of ours.
                transitions: before.transitions.saturating_add(1),
                preferred: None,
            },
        };
        self.actions.push_back(Action::Write { id, within: self.timing.attempt, base, spec });
    }

    fn begin(&mut self, purpose: Purpose) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        self.pending = Some(Pending { id, sent_at: self.now, purpose });
        id
    }

    /// The time that the next renewal bears: another one than all before, whatever the wall clock does.
    fn next_renewal(&mut self, claims: bool) -> String {
        let mut wall = self.wall;
        let mut text = micro_time(wall);
        while self.renewals.iter().any(|renewal| renewal.time == text) {
            wall += jiff::SignedDuration::from_micros(1);
            text = micro_time(wall);
        }
        if self.renewals.len() == RENEWALS {
            self.renewals.pop_front();
        }
        self.renewals.push_back(Renewal { time: text.clone(), claims });
        text
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { holder: Some(holder) } => write!(f, "{holder} has the Lease"),
            Self::Lost { holder: None } => f.write_str("the Lease was released by somebody else"),
            Self::Expired => f.write_str("no renewal was acknowledged in time"),
            Self::Deleted => f.write_str("the Lease was deleted"),
            Self::Restored => f.write_str("the Lease is an older one: the server was restored from a backup"),
            Self::Preferred { holder } => write!(f, "the Lease prefers {holder}"),
            Self::Unfit => f.write_str("this candidate cannot do its work"),
            Self::Stopped => f.write_str("the election was stopped"),
        }
    }
}

#[cfg(test)]
mod overlap_tests;
#[cfg(test)]
mod tests;
