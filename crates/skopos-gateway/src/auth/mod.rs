//! Authentication: from a client certificate or a bearer token to an [`Identity`].
//!
//! ```text
//!  certificate ────────────────────────────────┐
//!  token ─┬─ of the issuer: OIDC, offline ─────┼─▶ Identity     cached for at most 10 s, by the token's hash
//!         └─ of any other: TokenReview ────────┘
//! ```

mod certificate;
mod identity;
mod impersonation;
mod oidc;
#[cfg(test)]
mod tests;
mod token;
mod token_review;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use skopos_wire::{Status, StatusDetails};

use self::certificate::SystemNames;
pub use self::identity::Identity;
pub(crate) use self::identity::{Actor, service_account};
pub use self::impersonation::Impersonation;
pub(crate) use self::oidc::OidcError;
use self::oidc::Provider;
use self::token::{Token, TokenHash};
use self::token_review::{ReviewSource, Reviewer};
use crate::authz::ask::Ask;
use crate::config::Config;
use crate::listen::Peer;
use crate::request::authority::Authority;
use crate::ttl_cache::{Fetched, Ttl, TtlCache};

/// Authenticator of callers. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<AuthenticatorInner>,
}

/// The reason why a caller is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The caller sent no credentials.
    #[error("neither a client certificate nor a bearer token")]
    Nothing,
    /// The credentials are not accepted. The reason is for the gateway's log only; callers get a plain 401.
    #[error("{0}")]
    Refused(&'static str),
    /// The issuer or reviewer of the credentials cannot be asked now.
    #[error("{0}")]
    Unavailable(&'static str),
}

struct AuthenticatorInner {
    /// True if callers must authenticate.
    demanded: bool,
    certificates: Option<SystemNames>,
    reviewer: Option<Arc<Reviewer>>,
    oidc: Option<Arc<Provider>>,
    known: TtlCache<TokenHash, Result<Arc<Identity>, AuthError>>,
}

/// Maximum number of cached tokens with their users.
const MAX_TOKENS: usize = 10_000;

/// Lifetime of a cached answer. A revoked token must not be valid for longer.
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// Timeout of one authentication.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

impl Authenticator {
    /// Makes the configured ways of authentication; `ask` reaches the cluster that reviews tokens.
    ///
    /// # Errors
    /// Returns an error if the OpenID provider's URL or CA cannot be used.
    pub fn new(config: &Config, ask: Arc<dyn Ask>) -> Result<Self, OidcError> {
        let ways = &config.authentication;
        let shared = AuthenticatorInner {
            demanded: ways.is_configured(),
            certificates: ways.client_certificates.as_ref().map(SystemNames::from),
            reviewer: ways.token_review.as_ref().map(|options| Arc::new(Reviewer::new(options, ask))),
            oidc: ways.oidc.as_ref().map(Provider::new).transpose()?.map(Arc::new),
            known: TtlCache::new(MAX_TOKENS, AUTHENTICATION_TIMEOUT),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the sender of a request with these headers; after ten seconds at the latest.
    ///
    /// # Errors
    /// Returns an error if required credentials are missing or invalid, or if they cannot be checked now.
    pub async fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Identity>, AuthError> {
        if !self.shared.demanded {
            return anonymous(peer, headers);
        }
        if let Some((shown, system)) = self.shown(peer) {
            return certificate::identity(shown, system, jiff::Timestamp::now()).map(Arc::new);
        }
        let Some(token) = Token::from_headers(headers)? else { return Err(AuthError::Nothing) };
        let shared = self.shared.clone();
        let (key, source) = (token.hash(), peer.into());
        let ask = move || async move { shared.look_up(&token, source).await }.boxed();
        let identity = self.shared.known.get(key, ask).await.value;
        if !matches!(identity, Err(AuthError::Unavailable(_))) {
            peer.record.token_reviewed(identity.is_err());
        }
        identity
    }

    /// Returns whether the peer is identified by what its browser, if any, adds to each request: the address, or a client
    /// certificate.
    pub(crate) fn is_ambient(&self, peer: &Peer) -> bool {
        !self.shared.demanded || self.shown(peer).is_some()
    }

    /// Returns the certificate of the peer, if client certificates are accepted.
    fn shown<'a>(&'a self, peer: &'a Peer) -> Option<(&'a CertificateDer<'static>, &'a SystemNames)> {
        peer.certificate.as_ref().zip(self.shared.certificates.as_ref())
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("demanded", &self.shared.demanded).finish_non_exhaustive()
    }
}

impl AuthenticatorInner {
    async fn look_up(
        &self,
        token: &Token,
        source: ReviewSource,
    ) -> Fetched<Result<Arc<Identity>, AuthError>> {
        if let Some(provider) = self.oidc.as_ref().filter(|provider| provider.issued(token)) {
            return match provider.identity(token, AUTHENTICATION_TIMEOUT).await {
                Ok((identity, valid_for)) => {
                    let ttl = Ttl::FromRequest(TOKEN_TTL.min(valid_for));
                    Fetched { value: Ok(Arc::new(identity)), ttl }
                }
                Err(error) => failed(error),
            };
        }
        match &self.reviewer {
            Some(reviewer) => match reviewer.identity(token, source, AUTHENTICATION_TIMEOUT).await {
                Ok(identity) => Fetched { value: Ok(Arc::new(identity)), ttl: Ttl::FromRequest(TOKEN_TTL) },
                Err(error) => failed(error),
            },
            None => failed(AuthError::Refused("no authenticator is configured for tokens")),
        }
    }
}

fn failed<V>(error: AuthError) -> Fetched<Result<V, AuthError>> {
    let ttl = match error {
        AuthError::Unavailable(_) => Ttl::FromResponse(Duration::from_secs(1)),
        _ => Ttl::FromRequest(TOKEN_TTL),
    };
    Fetched { value: Err(error), ttl }
}

/// Returns the identity of any caller on this machine, for a gateway without authentication. A web page may make its own
/// name resolve to this machine, so the request must name the machine itself.
fn anonymous(peer: &Peer, headers: &HeaderMap) -> Result<Arc<Identity>, AuthError> {
    if !peer.address.ip().to_canonical().is_loopback() {
        return Err(AuthError::Refused("the caller is not on this machine"));
    }
    match Authority::from_headers(headers).is_some_and(|authority| authority.is_loopback()) {
        true => Ok(Arc::new(Identity::loopback())),
        false => Err(AuthError::Refused("the Host header does not name this machine")),
    }
}

impl From<AuthError> for Status {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Unavailable(why) => Status::service_unavailable(why)
                .with_details(StatusDetails { retry_after_seconds: 1, ..StatusDetails::default() }),
            AuthError::Nothing | AuthError::Refused(_) => Status::unauthorized(),
        }
    }
}
