//! Bearer tokens that a cluster knows, by TokenReview.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{AuthError, Identity, Token};
use crate::ask::{self, Ask};
use crate::config;

/// Reviews tokens at one cluster.
pub(super) struct Reviewer {
    ask: Arc<dyn Ask>,
    cluster: String,
    audiences: Vec<String>,
    shared_accounts: bool,
    /// A flood of made-up tokens must not become one of reviews.
    places: Semaphore,
}

const PLACES: usize = 32;

// === impl Reviewer ===

impl Reviewer {
    pub(super) fn new(options: &config::TokenReview, ask: Arc<dyn Ask>) -> Self {
        let config::TokenReview { cluster, audiences, shared_accounts } = options.clone();
        Self { ask, cluster, audiences, shared_accounts, places: Semaphore::new(PLACES) }
    }

    /// Who the token is for; at the latest after `within`.
    pub(super) async fn identity(&self, token: &Token, within: Duration) -> Result<Identity, AuthError> {
        let busy = AuthError::Unavailable("too many tokens are being reviewed");
        let Ok(Ok(_place)) = tokio::time::timeout(within / 5, self.places.acquire()).await else {
            return Err(busy);
        };
        let question = Review {
            api_version: "authentication.k8s.io/v1",
            kind: "TokenReview",
            spec: Spec { token: token.expose(), audiences: &self.audiences },
        };
        let asked = ask::review::<_, Reviewed>(&*self.ask, &self.cluster, PATH, &question, within / 2).await;
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
        // A cluster that does not know of audiences says none: then the token may be for anybody.
        if !self.audiences.is_empty() && !reviewed.audiences.iter().any(|a| self.audiences.contains(a)) {
            return Err(AuthError::Refused("the token is for another audience"));
        }
        let mut identity = reviewed.user;
        if identity.user.is_empty() {
            return Err(AuthError::Refused("the token is for nobody"));
        }
        identity.join(super::identity::AUTHENTICATED);
        if identity.is_of_system() && !self.shared_accounts {
            identity.home = Some(self.cluster.as_str().into());
        }
        Ok(identity)
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
