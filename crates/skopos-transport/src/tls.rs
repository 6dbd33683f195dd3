//! TLS settings that follow rotated files.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName};
use tokio::time::Instant;

use crate::{
    certificate,
    credentials::without_secrets,
    errand::Errand,
    error::{ConfigError, Death, TlsFault},
    options::TransportOptions,
};

/// Gives the TLS settings for a dial: those at hand while they are young and nothing speaks against them, else new ones from
/// the files (or the exec plugin) that the kubeconfig names. When building anew fails the old ones are kept.
pub(crate) struct TlsSource {
    config: kube::Config,
    server_name: ServerName<'static>,
    alpn: Vec<Vec<u8>>,
    refresh_after: Duration,
    /// How long a dial waits for new settings when there are others.
    patience: Duration,
    current: Arc<Mutex<Current>>,
    /// One build at a time. A plugin may take longer than a dial.
    building: Errand<Built>,
}

type Built = Result<Arc<ClientConfig>, Death>;

#[derive(Default)]
struct Current {
    built: Option<(Arc<ClientConfig>, Option<Instant>)>,
    distrusted: bool,
}

impl TlsSource {
    /// Builds the settings once to find mistakes early, except when that means to run a plugin.
    pub(crate) fn from_config(
        config: &kube::Config,
        host: &str,
        options: &TransportOptions,
    ) -> Result<Self, ConfigError> {
        ensure_crypto_provider();
        let name = config.tls_server_name.as_deref().unwrap_or(host);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = ServerName::try_from(name.clone()).map_err(|_| ConfigError::ServerName(name))?;
        let alpn = match options.http1_only {
            true => vec![HTTP1.to_vec()],
            false => vec![b"h2".to_vec(), HTTP1.to_vec()],
        };
        let mut config = config.clone();
        if config.auth_info.exec.is_none() {
            // A token provider of the old kind has no certificates: do not run its command for TLS.
            config.auth_info.auth_provider = None;
        }
        let source = Self {
            config,
            server_name,
            alpn,
            refresh_after: options.tls_refresh_interval,
            patience: options.connect_timeout / 2,
            current: Arc::default(),
            building: Errand::new(),
        };
        if source.config.auth_info.exec.is_none() {
            let built = build(&source.config, &source.alpn)?;
            // Without an age: this may be outside of a runtime. The first dial gives it one.
            source.current.lock().built = Some((built, None));
        }
        Ok(source)
    }

    pub(crate) fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// The last handshake failed: read the files again before the next.
    pub(crate) fn distrust(&self) {
        self.current.lock().distrusted = true;
    }

    /// The settings for a dial that begins now.
    pub(crate) async fn current(&self) -> Result<Arc<ClientConfig>, Death> {
        if let Some(config) = self.fresh() {
            return Ok(config);
        }
        let building = self.building.run(|| self.build());
        let old = self.current.lock().built.clone();
        match old {
            None => building.await,
            // A plugin that hangs must not take down what may still work.
            Some((old, _)) => tokio::time::timeout(self.patience, building).await.unwrap_or(Ok(old)),
        }
    }

    /// In a thread of its own, because kube reads files and runs plugins without yielding.
    fn build(&self) -> BoxFuture<'static, Built> {
        let (config, alpn, current) = (self.config.clone(), self.alpn.clone(), self.current.clone());
        let build = tokio::task::spawn_blocking(move || build(&config, &alpn));
        async move {
            let built = build.await;
            let built = built.unwrap_or_else(|panic| Err(ConfigError::ClientCertificate(panic.to_string())));
            current.lock().settle(built)
        }
        .boxed()
    }

    fn fresh(&self) -> Option<Arc<ClientConfig>> {
        let mut current = self.current.lock();
        if current.distrusted {
            return None;
        }
        let (config, built_at) = current.built.as_mut()?;
        let age = built_at.get_or_insert_with(Instant::now).elapsed();
        (age < self.refresh_after).then(|| config.clone())
    }
}

impl Current {
    fn settle(&mut self, built: Result<Arc<ClientConfig>, ConfigError>) -> Built {
        self.distrusted = false;
        match (built, &mut self.built) {
            (Ok(config), built) => {
                *built = Some((config.clone(), Some(Instant::now())));
                Ok(config)
            }
            // Files that vanish or are half written must not take down what still works.
            (Err(error), Some((config, age))) => {
                tracing::warn!(%error, "cannot renew TLS settings, keeping the old ones");
                *age = Some(Instant::now());
                Ok(config.clone())
            }
            (Err(error), None) => Err(TlsFault::ClientCertificate(error.to_string().into()).into()),
        }
    }
}

/// The name of HTTP/1.1 in ALPN.
const HTTP1: &[u8] = b"http/1.1";

/// The same settings, for a connection that must not become one of HTTP/2.
pub(crate) fn over_http1(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![HTTP1.to_vec()];
    Arc::new(config)
}

/// kube builds its TLS settings from the process-wide provider and panics when there is none and the choice is not clear
/// from the features. An application's own choice, if installed before, is respected.
fn ensure_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error means that somebody else was quicker, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn build(config: &kube::Config, alpn: &[Vec<u8>]) -> Result<Arc<ClientConfig>, ConfigError> {
    certificate::check_client(&config.auth_info)?;
    let mut tls = config.rustls_client_config().map_err(blame)?;
    tls.alpn_protocols = alpn.to_vec();
    Ok(Arc::new(tls))
}

fn blame(error: kube::Error) -> ConfigError {
    use kube::client::RustlsTlsError as Rustls;
    match &error {
        kube::Error::RustlsTls(Rustls::AddRootCertificate(_) | Rustls::NoValidNativeRootCA(_)) => {
            ConfigError::CertificateAuthority(error.to_string())
        }
        kube::Error::RustlsTls(Rustls::InvalidServerName(_)) => ConfigError::ServerName(error.to_string()),
        kube::Error::Auth(_) => ConfigError::Auth(without_secrets(&error)),
        _ => ConfigError::ClientCertificate(error.to_string()),
    }
}
