//! Bearer token that is never shown.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::AuthError;

/// A bearer token: wiped when dropped, and never printed.
pub(super) struct Token(Zeroizing<String>);

/// Hash of a token, for places where the token itself must not be kept.
pub(super) type TokenHash = [u8; 32];

/// Maximum length; longer tokens are refused unread. Those of real providers are shorter.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

impl Token {
    /// Returns the token of a request, if it has one.
    ///
    /// # Errors
    /// Returns an error if there are several, or if it is not a valid token.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, AuthError> {
        let mut all = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = all.next() else { return Ok(None) };
        if all.next().is_some() {
            return Err(AuthError::Refused("there is more than one Authorization header"));
        }
        let text = value.to_str().map_err(|_| AuthError::Refused("the Authorization header is no text"))?;
        let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::Refused("only bearer tokens are accepted"));
        }
        if token.is_empty()
            || token.len() > MAX_TOKEN_BYTES
            || token.contains(|c: char| !c.is_ascii_graphic())
        {
            return Err(AuthError::Refused(
                "the bearer token is empty, too long, or has characters of no token",
            ));
        }
        Ok(Some(Self(Zeroizing::new(token.to_owned()))))
    }

    /// Returns whether the token has the form of a JWT: three parts in base64, the first two JSON objects.
    pub(super) fn is_jwt(&self) -> bool {
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok().filter(|bytes| !bytes.is_empty());
        let parts: Vec<_> = self.0.split('.').map(decoded).collect();
        let [Some(header), Some(claims), Some(_)] = parts.as_slice() else { return false };
        let is_object = |json: &[u8]| serde_json::from_slice::<serde_json::Map<_, _>>(json).is_ok();
        is_object(header) && is_object(claims)
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn hash(&self) -> TokenHash {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Option<String>, AuthError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        Token::from_headers(&headers).map(|token| token.map(|token| token.expose().to_owned()))
    }

    #[test]
    fn a_token_is_read_and_never_printed() {
        assert_eq!(parse(&[]), Ok(None));
        for spelling in ["Bearer secret", "bearer secret", "BEARER  secret "] {
            assert_eq!(parse(&[spelling]), Ok(Some("secret".into())), "{spelling}");
        }
        assert_eq!(format!("{:?}", Token(Zeroizing::new("secret".into()))), "Token");
    }

    #[test]
    fn jwts_are_known_by_their_form() {
        let is_jwt = |text: &str| Token(Zeroizing::new(text.into())).is_jwt();
        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let (header, claims) = (part(r#"{"alg":"RS256"}"#), part(r#"{"sub":"x"}"#));
        assert!(is_jwt(&format!("{header}.{claims}.c2ln")));
        for other in [
            "secret".to_owned(),
            "a.b.c".to_owned(),
            format!("{header}.{claims}"),
            format!("{header}.{claims}."),
            format!("{header}.{claims}.c2ln.more"),
            format!("{}.{claims}.c2ln", part("7")),
            format!("{header}.{}.c2ln", part("[]")),
            format!("{header}.{claims}.c2ln=="),
        ] {
            assert!(!is_jwt(&other), "{other}");
        }
    }

    #[test]
    fn rejects_malformed_bearer_token() {
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN_BYTES + 1));
        for values in [
            &["Basic YTpi"][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer a", "Bearer b"],
            &[&long],
        ] {
            assert!(parse(values).is_err(), "{values:?}");
        }
    }
}
