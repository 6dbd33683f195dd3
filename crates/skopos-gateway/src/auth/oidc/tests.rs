use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::HeaderMap;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;

use super::fetch::Fetch;
use super::*;

const ISSUER: &str = "https://id.example.com/realm";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A provider whose documents a test sets.
#[derive(Default)]
struct Documents {
    at: Mutex<HashMap<String, Result<Value, String>>>,
    fetched: Mutex<Vec<String>>,
}

impl Fetch for Documents {
    fn fetch(&self, url: &str, _: Duration) -> BoxFuture<'static, Result<Bytes, String>> {
        self.fetched.lock().push(url.to_owned());
        let found = self.at.lock().get(url).cloned().unwrap_or_else(|| Err("not there".into()));
        Box::pin(async move { found.map(|value| Bytes::from(value.to_string())) })
    }
}

/// A key pair of the provider.
struct Pair {
    id: &'static str,
    private: EcdsaKeyPair,
    public: Value,
}

impl Pair {
    fn new(id: &'static str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let point = pair.public_key_raw().to_vec();
        let coordinate = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id,
            "x": coordinate(&point[1..33]), "y": coordinate(&point[33..65]),
        });
        let private = pair.serialize_der();
        let random = SystemRandom::new();
        let private = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &private, &random).unwrap();
        Self { id, private, public }
    }

    fn sign(&self, claims: &Value) -> String {
        let message = message("ES256", self.id, claims);
        let signature = self.private.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns the signed text: the header and the claims.
fn message(algorithm: &str, key: &str, claims: &Value) -> String {
    let part = |value: String| URL_SAFE_NO_PAD.encode(value);
    format!("{}.{}", part(json!({"alg": algorithm, "kid": key}).to_string()), part(claims.to_string()))
}

struct Setup {
    documents: Arc<Documents>,
    provider: Provider,
    key: Pair,
}

impl Setup {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Oidc)) -> Self {
        let mut options: Oidc =
            serde_json::from_value(json!({"issuer": ISSUER, "audiences": ["skopos"]})).unwrap();
        change(&mut options);
        let documents = Arc::new(Documents::default());
        let key = Pair::new("one");
        let keys = Keys::new(options.issuer.clone(), documents.clone());
        let setup = Self { documents, provider: Provider { options, keys }, key };
        let described = json!({"issuer": ISSUER, "jwks_uri": "https://id.example.com/keys"});
        setup.publish("https://id.example.com/realm/.well-known/openid-configuration", described);
        setup.publish("https://id.example.com/keys", json!({"keys": [setup.key.public]}));
        setup
    }

    fn publish(&self, url: &str, document: Value) {
        self.documents.at.lock().insert(url.into(), Ok(document));
    }

    async fn identity(&self, token: &str) -> Result<Identity, AuthError> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        let token = Token::from_headers(&headers)?.unwrap();
        Ok(self.provider.identity(&token, TIMEOUT).await?.0)
    }

    async fn accepts(&self, claims: &Value) -> bool {
        self.identity(&self.key.sign(claims)).await.is_ok()
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "skopos", "sub": "jane", "exp": now() + 600, "groups": ["dev"]})
}

fn but(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

#[tokio::test]
async fn token_identity_is_prefixed_subject_and_groups() {
    let setup = Setup::new();
    let who = setup.identity(&setup.key.sign(&claims())).await.unwrap();
    assert_eq!(who.user, "oidc:jane");
    assert_eq!(who.groups, ["oidc:dev", "system:authenticated"]);
    assert!(setup.accepts(&but(json!({"aud": ["other", "skopos"]}))).await);
    assert!(setup.accepts(&but(json!({"groups": "dev"}))).await);
    assert!(setup.accepts(&but(json!({"groups": null}))).await);
}

#[tokio::test]
async fn wrong_claims_are_refused() {
    let setup = Setup::new();
    for change in [
        json!({"iss": "https://evil.example.com"}),
        json!({"iss": format!("{ISSUER}/")}),
        json!({"iss": null}),
        json!({"aud": "other"}),
        json!({"aud": null}),
        json!({"aud": []}),
        json!({"exp": now() - 60}),
        json!({"exp": null}),
        json!({"exp": "never"}),
        json!({"nbf": now() + 600}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"groups": [7]}),
        json!({"groups": {"a": 1}}),
    ] {
        assert!(!setup.accepts(&but(change.clone())).await, "{change}");
    }
}

#[tokio::test]
async fn wrong_signatures_are_refused() {
    let setup = Setup::new();
    let good = setup.key.sign(&claims());
    let mut parts = good.split('.');
    let (header, body, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());

    // A signature by another key with the known ID.
    let forged = Pair::new("one").sign(&claims());
    // The claims of another token under this signature.
    let other = setup.key.sign(&but(json!({"sub": "admin"})));
    let mixed = format!("{header}.{}.{signature}", other.split('.').nth(1).unwrap());
    // Without a signature; and signed with the public key as a shared secret.
    let none = format!("{}.", message("none", "one", &claims()));
    let by_secret = message("HS256", "one", &claims());
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, setup.key.public.to_string().as_bytes());
    let shared = ring::hmac::sign(&secret, by_secret.as_bytes());
    let shared = format!("{by_secret}.{}", URL_SAFE_NO_PAD.encode(shared));
    for token in
        [forged, mixed, none, shared, format!("{header}.{body}."), format!("{header}.{body}"), "a.b.c".into()]
    {
        assert!(setup.identity(&token).await.is_err(), "{token}");
    }
    assert!(setup.identity(&good).await.is_ok());
}

#[tokio::test]
async fn rejects_system_names_in_token() {
    let bare =
        || Setup::with(|options| (options.username_prefix, options.groups_prefix) = Default::default());
    assert!(bare().accepts(&claims()).await);
    assert!(!bare().accepts(&but(json!({"sub": "system:admin"}))).await);
    assert!(!bare().accepts(&but(json!({"groups": ["dev", "system:masters"]}))).await);
}

#[tokio::test]
async fn an_email_counts_only_when_it_is_verified() {
    let setup = Setup::with(|options| options.username_claim = "email".into());
    let email = |verified: Value| but(json!({"email": "jane@example.com", "email_verified": verified}));
    assert!(setup.accepts(&email(json!(true))).await);
    assert!(!setup.accepts(&email(json!(false))).await);
    assert!(!setup.accepts(&email(json!("true"))).await);
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_are_refetched_at_limited_rate() {
    let setup = Setup::new();
    for _ in 0..5 {
        assert!(setup.accepts(&claims()).await);
    }
    let fetches = || setup.documents.fetched.lock().len() / 2;
    assert_eq!(fetches(), 1);

    let next = Pair::new("two");
    let token = next.sign(&claims());
    for _ in 0..50 {
        assert!(setup.identity(&token).await.is_err());
    }
    assert_eq!(fetches(), 1, "made-up keys make nobody fetch");
    setup.publish("https://id.example.com/keys", json!({"keys": [next.public]}));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(setup.identity(&token).await.is_ok());
    // The provider revoked the first key.
    assert!(!setup.accepts(&claims()).await);
}

#[tokio::test(start_paused = true)]
async fn cached_keys_expire_after_hour_without_provider() {
    let setup = Setup::new();
    assert!(setup.accepts(&claims()).await);
    setup.documents.at.lock().clear();
    tokio::time::advance(Duration::from_secs(3500)).await;
    assert!(setup.accepts(&claims()).await);
    tokio::time::advance(Duration::from_secs(200)).await;
    let error = setup.identity(&setup.key.sign(&claims())).await.unwrap_err();
    assert!(matches!(error, AuthError::Unavailable(_)));
}

#[tokio::test]
async fn malformed_provider_documents_yield_no_keys() {
    let well_known = "https://id.example.com/realm/.well-known/openid-configuration";
    for (url, document) in [
        (well_known, json!({"issuer": "https://other", "jwks_uri": "https://id.example.com/keys"})),
        (well_known, json!({"issuer": ISSUER})),
        (well_known, json!([])),
        ("https://id.example.com/keys", json!({"keys": vec![Pair::new("one").public; 101]})),
        ("https://id.example.com/keys", json!({"keys": "none"})),
    ] {
        let setup = Setup::new();
        setup.publish(url, document.clone());
        assert!(!setup.accepts(&claims()).await, "{document}");
    }
    // A key that is not for signatures, or for another algorithm.
    for (name, value) in [("use", "enc"), ("alg", "RS256")] {
        let setup = Setup::new();
        let mut key = setup.key.public.clone();
        key[name] = value.into();
        setup.publish("https://id.example.com/keys", json!({"keys": [key]}));
        assert!(!setup.accepts(&claims()).await, "{name}");
    }
}

#[tokio::test]
async fn nothing_is_fetched_without_tls() {
    let fetch = HttpsFetch::new(None).unwrap();
    for url in ["http://id.example.com/", "file:///etc/passwd", "nonsense", ""] {
        assert!(fetch.fetch(url, TIMEOUT).await.is_err(), "{url}");
    }
    assert!(matches!(HttpsFetch::new(Some("no such file".as_ref())), Err(OidcError::Ca(_))));
}
