//! Configuration of a cluster: connection and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use skopos::transport::Via;
use zeroize::Zeroizing;

use crate::address::AddressPolicy;

/// Connection settings and labels of a cluster. Cheap to clone; shows no secrets.
#[derive(Clone)]
pub struct ClusterSpec {
    config: Arc<kube::Config>,
    addresses: AddressPolicy,
    via: Option<Via>,
    labels: Arc<BTreeMap<String, String>>,
}

pub(crate) fn labels_of<K: Into<String>, V: Into<String>>(
    labels: impl IntoIterator<Item = (K, V)>,
) -> Arc<BTreeMap<String, String>> {
    Arc::new(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

/// A server address that overrides the one in the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL to connect to.
    pub url: http::Uri,
    /// The name required in the server's certificate; `None`: the URL's host.
    pub tls_server_name: Option<String>,
}

impl ClusterSpec {
    /// Creates a spec from a trusted configuration, without any checks: see
    /// [`Kubeconfig`](crate::kubeconfig::Kubeconfig) for untrusted configurations.
    pub fn from_config(config: kube::Config) -> Self {
        Self {
            config: Arc::new(config),
            addresses: AddressPolicy::anywhere(),
            via: None,
            labels: Arc::default(),
        }
    }

    /// Sets the labels, by which members are selected.
    #[must_use]
    pub fn with_labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels_of(labels);
        self
    }

    /// Restricts the addresses that may be connected to.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// Sets a way to the server other than TCP.
    #[must_use]
    pub fn with_via(mut self, via: Via) -> Self {
        self.via = Some(via);
        self
    }

    /// Overrides the server's address.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: Endpoint) -> Self {
        let mut config = kube::Config::clone(&self.config);
        config.cluster_url = endpoint.url;
        config.tls_server_name = endpoint.tls_server_name;
        self.config = Arc::new(config);
        self
    }

    /// Sends a header with every request.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        let mut config = kube::Config::clone(&self.config);
        config.headers.push((name, value));
        self.config = Arc::new(config);
        self
    }

    /// Returns the labels.
    pub fn labels(&self) -> &Arc<BTreeMap<String, String>> {
        &self.labels
    }

    /// Returns the server's URL.
    pub fn server(&self) -> &http::Uri {
        &self.config.cluster_url
    }

    /// Returns the namespace of the context.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Returns the policy of addresses that may be connected to.
    pub fn addresses(&self) -> &AddressPolicy {
        &self.addresses
    }

    /// Returns the way to the server other than TCP, if it has one.
    pub fn via(&self) -> Option<&Via> {
        self.via.as_ref()
    }

    /// Returns the whole configuration, including secrets.
    pub fn config(&self) -> kube::Config {
        kube::Config::clone(&self.config)
    }

    /// Returns whether connections made for `other` can serve this spec.
    pub(crate) fn connects_as(&self, other: &Self) -> bool {
        let way = |spec: &Self| spec.via.as_ref().map(|via| (via.name().to_owned(), via.is_only_way()));
        self.addresses == other.addresses
            && way(self) == way(other)
            && (Arc::ptr_eq(&self.config, &other.config)
                || fingerprint(&self.config) == fingerprint(&other.config))
    }
}

/// Returns a hash of all settings that a connection depends on.
fn fingerprint(config: &kube::Config) -> [u8; 32] {
    // Both hold secrets, so they are zeroized.
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
            // Serde skips this field of the user.
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
