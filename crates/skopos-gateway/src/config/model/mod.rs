//! What can be configured. The documentation of each field is that of the schema, too.

mod cache;
mod callers;
mod checkpoints;
mod clusters;
mod listen;
mod outbound;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cache::{Cache, Kind, ManagedFields, Reads};
pub use self::callers::{
    Authentication, Authorization, AuthorizationMode, ClientCertificates, LoopbackTrust, MemberDown,
    Observers, Oidc, PolicyRule, TokenReview,
};
pub use self::checkpoints::{BucketCredentials, BucketSource, Checkpoints};
pub use self::clusters::{
    CidrList, Clusters, FolderSource, HostCluster, KubeconfigSource, KubeconfigSwitches, SecretFlavour,
    SecretSource, VclusterSource,
};
pub use self::listen::{Limits, Listen, Tls};
pub use self::outbound::{ConnectPolicy, Outbound, StreamLimits};

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

/// The metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Most series; further clusters and kinds are left out, and counted.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub max_series: u32,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self { max_series: 50_000 }
    }
}
