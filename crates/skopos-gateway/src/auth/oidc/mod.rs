//! Authentication of an OpenID provider's bearer tokens with its public keys.

mod fetch;
mod keys;
mod signature;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use self::fetch::HttpsFetch;
use self::keys::Keys;
use super::token::Token;
use super::{AuthError, Identity};
use crate::config::Oidc;

/// The reason why a provider cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OidcError {
    /// The CA file cannot be used.
    #[error("the CA of the OpenID provider cannot be used: {0}")]
    Ca(String),
    /// The URL cannot be used.
    #[error("the URL of the OpenID provider cannot be used: {0}")]
    Url(String),
}

/// Verifier of the tokens of one issuer.
pub(super) struct Provider {
    options: Oidc,
    keys: Keys,
}

/// The accepted signature algorithms: none with a shared secret, and not `none`.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Maximum difference between the provider's clock and ours.
const LEEWAY: Duration = Duration::from_secs(10);

/// Maximum number of groups in a token.
const MAX_GROUPS: usize = 1_000;

impl Provider {
    pub(super) fn new(options: &Oidc) -> Result<Self, OidcError> {
        signature::install_provider();
        let fetch = Arc::new(HttpsFetch::new(options.ca.as_deref())?);
        Ok(Self { options: options.clone(), keys: Keys::new(options.issuer.clone(), fetch) })
    }

    /// Returns whether the token claims to be of this issuer. The unverified claim only selects the verifier.
    pub(super) fn issued(&self, token: &Token) -> bool {
        let claims = jsonwebtoken::dangerous::insecure_decode_claims::<Map<String, Value>>(token.expose());
        claims.is_ok_and(|claims| claims.get("iss").and_then(Value::as_str) == Some(&self.options.issuer))
    }

    /// Returns the identity of the token, and for how long it is valid; after `within` at the latest.
    pub(super) async fn identity(
        &self,
        token: &Token,
        within: Duration,
    ) -> Result<(Identity, Duration), AuthError> {
        let header =
            decode_header(token.expose()).map_err(|_| AuthError::Refused("the token has no header"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(AuthError::Refused("the token is signed with an algorithm that is not accepted"));
        }
        let candidates = self.keys.find(header.kid.as_deref(), header.alg, within).await?;
        let validation = self.validation(header.alg);
        for key in candidates {
            match decode::<Map<String, Value>>(token.expose(), &key, &validation) {
                Ok(token) => return self.read(&token.claims),
                Err(error) => {
                    tracing::debug!(%error, "a key does not fit a token, or the token is not accepted")
                }
            }
        }
        Err(AuthError::Refused("the token's signature, issuer, audience or times are wrong"))
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&self.options.audiences);
        validation
    }

    /// Reads the identity from verified claims.
    fn read(&self, claims: &Map<String, Value>) -> Result<(Identity, Duration), AuthError> {
        let Oidc { username_claim, username_prefix, groups_claim, groups_prefix, .. } = &self.options;
        let user = claims.get(username_claim).and_then(Value::as_str).filter(|user| !user.is_empty());
        let user = user.ok_or(AuthError::Refused("the token does not have the claim that names the user"))?;
        if username_claim == "email"
            && claims.get("email_verified").is_some_and(|yes| *yes != Value::Bool(true))
        {
            return Err(AuthError::Refused("the token's email is not verified"));
        }
        let groups: Vec<String> = match claims.get(groups_claim) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(group)) => vec![group.clone()],
            Some(Value::Array(groups)) if groups.len() <= MAX_GROUPS => {
                let texts: Option<Vec<String>> =
                    groups.iter().map(|group| group.as_str().map(str::to_owned)).collect();
                texts.ok_or(AuthError::Refused("a group in the token is no text"))?
            }
            Some(_) => return Err(AuthError::Refused("the token's groups are no list, or too many")),
        };
        let user = format!("{username_prefix}{user}");
        let groups: Vec<String> = groups.into_iter().map(|group| format!("{groups_prefix}{group}")).collect();
        // Only Kubernetes itself assigns such names.
        if user.starts_with("system:") || groups.iter().any(|group| group.starts_with("system:")) {
            return Err(AuthError::Refused("the token names a user or group of the system"));
        }
        let expires = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
        let left = expires - jiff::Timestamp::now().as_duration().as_secs_f64();
        let left = Duration::try_from_secs_f64(left.clamp(0.0, 3600.0)).unwrap_or_default();
        Ok((Identity::authenticated(user, groups), left))
    }
}
