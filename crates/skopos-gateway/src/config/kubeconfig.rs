//! Configuration of a quick start: kubeconfigs on loopback, for the user who runs the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Authorization, Clusters, Config, KubeconfigSource, Listen, LoopbackTrust, Outbound};

/// The options of a quick start.
#[derive(Clone, Debug, Default)]
pub struct QuickStart {
    /// The kubeconfigs, each a file or a list of files such as `a:b`.
    pub kubeconfigs: Vec<PathBuf>,
    /// The listen address; the default of the configuration if absent.
    pub listen: Option<SocketAddr>,
    /// Allows writes to the clusters.
    pub writes: bool,
}

impl From<QuickStart> for Config {
    /// Serves all contexts of the kubeconfigs on loopback, with the rights of their own credentials, as `kubectl proxy` does.
    fn from(quick: QuickStart) -> Self {
        let source = |path| KubeconfigSource { path, contexts: None, labels: BTreeMap::new() };
        let kubeconfigs = quick.kubeconfigs.into_iter().map(source).collect();
        let default = Listen::default();
        Self {
            listen: Listen { address: quick.listen.unwrap_or(default.address), ..default },
            clusters: Clusters { kubeconfigs, ..Clusters::default() },
            authorization: Authorization { loopback: LoopbackTrust::Trusted, ..Authorization::default() },
            outbound: Outbound { read_only: !quick.writes, ..Outbound::default() },
            ..Self::default()
        }
    }
}
