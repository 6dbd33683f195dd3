//! Kubeconfigs as input that may be hostile.
//!
//! A kubeconfig can make its reader run programs (`exec`, `auth-provider`), send the content of local files elsewhere
//! (`tokenFile`, certificates by path), and connect anywhere. Which of that is admitted says a [`KubeconfigPolicy`], one
//! switch for each; what is not admitted is a [`KubeconfigError`] that names the field and the switch. No error and no
//! `Debug` here shows a value of the kubeconfig beyond the names of contexts, clusters and users.

mod error;
mod file;
mod plugin;
mod policy;
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use skopos::transport::proxy_from_environment;
use zeroize::Zeroizing;

pub use self::error::KubeconfigError;
use self::file::{ClusterEntry, File, UserEntry};
pub use self::policy::KubeconfigPolicy;
use crate::spec::ClusterSpec;

/// A kubeconfig that could be read. Whether what it asks for is admitted is said for each context
/// ([`Kubeconfig::cluster`]).
pub struct Kubeconfig {
    file: File,
    policy: KubeconfigPolicy,
    folder: Option<PathBuf>,
}

impl Kubeconfig {
    /// Reads a kubeconfig, YAML or JSON.
    ///
    /// # Errors
    /// If it is larger than the policy admits, or is no kubeconfig.
    pub fn parse(bytes: &[u8], policy: &KubeconfigPolicy) -> Result<Self, KubeconfigError> {
        Ok(Self { file: File::parse(bytes, policy.max_bytes)?, policy: policy.clone(), folder: None })
    }

    /// The folder that relative paths in it start from; by default the process's own.
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The names of its contexts, in its order.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.file.contexts.iter().map(|context| context.name.as_str())
    }

    /// The same, of a kubeconfig that is to say which it has.
    ///
    /// # Errors
    /// If it has no such list, not even an empty one: it is empty, or cut off.
    pub(crate) fn listed_contexts(&self) -> Result<impl Iterator<Item = &str>, KubeconfigError> {
        self.file.has_contexts.then(|| self.contexts()).ok_or(KubeconfigError::NoContexts)
    }

    /// The context that it calls current.
    pub fn current_context(&self) -> Option<&str> {
        self.file.current_context.as_deref().filter(|name| !name.is_empty())
    }

    /// The cluster of a context; `None`: of the current one, or of the only one. Where a plugin is to be told of the cluster
    /// (`provideClusterInfo`), the file of its CA is read; no other file is.
    ///
    /// # Errors
    /// If there is no such context, its parts are missing or wrong, or ask for what the policy does not admit.
    pub fn cluster(&self, context: Option<&str>) -> Result<ClusterSpec, KubeconfigError> {
        let context = self.file.context(context.or(self.current_context()))?;
        let cluster = self.file.cluster(&context.cluster)?;
        self.policy.check_cluster(cluster)?;
        let user = context.user.as_deref().filter(|user| !user.is_empty());
        let user = user.map(|name| self.file.user(name)).transpose()?;
        user.map_or(Ok(()), |user| self.policy.check_user(user))?;

        let mut config = kube::Config::new(server::address(cluster, &self.policy)?);
        self.trust(cluster, &mut config)?;
        config.tls_server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
        config.proxy_url = self.proxy(cluster, &config.cluster_url)?;
        config.disable_compression = cluster.disable_compression.unwrap_or_default();
        if let Some(user) = user {
            config.auth_info = self.credentials(user, cluster)?;
        }
        if let Some(namespace) = context.namespace.as_ref().filter(|name| !name.is_empty()) {
            config.default_namespace.clone_from(namespace);
        }
        Ok(ClusterSpec::from_config(config).with_addresses(self.policy.addresses.clone()))
    }

    /// How the server proves who it is.
    fn trust(&self, cluster: &ClusterEntry, config: &mut kube::Config) -> Result<(), KubeconfigError> {
        config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
        match (some(&cluster.certificate_authority_data), some(&cluster.certificate_authority)) {
            (Some(data), _) => {
                let pem = decode(AUTHORITY_DATA, data)?;
                let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
                let certificates = certificates.ok().filter(|found| !found.is_empty());
                let found = certificates.ok_or(invalid(AUTHORITY_DATA, "holds no PEM certificate"))?;
                config.root_cert = Some(found.iter().map(|der| der.to_vec()).collect());
            }
            (None, Some(path)) => config.root_cert_file = Some(self.path(path)),
            (None, None) if config.accept_invalid_certs || self.policy.allow_system_roots => {}
            (None, None) if config.cluster_url.scheme_str() == Some("http") => {}
            (None, None) => return Err(KubeconfigError::NoCertificateAuthority),
        }
        Ok(())
    }

    /// Through whom it is reached.
    fn proxy(
        &self,
        cluster: &ClusterEntry,
        server: &http::Uri,
    ) -> Result<Option<http::Uri>, KubeconfigError> {
        match some(&cluster.proxy_url) {
            Some(url) => url.trim().parse().map(Some).map_err(|_| invalid("proxy-url", "is not a URL")),
            None if !self.policy.admits_proxies() => Ok(None),
            None => proxy_from_environment(server)
                .map_err(|_| invalid("HTTPS_PROXY or HTTP_PROXY of the environment", "is not a URL")),
        }
    }

    /// Who we are there.
    fn credentials(&self, user: &UserEntry, cluster: &ClusterEntry) -> Result<AuthInfo, KubeconfigError> {
        let secret = |secret: &Option<SecretString>| {
            secret.clone().filter(|secret| !secret.expose_secret().is_empty())
        };
        let path =
            |path: &Option<String>| some(path).map(|path| self.path(path).to_string_lossy().into_owned());
        let auth = AuthInfo {
            token: secret(&user.token),
            token_file: path(&user.token_file),
            username: user.username.clone(),
            password: secret(&user.password),
            client_certificate: path(&user.client_certificate),
            client_certificate_data: some(&user.client_certificate_data).map(str::to_owned),
            client_key: path(&user.client_key),
            client_key_data: secret(&user.client_key_data),
            impersonate: user.impersonate.clone(),
            impersonate_uid: user.impersonate_uid.clone(),
            impersonate_groups: user.impersonate_groups.clone(),
            impersonate_user_extra: user.impersonate_user_extra.clone(),
            exec: user.exec.as_ref().map(|exec| self.plugin(exec, cluster)).transpose()?,
            auth_provider: user.auth_provider.clone(),
            ..AuthInfo::default()
        };
        check_pem("client-certificate-data", auth.client_certificate_data.as_deref())?;
        check_pem("client-key-data", auth.client_key_data.as_ref().map(|key| key.expose_secret()))?;
        check_token(auth.token.as_ref())?;
        Ok(auth)
    }

    fn path(&self, path: &str) -> PathBuf {
        match &self.folder {
            Some(folder) => folder.join(path),
            None => Path::new(path).to_path_buf(),
        }
    }
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("contexts", &self.contexts().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

const AUTHORITY_DATA: &str = "certificate-authority-data";

/// What is there and not empty: kubeconfigs are written by tools that leave empty fields.
fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn invalid(field: &'static str, reason: &'static str) -> KubeconfigError {
    KubeconfigError::Invalid { field, reason }
}

fn decode(field: &'static str, text: &str) -> Result<Zeroizing<Vec<u8>>, KubeconfigError> {
    let text: Zeroizing<Vec<u8>> =
        Zeroizing::new(text.bytes().filter(|b| !b.is_ascii_whitespace()).collect());
    STANDARD.decode(&*text).map(Zeroizing::new).map_err(|_| invalid(field, "is not base64"))
}

/// That it is PEM in base64, so that the mistake is told here and in these words.
fn check_pem(field: &'static str, text: Option<&str>) -> Result<(), KubeconfigError> {
    let Some(text) = text else { return Ok(()) };
    let pem = decode(field, text)?;
    match pem.windows(11).any(|window| window == b"-----BEGIN ") {
        true => Ok(()),
        false => Err(invalid(field, "is not PEM")),
    }
}

/// That it can stand in a header.
fn check_token(token: Option<&SecretString>) -> Result<(), KubeconfigError> {
    match token.is_none_or(|token| token.expose_secret().bytes().all(|b| b.is_ascii_graphic())) {
        true => Ok(()),
        false => Err(invalid("token", "has characters that no token has")),
    }
}
