//! May they? The member's own policy decides, by SubjectAccessReview, so that the cache never widens access.
//!
//! ```text
//!  cluster, identity, attributes ─▶ decision, at most 10 s old ─┬─ from the member
//!                                                              ├─ the member is down: denied, or by the rules of the file
//!                                                              └─ by the rules of the file alone (mode: Policy)
//! ```

mod attributes;
mod impersonation;
mod limits;
mod outages;
mod policy;
mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use skopos_wire::Status;
use tokio::time::{Instant, sleep, timeout_at};

use self::limits::ReviewLimits;
use self::outages::Outages;
use self::policy::Policy;
use crate::answers::{Aged, Answer, Answers, Holds};
use crate::ask::{Ask, AskError};
use crate::auth::Identity;
use crate::config::{AuthorizationMode, Config, LoopbackTrust, MemberDown};
use crate::log_limit::LogLimit;

pub use self::attributes::Attributes;
pub use self::impersonation::Refusal;

/// Decides what callers may do. Cheap to clone; all clones decide by the same rules.
#[derive(Clone)]
pub struct Authorizer {
    rules: Arc<ArcSwap<Rules>>,
}

/// What was decided, by whom, and how long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether they may.
    pub allowed: bool,
    /// Why, for people; empty if nothing was said.
    pub reason: Arc<str>,
    /// Who decided.
    pub source: DecisionSource,
    /// How old the decision is: at most ten seconds.
    pub age: Duration,
    /// Where nothing was decided: after how many seconds it may be, if that is known.
    pub retry_after: Option<u32>,
    /// The right to impersonate that is missing, where that decided.
    pub refusal: Option<Arc<Refusal>>,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionSource {
    /// The member's own policy.
    Member,
    /// The rules of the configuration.
    Policy,
    /// The member does not answer, or its answer cannot be used, so it is denied.
    MemberDown,
    /// The member is too busy to answer, so it is denied.
    MemberBusy,
    /// The caller has too many reviews under way, so it is denied.
    CallerBusy,
    /// There is no such member.
    NoMember,
    /// Whoever runs the gateway: nothing is reviewed.
    Trusted,
}

/// The rules in force, and what was decided by them.
struct Rules {
    ask: Arc<dyn Ask>,
    mode: AuthorizationMode,
    when_down: MemberDown,
    /// The user that is the gateway itself.
    trusted: Option<Identity>,
    /// Nothing may change a cluster.
    read_only: bool,
    policy: Policy,
    holds: Duration,
    deadline: Duration,
    known: Answers<Key, Verdict>,
    limits: ReviewLimits,
    outages: Outages,
}

/// Everything that decides. Whatever is left out here is a right that somebody gets who does not have it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    cluster: Arc<str>,
    /// Whom the name led to, and how.
    way: Option<u64>,
    who: Arc<Identity>,
    what: Attributes,
}

#[derive(Clone)]
struct Verdict {
    allowed: bool,
    reason: Arc<str>,
    source: DecisionSource,
    retry_after: Option<u32>,
}

/// Decisions that are kept.
const MOST_KNOWN: usize = 100_000;

/// The longest question whose answer is kept, in bytes: callers choose names and paths, and all answers together have to have a bound.
const LONGEST_KNOWN: usize = 1024;

/// What comes so much later than its deadline was not looked at meanwhile.
const LATE: Duration = Duration::from_secs(1);

/// Open watches are authorized again within 60 s: so often, with a decision that may be 10 s old.
const AGAIN: Duration = Duration::from_secs(45);

/// How often a right is reviewed again that could not be decided, while a watch is open.
const UNDECIDED_INTERVAL: Duration = Duration::from_secs(5);

/// How long a watch stays open while its right cannot be decided.
const MAX_UNDECIDED: Duration = Duration::from_secs(300);

/// A review that waited longer than this for its permit and then has no answer in time says nothing of the member.
const MAX_QUEUE_TIME: Duration = Duration::from_millis(200);

/// The least time between two lines of the log about unusable reviews.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Said of whoever is a user or in a group of the system of one cluster, in all others, also in those that are not there.
const ELSEWHERE: &str = "users and groups of the system are those of the cluster that reviewed the token (authentication.tokenReview.sharedAccounts)";

// === impl Authorizer ===

impl Authorizer {
    /// Decides as `config` says; `ask` reaches the members.
    #[must_use]
    pub fn new(config: &Config, ask: Arc<dyn Ask>) -> Self {
        let rules = Rules::new(config, ask, ReviewLimits::default());
        Self { rules: Arc::new(ArcSwap::from_pointee(rules)) }
    }

    /// Decides as `config` says from now on, for whoever has something open too. What was decided is forgotten.
    pub fn take_over(&self, config: &Config) {
        let (ask, limits) = {
            let rules = self.rules.load();
            (rules.ask.clone(), rules.limits.clone())
        };
        self.rules.store(Arc::new(Rules::new(config, ask, limits)));
    }

    /// Whether `who` may do `what` in `cluster`; at the latest after the deadline for members.
    pub async fn decide(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        let rules = self.rules.load_full();
        if let Some(actor) = &who.actor {
            let decide = async |caller, right| rules.decide(cluster, &caller, &right).await;
            if let Some(refused) = impersonation::refused(who, actor, decide).await {
                return refused;
            }
        }
        rules.decide(cluster, who, what).await
    }

    /// As [`Authorizer::decide`] for one of many clusters, none of which may hold up the others: at the latest at `until`, and
    /// at once if the cluster did not answer lately. Then it is asked in the background, so that it is known when it answers
    /// again.
    pub async fn decide_by(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
        until: Instant,
    ) -> Decision {
        let rules = self.rules.load_full();
        if let Some(actor) = &who.actor {
            let decide = async |caller, right| rules.decide_by(cluster, &caller, &right, until).await;
            if let Some(refused) = impersonation::refused(who, actor, decide).await {
                return refused;
            }
        }
        rules.decide_by(cluster, who, what, until).await
    }

    /// Returns whether no caller may change a cluster.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.rules.load().read_only
    }

    /// Whether `who` counts as the gateway itself, of whom nothing is reviewed.
    #[must_use]
    pub fn trusts(&self, who: &Identity) -> bool {
        self.rules.load().trusts(who)
    }

    /// As [`Authorizer::decide`], where denied as the API server says it.
    ///
    /// # Errors
    /// 403 when denied; 429 or 503 when that could not be decided.
    pub async fn require(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
    ) -> Result<Decision, Status> {
        let decision = self.decide(cluster, who, what).await;
        if decision.allowed { Ok(decision) } else { Err(what.forbidden(who, &decision)) }
    }

    /// Ends when `who` may no longer do `what`, at most 60 s after that: to be waited for beside a watch. A right that cannot be
    /// decided is not gone: it is reviewed again, and confirmed within five minutes or given up.
    pub async fn revoked(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        let mut undecided: Option<Instant> = None;
        loop {
            sleep(if undecided.is_some() { UNDECIDED_INTERVAL } else { AGAIN }).await;
            let decision = self.decide(cluster, who, what).await;
            if decision.allowed {
                undecided = None;
                continue;
            }
            let since = decision.is_undecided().then(|| *undecided.get_or_insert_with(Instant::now));
            if since.is_none_or(|since| since.elapsed() >= MAX_UNDECIDED) {
                let why = decision.end_reason();
                tracing::info!(cluster, user = %who, verb = %what.verb, why, "watch ended");
                return decision;
            }
        }
    }

    /// As [`revoked`](Self::revoked), and ends also when that cannot be decided.
    pub(crate) async fn unconfirmed(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
    ) -> Decision {
        loop {
            sleep(AGAIN).await;
            let decision = self.decide(cluster, who, what).await;
            if !decision.allowed {
                let why = decision.end_reason();
                tracing::info!(cluster, user = %who, verb = %what.verb, why, "a right is not confirmed");
                return decision;
            }
        }
    }
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("mode", &self.rules.load().mode).finish_non_exhaustive()
    }
}

// === impl Rules ===

impl Rules {
    fn new(config: &Config, ask: Arc<dyn Ask>, limits: ReviewLimits) -> Self {
        let rules = &config.authorization;
        let trusts = rules.loopback == LoopbackTrust::Trusted && !config.authentication.is_configured();
        Self {
            ask,
            mode: rules.mode,
            when_down: rules.when_member_is_down,
            trusted: trusts.then(Identity::loopback),
            read_only: config.outbound.read_only,
            policy: Policy::new(rules.policy.clone()),
            holds: rules.cache.0.min(Duration::from_secs(10)),
            deadline: config.cache.member_deadline.0,
            known: Answers::new(MOST_KNOWN, config.cache.member_deadline.0),
            limits,
            outages: Outages::default(),
        }
    }

    fn trusts(&self, who: &Identity) -> bool {
        self.trusted.as_ref() == Some(who)
    }

    fn without_asking(&self, cluster: &str, who: &Identity, what: &Attributes) -> Option<Decision> {
        if self.trusts(who) {
            return Some(Verdict::allowed("", DecisionSource::Trusted).aged(Duration::ZERO));
        }
        if !who.is_known_in(cluster) {
            return Some(Verdict::denied(ELSEWHERE, DecisionSource::Policy).aged(Duration::ZERO));
        }
        let by_policy = self.mode == AuthorizationMode::Policy;
        by_policy.then(|| self.by_policy(cluster, who, what).aged(Duration::ZERO))
    }

    fn key(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Key {
        Key { cluster: cluster.into(), way: self.ask.way(cluster), who: who.clone(), what: what.clone() }
    }

    async fn decide(self: &Arc<Self>, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        match self.without_asking(cluster, who, what) {
            Some(decision) => decision,
            None => self.ask(self.key(cluster, who, what)).await,
        }
    }

    async fn decide_by(
        self: &Arc<Self>,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
        until: Instant,
    ) -> Decision {
        if let Some(decision) = self.without_asking(cluster, who, what) {
            return decision;
        }
        let key = self.key(cluster, who, what);
        if !self.outages.is_out(cluster) {
            return match timeout_at(until, self.ask(key)).await {
                Ok(decision) => decision,
                Err(_) if self.outages.is_out(cluster) => self.down(cluster, who, what).aged(Duration::ZERO),
                // It was asked too late to have failed.
                Err(_) => Verdict::undecided(DecisionSource::MemberBusy, Some(1)).aged(Duration::ZERO),
            };
        }
        if let Some(kept) = self.known.kept(&key) {
            return kept.into();
        }
        let asker = self.clone();
        self.outages.ask_again(cluster, async move {
            asker.ask(key).await;
        });
        self.down(cluster, who, what).aged(Duration::ZERO)
    }

    async fn ask(self: &Arc<Self>, key: Key) -> Decision {
        let (asker, asked_for) = (self.clone(), key.clone());
        let by_member = async move {
            let answer = asker.by_member(&asked_for).await;
            match asked_for.bytes() <= LONGEST_KNOWN {
                true => answer,
                false => Answer { holds: Holds::SinceAsked(Duration::ZERO), ..answer },
            }
        };
        self.known.get(key, move || by_member.boxed()).await.into()
    }

    /// What holds while the member is down.
    fn down(&self, cluster: &str, who: &Identity, what: &Attributes) -> Verdict {
        match self.when_down {
            MemberDown::Policy => self.by_policy(cluster, who, what),
            MemberDown::Deny => Verdict::undecided(DecisionSource::MemberDown, None),
        }
    }

    fn by_policy(&self, cluster: &str, who: &Identity, what: &Attributes) -> Verdict {
        match self.policy.allows(cluster, who, what) {
            true => Verdict::allowed("by a rule of the gateway's configuration", DecisionSource::Policy),
            false => {
                Verdict::denied("no rule of the gateway's configuration allows it", DecisionSource::Policy)
            }
        }
    }

    /// Asks the member, and once more where nobody looked for the answer while it came, as a watch whose client does not read: that
    /// its deadline is over then says nothing of the member.
    async fn reviewed(&self, key: &Key, until: Instant) -> Result<(bool, String), AskError> {
        let Key { cluster, who, what, .. } = key;
        let mut within = until.saturating_duration_since(Instant::now());
        loop {
            let begun = Instant::now();
            let answer = review::review(&*self.ask, cluster, who, what, within).await;
            if answer.is_ok() || begun.elapsed() <= self.deadline + LATE {
                return answer;
            }
            within = self.deadline;
        }
    }

    async fn by_member(&self, key: &Key) -> Answer<Verdict> {
        let Key { cluster, who, what, way } = key;
        if way.is_none() {
            return no_member();
        }
        let asked = Instant::now();
        let until = asked + self.deadline;
        let _permit = match timeout_at(until, self.limits.acquire(cluster, &who.caller().user)).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return undecided(DecisionSource::CallerBusy, Duration::from_secs(1)),
            Err(_) => return undecided(DecisionSource::MemberBusy, Duration::from_secs(1)),
        };
        let waited = asked.elapsed() > MAX_QUEUE_TIME;
        let mut unanswered = Unanswered { rules: self, cluster, begun: Instant::now(), is_over: false };
        let answer = self.reviewed(key, until).await;
        unanswered.is_over = true;
        match answer {
            Ok((allowed, reason)) => {
                self.outages.answered(cluster);
                let source = DecisionSource::Member;
                let value = Verdict { allowed, reason: reason.into(), source, retry_after: None };
                Answer { value, holds: Holds::SinceAsked(self.holds) }
            }
            Err(AskError::Unknown(_)) => no_member(),
            Err(AskError::Busy { retry_after }) => {
                self.outages.answered(cluster);
                undecided(DecisionSource::MemberBusy, retry_after)
            }
            // It had only a part of the time in which a member answers.
            Err(error) if error.is_down() && waited => {
                undecided(DecisionSource::MemberBusy, Duration::from_secs(1))
            }
            Err(error) if error.is_down() => {
                tracing::debug!(%cluster, %error, "a member cannot be asked for its policy");
                self.outages.failed(cluster);
                Answer { value: self.down(cluster, who, what), holds: Holds::SinceCome(outages::PAUSE) }
            }
            Err(error) => {
                if UNUSABLE.permits() {
                    tracing::warn!(%cluster, %error, "a member does not say what callers may do: may the gateway create subjectaccessreviews there?");
                }
                let value = Verdict::undecided(DecisionSource::MemberDown, None);
                Answer { value, holds: Holds::SinceCome(outages::PAUSE) }
            }
        }
    }
}

/// A review under way. If all that wait for it give up after nearly the whole deadline, the member counts as down.
struct Unanswered<'a> {
    rules: &'a Rules,
    cluster: &'a Arc<str>,
    begun: Instant,
    is_over: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.begun.elapsed() >= self.rules.deadline.mul_f32(0.9) {
            self.rules.outages.failed(self.cluster);
        }
    }
}

static UNUSABLE: LogLimit = LogLimit::new(LOG_INTERVAL);

/// Denies what a caller wants to do in a cluster that is not there, as if it said no.
fn no_member() -> Answer<Verdict> {
    let value = Verdict::denied("there is no such cluster", DecisionSource::NoMember);
    Answer { value, holds: Holds::SinceCome(outages::PAUSE) }
}

fn undecided(source: DecisionSource, retry_after: Duration) -> Answer<Verdict> {
    let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1);
    Answer { value: Verdict::undecided(source, Some(seconds)), holds: Holds::SinceCome(Duration::ZERO) }
}

// === impl Key ===

impl Key {
    fn bytes(&self) -> usize {
        self.cluster.len() + self.what.bytes()
    }
}

// === impl Verdict ===

impl Verdict {
    fn allowed(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: true, reason: reason.into(), source, retry_after: None }
    }

    fn denied(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: false, reason: reason.into(), source, retry_after: None }
    }

    /// Denies what could not be decided. What went wrong may tell of others: the log has it.
    fn undecided(source: DecisionSource, retry_after: Option<u32>) -> Self {
        Self { retry_after, ..Self::denied("it could not be decided", source) }
    }

    fn aged(self, age: Duration) -> Decision {
        let Self { allowed, reason, source, retry_after } = self;
        Decision { allowed, reason, source, age, retry_after, refusal: None }
    }
}

// === impl Decision ===

impl Decision {
    /// Returns whether it is denied only because it could not be decided: it may well be allowed.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        use DecisionSource::{CallerBusy, MemberBusy, MemberDown};
        !self.allowed && matches!(self.source, MemberDown | MemberBusy | CallerBusy)
    }

    /// Returns why a watch ends that had the right before.
    #[must_use]
    pub fn end_reason(&self) -> &'static str {
        match self.is_undecided() {
            true => "the right could not be confirmed",
            false => "the right is gone",
        }
    }
}

impl From<Aged<Verdict>> for Decision {
    fn from(known: Aged<Verdict>) -> Self {
        known.value.aged(known.age)
    }
}

// === impl DecisionSource ===

impl DecisionSource {
    /// A short stable name, for logs and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Policy => "policy",
            Self::MemberDown => "member_down",
            Self::MemberBusy => "member_busy",
            Self::CallerBusy => "caller_busy",
            Self::NoMember => "no_member",
            Self::Trusted => "trusted",
        }
    }
}
