//! TLS settings that follow rotated files.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::BufReader;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::credentials::without_secrets;
use crate::dialer::Io;
use crate::error::{ConfigError, TlsFault, TransportErrorKind};
use crate::options::TransportOptions;
use crate::proxy::without_brackets;
use crate::single_flight::{DoneGuard, SingleFlight};
use crate::trust::BundleVerifier;
use crate::{certificate, plugin};

/// The source of TLS settings for dials: the current ones while they are fresh and trusted, else new ones from the files
/// (or the exec plugin) of the kubeconfig. If a renewal fails, the old ones are kept.
pub(crate) struct TlsSource {
    config: kube::Config,
    server_name: ServerName<'static>,
    alpn: Vec<Vec<u8>>,
    refresh_after: Duration,
    /// Time that a dial waits for new settings if there are old ones.
    renewal_timeout: Duration,
    /// Minimum interval between renewals after a 401.
    rejection_interval: Duration,
    current: Arc<Mutex<Current>>,
    /// The single build in flight. A plugin may take longer than a dial.
    build: SingleFlight<BuildResult>,
}

/// TLS settings with the client's identity.
#[derive(Clone)]
struct Settings {
    tls: Arc<ClientConfig>,
    /// Cancelled when the client certificate has changed.
    superseded: CancellationToken,
    certificate: Option<CertificateDer<'static>>,
}

/// The TLS settings for one dial.
pub(crate) struct DialSettings {
    server_name: ServerName<'static>,
    settings: Settings,
}

type BuildResult = Result<Settings, TransportErrorKind>;

#[derive(Default)]
struct Current {
    /// The last settings, with the time of their request.
    built: Option<(Settings, Option<Instant>)>,
    untrusted: bool,
    /// The time of the last renewal after a 401.
    rejected_at: Option<Instant>,
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
        let name = without_brackets(name).to_owned();
        let server_name = ServerName::try_from(name.clone()).map_err(|_| ConfigError::ServerName(name))?;
        let alpn = match options.http1_only {
            true => vec![HTTP1.to_vec()],
            false => vec![b"h2".to_vec(), HTTP1.to_vec()],
        };
        let mut config = config.clone();
        if config.auth_info.exec.is_none() {
            // A legacy token provider has no certificates: do not run its command for TLS.
            config.auth_info.auth_provider = None;
        }
        let source = Self {
            config,
            server_name,
            alpn,
            refresh_after: options.tls_refresh_interval,
            renewal_timeout: options.connect_timeout / 2,
            rejection_interval: options.credential_refresh_interval,
            current: Arc::default(),
            build: SingleFlight::new(),
        };
        if source.config.auth_info.exec.is_none() {
            let built = Settings::new(build(&source.config, &source.alpn)?);
            // Without an age: this may be outside of a runtime. The first dial sets it.
            source.current.lock().built = Some((built, None));
        }
        Ok(source)
    }

    /// Marks the settings as untrusted after a failed handshake: the next dial reads the files again.
    pub(crate) fn mark_untrusted(&self) {
        self.current.lock().untrusted = true;
    }

    /// Handles a 401 on an open connection. The server checks the client certificate with each request, so it may have
    /// expired since the handshake: checks whether there is a new one.
    pub(crate) async fn rejected(&self) {
        {
            let mut current = self.current.lock();
            let certified =
                (current.built.as_ref()).is_some_and(|(settings, _)| settings.certificate.is_some());
            let recent = current.rejected_at.is_some_and(|at| at.elapsed() < self.rejection_interval);
            if !certified || recent {
                return;
            }
            current.rejected_at = Some(Instant::now());
        }
        let _ = self.build.run(|done| self.build(done)).await;
    }

    /// Returns the settings for a dial that starts now.
    pub(crate) async fn dial_settings(&self) -> Result<DialSettings, TransportErrorKind> {
        Ok(DialSettings { server_name: self.server_name.clone(), settings: self.current().await? })
    }

    async fn current(&self) -> Result<Settings, TransportErrorKind> {
        if let Some(settings) = self.fresh() {
            return Ok(settings);
        }
        let building = self.build.run(|done| self.build(done));
        let old = self.current.lock().built.clone();
        match old {
            None => building.await,
            // A plugin that hangs must not break settings that may still work.
            Some((old, _)) => tokio::time::timeout(self.renewal_timeout, building).await.unwrap_or(Ok(old)),
        }
    }

    /// Builds the settings in its own thread, because kube reads files and runs plugins without yielding. The result is
    /// used whether or not a caller waits for it.
    fn build(&self, done: DoneGuard) -> BoxFuture<'static, BuildResult> {
        let (config, alpn, current) = (self.config.clone(), self.alpn.clone(), self.current.clone());
        let began = Instant::now();
        let building = tokio::task::spawn_blocking(move || {
            let _done = done;
            let built = catch_unwind(AssertUnwindSafe(|| build(&config, &alpn)));
            current.lock().install(built.unwrap_or_else(|_| Err(panicked())), began)
        });
        async move { building.await.unwrap_or_else(|_| Err(client_certificate_error(&panicked()))) }.boxed()
    }

    fn fresh(&self) -> Option<Settings> {
        let mut current = self.current.lock();
        if current.untrusted {
            return None;
        }
        let (settings, built_at) = current.built.as_mut()?;
        let age = built_at.get_or_insert_with(Instant::now).elapsed();
        let expired = settings.certificate.as_ref().is_some_and(|c| certificate::has_expired(c));
        (age < self.refresh_after && !expired).then(|| settings.clone())
    }
}

impl Current {
    fn install(&mut self, built: Result<ClientConfig, ConfigError>, began: Instant) -> BuildResult {
        self.untrusted = false;
        match (built, &mut self.built) {
            (Ok(tls), built) => {
                let mut settings = Settings::new(tls);
                match built {
                    Some((old, _)) if old.certificate == settings.certificate => {
                        settings.superseded = old.superseded.clone();
                    }
                    Some((old, _)) => old.superseded.cancel(),
                    None => {}
                }
                *built = Some((settings.clone(), Some(began)));
                Ok(settings)
            }
            // Files that vanish or are half written must not break settings that still work.
            (Err(error), Some((settings, age))) => {
                tracing::warn!(%error, "cannot renew TLS settings, keeping the old ones");
                *age = Some(began);
                Ok(settings.clone())
            }
            (Err(error), None) => Err(client_certificate_error(&error)),
        }
    }
}

/// Returns an error without the panic's message, which may contain the data that was being read.
fn panicked() -> ConfigError {
    ConfigError::ClientCertificate("reading it panicked".into())
}

fn client_certificate_error(error: &ConfigError) -> TransportErrorKind {
    TlsFault::ClientCertificate(error.to_string().into()).into()
}

impl Settings {
    fn new(tls: ClientConfig) -> Self {
        // There is at most one, for any request of the server.
        let key = tls.client_auth_cert_resolver.resolve(&[], &[]);
        let certificate = key.and_then(|key| Some(key.cert.first()?.clone().into_owned()));
        Self { tls: Arc::new(tls), superseded: CancellationToken::new(), certificate }
    }
}

impl DialSettings {
    /// Performs the handshake. With `http1_only`, nothing else is offered.
    pub(crate) async fn connect<S: Io>(
        &self,
        http1_only: bool,
        stream: S,
    ) -> io::Result<TlsStream<BufReader<S>>> {
        let config = if http1_only { over_http1(&self.settings.tls) } else { self.settings.tls.clone() };
        let stream = BufReader::with_capacity(READ_BUFFER_SIZE, stream);
        TlsConnector::from(config).connect(self.server_name.clone(), stream).await
    }

    /// Returns a token that is cancelled when the client certificate has changed.
    pub(crate) fn superseded(&self) -> CancellationToken {
        self.settings.superseded.clone()
    }
}

/// Bytes read from a socket at a time. rustls alone reads 4 KiB.
const READ_BUFFER_SIZE: usize = 64 << 10;

/// The name of HTTP/1.1 in ALPN.
const HTTP1: &[u8] = b"http/1.1";

/// Returns the same settings for a connection that must not use HTTP/2.
fn over_http1(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![HTTP1.to_vec()];
    Arc::new(config)
}

/// Installs a default crypto provider if there is none. kube builds its TLS settings from it, and panics without one if the
/// features allow several. An application's own choice, if installed before, is respected.
fn ensure_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn build(config: &kube::Config, alpn: &[Vec<u8>]) -> Result<ClientConfig, ConfigError> {
    let mut config = config.clone();
    set_identity(&mut config.auth_info)?;
    let verifier = match config.accept_invalid_certs {
        true => None,
        false => bundle_verifier(&config)?,
    };
    if verifier.is_some() {
        // kube builds a verifier for these, which is then replaced.
        (config.root_cert, config.root_cert_file) = (Some(Vec::new()), None);
    }
    let mut tls = config.rustls_client_config().map_err(classify)?;
    if let Some(verifier) = verifier {
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    tls.alpn_protocols = alpn.to_vec();
    Ok(tls)
}

/// Sets the client certificate and its key, from files or a plugin, in the form that kube reads.
fn set_identity(auth: &mut AuthInfo) -> Result<(), ConfigError> {
    let identity = match auth.exec.take() {
        Some(exec) => {
            let credentials = plugin::run(&exec).map_err(|error| ConfigError::Auth(error.to_string()))?;
            let bytes = |(certificate, key): (String, SecretString)| {
                (certificate.into_bytes(), Zeroizing::new(key.expose_secret().as_bytes().to_vec()))
            };
            credentials.identity.map(bytes)
        }
        None => certificate::client_identity(auth)?,
    };
    (auth.client_certificate, auth.client_key) = (None, None);
    (auth.client_certificate_data, auth.client_key_data) = (None, None);
    if let Some((certificate, mut key)) = identity {
        // kube joins both, and the last line of a file may lack a line end.
        key.push(b'\n');
        auth.client_certificate_data = Some(STANDARD.encode(certificate));
        auth.client_key_data = Some(STANDARD.encode(&*key).into());
    }
    Ok(())
}

/// Returns the server verifier of the configuration's CAs; `None` if the system's CAs are used.
fn bundle_verifier(config: &kube::Config) -> Result<Option<BundleVerifier>, ConfigError> {
    let bundle: Vec<CertificateDer<'static>> = match (&config.root_cert_file, &config.root_cert) {
        (Some(path), _) => {
            let bad = |error: io::Error| {
                ConfigError::CertificateAuthority(format!("cannot read {}: {error}", path.display()))
            };
            let pem = std::fs::read(path).map_err(bad)?;
            CertificateDer::pem_slice_iter(&pem).flatten().map(CertificateDer::into_owned).collect()
        }
        (None, Some(certificates)) => certificates.iter().cloned().map(CertificateDer::from).collect(),
        (None, None) => return Ok(None),
    };
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    BundleVerifier::new(bundle, provider).map(Some)
}

fn classify(error: kube::Error) -> ConfigError {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Tests a renewal, as after a 401, whose caller does not wait until the files have been read.
    #[tokio::test]
    async fn certificate_reload_survives_cancelled_caller() {
        let folder = tempfile::tempdir().unwrap();
        let config = with_certificate(folder.path());
        let source = TlsSource::from_config(&config, "server.test", &TransportOptions::default()).unwrap();
        let superseded = source.dial_settings().await.unwrap().superseded();
        with_certificate(folder.path());
        assert!(source.rejected().now_or_never().is_none());
        let in_use = tokio::time::timeout(Duration::from_secs(20), superseded.cancelled()).await;
        assert!(in_use.is_ok(), "it is not in use");
    }

    fn with_certificate(folder: &Path) -> kube::Config {
        let identity = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        let (certificate, key) = (folder.join("certificate"), folder.join("key"));
        std::fs::write(&certificate, identity.cert.pem()).unwrap();
        std::fs::write(&key, identity.signing_key.serialize_pem()).unwrap();
        let mut config = kube::Config::new("https://server.test".parse().unwrap());
        config.auth_info.client_certificate = Some(certificate.display().to_string());
        config.auth_info.client_key = Some(key.display().to_string());
        config
    }
}
