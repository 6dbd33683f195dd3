//! The clusters in which virtual clusters run.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos_fleet::kubeconfig::KubeconfigPaths;
use skopos_fleet::vcluster::{Helm, Host, HostOptions};
use skopos_fleet::{Cluster, Condition, Fleet};
use tokio::time::Instant;

/// Hosts by name. The names are those that the authorizer knows them by.
pub trait Hosts: Send + Sync + 'static {
    /// The hosts of which one is meant where a caller names none; an error if that is not to be had in time.
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>>;

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
}

/// How long the sources of clusters may take to say what they list. Until then a host that is not there may come.
const READING: Duration = Duration::from_secs(5);

impl Hosts for FleetHosts {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>> {
        Box::pin(async {
            if !self.named.is_empty() {
                return Ok(self.named.keys().cloned().collect());
            }
            let unread = self.fleet.unread_sources(READING).await;
            let members = self.fleet.members();
            let hosts = members.values().filter(|cluster| self.helm(cluster).is_some());
            let hosts: Vec<String> = hosts.map(|cluster| cluster.id().to_string()).collect();
            match hosts.is_empty() && unread > 0 {
                true => Err(NoHost::Down),
                false => Ok(hosts),
            }
        })
    }

    fn find<'a>(&'a self, name: &'a str, within: Duration) -> BoxFuture<'a, Result<Host, NoHost>> {
        Box::pin(async move {
            let began = Instant::now();
            let unread = match self.fleet.get(name) {
                Some(_) => 0,
                None => self.fleet.unread_sources(within.min(READING)).await,
            };
            let missing = if unread > 0 { NoHost::Down } else { NoHost::Unknown };
            let cluster = self.fleet.get(name).ok_or(missing)?;
            let helm = self.named.get(name).cloned().or_else(|| self.helm(&cluster));
            let helm = helm.ok_or(NoHost::Unknown)?;
            let left = within.saturating_sub(began.elapsed());
            let client = cluster.client("default", left).await.map_err(|_| NoHost::Down)?;
            Ok(Host::new(client, HostOptions { helm, ..HostOptions::default() }))
        })
    }
}

// === impl FleetHosts ===

impl FleetHosts {
    /// Returns how helm reaches a cluster: by the kubeconfig and the context of the cluster.
    fn helm(&self, cluster: &Cluster) -> Option<Helm> {
        let trusted = self.fleet.trusted(cluster.id().as_str())?;
        let there = trusted == *cluster && cluster.state().condition != Condition::Removed;
        let (kubeconfig, context) = cluster.context().filter(|_| there)?;
        let kubeconfig = Some(KubeconfigPaths::clone(&kubeconfig));
        Some(Helm { kubeconfig, context: Some(context.to_string()), ..Helm::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skopos_fleet::FleetOptions;
    use skopos_fleet::kubeconfig::KubeconfigPolicy;
    use skopos_fleet::source::KubeconfigFile;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sources_that_are_not_read_yet_say_of_no_host_that_it_is_not_there() {
        let fleet = Fleet::new(FleetOptions::default());
        let hosts = FleetHosts { fleet: fleet.clone(), named: BTreeMap::new() };
        assert_eq!(hosts.names().await, Ok(Vec::new()));
        assert_eq!(hosts.find("a", READING).await.err(), Some(NoHost::Unknown));
        fleet.follow(KubeconfigFile::new("/nowhere/kubeconfig", KubeconfigPolicy::trusted()));
        assert_eq!(hosts.names().await, Err(NoHost::Down));
        assert_eq!(hosts.find("a", READING).await.err(), Some(NoHost::Down));
        assert!(fleet.shutdown(READING).await);
    }

    #[tokio::test]
    async fn helm_reaches_a_host_by_its_own_context_whatever_the_host_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let text = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                    contexts: [{name: team/prod, context: {cluster: c}}]\n";
        std::fs::write(&one, text).unwrap();
        std::fs::write(&two, text).unwrap();
        let fleet = Fleet::new(FleetOptions::default());
        for path in [&one, &two] {
            fleet.follow(KubeconfigFile::new(path, KubeconfigPolicy::trusted()));
        }
        let hosts = FleetHosts { fleet: fleet.clone(), named: BTreeMap::new() };
        let names = hosts.names().await.unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        let helm = |name: &str| hosts.helm(&fleet.get(name).unwrap()).unwrap();
        for name in &names {
            assert_eq!(helm(name).context.as_deref(), Some("team/prod"));
        }
        let files: BTreeSet<_> =
            names.iter().map(|name| helm(name).kubeconfig.unwrap().files()[0].clone()).collect();
        assert_eq!(files, [one, two].into());
        assert!(fleet.shutdown(READING).await);
    }
}
