//! The evidence from which a freshness is computed: proofs, errors, and what is missing, as published by a store's writer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use skopos_reflect::{Clock, Condition, Degradation, ReflectorState};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::sleep::{SleepClock, SleepLog};
use super::{Freshness, StaleReason};
use crate::sync::ArcSwap;

/// The evidence about the content of one store: proofs and errors, for each list/watch that fills it. Readers compute
/// [`Freshness`] from it.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    context: Arc<FreshnessContext>,
    started: Instant,
    stopped: bool,
    pub(crate) parts: Vec<PartEvidence>,
}

/// The evidence about one list/watch.
#[derive(Clone, Debug)]
pub(crate) struct PartEvidence {
    /// True once a first complete list was applied.
    pub(crate) synced: bool,
    /// The reflector's state.
    pub(crate) reflector: Arc<ReflectorState>,
    /// The number of differences that an audit found and no relist has healed yet, with the audit's time.
    pub(crate) audit: Option<(Instant, usize)>,
    proof: Option<Proof>,
    retraction: Retraction,
    /// The time at which the restored checkpoint was taken, until the server has confirmed it.
    restored: Option<SystemTime>,
}

/// The data of the factory that freshness needs.
#[derive(Debug)]
pub(crate) struct FreshnessContext {
    /// The clock that converts the reflectors' moments into instants.
    pub(crate) clock: Clock,
    /// The age above which a proof no longer counts.
    pub(crate) stale_after: Duration,
    /// The log of suspends.
    pub(crate) sleep: SleepLog,
}

impl FreshnessContext {
    /// Creates a context for stores without a factory.
    pub(crate) fn standalone(clock: SleepClock) -> Arc<Self> {
        let stale_after = Duration::from_secs(90);
        Arc::new(Self { clock: Clock::new(), stale_after, sleep: SleepLog::new(clock) })
    }
}

/// A proof of freshness: a consistent read was sent at `at`, and the content holds its revision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    at: Instant,
    /// The wall clock's lead at `at`, or less.
    lead: i64,
    /// The age of the content at that time, if it had been restored.
    before: Duration,
}

/// The last retraction of a proof, before content was published to which the proof does not apply.
#[derive(Clone, Copy, Debug, Default)]
struct Retraction {
    /// The number of retractions.
    count: u64,
    /// The proof that holds for the content that followed.
    to: Option<Proof>,
}

/// The suspend length above which the machine's suspend is reported as such; shorter ones only add to the age.
pub(crate) const MIN_REPORTED_SUSPEND: Duration = Duration::from_secs(5);

/// The time within which a watch that the server ended regularly is renewed; it does not make the content stale.
const RENEWAL_GRACE: Duration = Duration::from_secs(2);

impl Evidence {
    /// Creates empty evidence, for this number of list/watches.
    pub(crate) fn new(context: Arc<FreshnessContext>, parts: usize) -> Self {
        let part = PartEvidence::new(false, reflector_state(&context, Condition::Connecting));
        Self { context, started: Instant::now(), stopped: false, parts: vec![part; parts] }
    }

    /// Creates the evidence of content that one consistent read brought, sent at `sent`.
    pub(crate) fn from_single_read(context: Arc<FreshnessContext>, sent: Proof) -> Self {
        let mut part = PartEvidence::new(true, reflector_state(&context, Condition::Watching));
        part.proof = Some(sent);
        Self { context, started: sent.at, stopped: false, parts: vec![part] }
    }

    /// Returns the current freshness of the whole: that of its worst part.
    pub(crate) fn freshness(&self) -> Freshness {
        // The monotonic clock first: a delay in between then only makes the age larger.
        let now = Instant::now();
        let lead = self.context.sleep.lead();
        let parts = self.parts.iter().map(|part| self.freshness_at(part, now, lead));
        parts.reduce(Freshness::worst).unwrap_or(Freshness::Stopped { age: None })
    }

    /// Returns an upper bound on each part's age, where one is known.
    pub(crate) fn ages(&self) -> Vec<Option<Duration>> {
        let now = Instant::now();
        let lead = self.context.sleep.lead();
        self.parts.iter().map(|part| Some(part.proof?.age(now, lead))).collect()
    }

    fn freshness_at(&self, part: &PartEvidence, now: Instant, lead: i64) -> Freshness {
        let slept = part.proof.map(|proof| proof.slept(lead)).unwrap_or_default();
        let age = part.proof.map(|proof| proof.age(now, lead));
        if self.stopped {
            return Freshness::Stopped { age };
        }
        let trouble = part.trouble(&self.context, now);
        if !part.synced {
            let reason =
                trouble.map_or_else(|| StaleReason::Reflector(part.reflector.clone()), |(_, reason)| reason);
            return Freshness::NeverSynced { since: self.started, reason };
        }
        if let Some((since, reason)) = trouble {
            return Freshness::Stale { since, age, reason };
        }
        if let Some(written_at) = part.restored {
            let reason = StaleReason::Restored { written_at };
            return Freshness::Stale { since: self.started, age, reason };
        }
        let stale_after = self.context.stale_after;
        let ago = |ago: Duration| now.checked_sub(ago).unwrap_or(now);
        match age {
            Some(age) if slept >= MIN_REPORTED_SUSPEND => {
                let reason = StaleReason::ClockSuspended { slept };
                Freshness::Stale { since: ago(age.saturating_sub(slept)), age: Some(age), reason }
            }
            Some(age) if age <= stale_after => Freshness::Live { age },
            Some(age) => {
                let since = ago(age.saturating_sub(stale_after + slept));
                Freshness::Stale { since, age: Some(age), reason: StaleReason::AgeBound }
            }
            None => Freshness::Stale { since: self.started, age: None, reason: StaleReason::AgeBound },
        }
    }

    /// Returns whether the content at its revision is all that the server has at that revision.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.iter().all(PartEvidence::is_whole)
    }

    /// Returns whether every part is proven by a read that was sent after `since`.
    pub(crate) fn is_proven_after(&self, since: Instant) -> bool {
        let after = |proof: Proof| proof.at > since && proof.before.is_zero();
        self.parts.iter().all(|part| part.proof.is_some_and(after))
    }

    /// Returns the evidence of content that was loaded after this one and before `newer`.
    pub(crate) fn reconciled_with(self: Arc<Self>, newer: &Self) -> Arc<Self> {
        let lacks = self.is_whole() && !newer.is_whole();
        let mut parts = self.parts.iter().zip(&newer.parts);
        let retracted = parts.any(|(part, newer)| part.retraction.count != newer.retraction.count);
        match lacks || retracted {
            true => Arc::new(self.corrected_by(newer)),
            false => self,
        }
    }

    /// Returns this evidence with the errors known by now, and without the retracted proofs. The other proofs stay: newer
    /// ones may belong to newer content.
    fn corrected_by(&self, newer: &Self) -> Self {
        let mut evidence = self.clone();
        for (part, newer) in evidence.parts.iter_mut().zip(&newer.parts) {
            part.reflector = newer.reflector.clone();
            part.audit = newer.audit;
            part.proof = match newer.retraction.count - part.retraction.count {
                0 => part.proof,
                1 => part.proof.zip(newer.retraction.to).map(|(before, after)| before.older(after)),
                _ => None,
            };
            part.retraction = newer.retraction;
        }
        evidence
    }

    /// Returns when the informer's attempts began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

fn reflector_state(context: &FreshnessContext, condition: Condition) -> Arc<ReflectorState> {
    let since = context.clock.now();
    Arc::new(ReflectorState { condition, since, attempts: 0, reason: None, retry_at: None, undecodable: 0 })
}

impl PartEvidence {
    fn new(synced: bool, reflector: Arc<ReflectorState>) -> Self {
        Self {
            synced,
            reflector,
            audit: None,
            proof: None,
            retraction: Retraction::default(),
            restored: None,
        }
    }

    /// Records restored content that was at most `age` old at `here` or a moment later; `None` if the age is unknown.
    pub(crate) fn restore(&mut self, here: Proof, age: Option<Duration>, written_at: SystemTime) {
        self.synced = true;
        self.restored = Some(written_at);
        self.proof = age.map(|before| Proof { before, ..here });
    }

    /// Returns whether a first complete list was applied, or the restored content was confirmed.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.synced && self.restored.is_none()
    }

    /// Returns the current error and when it began; ignores the age bound.
    fn trouble(&self, context: &FreshnessContext, now: Instant) -> Option<(Instant, StaleReason)> {
        let since = context.clock.instant(self.reflector.since);
        // Some proxies hold a response back until there is an event: a later read has shown that nothing is missing.
        let proven = self.proof.is_some_and(|proof| since < proof.at);
        let in_time = proven || now.saturating_duration_since(since) < RENEWAL_GRACE;
        let renewed = self.reflector.attempts == 0 && in_time;
        let lacks = |count| (count > 0).then_some(StaleReason::Undecodable { key: None, count });
        let reason = match &self.reflector.condition {
            Condition::Watching => lacks(self.reflector.undecodable),
            Condition::Connecting if renewed => lacks(self.reflector.undecodable),
            Condition::Degraded(Degradation::Undecodable { key, count }) => {
                Some(StaleReason::Undecodable { key: key.clone(), count: *count })
            }
            _ => Some(StaleReason::Reflector(self.reflector.clone())),
        };
        let audit =
            || self.audit.map(|(since, differences)| (since, StaleReason::AuditMismatch { differences }));
        reason.map(|reason| (since, reason)).or_else(audit)
    }

    fn is_whole(&self) -> bool {
        self.synced && self.audit.is_none() && self.reflector.undecodable == 0
    }

    /// Returns whether the content is known to hold all that was committed before `at`.
    pub(crate) fn is_proven_since(&self, at: Instant) -> bool {
        self.proof.is_some_and(|proof| proof.at >= at && proof.before.is_zero())
    }

    /// Records that the following content is proven only up to `at`. The age from a checkpoint stays: nothing else was
    /// proven of that content.
    fn retract(&mut self, context: &FreshnessContext, at: Option<Instant>) {
        if self.restored.is_none() {
            self.proof = at.map(|at| Proof::new(context, at));
            self.retraction = Retraction { count: self.retraction.count + 1, to: self.proof };
        }
    }

    /// Records that the content holds all that was committed before `at`.
    pub(crate) fn prove(&mut self, context: &FreshnessContext, at: Instant) {
        if self.proof.is_none_or(|proof| proof.at < at || proof.before > Duration::ZERO) {
            self.proof = Some(Proof::new(context, at));
        }
        self.restored = None;
    }
}

impl Proof {
    /// Creates the proof of a read that was sent at `at`, recently.
    pub(crate) fn new(context: &FreshnessContext, at: Instant) -> Self {
        Self { at, lead: context.sleep.lead_at(at), before: Duration::ZERO }
    }

    /// Creates the proof of a read that is sent now. An earlier suspend does not count, even if no tick has noticed it yet.
    pub(crate) fn now(context: &FreshnessContext) -> Self {
        // The lead first: a suspend between the two then makes ages larger, not smaller.
        let lead = context.sleep.lead();
        Self { at: Instant::now(), lead, before: Duration::ZERO }
    }

    fn older(self, other: Self) -> Self {
        if self.at <= other.at { self } else { other }
    }

    /// Returns an upper bound on the current age of the answer.
    pub(crate) fn age_now(self, context: &FreshnessContext) -> Duration {
        // The monotonic clock first, as in `Evidence::freshness`.
        let now = Instant::now();
        self.age(now, context.sleep.lead())
    }

    /// Returns whether the machine was suspended since.
    pub(crate) fn is_before_suspend(self, context: &FreshnessContext) -> bool {
        context.sleep.lead() - self.lead > SleepLog::TOLERANCE_NANOS
    }

    fn age(self, now: Instant, lead: i64) -> Duration {
        now.saturating_duration_since(self.at) + self.slept(lead) + self.before
    }

    fn slept(self, lead: i64) -> Duration {
        let grown = lead.saturating_sub(self.lead).max(0);
        Duration::from_nanos(grown.unsigned_abs())
    }
}

/// The cell in which the writer publishes its [`Evidence`], and readers find it.
#[derive(Debug)]
pub(crate) struct FreshnessCell {
    evidence: ArcSwap<Evidence>,
    proofs: Notify,
}

impl FreshnessCell {
    pub(crate) fn new(evidence: Evidence) -> Arc<Self> {
        Arc::new(Self { evidence: ArcSwap::from_pointee(evidence), proofs: Notify::new() })
    }

    /// Creates a cell without evidence, for content that no factory's informer keeps.
    pub(crate) fn standalone() -> Arc<Self> {
        Self::new(Evidence::new(FreshnessContext::standalone(SleepClock::system()), 1))
    }

    /// Returns the current evidence. Load it *before* the content that it describes, as content only gets newer, and once
    /// more after it, for [`Evidence::reconciled_with`].
    pub(crate) fn evidence(&self) -> Arc<Evidence> {
        self.evidence.load_full()
    }

    pub(crate) fn freshness(&self) -> Freshness {
        self.evidence.load().freshness()
    }

    /// Changes the evidence about one part. Call it *after* the content was published.
    pub(crate) fn update(&self, part: usize, change: impl Fn(&mut PartEvidence)) {
        self.edit(|evidence| {
            if let Some(part) = evidence.parts.get_mut(part) {
                change(part);
            }
        });
    }

    /// Records which parts were listed. Call it after content that holds their lists was published.
    pub(crate) fn listed(&self, listed: impl Fn(usize) -> bool) {
        let news = |(index, part): (usize, &PartEvidence)| !part.synced && listed(index);
        if self.evidence.load().parts.iter().enumerate().any(news) {
            self.edit(|evidence| {
                evidence.parts.iter_mut().enumerate().for_each(|(index, part)| part.synced |= listed(index));
            });
        }
    }

    /// Records that the content of one part holds all that was committed before `at`.
    pub(crate) fn prove(&self, part: usize, at: Instant) {
        self.edit(|evidence| {
            let context = evidence.context.clone();
            if let Some(part) = evidence.parts.get_mut(part) {
                part.prove(&context, at);
            }
        });
        self.proofs.notify_waiters();
    }

    /// Records that the following content of one part is proven only up to `at`, or not at all. Call it *before* the
    /// content is published.
    pub(crate) fn retract(&self, part: usize, at: Option<Instant>) {
        self.edit(|evidence| {
            let context = evidence.context.clone();
            if let Some(part) = evidence.parts.get_mut(part) {
                part.retract(&context, at);
            }
        });
    }

    /// Returns a future that completes when something was proven after this call.
    pub(crate) fn next_proof(&self) -> Notified<'_> {
        // A future created before `notify_waiters` is notified, even if it was not polled yet.
        self.proofs.notified()
    }

    /// Records that nothing updates the content any more.
    pub(crate) fn stop(&self) {
        self.edit(|evidence| evidence.stopped = true);
    }

    fn edit(&self, change: impl Fn(&mut Evidence)) {
        self.evidence.rcu(|evidence| {
            let mut evidence = Evidence::clone(evidence);
            change(&mut evidence);
            evidence
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::time::advance;

    use super::*;

    struct Cell {
        cell: Arc<FreshnessCell>,
        context: Arc<FreshnessContext>,
        slept: Arc<AtomicI64>,
    }

    /// Creates synced content of this many parts, proven now.
    fn live(parts: usize) -> Cell {
        let slept = Arc::new(AtomicI64::new(0));
        let lead = slept.clone();
        let context =
            FreshnessContext::standalone(SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into()));
        let cell = FreshnessCell::new(Evidence::new(context.clone(), parts));
        for part in 0..parts {
            cell.update(part, |part| part.synced = true);
            cell.prove(part, Instant::now());
        }
        let cell = Cell { cell, context, slept };
        (0..parts).for_each(|part| cell.reflector(part, Condition::Watching, 0));
        cell
    }

    impl Cell {
        fn reflector(&self, part: usize, condition: Condition, attempts: u32) {
            let state = reflector_state(&self.context, condition);
            let state = Arc::new(ReflectorState { attempts, ..ReflectorState::clone(&state) });
            self.cell.update(part, |part| part.reflector = state.clone());
        }

        fn now(&self) -> Freshness {
            self.cell.freshness()
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn age_grows_until_new_proof_or_age_bound() {
        let content = live(1);
        advance(secs(90)).await;
        assert!(matches!(content.now(), Freshness::Live { age } if age == secs(90)));
        let proven = Instant::now() - secs(30);
        content.cell.prove(0, proven);
        assert!(content.now().is_within(secs(30)));
        content.cell.prove(0, proven - secs(20));
        assert!(content.now().is_within(secs(30)), "an older proof takes nothing away");
        advance(secs(61)).await;
        match content.now() {
            Freshness::Stale { since, age, reason: StaleReason::AgeBound } => {
                assert_eq!((since.elapsed(), age), (secs(1), Some(secs(91))));
            }
            other => panic!("{other}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reconciled_evidence_never_uses_retracted_proof() {
        let content = live(1);
        advance(secs(10)).await;
        let (proven, older) = (Instant::now(), Instant::now() - secs(4));
        content.cell.prove(0, proven);
        let before = content.cell.evidence();
        content.cell.retract(0, Some(older));
        assert_eq!(content.now().age(), Some(secs(4)));
        content.cell.prove(0, proven);
        // The content may be from after the retraction, and the second proof may belong to newer content.
        let seen = before.clone().reconciled_with(&content.cell.evidence());
        assert_eq!(seen.freshness().age(), Some(secs(4)));
        content.cell.retract(0, Some(older));
        let seen = before.clone().reconciled_with(&content.cell.evidence());
        assert_eq!(seen.freshness().age(), None, "which of the two it is of, nothing tells");
        content.cell.retract(0, None);
        assert_eq!(content.now().age(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn stale_freshness_still_reports_age() {
        let content = live(1);
        content.reflector(0, Condition::Retrying, 1);
        advance(secs(7)).await;
        match content.now() {
            Freshness::Stale { since, age, reason: StaleReason::Reflector(state) } => {
                assert_eq!((since.elapsed(), age), (secs(7), Some(secs(7))));
                assert_eq!(state.condition, Condition::Retrying);
            }
            other => panic!("{other}"),
        }
        content.reflector(0, Condition::Watching, 0);
        content.cell.update(0, |part| part.audit = Some((Instant::now(), 3)));
        assert!(matches!(content.now().reason(), Some(StaleReason::AuditMismatch { differences: 3 })));
        content.cell.stop();
        assert!(matches!(content.now(), Freshness::Stopped { age: Some(_) }));
    }

    #[tokio::test(start_paused = true)]
    async fn short_watch_renewal_stays_live() {
        let content = live(1);
        content.reflector(0, Condition::Connecting, 0);
        advance(secs(1)).await;
        assert!(content.now().is_live());
        advance(secs(1)).await;
        assert!(matches!(content.now().reason(), Some(StaleReason::Reflector(_))));
        content.cell.prove(0, Instant::now());
        assert!(content.now().is_live(), "a read that was sent since has shown that nothing is missing");
        advance(secs(90)).await;
        assert!(content.now().is_live());
        advance(secs(1)).await;
        assert!(!content.now().is_live(), "and none since then");
        content.cell.prove(0, Instant::now());
        content.reflector(0, Condition::Connecting, 1);
        assert!(!content.now().is_live(), "not a renewal: it has failed before");
    }

    #[tokio::test(start_paused = true)]
    async fn suspended_time_counts_as_age() {
        let content = live(1);
        content.slept.store(2_000_000_000, Ordering::SeqCst);
        assert!(matches!(content.now(), Freshness::Live { age } if age == secs(2)));
        content.slept.store(60_000_000_000, Ordering::SeqCst);
        assert!(
            matches!(content.now().reason(), Some(StaleReason::ClockSuspended { .. })),
            "{}",
            content.now()
        );
        assert_eq!(content.now().age(), Some(secs(60)));
        // A proof from before the suspend that arrives after it is as old as the suspend.
        content.context.sleep.tick();
        let before = Instant::now();
        advance(secs(1)).await;
        content.cell.prove(0, before - secs(1));
        assert!(content.now().age().is_some_and(|age| age >= secs(60)));
        content.cell.prove(0, Instant::now());
        assert!(content.now().is_within(secs(0)));
    }

    #[test]
    fn worst_freshness_keeps_greatest_age() {
        let age = Duration::from_secs;
        let stale =
            Freshness::Stale { since: Instant::now(), age: Some(age(10)), reason: StaleReason::AgeBound };
        let live = Freshness::Live { age: age(61) };
        for both in [stale.clone().worst(live.clone()), live.worst(stale)] {
            assert!(!both.is_live());
            assert_eq!(both.age(), Some(age(61)), "{both}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_is_as_fresh_as_its_worst_part() {
        let content = live(2);
        advance(secs(10)).await;
        content.cell.prove(0, Instant::now());
        assert_eq!(content.now().age(), Some(secs(10)));
        content.reflector(1, Condition::Forbidden, 2);
        assert!(matches!(content.now(), Freshness::Stale { .. }));
        content.cell.update(0, |part| part.synced = false);
        assert!(matches!(content.now(), Freshness::NeverSynced { .. }));
    }
}
