//! The server's certificate, made by a CA of its own.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::Protocols;

/// A CA and a server certificate that it signed.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    pub(crate) config: Arc<ServerConfig>,
}

/// Until when the server's certificate is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validity {
    #[default]
    Long,
    /// It ended years ago.
    Expired,
}

/// Why no certificate could be made.
pub(crate) type TlsError = Box<dyn std::error::Error + Send + Sync>;

// === impl Identity ===

impl Identity {
    pub(crate) fn generate(validity: Validity, protocols: Protocols) -> Result<Self, TlsError> {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        ca.distinguished_name.push(DnType::CommonName, "kubernetes");
        let ca_key = KeyPair::generate()?;
        let ca_certificate = ca.self_signed(&ca_key)?;

        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"];
        let mut server = CertificateParams::new(names.map(str::to_owned))?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        if validity == Validity::Expired {
            server.not_before = rcgen::date_time_ymd(2019, 1, 1);
            server.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let server_key = KeyPair::generate()?;
        let certificate = server.signed_by(&server_key, &Issuer::from_params(&ca, &ca_key))?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let alpn: &[&[u8]] = match protocols {
            Protocols::Both => &[b"h2", b"http/1.1"],
            Protocols::Http1 => &[b"http/1.1"],
            Protocols::Http2 => &[b"h2"],
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { ca_pem: ca_certificate.pem(), config: Arc::new(config) })
    }
}
