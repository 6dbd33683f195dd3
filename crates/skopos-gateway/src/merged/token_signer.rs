//! Signed continue tokens: valid only from this gateway, for one caller and one list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;
use skopos_wire::{ContinueToken, Status};
use uuid::Uuid;

use crate::auth::Identity;

/// The gateway's secret, new for each process, because the state behind a token does not outlive the process.
#[derive(Clone)]
pub(crate) struct TokenKey([u8; 32]);

/// Signer of the tokens of one list of one caller.
pub(crate) struct TokenSigner {
    /// The MAC state, fed with the caller and the list.
    mac: Hmac<Sha256>,
}

/// Lifetime of a token in seconds.
const LIFETIME_SECONDS: i64 = 300;

/// Bytes of the signature, of the expiry.
const TAG_LEN: usize = 32;
const EXPIRY_LEN: usize = 8;

impl TokenKey {
    /// Makes a key from the system's source of randomness.
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        for half in key.chunks_mut(16) {
            half.copy_from_slice(Uuid::new_v4().as_bytes());
        }
        Self(key)
    }

    /// Makes the key for a seed, which is not secret.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut key = [0; 32];
        fastrand::Rng::with_seed(seed).fill(&mut key);
        Self(key)
    }

    /// Returns the signer for a list of this caller: `list` names resource, clusters and selectors.
    pub(crate) fn signer_for(&self, who: &Identity, list: &[&str]) -> TokenSigner {
        // HMAC takes a key of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let who = serde_json::to_vec(who).unwrap_or_default();
        for part in std::iter::once(&*who).chain(list.iter().map(|part| part.as_bytes())) {
            // With its length, so that different lists of parts never give the same text.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        TokenSigner { mac }
    }
}

impl TokenSigner {
    /// Returns the signed token for the client.
    pub(crate) fn sign(&self, token: &ContinueToken, now: Timestamp) -> String {
        let expiry = now.as_second().saturating_add(LIFETIME_SECONDS).to_be_bytes();
        let token = token.encode();
        let tag = self.tag(&expiry, &token).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([&tag[..], &expiry, token.as_bytes()].concat())
    }

    /// Verifies and reads a token from a client.
    ///
    /// # Errors
    /// Returns 400 for malformed text, and 410 for a token of another list, caller or process, or an expired one: then
    /// the client lists again.
    pub(crate) fn verify(&self, signed: &str, now: Timestamp) -> Result<ContinueToken, Status> {
        let malformed = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(signed).map_err(|_| malformed())?;
        let (tag, rest) = bytes.split_at_checked(TAG_LEN).ok_or_else(malformed)?;
        let (expiry, token) = rest.split_first_chunk::<EXPIRY_LEN>().ok_or_else(malformed)?;
        let token = std::str::from_utf8(token).map_err(|_| malformed())?;
        if self.tag(expiry, token).verify_slice(tag).is_err() || now.as_second() > i64::from_be_bytes(*expiry)
        {
            return Err(Status::continue_expired(None));
        }
        ContinueToken::decode(token).map_err(|_| malformed())
    }

    fn tag(&self, expiry: &[u8; EXPIRY_LEN], token: &str) -> Hmac<Sha256> {
        self.mac.clone().chain_update(expiry).chain_update(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn token_is_bound_to_list_caller_and_lifetime() {
        let key = TokenKey::random();
        let (jane, joe) = (Identity::authenticated("jane", []), Identity::authenticated("joe", []));
        let token = ContinueToken::new(42, "north/shop/web\0");
        let signer = key.signer_for(&jane, &["v1 pods", "a,b"]);
        let signed = signer.sign(&token, at(1000));
        assert_eq!(signer.verify(&signed, at(1000)), Ok(token.clone()));
        assert_eq!(signer.verify(&signed, at(1300)), Ok(token));
        let refused = |signer: TokenSigner, time| signer.verify(&signed, time).unwrap_err().code;
        assert_eq!(refused(key.signer_for(&jane, &["v1 pods", "a,b"]), at(1301)), 410);
        assert_eq!(refused(key.signer_for(&joe, &["v1 pods", "a,b"]), at(1000)), 410);
        assert_eq!(refused(key.signer_for(&jane, &["v1 pods", "a,c"]), at(1000)), 410);
        assert_eq!(refused(key.signer_for(&jane, &["v1 podsa", ",b"]), at(1000)), 410);
        assert_eq!(refused(TokenKey::random().signer_for(&jane, &["v1 pods", "a,b"]), at(1000)), 410);
    }

    #[test]
    fn whatever_is_changed_of_a_token_it_is_refused() {
        let signer = TokenKey::random().signer_for(&Identity::default(), &[]);
        let signed = signer.sign(&ContinueToken::new(42, "north/shop/web\0"), at(1000));
        let bytes = URL_SAFE_NO_PAD.decode(&signed).unwrap();
        for at_byte in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at_byte] ^= 1;
            assert!(signer.verify(&URL_SAFE_NO_PAD.encode(&changed), at(1000)).is_err(), "{at_byte}");
            assert!(signer.verify(&URL_SAFE_NO_PAD.encode(&bytes[..at_byte]), at(1000)).is_err());
        }
        for text in ["", "%%%", "a", &ContinueToken::new(42, "a").encode()] {
            assert!(signer.verify(text, at(1000)).is_err(), "{text}");
        }
    }
}
