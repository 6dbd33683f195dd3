//! A self-signed server certificate on loopback.

use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate of `127.0.0.1`.
pub(crate) struct Certificate(CertifiedKey<KeyPair>);

impl Certificate {
    pub(crate) fn new() -> Self {
        Self(generate_simple_self_signed(["127.0.0.1".into()]).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.cert.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.0.signing_key.serialize_pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }

    /// Makes an acceptor of a server that offers these protocols, the best first.
    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.der()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
