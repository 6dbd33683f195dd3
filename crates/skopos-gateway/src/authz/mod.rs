//! May they? The member's own policy decides, by SubjectAccessReview, so that the cache never widens access.
//!
//! ```text
//!  cluster, identity, attributes ─▶ decision, at most 10 s old ─┬─ from the member
//!                                                              ├─ the member is down: denied, or by the rules of the file
//!                                                              └─ by the rules of the file alone (mode: Policy)
//! ```

mod attributes;
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

use self::outages::Outages;
use self::policy::Policy;
use crate::answers::{Aged, Answer, Answers, Holds};
use crate::ask::{Ask, AskError};
use crate::auth::Identity;
use crate::config::{AuthorizationMode, Config, LoopbackTrust, MemberDown};

pub use self::attributes::Attributes;

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
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionSource {
    /// The member's own policy.
    Member,
    /// The rules of the configuration.
    Policy,
    /// Nobody could be asked, so it is denied.
    MemberDown,
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
}

/// Decisions that are kept.
const MOST_KNOWN: usize = 100_000;

/// The longest question whose answer is kept, in bytes: callers choose names and paths, and all answers together have to have a bound.
const LONGEST_KNOWN: usize = 1024;

/// What comes so much later than its deadline was not looked at meanwhile.
const LATE: Duration = Duration::from_secs(1);

/// Open watches are authorized again within 60 s: so often, with a decision that may be 10 s old.
const AGAIN: Duration = Duration::from_secs(45);

/// Said of whoever is a user or in a group of the system of one cluster, in all others, also in those that are not there.
const ELSEWHERE: &str = "users and groups of the system are those of the cluster that reviewed the token (authentication.tokenReview.sharedAccounts)";

// === impl Authorizer ===

impl Authorizer {
    /// Decides as `config` says; `ask` reaches the members.
    #[must_use]
    pub fn new(config: &Config, ask: Arc<dyn Ask>) -> Self {
        Self { rules: Arc::new(ArcSwap::from_pointee(Rules::new(config, ask))) }
    }

    /// Decides as `config` says from now on, for whoever has something open too. What was decided is forgotten.
    pub fn take_over(&self, config: &Config) {
        let ask = self.rules.load().ask.clone();
        self.rules.store(Arc::new(Rules::new(config, ask)));
    }

    /// Whether `who` may do `what` in `cluster`; at the latest after the deadline for members.
    pub async fn decide(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        let rules = self.rules.load_full();
        match rules.without_asking(cluster, who, what) {
            Some(decision) => decision,
            None => rules.decide(rules.key(cluster, who, what)).await,
        }
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
        if let Some(decision) = rules.without_asking(cluster, who, what) {
            return decision;
        }
        let key = rules.key(cluster, who, what);
        if !rules.outages.is_out(cluster) {
            return match timeout_at(until, rules.decide(key)).await {
                Ok(decision) => decision,
                Err(_) => {
                    // Nobody waits any more for the answer that would say so.
                    rules.outages.failed(&cluster.into());
                    rules.down(cluster, who, what).aged(Duration::ZERO)
                }
            };
        }
        if let Some(kept) = rules.known.kept(&key) {
            return kept.into();
        }
        let asker = rules.clone();
        rules.outages.ask_again(cluster, async move {
            asker.decide(key).await;
        });
        rules.down(cluster, who, what).aged(Duration::ZERO)
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
    /// 403 when denied, for whatever reason.
    pub async fn require(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
    ) -> Result<Decision, Status> {
        let decision = self.decide(cluster, who, what).await;
        if decision.allowed { Ok(decision) } else { Err(what.forbidden(who, &decision)) }
    }

    /// Ends when `who` may no longer do `what`, at most 60 s after that: to be waited for beside a watch.
    pub async fn revoked(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        loop {
            sleep(AGAIN).await;
            let asked = Instant::now();
            let decision = self.decide(cluster, who, what).await;
            if !decision.allowed {
                tracing::info!(cluster, user = %who, verb = %what.verb, age = ?asked.elapsed(), "watch ended: the right is gone");
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
    fn new(config: &Config, ask: Arc<dyn Ask>) -> Self {
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

    async fn decide(self: &Arc<Self>, key: Key) -> Decision {
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
            MemberDown::Deny => unanswered(),
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
    async fn reviewed(&self, Key { cluster, who, what, .. }: &Key) -> Result<(bool, String), AskError> {
        loop {
            let begun = Instant::now();
            let answer = review::review(&*self.ask, cluster, who, what, self.deadline).await;
            if answer.is_ok() || begun.elapsed() <= self.deadline + LATE {
                return answer;
            }
        }
    }

    async fn by_member(&self, key: &Key) -> Answer<Verdict> {
        let Key { cluster, who, what, .. } = key;
        match self.reviewed(key).await {
            Ok((allowed, reason)) => {
                self.outages.answered(cluster);
                let value = Verdict { allowed, reason: reason.into(), source: DecisionSource::Member };
                Answer { value, holds: Holds::SinceAsked(self.holds) }
            }
            Err(error) => {
                tracing::debug!(%cluster, %error, "a member cannot be asked for its policy");
                let value = match error.is_down() {
                    true => {
                        self.outages.failed(cluster);
                        self.down(cluster, who, what)
                    }
                    false => unanswered(),
                };
                Answer { value, holds: Holds::SinceCome(outages::PAUSE) }
            }
        }
    }
}

// === impl Key ===

impl Key {
    fn bytes(&self) -> usize {
        self.cluster.len() + self.what.bytes()
    }
}

/// What went wrong may tell of others: the log has it.
fn unanswered() -> Verdict {
    Verdict::denied("the cluster cannot be asked whether it is allowed", DecisionSource::MemberDown)
}

// === impl Verdict ===

impl Verdict {
    fn allowed(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: true, reason: reason.into(), source }
    }

    fn denied(reason: &str, source: DecisionSource) -> Self {
        Self { allowed: false, reason: reason.into(), source }
    }

    fn aged(self, age: Duration) -> Decision {
        Decision { allowed: self.allowed, reason: self.reason, source: self.source, age }
    }
}

// === impl Decision ===

impl Decision {
    /// Whether it is denied only because nobody could be asked: it may well be allowed.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        !self.allowed && self.source == DecisionSource::MemberDown
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
            Self::Trusted => "trusted",
        }
    }
}
