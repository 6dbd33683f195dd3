//! Verification of server certificates against a CA bundle, by the rules of Go's `crypto/x509`, which kubectl follows.
//!
//! The rules differ from webpki's in two cases. A certificate of the bundle that the server itself presents is trusted,
//! even if it may not sign others. And a certificate that may not sign others is not a CA, although it is in the bundle.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::error::ConfigError;

/// A verifier of server certificates by a CA bundle.
#[derive(Debug)]
pub(crate) struct BundleVerifier {
    /// All certificates of the bundle.
    certificates: Vec<CertificateDer<'static>>,
    /// The verifier with the certificates that may sign others; `None` if none of them may.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl BundleVerifier {
    /// Creates a verifier for a bundle. Certificates that cannot be parsed are skipped if another one can be, as in Go.
    pub(crate) fn new(
        bundle: impl IntoIterator<Item = CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        let mut certificates = Vec::new();
        let mut authorities = RootCertStore::empty();
        for der in bundle {
            let is_authority = match X509Certificate::from_der(&der) {
                // One that webpki cannot use is still trusted as the server's own.
                Ok((_, parsed)) => may_sign(&parsed) && authorities.add(der.clone()).is_ok(),
                Err(_) if authorities.add(der.clone()).is_ok() => true,
                Err(_) => continue,
            };
            tracing::trace!(is_authority, "certificate of a CA bundle");
            certificates.push(der);
        }
        if certificates.is_empty() {
            return Err(ConfigError::CertificateAuthority("it holds no X.509 certificate".into()));
        }
        let authorities = match authorities.is_empty() {
            true => None,
            false => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider.clone());
                let built = builder.build();
                Some(built.map_err(|error| ConfigError::CertificateAuthority(error.to_string()))?)
            }
        };
        Ok(Self { certificates, authorities, provider })
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.contains(end_entity) {
            return verify_itself(end_entity, server_name, now);
        }
        match &self.authorities {
            Some(authorities) => {
                authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies a certificate that is itself in the bundle: only its name, time and purpose remain to be checked.
fn verify_itself(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    // Rejects unknown critical extensions, too.
    let end_entity = ParsedCertificate::try_from(certificate)?;
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| Error::from(CertificateError::BadEncoding))?;
    let seconds = |time: x509_parser::time::ASN1Time| {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            u64::try_from(time.timestamp()).unwrap_or_default(),
        ))
    };
    let validity = parsed.validity();
    let (not_before, not_after) = (seconds(validity.not_before), seconds(validity.not_after));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    if !may_serve(&parsed) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&end_entity, server_name)?;
    Ok(ServerCertVerified::assertion())
}

/// Returns whether a certificate may sign others. Certificates before version 3 do not state this.
fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let constraints = certificate.basic_constraints();
    let is_authority = match constraints {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => certificate.version() != x509_parser::x509::X509Version::V3,
        Err(_) => false,
    };
    let signs = match certificate.key_usage() {
        Ok(Some(usage)) => usage.value.key_cert_sign(),
        Ok(None) => true,
        Err(_) => false,
    };
    is_authority && signs
}

/// Returns whether a certificate is valid for servers: it names no purpose, or this one.
fn may_serve(certificate: &X509Certificate<'_>) -> bool {
    match certificate.extended_key_usage() {
        Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
        Ok(None) => true,
        Err(_) => false,
    }
}
