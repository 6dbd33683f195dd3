//! Host clusters: the clusters in which sources find others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use skopos_fleet::kubeconfig::{KubeconfigPaths, KubeconfigPolicy};
use skopos_fleet::source::KubeconfigFile;
use skopos_fleet::{Cluster, ClusterId, ClusterSpec, Fleet};
use skopos_vcluster::Helm;

use super::HostCluster;
use super::fleet::SourceError;

/// Host clusters, as members of the fleet with their own names, so that they can review rights.
pub(super) struct Hosts<'a> {
    fleet: &'a Fleet,
    known: BTreeMap<ClusterId, (HostAccess, Cluster)>,
}

/// The access to a host cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostAccess {
    /// The cluster in which this process runs.
    Here,
    /// A context of a kubeconfig.
    Context { kubeconfig: KubeconfigPaths, context: String },
}

impl<'a> Hosts<'a> {
    pub(super) fn new(fleet: &'a Fleet) -> Self {
        Self { fleet, known: BTreeMap::new() }
    }

    /// Returns the clusters of `hosts`, in their order.
    pub(super) async fn resolve_all(
        &mut self,
        hosts: impl Iterator<Item = &HostCluster>,
    ) -> Result<Vec<(Cluster, Helm)>, SourceError> {
        let mut found = Vec::new();
        for host in hosts {
            found.push(self.resolve(host).await?);
        }
        Ok(found)
    }

    /// Returns the cluster and the way in which helm reaches it: by the same context as all other requests, even if the
    /// current context changes.
    async fn resolve(&mut self, host: &HostCluster) -> Result<(Cluster, Helm), SourceError> {
        let (name, access) = host_access(host).await?;
        let wrong = |error: &dyn std::fmt::Display| access.wrong(error);
        let id = match &host.name {
            Some(name) => ClusterId::new(name).map_err(|error| wrong(&error))?,
            None => ClusterId::from_name(&name),
        };
        let helm = access.helm();
        if let Some((known, cluster)) = self.known.get(&id) {
            return match *known == access {
                true => Ok((cluster.clone(), helm)),
                false => Err(SourceError::SameName {
                    name: id,
                    one: known.to_string(),
                    another: access.to_string(),
                }),
            };
        }
        let joined = match &access {
            HostAccess::Context { kubeconfig, context } => {
                let file = KubeconfigFile::list(kubeconfig.clone(), KubeconfigPolicy::trusted());
                self.fleet.join_context(id.clone(), file, context).await
            }
            HostAccess::Here => {
                let config = kube::Config::incluster().map_err(|error| wrong(&error))?;
                self.fleet.join(id.clone(), ClusterSpec::from_config(config))
            }
        };
        let cluster = joined.map_err(|error| wrong(&error))?;
        self.known.insert(id, (access, cluster.clone()));
        Ok((cluster, helm))
    }
}

impl HostAccess {
    fn wrong(&self, error: &dyn std::fmt::Display) -> SourceError {
        SourceError::Host { kubeconfig: self.to_string(), problem: error.to_string() }
    }

    fn helm(&self) -> Helm {
        match self.clone() {
            Self::Here => Helm::default(),
            Self::Context { kubeconfig, context } => {
                Helm { kubeconfig: Some(kubeconfig), context: Some(context), ..Helm::default() }
            }
        }
    }
}

impl std::fmt::Display for HostAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Here => f.write_str("in this pod"),
            Self::Context { kubeconfig, context } => {
                write!(f, "{kubeconfig} (context {context})")
            }
        }
    }
}

/// Returns the name and the access of a host. If no context is configured, reads the current one once.
async fn host_access(host: &HostCluster) -> Result<(String, HostAccess), SourceError> {
    let Some(kubeconfig) = host.kubeconfig.as_deref().map(kubeconfig_paths) else {
        return Ok(("host".to_owned(), HostAccess::Here));
    };
    if let Some(context) = host.context.clone() {
        return Ok((context.clone(), HostAccess::Context { kubeconfig, context }));
    }
    let unknown = |error: &dyn std::fmt::Display| SourceError::Host {
        kubeconfig: kubeconfig.to_string(),
        problem: format!("which context is meant cannot be read, so say it (`context`): {error}"),
    };
    let paths = kubeconfig.clone();
    let read = tokio::task::spawn_blocking(move || paths.read()).await.map_err(|error| unknown(&error))?;
    let parsed = read.map_err(|error| unknown(&error))?;
    let (name, context) = match (parsed.current_context(), parsed.contexts().collect::<Vec<_>>().as_slice()) {
        (Some(current), _) => (current.to_owned(), current.to_owned()),
        (None, [only]) => ("host".to_owned(), (*only).to_owned()),
        (None, _) => return Err(unknown(&"it has no current one")),
    };
    Ok((name, HostAccess::Context { kubeconfig, context }))
}

/// Returns the kubeconfigs in a field of the configuration: a file or a list such as `a:b`. Each path may begin with `~/`.
pub(super) fn kubeconfig_paths(field: &Path) -> KubeconfigPaths {
    let expanded = |path: &Path| match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    };
    let paths: Vec<PathBuf> = std::env::split_paths(field).map(|path| expanded(&path)).collect();
    match std::env::join_paths(&paths) {
        Ok(list) if paths.len() > 1 && !field.exists() => KubeconfigPaths::list(list),
        _ => KubeconfigPaths::file(expanded(field)),
    }
}
