//! What can be configured. The documentation of each field is that of the schema, too.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{ByteSize, Span};

/// Configuration of the Skopos gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Where and how the gateway listens.
    pub listen: Listen,
    /// How callers prove who they are. Without any way the gateway listens on loopback only.
    pub authentication: Authentication,
    /// What callers may do.
    pub authorization: Authorization,
    /// Which clusters there are.
    pub clusters: Clusters,
    /// What is kept in memory, and how old an answer from memory may be.
    pub cache: Cache,
    /// How requests that are not answered from memory go on to a cluster.
    pub outbound: Outbound,
    /// Where stores are written to, so that a restart answers at once. Not written if absent.
    pub checkpoints: Option<Checkpoints>,
    /// The metrics.
    pub metrics: Metrics,
}

/// Where and how the gateway listens.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Listen {
    /// Address and port; port 0 takes a free one. Other addresses than loopback need `tls` and a way to authenticate.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Certificate and key. Without it the gateway speaks plain HTTP, on loopback only.
    pub tls: Option<Tls>,
    /// What clients may use up.
    pub limits: Limits,
}

/// The gateway's certificate; both files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate and its chain.
    #[schemars(with = "String")]
    pub certificate: PathBuf,
    /// PEM file with the private key.
    #[schemars(with = "String")]
    pub key: PathBuf,
}

/// What clients may use up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Connections in all. Further ones wait in the backlog of the system.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: u32,
    /// Connections that have not sent a complete request yet. When there are more, the oldest one is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub half_open: u32,
    /// How long a TLS handshake, and then the first request, may take to come.
    pub handshake: Span,
    /// How long the headers of a further request may take, and how long a connection may be idle.
    pub idle: Span,
    /// Most bytes of the headers of a request.
    pub header_bytes: ByteSize,
    /// Most bytes of the body of a request.
    pub body_bytes: ByteSize,
    /// Requests at the same time on one HTTP/2 connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub streams: u32,
    /// Requests that a client may abandon on one HTTP/2 connection within ten seconds, before it is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub resets: u32,
    /// How long a client may leave an answer unread before its connection is closed.
    pub stalled: Span,
    /// Watches of one caller at the same time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub watches_per_user: u32,
    /// How long answers in progress get when the gateway stops.
    pub drain: Span,
}

/// How callers prove who they are. Several ways may be on; the first that knows the caller counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authentication {
    /// Client certificates: the CN is the user, the Os are the groups.
    pub client_certificates: Option<ClientCertificates>,
    /// Bearer tokens that a cluster knows.
    pub token_review: Option<TokenReview>,
    /// Bearer tokens of an OpenID provider.
    pub oidc: Option<Oidc>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificates {
    /// PEM file with the CAs that sign them; read again when it changes.
    #[schemars(with = "String")]
    pub ca: PathBuf,
}

/// Bearer tokens that a cluster knows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenReview {
    /// The cluster that is asked.
    pub cluster: String,
    /// Audiences of which the token must have one; those of the cluster itself if empty.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Whether its service accounts, and whoever else is a user or in a group that begins with `system:`, are taken for those of
    /// the same names in all other clusters. Otherwise they may do something in this cluster alone.
    #[serde(default)]
    pub shared_accounts: bool,
}

/// Bearer tokens of an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Oidc {
    /// The issuer's URL, exactly as the tokens name it; https.
    pub issuer: String,
    /// The audiences of which a token must have one.
    pub audiences: Vec<String>,
    /// PEM file with the CA of the issuer; the system's if absent.
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// The claim that is the user.
    #[serde(default = "Oidc::sub")]
    pub username_claim: String,
    /// What is put before the user, so that it cannot be taken for one of another source.
    #[serde(default = "Oidc::prefix")]
    pub username_prefix: String,
    /// The claim that lists the groups.
    #[serde(default = "Oidc::groups")]
    pub groups_claim: String,
    /// What is put before each group.
    #[serde(default = "Oidc::prefix")]
    pub groups_prefix: String,
}

/// What callers may do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authorization {
    /// Who decides.
    pub mode: AuthorizationMode,
    /// What happens while the member cannot be asked.
    pub when_member_is_down: MemberDown,
    /// Whether a caller from loopback who proved nothing counts as the gateway itself. Only without `authentication`.
    pub loopback: LoopbackTrust,
    /// How long a decision of a member is kept; at most 10s.
    pub cache: Span,
    /// The rules, for `mode: Policy` and `whenMemberIsDown: Policy`. Whatever no rule allows is denied.
    pub policy: Vec<PolicyRule>,
    /// Who may read the metrics and the state of all clusters, and their names with them. Without `authentication`:
    /// everybody on this machine.
    pub observers: Observers,
}

/// Who may read the state of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Observers {
    /// Users.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

/// Who decides what a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AuthorizationMode {
    /// The member's own policy, by SubjectAccessReview.
    #[default]
    Member,
    /// The rules of this file alone, for all clusters.
    Policy,
}

/// What happens while the member cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MemberDown {
    /// Everything is denied.
    #[default]
    Deny,
    /// The rules of this file decide.
    Policy,
}

/// Who a caller from loopback is who proved nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LoopbackTrust {
    /// `skopos:loopback-anonymous`, of whom the members know nothing unless told.
    #[default]
    Anonymous,
    /// Whoever runs the gateway: nothing is reviewed, as with `kubectl proxy`. Everybody on this machine may do what the
    /// gateway's own credentials may.
    Trusted,
}

/// One thing that is allowed. An empty list means everything, except in `users` and `groups`: one of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyRule {
    /// Users; `*` is everybody.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Clusters.
    pub clusters: Vec<String>,
    /// Verbs: get, list, watch, create, ...; read only if absent.
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group.
    pub api_groups: Vec<String>,
    /// Resources, with their subresource behind a slash: `pods`, `pods/log`.
    pub resources: Vec<String>,
    /// Namespaces. With any named, nothing is allowed over all namespaces.
    pub namespaces: Vec<String>,
}

/// Which clusters there are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Clusters {
    /// Contexts of kubeconfig files that are as trusted as this file.
    pub kubeconfigs: Vec<KubeconfigSource>,
    /// Watched folders with one kubeconfig per file.
    pub folders: Vec<FolderSource>,
    /// Secrets in a host cluster that hold kubeconfigs.
    pub secrets: Vec<SecretSource>,
    /// Virtual clusters that run in a host cluster.
    pub vclusters: Vec<VclusterSource>,
    /// How long the data of a cluster that has left stays readable.
    pub retain_removed: Span,
    /// Which addresses the clusters of kubeconfigs that are not trusted may have.
    pub addresses: CidrList,
}

/// Which addresses may be connected to, as CIDRs. Loopback, link-local and metadata addresses are denied unless allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CidrList {
    /// Allowed in spite of being denied otherwise.
    pub allow: Vec<String>,
    /// Denied besides.
    pub deny: Vec<String>,
}

/// Contexts of one kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigSource {
    /// The file.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The contexts; all if absent. Each is a cluster of its name.
    pub contexts: Option<Vec<String>>,
    /// Labels of these clusters, among which `?clusterSelector=` chooses.
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
    /// What its kubeconfigs may do beyond the harmless.
    #[serde(default)]
    pub allow: KubeconfigSwitches,
    /// Labels of these clusters, among which `?clusterSelector=` chooses.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// What a kubeconfig may do beyond naming an address, a CA and inline credentials. Each switch opens one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeconfigSwitches {
    /// Run programs for credentials.
    pub exec: bool,
    /// Name files of this machine.
    pub files: bool,
    /// Go without checking the server's certificate.
    pub insecure: bool,
}

/// A cluster in which others are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostCluster {
    /// What it is called in the fleet; if absent, as its context is, and `host` if it is that of this pod.
    pub name: Option<String>,
    /// Its kubeconfig; the service account of this pod if absent.
    #[schemars(with = "Option<String>")]
    pub kubeconfig: Option<PathBuf>,
    /// The context; the current one if absent.
    pub context: Option<String>,
}

/// Secrets in a host cluster that hold kubeconfigs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretSource {
    /// The host cluster.
    #[serde(default)]
    pub host: HostCluster,
    /// Namespaces; all if empty.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Which Secrets.
    pub flavour: SecretFlavour,
    /// What their kubeconfigs may do beyond the harmless.
    #[serde(default)]
    pub allow: KubeconfigSwitches,
}

/// Which Secrets hold kubeconfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SecretFlavour {
    /// `NAME-kubeconfig` of Cluster API.
    ClusterApi,
    /// Those with the label `skopos.dev/cluster`.
    Plain,
}

/// Virtual clusters that run in a host cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VclusterSource {
    /// The host cluster.
    pub host: HostCluster,
    /// Namespaces; all if empty.
    pub namespaces: Vec<String>,
}

/// What is kept in memory.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cache {
    /// A read that asks for the newest state is answered from memory if that is proven to be at most so old.
    pub max_age: Span,
    /// How long such a read waits for the cluster where memory is older, before it gets what there is with a warning.
    pub member_deadline: Span,
    /// How long the first read of a kind waits until it is in memory, before it goes to the cluster.
    pub first_use_deadline: Span,
    /// Kinds that are kept from the start.
    pub kinds: Vec<Kind>,
    /// Kinds that are never kept, in any version: every read of them goes to the cluster.
    pub never: Vec<Kind>,
    /// Whether Secrets are kept.
    pub secrets: bool,
    /// A kind that nobody has read for so long is dropped.
    pub idle_stop: Span,
    /// JSON in memory per cluster; the coldest kinds go first.
    pub bytes_per_cluster: ByteSize,
    /// What is kept of compressed objects, for lists with gzip, of all clusters together; counted with the objects
    /// themselves, which are in memory anyway as long as they are current.
    pub compressed_bytes: ByteSize,
}

/// A kind, by its resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// The API group; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("format" = "maybe-empty"))]
    pub group: String,
    /// The version.
    #[serde(default = "Kind::v1")]
    pub version: String,
    /// The resource, in the plural: `pods`.
    pub resource: String,
}

/// How requests go on to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Outbound {
    /// Send them in the caller's name, by impersonation headers: the member's admission and audit see the caller. The
    /// gateway's own user needs the right to impersonate there.
    pub impersonate: bool,
    /// How long a request that is no watch may take.
    pub deadline: Span,
    /// Whether streams into pods go through.
    pub connect: ConnectPolicy,
    /// What streams into pods may use up.
    pub streams: StreamLimits,
}

/// Whether streams into pods and other connections by way of the API server go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConnectPolicy {
    /// No logs, no exec, no attach, no port-forward, no proxy.
    #[default]
    Refused,
    /// `pods/log` only.
    Logs,
    /// Logs, and streams into pods: exec, attach, port-forward. No proxy.
    Streams,
}

/// What streams into pods (exec, attach, port-forward) may use up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamLimits {
    /// Streams of one caller at the same time.
    #[schemars(range(min = 1, max = 100_000))]
    pub per_user: u32,
    /// How long a stream may live, whatever it does.
    pub lifetime: Span,
    /// A stream on which nothing came and went for so long is cut.
    pub idle: Span,
}

/// Where stores are written to: a folder or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoints {
    /// The folder: of this gateway alone, and readable by nobody else, for it holds what the clusters hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub folder: Option<PathBuf>,
    /// A bucket of S3 or the like in place of a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketSource>,
    /// How often what has changed is written.
    #[serde(default = "Checkpoints::every")]
    pub every: Span,
    /// Most JSON of one kind of one cluster: what has more is not written.
    #[serde(default = "Checkpoints::kind_bytes")]
    pub kind_bytes: ByteSize,
    /// Most bytes of all files together: above it no further kinds are written.
    #[serde(default = "Checkpoints::total_bytes")]
    pub total_bytes: ByteSize,
    /// How long files stay of clusters that no source has named since.
    #[serde(default = "Checkpoints::retain")]
    pub retain: Span,
}

/// A bucket of S3 or the like. What is below the prefix is of this gateway alone, and whoever can read it reads what the
/// clusters hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketSource {
    /// Which, and below which prefix: `s3://BUCKET/PREFIX`.
    pub url: String,
    /// The service, by `https://HOST[:PORT]`; that of AWS in the region if absent. The bucket is asked for in the path.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region; that of the environment (`AWS_REGION`) if absent, and us-east-1 where there is none either.
    #[serde(default)]
    pub region: Option<String>,
    /// PEM file with the CAs of the endpoint; the system's if absent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// Whose the requests are; if absent, what the environment of the process says (`AWS_ACCESS_KEY_ID` and the like), and
    /// otherwise the machine's own service for credentials.
    #[serde(default)]
    pub credentials: Option<BucketCredentials>,
    /// Whether an endpoint beyond this machine may go without TLS, so that whoever is on the way reads what the clusters
    /// hold.
    #[serde(default)]
    pub allow_http: bool,
    /// How long the bucket may take to begin to answer; at most 10s. If it takes longer, it is left alone for a while, and the
    /// clusters are read anew.
    #[serde(default = "BucketSource::answer")]
    pub answer: Span,
    /// How long one object may take to be read or written.
    #[serde(default = "BucketSource::deadline")]
    pub deadline: Span,
}

/// Files with the keys of a bucket, each with one word; read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketCredentials {
    /// File with the access key's ID.
    #[schemars(with = "String")]
    pub access_key: PathBuf,
    /// File with the secret access key.
    #[schemars(with = "String")]
    pub secret_key: PathBuf,
    /// File with the session token, where the keys are temporary ones.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_token: Option<PathBuf>,
}

/// The metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Most series; further clusters and kinds are left out, and counted.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub max_series: u32,
}

// === impl Authentication, and defaults ===

impl Authentication {
    /// Whether there is any way to prove who one is.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.client_certificates.is_some() || self.token_review.is_some() || self.oidc.is_some()
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 8001)), tls: None, limits: Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            half_open: 512,
            handshake: Span::seconds(10),
            idle: Span::seconds(90),
            header_bytes: ByteSize(64 * 1024),
            // What kube-apiserver reads at most.
            body_bytes: ByteSize::mebibytes(3),
            streams: 250,
            resets: 200,
            stalled: Span::seconds(60),
            watches_per_user: 1000,
            drain: Span::seconds(10),
        }
    }
}

impl Default for Clusters {
    fn default() -> Self {
        Self {
            kubeconfigs: Vec::new(),
            folders: Vec::new(),
            secrets: Vec::new(),
            vclusters: Vec::new(),
            retain_removed: Span::seconds(600),
            addresses: CidrList::default(),
        }
    }
}

impl Default for Authorization {
    fn default() -> Self {
        Self {
            mode: AuthorizationMode::Member,
            when_member_is_down: MemberDown::Deny,
            loopback: LoopbackTrust::Anonymous,
            cache: Span::seconds(10),
            policy: Vec::new(),
            observers: Observers::default(),
        }
    }
}

impl Cache {
    /// Whether objects of a kind may be in memory, and on disk.
    #[must_use]
    pub fn keeps(&self, group: &str, resource: &str) -> bool {
        let secret = group.is_empty() && resource == "secrets";
        let named = |kind: &Kind| kind.group == group && kind.resource == resource;
        (!secret || self.secrets) && !self.never.iter().any(named)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            max_age: Span::seconds(60),
            member_deadline: Span::seconds(3),
            first_use_deadline: Span::seconds(10),
            kinds: Vec::new(),
            never: Vec::new(),
            secrets: false,
            idle_stop: Span::seconds(600),
            bytes_per_cluster: ByteSize::mebibytes(256),
            compressed_bytes: ByteSize::mebibytes(256),
        }
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            impersonate: false,
            deadline: Span::seconds(60),
            connect: ConnectPolicy::Refused,
            streams: StreamLimits::default(),
        }
    }
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { per_user: 100, lifetime: Span::seconds(4 * 3600), idle: Span::seconds(15 * 60) }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { max_series: 50_000 }
    }
}

impl Oidc {
    fn sub() -> String {
        "sub".into()
    }

    fn prefix() -> String {
        "oidc:".into()
    }

    fn groups() -> String {
        "groups".into()
    }
}

impl Kind {
    fn v1() -> String {
        "v1".into()
    }
}

impl Checkpoints {
    fn every() -> Span {
        Span::seconds(30)
    }

    fn kind_bytes() -> ByteSize {
        ByteSize::mebibytes(1024)
    }

    fn total_bytes() -> ByteSize {
        ByteSize::mebibytes(16 * 1024)
    }

    fn retain() -> Span {
        Span::seconds(24 * 3600)
    }
}

impl BucketSource {
    fn answer() -> Span {
        Span::seconds(3)
    }

    fn deadline() -> Span {
        Span::seconds(60)
    }
}
