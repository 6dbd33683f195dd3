//! TLS certificate of the server, signed by its own CA.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::Protocols;

/// A CA and a server certificate that it signed.
#[derive(Debug)]
pub(crate) struct ServerIdentity {
    pub(crate) ca_pem: String,
    /// Client certificate, if clients must present one.
    pub(crate) client: Option<Credential>,
    pub(crate) config: Arc<ServerConfig>,
}

/// Certificate and key, both in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Parameters of a server's certificates.
#[derive(Clone, Debug)]
pub(crate) struct IdentityPlan {
    /// DNS names and addresses of the server.
    pub(crate) names: Vec<String>,
    /// True if clients must present a certificate of the same CA.
    pub(crate) clients: bool,
    pub(crate) protocols: Protocols,
}

/// Validity of the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validity {
    #[default]
    Long,
    /// Expired years ago.
    Expired,
}

/// Error of certificate generation.
pub(crate) type TlsError = Box<dyn std::error::Error + Send + Sync>;

impl ServerIdentity {
    pub(crate) fn generate(plan: &IdentityPlan, validity: Validity) -> Result<Self, TlsError> {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        ca.distinguished_name.push(DnType::CommonName, "kubernetes");
        let ca_key = KeyPair::generate()?;
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::from_params(&ca, &ca_key);

        let mut server = CertificateParams::new(plan.names.clone())?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        if validity == Validity::Expired {
            server.not_before = rcgen::date_time_ymd(2019, 1, 1);
            server.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let server_key = KeyPair::generate()?;
        let certificate = server.signed_by(&server_key, &issuer)?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let config = match plan.clients {
            true => {
                let mut roots = RootCertStore::empty();
                roots.add(ca_certificate.der().clone())?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build()?)
            }
            false => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(vec![certificate.der().clone()], key)?;
        let alpn: &[&[u8]] = match plan.protocols {
            Protocols::Both => &[b"h2", b"http/1.1"],
            Protocols::Http1 => &[b"http/1.1"],
            Protocols::Http2 => &[b"h2"],
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let client = if plan.clients { Some(Credential::signed_by(&issuer)?) } else { None };
        Ok(Self { ca_pem: ca_certificate.pem(), client, config: Arc::new(config) })
    }
}

impl Credential {
    /// Creates an administrator's certificate, as kubeadm and similar tools do.
    fn signed_by(issuer: &Issuer<'_, &KeyPair>) -> Result<Self, TlsError> {
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::OrganizationName, "system:masters");
        client.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        client.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = client.signed_by(&key, issuer)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl Default for IdentityPlan {
    fn default() -> Self {
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"];
        Self { names: names.map(str::to_owned).into(), clients: false, protocols: Protocols::Both }
    }
}
