//! Authentication of bearer tokens by a cluster's TokenReview.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::token::TokenHash;
use super::{AuthError, Identity, Token};
use crate::authz::ask::{self, Ask};
use crate::config;
use crate::limits::fair::{FairLimits, FairPermit, FairSemaphore};
use crate::listen::{Peer, SourceNetwork};
use crate::ttl_cache::{Fetched, Ttl, TtlCache};

/// Reviewer of tokens at one cluster.
///
/// A flood of made-up tokens must neither become a flood of reviews nor delay valid tokens. So tokens that were valid
/// recently have permits of their own, and so have connections whose last token was refused. All permits are shared
/// fairly between networks.
pub(super) struct Reviewer {
    ask: Arc<dyn Ask>,
    cluster: String,
    audiences: Vec<String>,
    shared_accounts: bool,
    only_jwt: bool,
    good: TtlCache<TokenHash, ()>,
    good_permits: FairSemaphore<SourceNetwork>,
    unknown_permits: FairSemaphore<SourceNetwork>,
    suspect_permits: FairSemaphore<SourceNetwork>,
}

/// Limits on concurrent reviews of tokens that were valid recently. Each is reviewed again every ten seconds.
const GOOD_LIMITS: FairLimits = FairLimits { permits: 32, per_key: 24, queue: 1024 };

/// Limits on concurrent reviews of new tokens.
const UNKNOWN_LIMITS: FairLimits = FairLimits { permits: 24, per_key: 18, queue: 1024 };

/// Limits on concurrent reviews for connections whose last token was refused.
const SUSPECT_LIMITS: FairLimits = FairLimits { permits: 8, per_key: 4, queue: 256 };

/// Time for which a token counts as good after a review; it only determines the queue.
const GOOD_TTL: Duration = Duration::from_secs(3600);

const MAX_GOOD: usize = 10_000;

/// The network of a review's client, and the queue in which the review waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReviewSource {
    network: SourceNetwork,
    is_suspect: bool,
}

impl Reviewer {
    pub(super) fn new(options: &config::TokenReview, ask: Arc<dyn Ask>) -> Self {
        let config::TokenReview { cluster, audiences, shared_accounts, only_jwt } = options.clone();
        Self {
            ask,
            cluster,
            audiences,
            shared_accounts,
            only_jwt,
            good: TtlCache::new(MAX_GOOD, GOOD_TTL),
            good_permits: FairSemaphore::new(GOOD_LIMITS),
            unknown_permits: FairSemaphore::new(UNKNOWN_LIMITS),
            suspect_permits: FairSemaphore::new(SUSPECT_LIMITS),
        }
    }

    /// Returns the identity of the token; after `within` at the latest.
    pub(super) async fn identity(
        &self,
        token: &Token,
        source: ReviewSource,
        within: Duration,
    ) -> Result<Identity, AuthError> {
        if self.only_jwt && !token.is_jwt() {
            return Err(AuthError::Refused("the bearer token is not a JWT, and no others are accepted"));
        }
        let acquired = timeout(within / 2, self.acquire(token, source)).await;
        let Ok(Some(_permit)) = acquired else {
            return Err(AuthError::Unavailable("too many tokens are being reviewed"));
        };
        let identity = self.review(token, within / 2).await?;
        let kept = async { Fetched { value: (), ttl: Ttl::FromRequest(GOOD_TTL) } };
        self.good.get(token.hash(), || kept.boxed()).await;
        Ok(identity)
    }

    async fn acquire(&self, token: &Token, source: ReviewSource) -> Option<FairPermit<SourceNetwork>> {
        let semaphore = match self.good.peek(&token.hash()) {
            Some(_) => &self.good_permits,
            None if source.is_suspect => &self.suspect_permits,
            None => &self.unknown_permits,
        };
        semaphore.acquire(source.network).await.ok()
    }

    async fn review(&self, token: &Token, within: Duration) -> Result<Identity, AuthError> {
        let question = Review {
            api_version: "authentication.k8s.io/v1",
            kind: "TokenReview",
            spec: Spec { token: token.expose(), audiences: &self.audiences },
        };
        let asked = ask::review::<_, Reviewed>(&*self.ask, &self.cluster, PATH, &question, within).await;
        let reviewed = match asked {
            Ok(reviewed) => reviewed.status,
            Err(error) => {
                tracing::warn!(cluster = %self.cluster, %error, "tokens cannot be reviewed");
                return Err(AuthError::Unavailable("the cluster that knows the tokens cannot be asked"));
            }
        };
        if !reviewed.authenticated || !reviewed.error.is_empty() {
            return Err(AuthError::Refused("the token is not valid"));
        }
        // A cluster that does not support audiences returns none: then the token may be for any audience.
        if !self.audiences.is_empty() && !reviewed.audiences.iter().any(|a| self.audiences.contains(a)) {
            return Err(AuthError::Refused("the token is for another audience"));
        }
        let mut identity = reviewed.user;
        if identity.user.is_empty() {
            return Err(AuthError::Refused("the token has no user"));
        }
        identity.join(super::identity::AUTHENTICATED);
        if identity.is_of_system() && !self.shared_accounts {
            identity.home = Some(self.cluster.as_str().into());
        }
        Ok(identity)
    }
}

impl From<&Peer> for ReviewSource {
    fn from(peer: &Peer) -> Self {
        Self { network: peer.source(), is_suspect: peer.record.is_token_refused() }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
struct Reviewed {
    status: ReviewedStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewedStatus {
    authenticated: bool,
    user: Identity,
    audiences: Vec<String>,
    error: String,
}
