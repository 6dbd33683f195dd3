//! What is known of a cluster before anything is asked of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::address::AddressPolicy;
use crate::kubeconfig::KubeconfigError;

/// How to reach a cluster, and what is said about it. Cheap to clone; shows no secrets.
#[derive(Clone)]
pub struct ClusterSpec {
    config: Arc<kube::Config>,
    addresses: AddressPolicy,
    labels: Arc<BTreeMap<String, String>>,
}

pub(crate) fn labels_of<K: Into<String>, V: Into<String>>(
    labels: impl IntoIterator<Item = (K, V)>,
) -> Arc<BTreeMap<String, String>> {
    Arc::new(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

/// Another way to a server than what its kubeconfig says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to connect to.
    pub url: http::Uri,
    /// The name that the server's certificate has to be for; `None`: the URL's host.
    pub tls_server_name: Option<String>,
}

/// Why nothing can be made of what a source says about a cluster. Shows nothing of its secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Its kubeconfig gives no cluster.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// There is no kubeconfig where one should be.
    #[error("there is no kubeconfig in {place}")]
    NoKubeconfig {
        /// Where: a file, or a Secret and its key.
        place: String,
    },
    /// It cannot be read.
    #[error("{place} cannot be read: {reason}")]
    Unreadable {
        /// Where.
        place: String,
        /// Why.
        reason: String,
    },
}

impl ClusterSpec {
    /// A cluster that the caller knows, with whatever its configuration asks for: see
    /// [`Kubeconfig`](crate::kubeconfig::Kubeconfig) for the configurations of strangers.
    pub fn from_config(config: kube::Config) -> Self {
        Self { config: Arc::new(config), addresses: AddressPolicy::anywhere(), labels: Arc::default() }
    }

    /// With these labels, by which members are selected.
    pub fn with_labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels_of(labels);
        self
    }

    /// Only connected to where this policy admits it.
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// Reached another way.
    pub fn with_endpoint(mut self, endpoint: Endpoint) -> Self {
        let mut config = kube::Config::clone(&self.config);
        config.cluster_url = endpoint.url;
        config.tls_server_name = endpoint.tls_server_name;
        self.config = Arc::new(config);
        self
    }

    /// Sends a header with every request.
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        let mut config = kube::Config::clone(&self.config);
        config.headers.push((name, value));
        self.config = Arc::new(config);
        self
    }

    /// The labels.
    pub fn labels(&self) -> &Arc<BTreeMap<String, String>> {
        &self.labels
    }

    /// The server's URL.
    pub fn server(&self) -> &http::Uri {
        &self.config.cluster_url
    }

    /// The namespace of its context.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Where it may be connected to.
    pub fn addresses(&self) -> &AddressPolicy {
        &self.addresses
    }

    /// The whole configuration, secrets included.
    pub fn config(&self) -> kube::Config {
        kube::Config::clone(&self.config)
    }

    /// Whether connections made for the other can serve this one.
    pub(crate) fn connects_as(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && (Arc::ptr_eq(&self.config, &other.config)
                || fingerprint(&self.config) == fingerprint(&other.config))
    }
}

/// Stands for everything in it that a connection depends on.
fn fingerprint(config: &kube::Config) -> [u8; 32] {
    // Both hold secrets, so they are wiped.
    let user = Zeroizing::new(serde_json::to_vec(&config.auth_info).unwrap_or_default());
    let others = Zeroizing::new(format!(
        "{:?}",
        (
            &config.cluster_url,
            &config.root_cert,
            &config.root_cert_file,
            config.accept_invalid_certs,
            &config.tls_server_name,
            &config.headers,
            &config.proxy_url,
            // Not in what serde writes of the user.
            config.auth_info.exec.as_ref().map(|exec| &exec.cluster),
        )
    ));
    Sha256::new()
        .chain_update((user.len() as u64).to_be_bytes())
        .chain_update(&*user)
        .chain_update(others.as_bytes())
        .finalize()
        .into()
}

impl fmt::Debug for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSpec")
            .field("server", &self.config.cluster_url.to_string())
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}
