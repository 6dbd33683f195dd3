//! Kubeconfigs, read by kubectl's rules (`docs/reference/kubeconfig.md` lists them, with the test of each).
//!
//! ```text
//!  $KUBECONFIG, ~/.kube/config, --kubeconfig ─▶ files ─▶ merged ─▶ context ─▶ cluster and user ─▶ kube::Config
//!                                                                                 │
//!                                                               dangerous features need the caller's consent
//! ```
//!
//! A kubeconfig can make its reader run programs, send the content of local files elsewhere, and connect anywhere. Each of
//! these is a [`KubeconfigFeature`] that the caller of [`Kubeconfig::config_if`] admits or refuses.

mod error;
mod file;
mod merge;
mod paths;
mod server;
#[cfg(test)]
mod tests;
mod user;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::KubeConfigOptions;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

pub use self::error::{KubeconfigError, KubeconfigReadError};
use self::file::{ClusterEntry, File, UserEntry};
pub use self::paths::KubeconfigPaths;
use crate::proxy::proxy_from_environment;

/// A parsed kubeconfig, or several merged ones.
#[derive(Clone)]
pub struct Kubeconfig {
    file: File,
    hidden: Vec<String>,
}

/// A feature of kubeconfigs that can harm their reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KubeconfigFeature {
    /// `exec` runs a program.
    Exec,
    /// `auth-provider`, its predecessor.
    AuthProvider,
    /// `certificate-authority` reads a local file.
    CertificateAuthorityFile,
    /// `client-certificate` reads a local file.
    ClientCertificateFile,
    /// `client-key` reads a local file, and proves to the server that it was read.
    ClientKeyFile,
    /// `tokenFile` sends a local file to the server.
    TokenFile,
    /// `insecure-skip-tls-verify` accepts any server.
    InsecureSkipTlsVerify,
    /// An `http://` server: no TLS at all.
    Http,
    /// `proxy-url` connects to a host of its choice.
    ProxyUrl,
    /// The proxy of the environment, if there is no `proxy-url`.
    EnvironmentProxy,
    /// No CA: the system's CAs vouch for the server.
    SystemRoots,
}

/// The largest kubeconfig that is read, in bytes.
pub const MAX_BYTES: usize = 16 << 20;

impl Kubeconfig {
    /// Parses a kubeconfig, YAML or JSON, of at most `limit` bytes.
    ///
    /// # Errors
    /// If it is too large, or not a kubeconfig.
    pub fn parse(bytes: &[u8], limit: usize) -> Result<Self, KubeconfigError> {
        Ok(Self { file: File::parse(bytes, limit)?, hidden: Vec::new() })
    }

    /// Resolves the kubeconfig's relative paths against a folder; without this they are relative to the process's own.
    #[must_use]
    pub fn in_folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.file.resolve_paths(folder.as_ref());
        self
    }

    /// Resolves the kubeconfig's relative paths against the folder of its own file.
    #[must_use]
    pub fn in_folder_of(self, path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match absolute.parent() {
            Some(folder) => self.in_folder(folder),
            None => self,
        }
    }

    /// Merges kubeconfigs as kubectl does: of entries with the same name, and of current contexts, the first one counts.
    pub fn merge(kubeconfigs: impl IntoIterator<Item = Self>) -> Self {
        let files = kubeconfigs.into_iter().map(|kubeconfig| kubeconfig.file).collect();
        let (file, hidden) = merge::merge(files);
        Self { file, hidden }
    }

    /// Returns the names of the contexts, in order.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.file.contexts.iter().map(|context| context.name.as_str())
    }

    /// Returns the names of the contexts of a kubeconfig that must list them.
    ///
    /// # Errors
    /// If it has no such list, not even an empty one: it is empty or truncated.
    pub fn listed_contexts(&self) -> Result<impl Iterator<Item = &str>, KubeconfigError> {
        self.file.has_contexts.then(|| self.contexts()).ok_or(KubeconfigError::NoContexts)
    }

    /// Returns the contexts that lead elsewhere than in their own file, because an earlier file has a context, cluster or
    /// user of the same name.
    pub fn hidden_contexts(&self) -> &[String] {
        &self.hidden
    }

    /// Returns the name of the current context.
    pub fn current_context(&self) -> Option<&str> {
        self.file.current_context.as_deref()
    }

    /// Returns the configuration of a context; with `None`, of the current or only one.
    ///
    /// # Errors
    /// If there is no such context, or its parts are missing or invalid.
    pub fn config(&self, context: Option<&str>) -> Result<kube::Config, KubeconfigError> {
        self.config_if(context, &|_| Ok(()))
    }

    /// Returns the configuration of a context, as [`Kubeconfig::config`] does, if `admit` admits all features that it uses.
    /// A CA file is read only if a plugin gets the cluster's data (`provideClusterInfo`); no other file is read.
    ///
    /// # Errors
    /// If there is no such context, its parts are missing or invalid, or a feature is refused.
    pub fn config_if(
        &self,
        context: Option<&str>,
        admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
    ) -> Result<kube::Config, KubeconfigError> {
        let context = self.file.context(context.or(self.current_context()))?;
        let cluster = self.file.cluster(&context.cluster)?;
        let user = some(&context.user).and_then(|name| self.file.user(name));
        let mut config = Self::resolve(cluster, user, admit)?;
        if let Some(namespace) = some(&context.namespace) {
            config.default_namespace = namespace.to_owned();
        }
        Ok(config)
    }

    fn resolve(
        cluster: &ClusterEntry,
        user: Option<&UserEntry>,
        admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
    ) -> Result<kube::Config, KubeconfigError> {
        features(cluster, user).try_for_each(admit)?;
        if let Some(user) = user {
            user::check(user)?;
        }
        let mut config = kube::Config::new(server::address(cluster, admit)?);
        let over_tls = config.cluster_url.scheme_str() == Some("https");
        trust(cluster, over_tls, admit, &mut config)?;
        config.proxy_url = proxy(cluster, &config.cluster_url, admit)?;
        config.disable_compression = cluster.disable_compression.unwrap_or_default();
        if let Some(user) = user {
            config.auth_info = user::credentials(user, cluster, over_tls)?;
        }
        Ok(config)
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("contexts", &self.contexts().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl KubeconfigFeature {
    /// Returns the field that uses the feature.
    pub fn field(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::AuthProvider => "auth-provider",
            Self::CertificateAuthorityFile => "certificate-authority",
            Self::ClientCertificateFile => "client-certificate",
            Self::ClientKeyFile => "client-key",
            Self::TokenFile => "tokenFile",
            Self::InsecureSkipTlsVerify => "insecure-skip-tls-verify",
            Self::Http => "server: http://",
            Self::ProxyUrl => "proxy-url",
            Self::EnvironmentProxy => "HTTPS_PROXY or HTTP_PROXY",
            Self::SystemRoots => "certificate-authority-data",
        }
    }

    /// Returns the danger of the feature.
    pub fn danger(self) -> &'static str {
        match self {
            Self::Exec | Self::AuthProvider => "it runs a program",
            Self::CertificateAuthorityFile | Self::ClientCertificateFile | Self::ClientKeyFile => {
                "it reads a local file"
            }
            Self::TokenFile => "it sends a local file to the server",
            Self::InsecureSkipTlsVerify | Self::Http => {
                "anyone on the network path could read and answer everything"
            }
            Self::ProxyUrl | Self::EnvironmentProxy => "it connects to a host of its choice",
            Self::SystemRoots => "any public CA could vouch for the server",
        }
    }
}

/// Returns the configuration of a context of kube's own kubeconfig. A CA file stays a file
/// ([`kube::Config::root_cert_file`]), so that a [`Transport`](crate::Transport) follows its rotation.
///
/// The proxy is the cluster's `proxy-url`, regardless of `NO_PROXY`; otherwise the one of the environment
/// ([`proxy_from_environment`]).
///
/// # Errors
/// If context or cluster are missing, or anything in them is invalid.
pub async fn config_from_kubeconfig(
    kubeconfig: kube::config::Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, KubeconfigError> {
    let mut file = File::from_kube(&kubeconfig)?;
    let name = options.context.clone().or(file.current_context.clone());
    let mut context = file.context(name.as_deref())?.clone();
    if let Some(cluster) = &options.cluster {
        context.cluster.clone_from(cluster);
    }
    context.user = options.user.clone().or(context.user);
    file.contexts = vec![file::NamedContext { name: String::new(), context }];
    file.current_context = None;
    Kubeconfig { file, hidden: Vec::new() }.config(None)
}

/// Returns the configuration of the current context of `$KUBECONFIG` or `~/.kube/config`, read by kubectl's rules. If none
/// of these files exists, returns that of the service account of this process's pod, which has no proxy.
///
/// # Errors
/// If neither can be used.
pub async fn infer_config() -> Result<kube::Config, KubeconfigReadError> {
    let paths = KubeconfigPaths::from_environment();
    let mut config = match (tokio::task::spawn_blocking(move || infer(&paths)).await).unwrap_or(None) {
        Some(found) => found?,
        None => {
            kube::Config::incluster().map_err(|error| KubeconfigReadError::ServiceAccount(Arc::new(error)))?
        }
    };
    config.apply_debug_overrides();
    Ok(config)
}

/// Returns the configuration, or `None` if there is no kubeconfig.
fn infer(paths: &KubeconfigPaths) -> Option<Result<kube::Config, KubeconfigReadError>> {
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if in_pod && !paths.exist() {
        return None;
    }
    let unusable = |error| KubeconfigReadError::Unusable { paths: paths.to_string(), error };
    Some(paths.read().and_then(|kubeconfig| kubeconfig.config(None).map_err(unusable)))
}

/// Returns the dangerous features that the fields use. The server's URL, the CA and the proxy may add others later.
fn features<'a>(
    cluster: &'a ClusterEntry,
    user: Option<&'a UserEntry>,
) -> impl Iterator<Item = KubeconfigFeature> {
    use KubeconfigFeature::{
        AuthProvider, CertificateAuthorityFile, ClientCertificateFile, ClientKeyFile, Exec,
        InsecureSkipTlsVerify, ProxyUrl, TokenFile,
    };
    let of_user = user.map(|user| {
        [
            (user.exec.is_some(), Exec),
            (user.auth_provider.is_some(), AuthProvider),
            (some(&user.client_certificate).is_some(), ClientCertificateFile),
            (some(&user.client_key).is_some(), ClientKeyFile),
            (some(&user.token_file).is_some(), TokenFile),
        ]
    });
    let of_cluster = [
        (some(&cluster.certificate_authority).is_some(), CertificateAuthorityFile),
        (cluster.insecure_skip_tls_verify == Some(true), InsecureSkipTlsVerify),
        (some(&cluster.proxy_url).is_some(), ProxyUrl),
    ];
    let all = of_cluster.into_iter().chain(of_user.into_iter().flatten());
    all.filter(|(used, _)| *used).map(|(_, feature)| feature)
}

/// Sets how to verify the server. Over plain HTTP none of it counts.
fn trust(
    cluster: &ClusterEntry,
    over_tls: bool,
    admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
    config: &mut kube::Config,
) -> Result<(), KubeconfigError> {
    let insecure = cluster.insecure_skip_tls_verify.unwrap_or_default();
    let (data, path) = (some(&cluster.certificate_authority_data), some(&cluster.certificate_authority));
    if data.is_some() && path.is_some() {
        return Err(invalid(
            "certificate-authority",
            "is given twice, as a file and as data: remove one of them",
        ));
    }
    if !over_tls {
        return Ok(());
    }
    if insecure && (data.is_some() || path.is_some()) {
        let reason = "is given beside a certificate authority: remove one of them";
        return Err(invalid("insecure-skip-tls-verify", reason));
    }
    config.accept_invalid_certs = insecure;
    config.tls_server_name = some(&cluster.tls_server_name).map(str::to_owned);
    match (data, path) {
        (Some(data), _) => config.root_cert = Some(certificates(data)?),
        (None, Some(path)) => config.root_cert_file = Some(PathBuf::from(path)),
        (None, None) if insecure => {}
        (None, None) => admit(KubeconfigFeature::SystemRoots)?,
    }
    Ok(())
}

/// Returns the certificates of a bundle. Invalid ones are skipped if another is valid, as in kubectl.
fn certificates(data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let pem = decode(AUTHORITY_DATA, data)?;
    let found = CertificateDer::pem_slice_iter(&pem).flatten().map(|der| der.to_vec());
    let found: Vec<Vec<u8>> = found.collect();
    match found.is_empty() {
        true => Err(invalid(AUTHORITY_DATA, "holds no PEM certificate")),
        false => Ok(found),
    }
}

/// Returns the proxy to the server.
fn proxy(
    cluster: &ClusterEntry,
    server: &http::Uri,
    admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
) -> Result<Option<http::Uri>, KubeconfigError> {
    if let Some(url) = some(&cluster.proxy_url) {
        let url: http::Uri = url.trim().parse().map_err(|_| invalid("proxy-url", "is not a URL"))?;
        return match url.scheme_str() {
            Some("http" | "https" | "socks5" | "socks5h") => Ok(Some(url)),
            _ => Err(invalid("proxy-url", "has to begin with http://, https:// or socks5://")),
        };
    }
    if admit(KubeconfigFeature::EnvironmentProxy).is_err() {
        return Ok(None);
    }
    proxy_from_environment(server)
        .map_err(|_| invalid("HTTPS_PROXY or HTTP_PROXY of the environment", "is not a URL"))
}

const AUTHORITY_DATA: &str = "certificate-authority-data";

/// Returns the text if it is not empty: kubeconfigs are written by tools that leave empty fields.
fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn invalid(field: &'static str, reason: &'static str) -> KubeconfigError {
    KubeconfigError::Invalid { field, reason }
}

/// Removes the line ends of a YAML block from base64.
fn base64_text(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}

fn decode(field: &'static str, text: &str) -> Result<Zeroizing<Vec<u8>>, KubeconfigError> {
    let text = Zeroizing::new(base64_text(text));
    STANDARD.decode(&*text).map(Zeroizing::new).map_err(|_| invalid(field, "is not base64"))
}
