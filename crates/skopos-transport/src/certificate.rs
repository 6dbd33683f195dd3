//! The client certificate of a configuration, read and checked before the first handshake.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::error::ConfigError;

/// A client certificate and its key, both in PEM.
pub(crate) type ClientIdentity = (Vec<u8>, Zeroizing<Vec<u8>>);

/// Returns the client certificate and key that `auth` names; `None` if it names none.
pub(crate) fn client_identity(auth: &AuthInfo) -> Result<Option<ClientIdentity>, ConfigError> {
    let data = auth.client_certificate_data.as_deref();
    let certificate = pem("client-certificate-data", data, auth.client_certificate.as_deref())?;
    let data = auth.client_key_data.as_ref().map(|key| key.expose_secret());
    let key = pem("client-key-data", data, auth.client_key.as_deref())?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            check(&certificate)?;
            Ok(Some((certificate.to_vec(), key)))
        }
        (Some(certificate), None) => {
            check(&certificate)?;
            Err(ConfigError::ClientCertificate("has no key beside it".into()))
        }
        // A key alone is ignored, as in kubectl.
        (None, _) => Ok(None),
    }
}

fn check(pem: &[u8]) -> Result<(), ConfigError> {
    let first = CertificateDer::from_pem_slice(pem)
        .map_err(|e| ConfigError::ClientCertificate(format!("no certificate in it: {e}")))?;
    let not_after = not_after(&first)
        .ok_or_else(|| ConfigError::ClientCertificate("is not an X.509 certificate".into()))?;
    match not_after < now() {
        true => Err(ConfigError::ClientCertificateExpired { not_after }),
        false => Ok(()),
    }
}

/// Returns whether the certificate has expired. One that cannot be parsed has not.
pub(crate) fn has_expired(certificate: &CertificateDer<'_>) -> bool {
    not_after(certificate).is_some_and(|not_after| not_after < now())
}

/// Returns the current time in seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Reads PEM from base64 or, without it, from a file.
fn pem(
    field: &str,
    data: Option<&str>,
    path: Option<&str>,
) -> Result<Option<Zeroizing<Vec<u8>>>, ConfigError> {
    let bad = |reason: String| ConfigError::ClientCertificate(reason);
    if let Some(data) = data {
        let data = Zeroizing::new(data.split_ascii_whitespace().collect::<String>());
        let pem = base64::engine::general_purpose::STANDARD.decode(&*data);
        return pem
            .map(|pem| Some(Zeroizing::new(pem)))
            .map_err(|e| bad(format!("{field} is not base64: {e}")));
    }
    let Some(path) = path else { return Ok(None) };
    let read = std::fs::read(path).map_err(|e| bad(format!("cannot read {path}: {e}")))?;
    Ok(Some(Zeroizing::new(read)))
}

/// Returns the end of validity of a DER certificate, in seconds since 1970.
fn not_after(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x01\x02"] {
            assert_eq!(not_after(bytes), None);
        }
    }
}
