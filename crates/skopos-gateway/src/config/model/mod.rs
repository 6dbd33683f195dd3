//! Fields of the configuration. The doc comment of each field is also its description in the schema.

mod cache;
mod callers;
mod checkpoints;
mod clusters;
mod listen;
mod outbound;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cache::{Cache, Kind, ManagedFields, MemberEncoding, Reads};
pub use self::callers::{
    Authentication, Authorization, AuthorizationMode, ClientCertificates, LoopbackTrust, MemberDown,
    Observers, Oidc, PolicyRule, TokenReview,
};
pub use self::checkpoints::Checkpoints;
pub use self::clusters::{
    AccessPlugin, AccessProvider, CidrList, ClusterProfileSource, Clusters, Dial, FolderSource, HostCluster,
    KubeconfigSource, KubeconfigSwitches, SecretFlavour, SecretSource, TokenSecret, VclusterSource,
};
pub use self::listen::{Limits, Listen, Tls};
pub use self::outbound::{ConnectPolicy, Outbound, StreamLimits};

/// Configuration of the Skopos gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The listener of the gateway.
    pub listen: Listen,
    /// Authentication of callers. Without any method the gateway listens on loopback only.
    pub authentication: Authentication,
    /// Rights of callers.
    pub authorization: Authorization,
    /// Sources of clusters.
    pub clusters: Clusters,
    /// The cache in memory, and the maximum age of answers from it.
    pub cache: Cache,
    /// Forwarding of requests that are not answered from memory.
    pub outbound: Outbound,
    /// Checkpoints of memory, so that a restarted gateway answers at once. Default: none are written.
    pub checkpoints: Option<Checkpoints>,
    /// The metrics.
    pub metrics: Metrics,
    /// Settings that equal replicas of this gateway share.
    pub replicas: Replicas,
}

/// Settings that equal replicas of this gateway share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Replicas {
    /// File with the keys of continue tokens of `/fleet`, so that replicas continue each other's lists. Each line is a key of at
    /// least 32 bytes in base64. The first one signs, and all verify. Read again when it changes. Default: a random key at each
    /// start.
    #[schemars(with = "Option<String>")]
    pub continue_keys: Option<PathBuf>,
}

/// The metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Maximum number of series. Further clusters and resources are left out, and counted.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub max_series: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { max_series: 50_000 }
    }
}
