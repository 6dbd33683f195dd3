//! Configuration: one YAML file, checked as a whole and reloaded when it changes.

mod check;
pub(crate) mod fleet;
mod follow;
mod hosts;
mod kubeconfig;
mod model;

use std::path::Path;

pub use fleet::options as fleet_options;
pub(crate) use follow::{ConfigFollower, ConfigState};
pub use kubeconfig::QuickStart;
pub use model::{
    AccessPlugin, AccessProvider, Authentication, Authorization, AuthorizationMode, Cache, Checkpoints,
    CidrList, ClientCertificates, ClusterProfileSource, Clusters, Config, ConnectPolicy, Dial, FolderSource,
    HostCluster, Kind, KubeconfigSource, KubeconfigSwitches, Limits, Listen, LoopbackTrust, ManagedFields,
    MemberDown, MemberEncoding, Metrics, Observers, Oidc, Outbound, PolicyRule, Reads, Replicas,
    SecretFlavour, SecretSource, StreamLimits, Tls, TokenReview, TokenSecret, VclusterSource,
};
pub use skopos_bucket::{BucketConfig, BucketCredentials};
pub use skopos_config::{ByteSize, ConfigError, Problem, Span};
use skopos_config::{Configuration, ModelFault};

impl Configuration for Config {
    const TITLE: &'static str = "Configuration of the Skopos gateway";

    fn faults(&self) -> Vec<ModelFault> {
        check::check(self)
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If it cannot be read or anything in it is invalid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        skopos_config::read(path)
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    /// If anything in it is invalid. The error names all faults.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        skopos_config::parse(text)
    }
}

/// Returns the JSON schema of the configuration file, for editors and for `skopos serve --print-schema`.
pub fn json_schema() -> serde_json::Value {
    skopos_config::json_schema::<Config>()
}

#[cfg(test)]
mod tests;
