//! Public keys of a provider: fetched on demand, cached, and fetched at a limited rate.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::AuthError;
use super::fetch::Fetch;
use crate::ttl_cache::{Fetched, Ttl, TtlCache};

/// The keys of one issuer.
pub(super) struct Keys {
    issuer: String,
    fetch: Arc<dyn Fetch>,
    last: Arc<Mutex<Option<Arc<KeySet>>>>,
    fetching: TtlCache<(), Result<Arc<KeySet>, AuthError>>,
}

/// The keys that the provider published.
#[derive(Debug)]
struct KeySet {
    keys: Vec<Jwk>,
    fetched: Instant,
}

/// Age at which keys are fetched again, so that revoked keys are not used for long.
const REFRESH_AGE: Duration = Duration::from_secs(300);

/// Maximum age of keys in use while the provider does not answer.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Minimum interval of fetches. A token with an unknown key also causes a fetch.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of a provider's keys, and of unnamed keys that are tried.
const MAX_KEYS: usize = 100;
const MAX_TRIED: usize = 10;

impl Keys {
    pub(super) fn new(issuer: String, fetch: Arc<dyn Fetch>) -> Self {
        Self {
            issuer,
            fetch,
            last: Arc::default(),
            fetching: TtlCache::new(1, crate::auth::AUTHENTICATION_TIMEOUT),
        }
    }

    /// Returns the keys that may have signed a token; after `within` at the latest.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        within: Duration,
    ) -> Result<Vec<DecodingKey>, AuthError> {
        let last = self.last.lock().clone();
        let fresh = last.as_ref().filter(|set| set.fetched.elapsed() < REFRESH_AGE);
        if let Some(found) = fresh.map(|set| set.find(id, algorithm)).filter(|found| !found.is_empty()) {
            return Ok(found);
        }
        match self.fetched(within).await {
            Ok(set) => match set.find(id, algorithm) {
                none if none.is_empty() => Err(AuthError::Refused("the token is signed with an unknown key")),
                found => Ok(found),
            },
            Err(error) => {
                let usable = last.filter(|set| set.fetched.elapsed() < MAX_AGE);
                let found = usable.map(|set| set.find(id, algorithm)).unwrap_or_default();
                if found.is_empty() { Err(error) } else { Ok(found) }
            }
        }
    }

    async fn fetched(&self, within: Duration) -> Result<Arc<KeySet>, AuthError> {
        let (issuer, fetch, last) = (self.issuer.clone(), self.fetch.clone(), self.last.clone());
        let ask = move || -> futures::future::BoxFuture<'static, _> {
            Box::pin(async move {
                let got = tokio::time::timeout(within, get(&issuer, &*fetch, within)).await;
                let value = match got.unwrap_or_else(|_| Err(format!("no answer within {within:?}"))) {
                    Ok(keys) => {
                        let set = Arc::new(KeySet { keys, fetched: Instant::now() });
                        *last.lock() = Some(set.clone());
                        Ok(set)
                    }
                    Err(error) => {
                        tracing::warn!(%issuer, %error, "the OpenID provider's keys cannot be fetched");
                        Err(AuthError::Unavailable("the OpenID provider does not answer"))
                    }
                };
                Fetched { value, ttl: Ttl::FromResponse(MIN_FETCH_INTERVAL) }
            })
        };
        self.fetching.get((), ask).await.value
    }
}

/// The fields of the provider's description that are used.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

async fn get(issuer: &str, fetch: &dyn Fetch, within: Duration) -> Result<Vec<Jwk>, String> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let description = fetch.fetch(&url, within).await?;
    let description: Description = serde_json::from_slice(&description).map_err(|e| format!("{url}: {e}"))?;
    if description.issuer != issuer {
        return Err(format!("{url} describes another issuer"));
    }
    let set = fetch.fetch(&description.jwks_uri, within).await?;
    let set: JwkSet = serde_json::from_slice(&set).map_err(|e| format!("{}: {e}", description.jwks_uri))?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("{} has more than {MAX_KEYS} keys", description.jwks_uri));
    }
    Ok(set.keys)
}

impl KeySet {
    /// Returns the keys with this ID, or all if the token names none. Only keys that may verify, with this algorithm.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let named = |key: &&Jwk| id.is_none() || key.common.key_id.as_deref() == id;
        let for_signatures = |key: &&Jwk| {
            let common = &key.common;
            let by_use = common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
            let by_operations = common.key_operations.as_ref();
            by_use && by_operations.is_none_or(|all| all.contains(&KeyOperations::Verify))
        };
        let name = format!("{algorithm:?}");
        let fits = |key: &&Jwk| {
            key.common.key_algorithm.is_none_or(|for_algorithm| format!("{for_algorithm:?}") == name)
        };
        let all = self.keys.iter().filter(named).filter(for_signatures).filter(fits);
        all.filter_map(|key| DecodingKey::from_jwk(key).ok())
            .filter(|key| key.family() == algorithm.family())
            .take(MAX_TRIED)
            .collect()
    }
}
