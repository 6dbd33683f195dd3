//! The names, labels and annotations by which the vcluster CLI, its chart and its syncer know each other.

use sha2::{Digest as _, Sha256};

/// Selects the control planes' workloads and pods.
pub const SELECTOR: &str = "app=vcluster";

/// On a workload: it is paused.
pub const PAUSED: &str = "loft.sh/paused";

/// On a workload: how many replicas it had before.
pub const PAUSED_REPLICAS: &str = "loft.sh/paused-replicas";

/// On a workload: since when it is paused, see [`paused_date`](super::paused_date).
pub const PAUSED_DATE: &str = "loft.sh/paused-date";

/// On a workload: it is down because a backup is being restored.
pub const RESTORING: &str = "loft.sh/restoring";

/// On a workload, a label: the platform has put it to sleep.
pub const SLEEP_MODE: &str = "loft.sh/sleep-mode";

/// On Secret `vc-config-NAME`: its workloads sleep, its API server does not.
pub const WORKLOADS_SLEEP: &str = "sleepmode.loft.sh/sleep-type";

/// On a namespace, a label with the name behind it: a virtual cluster in it is being deleted.
pub const DELETING: &str = "deleting.skopos.dev/";

/// On a workload: it is not to be deleted.
pub const NON_DELETABLE: &str = "loft.sh/non-deletable";

/// On a namespace: it was made for a virtual cluster, and goes with it.
pub const CREATED: &str = "vcluster.loft.sh/created";

/// On objects in the host that stand for objects of a virtual cluster: the virtual cluster's name, or [`marker`].
pub const MANAGED_BY: &str = "vcluster.loft.sh/managed-by";

/// On a synced namespace: the host had it before.
pub const IMPORTED: &str = "vcluster.loft.sh/imported";

/// Selects the DNS server that runs in the host for a virtual cluster.
pub const DNS_SELECTOR: &str = "k8s-app=vcluster-kube-dns";

/// The Service of an installation of the platform: no virtual cluster is made beside it.
pub const PLATFORM_SERVICE: &str = "loft";

/// Where a virtual cluster is made if nobody says another namespace.
pub fn default_namespace(name: &str) -> String {
    format!("vcluster-{name}")
}

/// The Secret that the syncer writes a kubeconfig into.
pub fn kubeconfig_secret(name: &str) -> String {
    format!("vc-{name}")
}

/// The Secret that holds the chart's values.
pub fn config_secret(name: &str) -> String {
    format!("vc-config-{name}")
}

/// The claims that go with a virtual cluster. Those of further replicas (`data-NAME-1`) stay.
pub fn claims(name: &str) -> [String; 2] {
    [format!("data-{name}-0"), format!("data-{name}-etcd-0")]
}

/// The cluster roles (and their bindings) that the chart makes, if it makes any.
pub fn cluster_roles(name: &str, namespace: &str) -> [String; 2] {
    ["vc", "vc-mn"].map(|prefix| {
        let mut role = format!("{prefix}-{name}-v-{namespace}");
        // Names are ASCII.
        role.truncate(LONGEST);
        role.truncate(role.trim_end_matches('-').len());
        role
    })
}

/// The context that `vcluster connect` would call it by.
pub fn context(name: &str, namespace: &str, host_context: &str) -> String {
    format!("vcluster_{name}_{namespace}_{host_context}")
}

/// The value of [`MANAGED_BY`] on objects that are in no namespace, or in namespaces of their own.
pub fn marker(name: &str, namespace: &str) -> String {
    safe_concat(&[namespace, "x", name])
}

/// The selector of all that belongs to a release of this name.
pub fn release_selector(app: &str, name: &str) -> String {
    format!("app={app},release={name}")
}

/// Whether it can be the name of a release: a DNS label, short enough for the names made of it.
pub fn is_valid(name: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (1..=MOST_RELEASE).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && ends_well(name.chars().next())
        && ends_well(name.chars().next_back())
}

/// The longest label value and name of an RBAC object that the chart makes.
const LONGEST: usize = 63;

/// The longest name of a helm release.
const MOST_RELEASE: usize = 53;

/// The parts with `-` between them; what is too long ends in a digest of the whole.
fn safe_concat(parts: &[&str]) -> String {
    let whole = parts.join("-");
    if whole.len() <= LONGEST {
        return whole;
    }
    let digest: String = Sha256::digest(&whole).iter().map(|byte| format!("{byte:02x}")).collect();
    // Names are ASCII; what is not is left out rather than cut in the middle.
    let head = whole.get(..KEPT).unwrap_or_default();
    format!("{head}-{}", &digest[..10]).replace(".-", "-")
}

/// How much of a name stays before its digest.
const KEPT: usize = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_markers_end_in_a_digest() {
        assert_eq!(marker("shop", "team-a"), "team-a-x-shop");
        // What `printf NAME | sha256sum` begins with.
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
    fn cluster_roles_are_as_the_chart_calls_them() {
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
