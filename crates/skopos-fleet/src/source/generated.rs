//! Connection settings from formats other than kubeconfigs, by way of a kubeconfig in memory: so one policy holds for all.

use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::kubeconfig::{Kubeconfig, KubeconfigError, KubeconfigPolicy};
use crate::spec::ClusterSpec;

/// Returns the settings in a kubeconfig with one context, whose cluster and user these are. `name` is that of all three.
///
/// # Errors
/// If the kubeconfig is invalid, or the policy does not admit it.
pub(super) fn spec(
    name: &str,
    cluster: &Value,
    user: &Value,
    policy: &KubeconfigPolicy,
) -> Result<ClusterSpec, KubeconfigError> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    let kubeconfig = Zeroizing::new(kubeconfig.to_string());
    Kubeconfig::parse(kubeconfig.as_bytes(), policy)?.cluster(None)
}
