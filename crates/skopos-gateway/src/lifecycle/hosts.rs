//! The clusters in which virtual clusters run.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos_fleet::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use skopos_fleet::vcluster::{Helm, Host, HostOptions};
use skopos_fleet::{ClusterId, Fleet};

use crate::config::KubeconfigSource;

/// Hosts by name. The names are those that the authorizer knows them by.
pub trait Hosts: Send + Sync + 'static {
    /// The hosts of which one is meant where a caller names none.
    fn names(&self) -> BoxFuture<'_, Vec<String>>;

    /// A host, at the latest after `within`.
    fn find<'a>(&'a self, name: &'a str, within: Duration) -> BoxFuture<'a, Result<Host, NoHost>>;
}

/// Why there is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHost {
    /// No host has this name.
    Unknown,
    /// It cannot be asked now.
    Down,
}

/// The hosts among the clusters of a fleet: those that virtual clusters are looked for in, and those of kubeconfig files that
/// are as trusted as the configuration.
pub(crate) struct FleetHosts {
    pub(crate) fleet: Fleet,
    /// By their names, with how helm reaches them.
    pub(crate) named: BTreeMap<String, Helm>,
    pub(crate) files: Vec<KubeconfigSource>,
}

impl Hosts for FleetHosts {
    fn names(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            match self.named.is_empty() {
                true => self.contexts().await.into_keys().collect(),
                false => self.named.keys().cloned().collect(),
            }
        })
    }

    fn find<'a>(&'a self, name: &'a str, within: Duration) -> BoxFuture<'a, Result<Host, NoHost>> {
        Box::pin(async move {
            let helm = match self.named.get(name) {
                Some(helm) => helm.clone(),
                None => self.contexts().await.remove(name).ok_or(NoHost::Unknown)?,
            };
            let cluster = self.fleet.get(name).ok_or(NoHost::Unknown)?;
            let client = cluster.client("default", within).await.map_err(|_| NoHost::Down)?;
            Ok(Host::new(client, HostOptions { helm, ..HostOptions::default() }))
        })
    }
}

// === impl FleetHosts ===

impl FleetHosts {
    /// The clusters of the kubeconfig files as they are now. Of two of one name the first counts, as in the fleet.
    async fn contexts(&self) -> BTreeMap<String, Helm> {
        let mut all = BTreeMap::new();
        for KubeconfigSource { path, contexts: wanted, .. } in &self.files {
            // What is wrong with a file is a problem of the fleet, which follows it.
            let Ok(bytes) = tokio::fs::read(path).await else { continue };
            let Ok(file) = Kubeconfig::parse(&bytes, &KubeconfigPolicy::trusted()) else { continue };
            let wanted = |context: &&str| {
                wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == context))
            };
            for context in file.contexts().filter(wanted) {
                let Ok(id) = ClusterId::nearest(context) else { continue };
                let (kubeconfig, context) = (Some(path.clone()), Some(context.to_owned()));
                let helm = Helm { kubeconfig, context, ..Helm::default() };
                all.entry(id.to_string()).or_insert(helm);
            }
        }
        all
    }
}
