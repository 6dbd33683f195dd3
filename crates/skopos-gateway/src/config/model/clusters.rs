//! Sources of clusters, and the trust in each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::Span;

/// Sources of clusters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Clusters {
    /// Contexts of kubeconfig files that are as trusted as this file.
    pub kubeconfigs: Vec<KubeconfigSource>,
    /// Watched folders with one kubeconfig per file.
    pub folders: Vec<FolderSource>,
    /// Secrets in a host cluster that hold clusters: kubeconfigs, or clusters of Argo CD.
    pub secrets: Vec<SecretSource>,
    /// Virtual clusters that run in a host cluster.
    pub vclusters: Vec<VclusterSource>,
    /// ClusterProfiles of a hub (Cluster Inventory API of SIG Multicluster).
    pub cluster_profiles: Vec<ClusterProfileSource>,
    /// Time that the data of a removed cluster stays readable.
    pub retain_removed: Span,
    /// Permitted addresses for the clusters of untrusted kubeconfigs.
    pub addresses: CidrList,
}

/// Permitted addresses, as CIDRs. Loopback, link-local and metadata addresses and those of this machine are denied unless
/// allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CidrList {
    /// Networks allowed although they are denied by default.
    pub allow: Vec<String>,
    /// Networks denied in addition.
    pub deny: Vec<String>,
}

/// Contexts of one kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigSource {
    /// The file, or several as in `$KUBECONFIG` (`a:b`), which are merged as kubectl merges them. May also be written
    /// `kubeconfig`.
    #[serde(alias = "kubeconfig")]
    #[schemars(with = "String", extend("x-alias" = "kubeconfig"))]
    pub path: PathBuf,
    /// The contexts. Each becomes a cluster of its name, or of the nearest valid name with a hash appended. Default: all.
    pub contexts: Option<Vec<String>>,
    /// Labels of these clusters, for `?clusterSelector=`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A watched folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FolderSource {
    /// The folder.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Features that its kubeconfigs may use beyond the harmless ones.
    #[serde(default)]
    pub allow: KubeconfigSwitches,
    /// Labels of these clusters, for `?clusterSelector=`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Features of kubeconfigs beyond an address, a CA and inline credentials. Each switch enables one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeconfigSwitches {
    /// Run programs for credentials.
    pub exec: bool,
    /// Name files of this machine.
    pub files: bool,
    /// Skip verification of the server's certificate.
    pub insecure: bool,
}

/// A cluster in which others are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostCluster {
    /// Its name in the fleet. Default: the name of its context, or `host` for the cluster of this pod.
    pub name: Option<String>,
    /// Its kubeconfig. May also be written `path`. Default: the service account of this pod.
    #[serde(alias = "path")]
    #[schemars(with = "Option<String>", extend("x-alias" = "path"))]
    pub kubeconfig: Option<PathBuf>,
    /// The context. Default: the current one.
    pub context: Option<String>,
}

/// Secrets in a host cluster that hold clusters: kubeconfigs, or clusters of Argo CD.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretSource {
    /// The host cluster.
    #[serde(default)]
    pub host: HostCluster,
    /// Namespaces. Default: all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The kind of Secrets.
    pub flavour: SecretFlavour,
    /// Features that they may use beyond the harmless ones.
    #[serde(default)]
    pub allow: KubeconfigSwitches,
}

/// The kind of Secrets that hold clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SecretFlavour {
    /// `NAME-kubeconfig` of Cluster API.
    ClusterApi,
    /// Secrets with the label `skopos.dev/cluster`, which hold a kubeconfig.
    Plain,
    /// The clusters of Argo CD: Secrets with the label `argocd.argoproj.io/secret-type=cluster`.
    ArgoCd,
}

/// Virtual clusters that run in a host cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VclusterSource {
    /// The host cluster.
    pub host: HostCluster,
    /// Namespaces. Default: all.
    pub namespaces: Vec<String>,
    /// The way to their API servers.
    pub dial: Dial,
}

/// The way to the API servers of virtual clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Dial {
    /// By their Services where the names of these resolve, as in the host's own pods; else by port-forwards.
    #[default]
    Automatic,
    /// By their Services.
    Service,
    /// By port-forwards through the API server of the host. It needs list of pods, and get and create of `pods/portforward`.
    PortForward,
}

/// ClusterProfiles of a hub. A writer of their status decides to which server the credentials of an access provider are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterProfileSource {
    /// The hub.
    pub host: HostCluster,
    /// Namespaces. Default: all.
    pub namespaces: Vec<String>,
    /// Credentials for the access providers of the profiles, best first. The first one that a profile names is used.
    pub providers: Vec<AccessProvider>,
    /// Skip verification of the server's certificate where a profile says so, and allow plain HTTP.
    pub allow_insecure: bool,
}

/// Credentials for the clusters of one access provider: one of `exec`, `tokenFile` and `secret`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessProvider {
    /// The name in `status.accessProviders`.
    pub name: String,
    /// A credential plugin, which prints an ExecCredential.
    #[serde(default)]
    pub exec: Option<AccessPlugin>,
    /// File with a token for all clusters of the provider; read again when it changes.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub token_file: Option<PathBuf>,
    /// A token in a Secret beside each profile. It needs `namespaces`, because all Secrets in them are watched.
    #[serde(default)]
    pub secret: Option<TokenSecret>,
}

/// A credential plugin. It has no terminal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessPlugin {
    /// The program: a path, or a name that is searched for in `PATH`.
    pub command: String,
    /// The arguments. A profile cannot add any.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables added to the environment. A profile cannot add any.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The version of its protocol: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`.
    #[serde(default = "AccessPlugin::api_version")]
    pub api_version: String,
    /// Pass the address and the CA of the cluster to it, and what its profile says for plugins.
    #[serde(default = "AccessPlugin::provide_cluster_info")]
    pub provide_cluster_info: bool,
}

/// A Secret with a token, in the namespace of its profile.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TokenSecret {
    /// Text after the name of the profile in the name of the Secret. Default: none.
    pub suffix: Option<String>,
    /// The key of the token.
    pub key: String,
}

impl AccessPlugin {
    fn api_version() -> String {
        "client.authentication.k8s.io/v1".to_owned()
    }

    fn provide_cluster_info() -> bool {
        true
    }
}

impl Default for TokenSecret {
    fn default() -> Self {
        Self { suffix: None, key: "token".to_owned() }
    }
}

impl Default for Clusters {
    fn default() -> Self {
        Self {
            kubeconfigs: Vec::new(),
            folders: Vec::new(),
            secrets: Vec::new(),
            vclusters: Vec::new(),
            cluster_profiles: Vec::new(),
            retain_removed: Span::seconds(600),
            addresses: CidrList::default(),
        }
    }
}
