//! May they? The member's own policy decides, by SubjectAccessReview, so that the cache never widens access.
//!
//! ```text
//!  cluster, identity, attributes ─▶ decision, at most 10 s old ─┬─ from the member
//!                                                              ├─ the member is down: denied, or by the rules of the file
//!                                                              └─ by the rules of the file alone (mode: Policy)
//! ```

mod attributes;
mod policy;
mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use skopos_wire::Status;
use tokio::time::{Instant, sleep};

use self::policy::Policy;
use crate::answers::{Answer, Answers};
use crate::ask::Ask;
use crate::auth::Identity;
use crate::config::{AuthorizationMode, Config, LoopbackTrust, MemberDown};

pub use self::attributes::Attributes;

/// Decides what callers may do. Cheap to clone.
#[derive(Clone)]
pub struct Authorizer {
    shared: Arc<Shared>,
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

struct Shared {
    ask: Arc<dyn Ask>,
    mode: AuthorizationMode,
    when_down: MemberDown,
    /// The user that is the gateway itself.
    trusted: Option<Identity>,
    policy: Policy,
    holds: Duration,
    deadline: Duration,
    known: Answers<Key, Verdict>,
}

/// Everything that decides. Whatever is left out here is a right that somebody gets who does not have it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    cluster: Arc<str>,
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

/// A member that cannot be asked is asked again after this, however many want to know.
const DOWN_HOLDS: Duration = Duration::from_secs(1);

/// Open watches are authorized again within 60 s: so often, with a decision that may be 10 s old.
const AGAIN: Duration = Duration::from_secs(45);

// === impl Authorizer ===

impl Authorizer {
    /// Decides as `config` says; `ask` reaches the members.
    #[must_use]
    pub fn new(config: &Config, ask: Arc<dyn Ask>) -> Self {
        let rules = &config.authorization;
        let trusts = rules.loopback == LoopbackTrust::Trusted && !config.authentication.is_configured();
        let shared = Shared {
            ask,
            mode: rules.mode,
            when_down: rules.when_member_is_down,
            trusted: trusts.then(Identity::loopback),
            policy: Policy::new(rules.policy.clone()),
            holds: rules.cache.0.min(Duration::from_secs(10)),
            deadline: config.cache.member_deadline.0,
            known: Answers::new(MOST_KNOWN),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether `who` may do `what` in `cluster`; at the latest after the deadline for members.
    pub async fn decide(&self, cluster: &str, who: &Arc<Identity>, what: &Attributes) -> Decision {
        let shared = &self.shared;
        if self.trusts(who) {
            return Verdict::allowed("", DecisionSource::Trusted).aged(Duration::ZERO);
        }
        if shared.mode == AuthorizationMode::Policy {
            return shared.by_policy(cluster, who, what).aged(Duration::ZERO);
        }
        let key = Key { cluster: cluster.into(), who: who.clone(), what: what.clone() };
        let (asker, asked_for) = (shared.clone(), key.clone());
        let known =
            shared.known.get(key, move || async move { asker.by_member(&asked_for).await }.boxed()).await;
        known.value.aged(known.age)
    }

    /// Whether `who` counts as the gateway itself, of whom nothing is reviewed.
    #[must_use]
    pub fn trusts(&self, who: &Identity) -> bool {
        self.shared.trusted.as_ref() == Some(who)
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
        f.debug_struct("Authorizer").field("mode", &self.shared.mode).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    fn by_policy(&self, cluster: &str, who: &Identity, what: &Attributes) -> Verdict {
        match self.policy.allows(cluster, who, what) {
            true => Verdict::allowed("by a rule of the gateway's configuration", DecisionSource::Policy),
            false => {
                Verdict::denied("no rule of the gateway's configuration allows it", DecisionSource::Policy)
            }
        }
    }

    async fn by_member(&self, key: &Key) -> Answer<Verdict> {
        let Key { cluster, who, what } = key;
        match review::review(&*self.ask, cluster, who, what, self.deadline).await {
            Ok((allowed, reason)) => {
                let verdict = Verdict { allowed, reason: reason.into(), source: DecisionSource::Member };
                Answer { value: verdict, holds: self.holds }
            }
            Err(error) => {
                tracing::debug!(%cluster, %error, "a member cannot be asked for its policy");
                let by_rules = self.when_down == MemberDown::Policy && error.is_down();
                let value = match by_rules {
                    true => self.by_policy(cluster, who, what),
                    // What went wrong may tell of others: the log has it.
                    false => Verdict::denied(
                        "the cluster cannot be asked whether it is allowed",
                        DecisionSource::MemberDown,
                    ),
                };
                Answer { value, holds: DOWN_HOLDS }
            }
        }
    }
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
