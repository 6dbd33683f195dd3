//! The gateway's certificate and the CAs of its clients, reloaded from their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use super::TlsFiles;
use crate::reread::reread;

/// The reason why certificates cannot be used, with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file is not PEM, or has other content than expected.
    #[error("{} {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

/// The TLS settings for new connections.
#[derive(Debug)]
pub(super) struct TlsReloader {
    files: TlsFiles,
    current: ArcSwap<Settings>,
    read: Mutex<Contents>,
}

/// The TLS settings made from the files at one time.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) config: Arc<ServerConfig>,
    client_ca_pem: Option<Vec<u8>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// The contents of the files.
type Contents = [Option<Vec<u8>>; 3];

const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

impl TlsReloader {
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let (contents, settings) = read(&files)?;
        Ok(Self { files, current: ArcSwap::from_pointee(settings), read: Mutex::new(contents) })
    }

    pub(super) fn current(&self) -> Arc<Settings> {
        self.current.load_full()
    }

    /// Reloads the files when they change. Half-written files change nothing. Calls `clients_changed` when the CAs of clients
    /// have changed.
    pub(super) async fn follow(
        self: Arc<Self>,
        stop: CancellationToken,
        clients_changed: impl Fn(&Settings) + Send,
    ) {
        let files = self.files.clone();
        reread(
            RELOAD_INTERVAL,
            &stop,
            move || read(&files),
            |found| match found {
                Ok((contents, settings)) => {
                    if let Some(settings) = self.replace(contents, settings) {
                        clients_changed(&settings);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "certificates cannot be read again, the old ones stay");
                }
            },
        )
        .await;
    }

    /// Installs new settings if the files have changed. Returns them if the CAs of clients have changed.
    fn replace(&self, contents: Contents, settings: Settings) -> Option<Arc<Settings>> {
        let mut known = self.read.lock();
        if *known == contents {
            return None;
        }
        *known = contents;
        let settings = Arc::new(settings);
        let old = self.current.swap(settings.clone());
        tracing::info!("certificates changed");
        (!settings.has_clients_of(&old)).then_some(settings)
    }
}

impl Settings {
    /// Returns whether the CAs of clients are the same.
    pub(super) fn has_clients_of(&self, other: &Self) -> bool {
        self.client_ca_pem == other.client_ca_pem
    }

    /// Returns whether a client with these certificates is accepted, as on connecting.
    pub(super) fn accepts(&self, chain: &[CertificateDer<'static>]) -> bool {
        let Some((own, intermediates)) = chain.split_first() else { return true };
        let verify = |clients: &Arc<dyn ClientCertVerifier>| {
            clients.verify_client_cert(own, intermediates, UnixTime::now()).is_ok()
        };
        self.clients.as_ref().is_some_and(verify)
    }
}

fn read(files: &TlsFiles) -> Result<(Contents, Settings), TlsError> {
    let chain_pem = contents(&files.certificate)?;
    let key_pem = contents(&files.key)?;
    let ca_pem = files.client_ca.as_deref().map(contents).transpose()?;
    let unusable = |path: &Path, reason: String| TlsError::Unusable { path: path.to_owned(), reason };

    let chain = certificates(&files.certificate, &chain_pem)?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|error| unusable(&files.key, format!("has no usable private key: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.certificate, error.to_string()))?;
    let clients: Option<Arc<dyn ClientCertVerifier>> = match (&files.client_ca, &ca_pem) {
        (Some(path), Some(pem)) => {
            let mut roots = RootCertStore::empty();
            for ca in certificates(path, pem)? {
                roots.add(ca).map_err(|error| unusable(path, format!("has no usable CA: {error}")))?;
            }
            // A client without a certificate may still have a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(path, error.to_string()))?;
            Some(verifier)
        }
        _ => None,
    };
    let builder = match &clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        unusable(&files.certificate, format!("and {} do not go together: {error}", files.key.display()))
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let settings = Settings { config: Arc::new(config), client_ca_pem: ca_pem.clone(), clients };
    Ok(([Some(chain_pem), Some(key_pem), ca_pem], settings))
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path)
        .map_err(|error| TlsError::Unreadable { path: path.to_owned(), reason: error.to_string() })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |reason: String| TlsError::Unusable { path: path.to_owned(), reason };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable("has no certificate".into())),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(format!("is no PEM: {error}"))),
    }
}
