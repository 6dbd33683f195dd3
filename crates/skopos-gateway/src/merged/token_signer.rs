//! Signed continue tokens: valid for one caller and one list, from this gateway or a replica with the same keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;
use skopos_wire::{ContinueToken, Status};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::auth::Identity;

/// The secret of continue tokens, at least 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TokenKey(Zeroizing<Vec<u8>>);

/// Signer of the tokens of one list of one caller.
pub(crate) struct TokenSigner {
    /// The MAC states of all keys, fed with the caller and the list. The first one signs.
    macs: Vec<Hmac<Sha256>>,
}

/// Hash of the clusters that a page shows. Another gateway may continue the list only with the same ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClustersHash(pub(crate) [u8; 8]);

/// Lifetime of a token in seconds.
const LIFETIME_SECONDS: i64 = 300;

/// Bytes of the signature, of the expiry, and of the hash of the clusters.
const TAG_LEN: usize = 32;
const EXPIRY_LEN: usize = 8;
const HASH_LEN: usize = 8;

impl TokenKey {
    pub(crate) fn new(key: Zeroizing<Vec<u8>>) -> Self {
        Self(key)
    }

    /// Makes a key from the system's source of randomness.
    pub(crate) fn random() -> Self {
        let mut key = Zeroizing::new(vec![0; 32]);
        for half in key.chunks_mut(16) {
            half.copy_from_slice(Uuid::new_v4().as_bytes());
        }
        Self(key)
    }

    /// Makes the key for a seed, which is not secret.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut key = Zeroizing::new(vec![0; 32]);
        fastrand::Rng::with_seed(seed).fill(&mut key);
        Self(key)
    }

    /// Returns the MAC of this caller and list.
    fn mac(&self, who: &[u8], list: &[&str]) -> Hmac<Sha256> {
        // HMAC takes a key of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in std::iter::once(who).chain(list.iter().map(|part| part.as_bytes())) {
            // With its length, so that different lists of parts never give the same text.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl TokenSigner {
    /// Makes the signer for a list of this caller: `list` names resource, clusters and selectors. The first key signs.
    pub(crate) fn new(keys: &[TokenKey], who: &Identity, list: &[&str]) -> Self {
        let who = serde_json::to_vec(who).unwrap_or_default();
        Self { macs: keys.iter().map(|key| key.mac(&who, list)).collect() }
    }

    /// Returns the signed token for the client, of a page with these clusters.
    pub(crate) fn sign(&self, token: &ContinueToken, clusters: ClustersHash, now: Timestamp) -> String {
        let expiry = now.as_second().saturating_add(LIFETIME_SECONDS).to_be_bytes();
        let signed = [&expiry[..], &clusters.0, token.encode().as_bytes()].concat();
        let tag = self.macs.first().map(|mac| mac.clone().chain_update(&signed).finalize().into_bytes());
        URL_SAFE_NO_PAD.encode([tag.as_deref().unwrap_or_default(), &signed].concat())
    }

    /// Verifies and reads a token from a client.
    ///
    /// # Errors
    /// Returns 400 for malformed text, and 410 for a token of another list, caller or key, or an expired one: then the
    /// client lists again.
    pub(crate) fn verify(
        &self,
        signed: &str,
        now: Timestamp,
    ) -> Result<(ContinueToken, ClustersHash), Status> {
        let malformed = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(signed).map_err(|_| malformed())?;
        let (tag, signed) = bytes.split_at_checked(TAG_LEN).ok_or_else(malformed)?;
        let (expiry, rest) = signed.split_first_chunk::<EXPIRY_LEN>().ok_or_else(malformed)?;
        let (clusters, token) = rest.split_first_chunk::<HASH_LEN>().ok_or_else(malformed)?;
        let token = std::str::from_utf8(token).map_err(|_| malformed())?;
        let is_valid = self.macs.iter().any(|mac| mac.clone().chain_update(signed).verify_slice(tag).is_ok());
        if !is_valid || now.as_second() > i64::from_be_bytes(*expiry) {
            return Err(Status::continue_expired(None));
        }
        Ok((ContinueToken::decode(token).map_err(|_| malformed())?, ClustersHash(*clusters)))
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
        let clusters = ClustersHash([7; 8]);
        let signer_for =
            |key: &TokenKey, who, list: &[&str]| TokenSigner::new(std::slice::from_ref(key), who, list);
        let signer = signer_for(&key, &jane, &["v1 pods", "a,b"]);
        let signed = signer.sign(&token, clusters, at(1000));
        assert_eq!(signer.verify(&signed, at(1000)), Ok((token.clone(), clusters)));
        assert_eq!(signer.verify(&signed, at(1300)), Ok((token, clusters)));
        let refused = |signer: TokenSigner, time| signer.verify(&signed, time).unwrap_err().code;
        assert_eq!(refused(signer_for(&key, &jane, &["v1 pods", "a,b"]), at(1301)), 410);
        assert_eq!(refused(signer_for(&key, &joe, &["v1 pods", "a,b"]), at(1000)), 410);
        assert_eq!(refused(signer_for(&key, &jane, &["v1 pods", "a,c"]), at(1000)), 410);
        assert_eq!(refused(signer_for(&key, &jane, &["v1 podsa", ",b"]), at(1000)), 410);
        assert_eq!(refused(signer_for(&TokenKey::random(), &jane, &["v1 pods", "a,b"]), at(1000)), 410);
    }

    #[test]
    fn first_key_signs_and_all_keys_verify() {
        let (old, new) = ([TokenKey::random()], [TokenKey::random()]);
        let both = [&new[..], &old].concat();
        let with = |keys: &[TokenKey]| TokenSigner::new(keys, &Identity::default(), &["v1 pods"]);
        let token = ContinueToken::new(42, "north/shop/web\0");
        let sign = |keys: &[TokenKey]| with(keys).sign(&token, ClustersHash::default(), at(1000));
        let (signed_before, signed) = (sign(&old), sign(&both));
        assert_eq!(signed, sign(&new));
        let accepts = |keys: &[TokenKey], signed: &str| with(keys).verify(signed, at(1000)).is_ok();
        assert!(accepts(&both, &signed_before) && accepts(&both, &signed));
        assert!(accepts(&new, &signed) && !accepts(&new, &signed_before));
        assert!(accepts(&old, &signed_before) && !accepts(&old, &signed));
    }

    #[test]
    fn whatever_is_changed_of_a_token_it_is_refused() {
        let signer = TokenSigner::new(&[TokenKey::random()], &Identity::default(), &[]);
        let signed = signer.sign(&ContinueToken::new(42, "north/shop/web\0"), ClustersHash([7; 8]), at(1000));
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
