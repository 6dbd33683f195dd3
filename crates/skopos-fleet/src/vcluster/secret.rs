//! Secrets of a virtual cluster: its configuration, and the kubeconfig written by its syncer.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::meta::{Meta, or_default};
use super::names;
use crate::spec::Endpoint;

/// Secret `vc-config-NAME` with the values of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigSecret {
    /// The virtual cluster's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The configured number of control planes; at least 1.
    pub replicas: u32,
    /// Set if its workloads are asleep.
    pub workloads_sleep: bool,
}

/// Secret `vc-NAME` with the kubeconfig. It is untrusted: any writer of Secrets in the namespace may have written it.
pub struct KubeconfigSecret {
    /// The virtual cluster's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    config: Zeroizing<Vec<u8>>,
}

/// Reason why a Secret is unusable. Shows nothing of its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The object is not a Secret as served by an API server.
    #[error("not a Secret")]
    Malformed,
    /// The key is missing, or empty.
    #[error("it has no key {key:?}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The value is not base64.
    #[error("key {key:?} is not base64")]
    Encoding {
        /// The key.
        key: &'static str,
    },
}

impl ConfigSecret {
    /// Parses a Secret; `None` if it is not a virtual cluster's configuration. Unreadable parts of the configuration
    /// get their defaults.
    pub fn parse(json: &[u8]) -> Option<Self> {
        let secret: Object = serde_json::from_slice(json).ok()?;
        let name =
            secret.metadata.name.strip_prefix("vc-config-").filter(|name| !name.is_empty())?.to_owned();
        let config = secret.value("config.yaml").ok();
        let config: Option<Config> = config.and_then(|yaml| serde_saphyr::from_slice(&yaml).ok());
        let replicas = config.unwrap_or_default().control_plane.stateful_set.high_availability.replicas;
        Some(Self {
            name,
            namespace: secret.metadata.namespace,
            replicas: replicas.max(1),
            workloads_sleep: secret.metadata.annotations.contains_key(names::WORKLOADS_SLEEP),
        })
    }
}

impl Default for ConfigSecret {
    fn default() -> Self {
        Self { name: String::new(), namespace: String::new(), replicas: 1, workloads_sleep: false }
    }
}

impl KubeconfigSecret {
    /// Parses a Secret; `None` if it is not a virtual cluster's kubeconfig (labels `app=vcluster`, `vcluster-name=NAME`
    /// on a Secret `vc-NAME`; copies for other purposes have other names).
    ///
    /// # Errors
    /// If it has no `config`.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, SecretError> {
        let secret: Object = serde_json::from_slice(json).map_err(|_| SecretError::Malformed)?;
        let metadata = &secret.metadata;
        let name = metadata.label("vcluster-name").filter(|_| metadata.label("app") == Some("vcluster"));
        let name = name.filter(|name| metadata.name == names::kubeconfig_secret(name));
        let Some(name) = name.map(str::to_owned) else { return Ok(None) };
        let config = secret.value("config")?;
        Ok(Some(Self { name, namespace: secret.metadata.namespace, config }))
    }

    /// Returns the kubeconfig, which is untrusted.
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// Returns the endpoint within the host cluster: its Service, with the name in its certificate.
    ///
    /// # Errors
    /// If name or namespace is not valid in a host name.
    pub fn endpoint(&self) -> Result<Endpoint, http::uri::InvalidUri> {
        let (name, namespace) = (&self.name, &self.namespace);
        // The certificate is for NAME.NAMESPACE and not for NAME.NAMESPACE.svc, which the cluster's DNS resolves
        // better.
        let url = format!("https://{name}.{namespace}.svc:443").parse()?;
        Ok(Endpoint { url, tls_server_name: Some(format!("{name}.{namespace}")) })
    }
}

impl fmt::Debug for KubeconfigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, namespace, .. } = self;
        f.debug_struct("KubeconfigSecret")
            .field("name", name)
            .field("namespace", namespace)
            .finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    data: BTreeMap<String, SecretString>,
}

impl Object {
    fn value(&self, key: &'static str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
        let encoded = self.data.get(key).map(|value| value.expose_secret()).filter(|value| !value.is_empty());
        let encoded = encoded.ok_or(SecretError::Missing { key })?;
        let decoded = STANDARD.decode(encoded.as_bytes()).map_err(|_| SecretError::Encoding { key })?;
        Ok(Zeroizing::new(decoded))
    }
}

/// The relevant part of the chart's values.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    #[serde(deserialize_with = "or_default")]
    control_plane: ControlPlane,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ControlPlane {
    #[serde(deserialize_with = "or_default")]
    stateful_set: StatefulSet,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatefulSet {
    #[serde(deserialize_with = "or_default")]
    high_availability: HighAvailability,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HighAvailability {
    #[serde(deserialize_with = "or_default")]
    replicas: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(yaml: &str) -> Option<ConfigSecret> {
        let secret = json!({"metadata": {"name": "vc-config-shop", "namespace": "team"},
            "data": {"config.yaml": STANDARD.encode(yaml)}});
        ConfigSecret::parse(secret.to_string().as_bytes())
    }

    #[test]
    fn configured_replicas_default_to_one() {
        let replicas = |yaml| config(yaml).unwrap().replicas;
        assert_eq!(replicas("controlPlane: {statefulSet: {highAvailability: {replicas: 3}}}"), 3);
        for other in [
            "",
            "controlPlane: null",
            "[1]",
            "controlPlane: {statefulSet: {highAvailability: {replicas: 0}}}",
        ] {
            assert_eq!(replicas(other), 1, "{other}");
        }
        assert_eq!(ConfigSecret::parse(br#"{"metadata": {"name": "vc-config-"}}"#), None);
        assert_eq!(ConfigSecret::parse(br#"{"metadata": {"name": "vc-shop"}}"#), None);
    }

    #[test]
    fn sleeping_workloads_are_annotated() {
        let secret =
            json!({"metadata": {"name": "vc-config-a", "annotations": {"sleepmode.loft.sh/sleep-type": ""}}});
        assert!(ConfigSecret::parse(secret.to_string().as_bytes()).unwrap().workloads_sleep);
        assert!(!config("").unwrap().workloads_sleep);
    }

    fn kubeconfig(name: &str, data: serde_json::Value) -> Result<Option<KubeconfigSecret>, SecretError> {
        let secret = json!({"metadata": {"name": name, "namespace": "team",
            "labels": {"app": "vcluster", "vcluster-name": "shop"}}, "data": data});
        KubeconfigSecret::parse(secret.to_string().as_bytes())
    }

    #[test]
    fn a_kubeconfig_is_found_by_labels_and_name() {
        let found = kubeconfig("vc-shop", json!({"config": STANDARD.encode("k")})).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.config()), ("shop", b"k".as_slice()));
        let endpoint = found.endpoint().unwrap();
        assert_eq!(endpoint.url.to_string(), "https://shop.team.svc:443/");
        assert_eq!(endpoint.tls_server_name.as_deref(), Some("shop.team"));
        assert!(kubeconfig("copy", json!({"config": "aw=="})).unwrap().is_none());
        assert!(!format!("{found:?}").contains('k') || !format!("{found:?}").contains("config"));
    }

    #[test]
    fn secret_errors_do_not_show_content() {
        assert!(matches!(kubeconfig("vc-shop", json!({})), Err(SecretError::Missing { key: "config" })));
        assert!(matches!(kubeconfig("vc-shop", json!({"config": "?"})), Err(SecretError::Encoding { .. })));
        assert!(matches!(KubeconfigSecret::parse(b"17"), Err(SecretError::Malformed)));
    }
}
