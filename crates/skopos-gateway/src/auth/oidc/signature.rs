//! Verification of token signatures with *ring*, which also does the cryptography of TLS here.
//!
//! `jsonwebtoken` reads the tokens and leaves the signatures to a provider. Its own providers bring a second cryptography
//! library, such as the crate `rsa`, which leaks private keys by its timing (RUSTSEC-2023-0071). Nothing here signs, so a
//! provider only needs public keys.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_signature;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// Makes `jsonwebtoken` verify with *ring*. An earlier choice of the process remains.
pub(super) fn install_provider() {
    if RING.install_default().is_err() {
        tracing::trace!("a provider for the signatures of tokens is installed already");
    }
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// A public key with its algorithm.
struct RingVerifier {
    algorithm: Algorithm,
    key: PublicKey,
}

enum PublicKey {
    /// The modulus and the exponent.
    Rsa(&'static RsaParameters, RsaPublicKeyComponents<Vec<u8>>),
    /// A point on a curve.
    Point(UnparsedPublicKey<Vec<u8>>),
}

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let key = match rsa_parameters(*algorithm) {
        Some(parameters) => PublicKey::Rsa(parameters, rsa_components(key)?),
        None => {
            let on_curve = curve(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
            PublicKey::Point(UnparsedPublicKey::new(on_curve, key.try_get_as_bytes()?.to_vec()))
        }
    };
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key }))
}

/// Returns *ring*'s parameters for an RSA algorithm. Keys of less than 2,048 bits verify nothing.
fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&ring_signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&ring_signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&ring_signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// Returns *ring*'s algorithm for one of elliptic curves.
fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ring_signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ring_signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ring_signature::ED25519),
        _ => None,
    }
}

/// Returns the numbers of a key without leading zeros, which some providers publish and *ring* refuses.
fn rsa_components(key: &DecodingKey) -> Result<RsaPublicKeyComponents<Vec<u8>>, Error> {
    let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else {
        return Err(ErrorKind::InvalidKeyFormat.into());
    };
    let number = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    Ok(RsaPublicKeyComponents { n: number(n), e: number(e) })
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            PublicKey::Rsa(parameters, key) => key.verify(parameters, message, signature),
            PublicKey::Point(key) => key.verify(message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::crypto::verify;
    use jsonwebtoken::jwk::Jwk;
    use serde_json::{Value, json};

    use super::*;

    /// Public keys and signatures of [`MESSAGE`], made with OpenSSL. The RSA key's modulus begins with a zero byte, as some
    /// providers publish it.
    const VECTORS: &str = include_str!("signature_vectors.json");
    const MESSAGE: &[u8] = b"header.claims";

    fn vectors() -> Vec<(Algorithm, DecodingKey, String)> {
        let all: Value = serde_json::from_str(VECTORS).unwrap();
        let vector = |(name, vector): (&String, &Value)| {
            let algorithm = name.parse().unwrap();
            let jwk: Jwk =
                serde_json::from_value(all["keys"][vector["key"].as_str().unwrap()].clone()).unwrap();
            (
                algorithm,
                DecodingKey::from_jwk(&jwk).unwrap(),
                vector["signature"].as_str().unwrap().to_owned(),
            )
        };
        all["signatures"].as_object().unwrap().iter().map(vector).collect()
    }

    #[test]
    fn accepts_signatures_of_openssl() {
        install_provider();
        let vectors = vectors();
        assert_eq!(vectors.len(), super::super::ALGORITHMS.len());
        for (algorithm, key, signature) in &vectors {
            assert_eq!(verify(signature, MESSAGE, key, *algorithm), Ok(true), "{algorithm:?}");
        }
    }

    #[test]
    fn rejects_altered_message_signature_or_algorithm() {
        install_provider();
        let vectors = vectors();
        for (algorithm, key, signature) in &vectors {
            assert_eq!(verify(signature, b"header.claimz", key, *algorithm), Ok(false), "{algorithm:?}");
            assert_eq!(verify("AAAA", MESSAGE, key, *algorithm), Ok(false), "{algorithm:?}");
            for (other, _, _) in vectors.iter().filter(|(other, ..)| other != algorithm) {
                assert_ne!(verify(signature, MESSAGE, key, *other), Ok(true), "{algorithm:?} as {other:?}");
            }
        }
    }

    #[test]
    fn refuses_short_keys_secrets_and_signing() {
        install_provider();
        let jwk = json!({"kty": "RSA", "e": "AQAB", "n": "yZ8"});
        let short = DecodingKey::from_jwk(&serde_json::from_value(jwk).unwrap()).unwrap();
        assert_eq!(verify("AAAA", MESSAGE, &short, Algorithm::RS256), Ok(false));
        let secret = DecodingKey::from_secret(b"secret");
        for algorithm in [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256] {
            assert!(verify("AAAA", MESSAGE, &secret, algorithm).is_err(), "{algorithm:?}");
        }
        let signed =
            jsonwebtoken::crypto::sign(MESSAGE, &EncodingKey::from_secret(b"secret"), Algorithm::HS256);
        assert!(signed.is_err());
    }
}
