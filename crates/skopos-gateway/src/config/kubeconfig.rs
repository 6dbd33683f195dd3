//! The configuration of a quick start: one kubeconfig, on loopback, for whoever runs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Authorization, Clusters, Config, KubeconfigSource, LoopbackTrust};

/// All contexts of a kubeconfig, on loopback, with the rights of its own credentials: as `kubectl proxy`.
#[must_use]
pub fn of_kubeconfig(path: PathBuf) -> Config {
    let clusters = Clusters {
        kubeconfigs: vec![KubeconfigSource { path, contexts: None, labels: BTreeMap::new() }],
        ..Clusters::default()
    };
    let authorization = Authorization { loopback: LoopbackTrust::Trusted, ..Authorization::default() };
    Config { clusters, authorization, ..Config::default() }
}
