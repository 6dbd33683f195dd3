//! Names, labels and annotations shared with the vcluster CLI, its chart and its syncer.

use sha2::{Digest as _, Sha256};

/// Selector of the control planes' workloads and pods.
pub const SELECTOR: &str = "app=vcluster";

/// Annotation of a paused workload.
pub const PAUSED: &str = "loft.sh/paused";

/// Annotation of a workload: its replicas before the pause.
pub const PAUSED_REPLICAS: &str = "loft.sh/paused-replicas";

/// Annotation of a workload: the time of the pause, see [`paused_date`](super::paused_date).
pub const PAUSED_DATE: &str = "loft.sh/paused-date";

/// Annotation of a workload that is down because a backup is being restored.
pub const RESTORING: &str = "loft.sh/restoring";

/// Label of a workload that the platform has put to sleep.
pub const SLEEP_MODE: &str = "loft.sh/sleep-mode";

/// Annotation of Secret `vc-config-NAME`: workloads sleep, but the API server does not.
pub const WORKLOADS_SLEEP: &str = "sleepmode.loft.sh/sleep-type";

/// Prefix of a namespace's label, followed by the name of a virtual cluster in it that is being deleted.
pub const DELETING: &str = "deleting.skopos.dev/";

/// Annotation of a workload that must not be deleted.
pub const NON_DELETABLE: &str = "loft.sh/non-deletable";

/// Annotation of a namespace that was created for a virtual cluster, and is deleted with it.
pub const CREATED: &str = "vcluster.loft.sh/created";

/// Label of objects in the host that represent objects of a virtual cluster: its name, or [`marker`].
pub const MANAGED_BY: &str = "vcluster.loft.sh/managed-by";

/// Annotation of a synced namespace that existed in the host before.
pub const IMPORTED: &str = "vcluster.loft.sh/imported";

/// Selector of the DNS server that runs in the host for a virtual cluster.
pub const DNS_SELECTOR: &str = "k8s-app=vcluster-kube-dns";

/// The Service of an installation of the platform. No virtual cluster is created in its namespace.
pub const PLATFORM_SERVICE: &str = "loft";

/// Returns the default namespace of a virtual cluster.
pub fn default_namespace(name: &str) -> String {
    format!("vcluster-{name}")
}

/// Returns the name of the Secret with the kubeconfig from the syncer.
pub fn kubeconfig_secret(name: &str) -> String {
    format!("vc-{name}")
}

/// Returns the name of the Secret with the chart's values.
pub fn config_secret(name: &str) -> String {
    format!("vc-config-{name}")
}

/// Returns the claims that are deleted with a virtual cluster. Those of further replicas (`data-NAME-1`) stay.
pub fn claims(name: &str) -> [String; 2] {
    [format!("data-{name}-0"), format!("data-{name}-etcd-0")]
}

/// Returns the cluster roles (and bindings) that the chart creates, if any.
pub fn cluster_roles(name: &str, namespace: &str) -> [String; 2] {
    ["vc", "vc-mn"].map(|prefix| {
        let mut role = format!("{prefix}-{name}-v-{namespace}");
        // Names are ASCII, so no character is cut.
        role.truncate(MAX_LABEL_LENGTH);
        role.truncate(role.trim_end_matches('-').len());
        role
    })
}

/// Returns the context's name, as in `vcluster connect`.
pub fn context(name: &str, namespace: &str, host_context: &str) -> String {
    format!("vcluster_{name}_{namespace}_{host_context}")
}

/// Returns the value of [`MANAGED_BY`] on objects without a namespace, or in synced namespaces.
pub fn marker(name: &str, namespace: &str) -> String {
    safe_concat(&[namespace, "x", name])
}

/// Returns the selector of all objects of a release.
pub fn release_selector(app: &str, name: &str) -> String {
    format!("app={app},release={name}")
}

/// Returns whether the name is valid for a release: a DNS label, short enough for the names derived from it.
pub fn is_valid(name: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (1..=MAX_RELEASE_LENGTH).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && ends_well(name.chars().next())
        && ends_well(name.chars().next_back())
}

/// Limit on label values and names of RBAC objects in the chart.
const MAX_LABEL_LENGTH: usize = 63;

/// Limit on the name of a helm release.
const MAX_RELEASE_LENGTH: usize = 53;

/// Joins the parts with `-`. A long result ends in a digest of the whole.
fn safe_concat(parts: &[&str]) -> String {
    let whole = parts.join("-");
    if whole.len() <= MAX_LABEL_LENGTH {
        return whole;
    }
    let digest: String = Sha256::digest(&whole).iter().map(|byte| format!("{byte:02x}")).collect();
    // Names are ASCII. Otherwise the head is omitted, not cut inside a character.
    let head = whole.get(..PREFIX_LENGTH).unwrap_or_default();
    format!("{head}-{}", &digest[..10]).replace(".-", "-")
}

/// The length of a name before its digest.
const PREFIX_LENGTH: usize = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_markers_end_in_a_digest() {
        assert_eq!(marker("shop", "team-a"), "team-a-x-shop");
        // The beginning of the output of `printf NAME | sha256sum`.
        let (name, namespace) = ("shop", "n".repeat(70));
        let marker = marker(name, &namespace);
        assert_eq!(marker.len(), 63);
        let digest = Sha256::digest(format!("{namespace}-x-{name}"));
        assert!(marker.ends_with(&format!(
            "-{:02x}{:02x}{:02x}{:02x}{:02x}",
            digest[0], digest[1], digest[2], digest[3], digest[4]
        )));
        assert_eq!(safe_concat(&[&"a".repeat(51), ".", &"b".repeat(40)]).find(".-"), None);
    }

    #[test]
    fn cluster_role_names_match_chart() {
        assert_eq!(cluster_roles("shop", "team-a"), ["vc-shop-v-team-a", "vc-mn-shop-v-team-a"]);
        let [role, _] = cluster_roles("shop", &"n".repeat(70));
        assert_eq!(role.len(), 63);
    }

    #[test]
    fn a_release_is_a_short_dns_label() {
        for good in ["a", "shop-1", "1", &"a".repeat(53)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", &"a".repeat(54), "../a"] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
