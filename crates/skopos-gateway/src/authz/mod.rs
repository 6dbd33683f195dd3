//! Authorization. The member's own policy decides, by SubjectAccessReview, so the cache never widens access.
//!
//! ```text
//!  cluster, identity, attributes ─▶ decision, at most 10 s old ─┬─ from the member
//!                                                              ├─ the member is down: denied, or by the rules of the file
//!                                                              └─ by the rules of the file alone (mode: Policy)
//! ```

pub(crate) mod ask;
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
use tokio::time::{Instant, sleep, timeout_at};

pub use self::attributes::Attributes;
pub(crate) use self::impersonation::Refusal;
use self::limits::ReviewLimits;
use self::outages::Outages;
use self::policy::Policy;
use crate::auth::Identity;
use crate::authz::ask::{Ask, AskError};
use crate::config::{AuthorizationMode, Config, LoopbackTrust, MemberDown};
use crate::limits::log_limit::LogLimit;
use crate::ttl_cache::{Cached, Fetched, Ttl, TtlCache};

/// The authorizer of requests. Cheap to clone; all clones share the same rules.
#[derive(Clone)]
pub struct Authorizer {
    rules: Arc<ArcSwap<Rules>>,
}

/// A decision, with its source and its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if the request is allowed.
    pub allowed: bool,
    /// The reason, for people; empty if there is none.
    pub reason: Arc<str>,
    /// The origin of the decision.
    pub source: DecisionSource,
    /// The age of the decision: at most ten seconds.
    pub age: Duration,
    /// The number of seconds until a decision may be possible, if there is none now and this is known.
    pub retry_after: Option<u32>,
    /// The missing right to impersonate, if the denial is due to it.
    pub refusal: Option<Arc<Refusal>>,
}

/// The origin of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionSource {
    /// The member's own policy.
    Member,
    /// The rules of the configuration.
    Policy,
    /// The member does not answer, or its answer cannot be used, so the request is denied.
    MemberDown,
    /// The member is too busy to answer, so the request is denied.
    MemberBusy,
    /// The caller has too many reviews under way, so the request is denied.
    CallerBusy,
    /// There is no such member.
    NoMember,
    /// The operator of the gateway, whose requests are not reviewed.
    Trusted,
}

/// The rules in force, and the cached decisions made by them.
struct Rules {
    ask: Arc<dyn Ask>,
    mode: AuthorizationMode,
    when_down: MemberDown,
    /// The user that counts as the gateway itself.
    trusted: Option<Identity>,
    /// True if no request may change a cluster.
    read_only: bool,
    policy: Policy,
    ttl: Duration,
    deadline: Duration,
    known: TtlCache<Key, Verdict>,
    limits: ReviewLimits,
    outages: Outages,
}

/// The cache key: everything that decides. A field left out here would grant rights to callers who do not have them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    cluster: Arc<str>,
    /// The server and connection that the name led to.
    generation: Option<u64>,
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

/// The maximum number of cached decisions.
const MAX_DECISIONS: usize = 100_000;

/// The maximum size of a cached question, in bytes. Callers choose names and paths, and all entries together must have a
/// bound.
const MAX_KEY_BYTES: usize = 1024;

/// The delay beyond the deadline after which an answer counts as not polled in the meantime.
const POLL_GRACE: Duration = Duration::from_secs(1);

/// The interval at which open watches are authorized again. With a decision that may be 10 s old, a revoked right ends a watch
/// within 60 s.
const REAUTHORIZE_INTERVAL: Duration = Duration::from_secs(45);

/// The interval of reviews while a watch is open and its right cannot be decided.
const UNDECIDED_INTERVAL: Duration = Duration::from_secs(5);

/// The time that a watch stays open while its right cannot be decided.
const MAX_UNDECIDED: Duration = Duration::from_secs(300);

/// The queue time from which a missing answer is not the member's fault: a review that waited longer says nothing about the
/// member.
const MAX_QUEUE_TIME: Duration = Duration::from_millis(200);

/// The shortest time between two log lines about unusable reviews.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The reason given to system users and groups of one cluster in all other clusters, including those that do not exist.
const ELSEWHERE: &str = "users and groups of the system are those of the cluster that reviewed the token (authentication.tokenReview.sharedAccounts)";

impl Authorizer {
    /// Creates an authorizer with the rules of `config`; `ask` reaches the members.
    pub fn new(config: &Config, ask: Arc<dyn Ask>) -> Self {
        let rules = Rules::new(config, ask, ReviewLimits::default());
        Self { rules: Arc::new(ArcSwap::from_pointee(rules)) }
    }

    /// Replaces the rules by those of `config`, for open requests too. Drops all cached decisions.
    pub fn take_over(&self, config: &Config) {
        let (ask, limits) = {
            let rules = self.rules.load();
            (rules.ask.clone(), rules.limits.clone())
        };
        self.rules.store(Arc::new(Rules::new(config, ask, limits)));
    }

    /// Returns whether `who` may do `what` in `cluster`, at the latest after the deadline for members.
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

    /// Decides as [`Authorizer::decide`], for one of many clusters that must not delay each other. Returns by `until`, and at
    /// once if the cluster did not answer lately. Such a cluster is asked in the background, so that its recovery is noticed.
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
    pub fn is_read_only(&self) -> bool {
        self.rules.load().read_only
    }

    /// Returns whether `who` counts as the gateway itself, whose requests are not reviewed.
    pub fn trusts(&self, who: &Identity) -> bool {
        self.rules.load().trusts(who)
    }

    /// Waits until `who` may no longer do `what`, and returns at most 60 s later. To be polled beside a watch. A right that
    /// cannot be decided is not revoked: it is reviewed again, and counts as lost if not confirmed within five minutes.
    pub async fn revoked(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        let mut undecided: Option<Instant> = None;
        loop {
            sleep(if undecided.is_some() { UNDECIDED_INTERVAL } else { REAUTHORIZE_INTERVAL }).await;
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

    /// Waits as [`revoked`](Self::revoked), and also returns when the right cannot be decided.
    pub(crate) async fn unconfirmed(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
    ) -> Decision {
        loop {
            sleep(REAUTHORIZE_INTERVAL).await;
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
            ttl: rules.cache.0.min(Duration::from_secs(10)),
            deadline: config.cache.member_deadline.0,
            known: TtlCache::new(MAX_DECISIONS, config.cache.member_deadline.0),
            limits,
            outages: Outages::default(),
        }
    }

    fn trusts(&self, who: &Identity) -> bool {
        self.trusted.as_ref() == Some(who)
    }

    fn without_asking(&self, cluster: &str, who: &Identity, what: &Attributes) -> Option<Decision> {
        if self.trusts(who) {
            return Some(Verdict::allowed("", DecisionSource::Trusted).with_age(Duration::ZERO));
        }
        if !who.is_known_in(cluster) {
            return Some(Verdict::denied(ELSEWHERE, DecisionSource::Policy).with_age(Duration::ZERO));
        }
        let by_policy = self.mode == AuthorizationMode::Policy;
        by_policy.then(|| self.by_policy(cluster, who, what).with_age(Duration::ZERO))
    }

    fn key(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Key {
        Key {
            cluster: cluster.into(),
            generation: self.ask.generation(cluster),
            who: who.clone(),
            what: what.clone(),
        }
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
        if !self.outages.is_down(cluster) {
            return match timeout_at(until, self.ask(key)).await {
                Ok(decision) => decision,
                Err(_) if self.outages.is_down(cluster) => {
                    self.down(cluster, who, what).with_age(Duration::ZERO)
                }
                // The cluster was asked too late to count as failed.
                Err(_) => Verdict::undecided(DecisionSource::MemberBusy, Some(1)).with_age(Duration::ZERO),
            };
        }
        if let Some(kept) = self.known.peek(&key) {
            return kept.into();
        }
        let asker = self.clone();
        self.outages.ask_again(cluster, async move {
            asker.ask(key).await;
        });
        self.down(cluster, who, what).with_age(Duration::ZERO)
    }

    async fn ask(self: &Arc<Self>, key: Key) -> Decision {
        let (asker, asked_for) = (self.clone(), key.clone());
        let by_member = async move {
            let answer = asker.by_member(&asked_for).await;
            match asked_for.bytes() <= MAX_KEY_BYTES {
                true => answer,
                false => Fetched { ttl: Ttl::FromRequest(Duration::ZERO), ..answer },
            }
        };
        self.known.get(key, move || by_member.boxed()).await.into()
    }

    /// Returns the verdict for a member that is down.
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

    /// Asks the member, and retries if the answer was not polled while it came, as for a watch whose client does not read. The
    /// expired deadline then says nothing about the member.
    async fn reviewed(&self, key: &Key, until: Instant) -> Result<(bool, String), AskError> {
        let Key { cluster, who, what, .. } = key;
        let mut within = until.saturating_duration_since(Instant::now());
        loop {
            let begun = Instant::now();
            let answer = review::review(&*self.ask, cluster, who, what, within).await;
            if answer.is_ok() || begun.elapsed() <= self.deadline + POLL_GRACE {
                return answer;
            }
            within = self.deadline;
        }
    }

    async fn by_member(&self, key: &Key) -> Fetched<Verdict> {
        let Key { cluster, who, what, generation } = key;
        if generation.is_none() {
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
                Fetched { value, ttl: Ttl::FromRequest(self.ttl) }
            }
            Err(AskError::Unknown(_)) => no_member(),
            Err(AskError::Busy { retry_after }) => {
                self.outages.answered(cluster);
                undecided(DecisionSource::MemberBusy, retry_after)
            }
            // The member had only a part of the time in which members answer.
            Err(error) if error.is_down() && waited => {
                undecided(DecisionSource::MemberBusy, Duration::from_secs(1))
            }
            Err(error) if error.is_down() => {
                tracing::debug!(%cluster, %error, "a member cannot be asked for its policy");
                self.outages.failed(cluster);
                Fetched { value: self.down(cluster, who, what), ttl: Ttl::FromResponse(outages::RETRY_DELAY) }
            }
            Err(error) => {
                if UNUSABLE.permits() {
                    tracing::warn!(%cluster, %error, "a member does not say what callers may do: may the gateway create subjectaccessreviews there?");
                }
                let value = Verdict::undecided(DecisionSource::MemberDown, None);
                Fetched { value, ttl: Ttl::FromResponse(outages::RETRY_DELAY) }
            }
        }
    }
}

/// A review under way. If all its callers give up after nearly the whole deadline, the member counts as down.
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

/// Denies a request for a cluster that does not exist, as if the cluster denied it.
fn no_member() -> Fetched<Verdict> {
    let value = Verdict::denied("there is no such cluster", DecisionSource::NoMember);
    Fetched { value, ttl: Ttl::FromResponse(outages::RETRY_DELAY) }
}

fn undecided(source: DecisionSource, retry_after: Duration) -> Fetched<Verdict> {
    let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1);
    Fetched { value: Verdict::undecided(source, Some(seconds)), ttl: Ttl::FromResponse(Duration::ZERO) }
}

impl Key {
    fn bytes(&self) -> usize {
        self.cluster.len() + self.what.bytes()
    }
}

impl Verdict {
    fn allowed(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: true, reason: reason.into(), source, retry_after: None }
    }

    fn denied(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: false, reason: reason.into(), source, retry_after: None }
    }

    /// Denies a request that could not be decided. The cause may reveal facts about others, so only the log has it.
    fn undecided(source: DecisionSource, retry_after: Option<u32>) -> Self {
        Self { retry_after, ..Self::denied("it could not be decided", source) }
    }

    fn with_age(self, age: Duration) -> Decision {
        let Self { allowed, reason, source, retry_after } = self;
        Decision { allowed, reason, source, age, retry_after, refusal: None }
    }
}

impl Decision {
    /// Returns whether the request is denied only because it could not be decided. It may well be allowed.
    pub fn is_undecided(&self) -> bool {
        use DecisionSource::{CallerBusy, MemberBusy, MemberDown};
        !self.allowed && matches!(self.source, MemberDown | MemberBusy | CallerBusy)
    }

    /// Returns why a watch ends that had the right before.
    pub fn end_reason(&self) -> &'static str {
        match self.is_undecided() {
            true => "the right could not be confirmed",
            false => "the right is gone",
        }
    }
}

impl From<Cached<Verdict>> for Decision {
    fn from(known: Cached<Verdict>) -> Self {
        known.value.with_age(known.age)
    }
}

impl DecisionSource {
    /// Returns a short stable name, for logs and metrics.
    pub fn as_str(self) -> &'static str {
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
