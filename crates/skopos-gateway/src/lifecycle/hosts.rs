//! The clusters in which virtual clusters run.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos_fleet::kubeconfig::KubeconfigPaths;
use skopos_fleet::{Cluster, Condition, Fleet};
use skopos_vcluster::{Helm, Host, HostOptions};
use tokio::time::Instant;

/// A lookup of hosts by name. The authorizer uses the same names.
pub(crate) trait Hosts: Send + Sync + 'static {
    /// Returns the candidates if a caller names no host; an error if they are not known in time.
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>>;

    /// Returns a host, at the latest after `within`.
    fn find<'a>(&'a self, name: &'a str, within: Duration) -> BoxFuture<'a, Result<Host, NoHost>>;
}

/// The reason why there is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHost {
    /// No host has this name.
    Unknown,
    /// The host does not answer now.
    Down,
}

/// The hosts among the clusters of a fleet: the hosts of virtual clusters, and the clusters of kubeconfig files that are as
/// trusted as the configuration.
pub(crate) struct FleetHosts {
    pub(crate) fleet: Fleet,
    /// The hosts by name, with the way in which helm reaches them.
    pub(crate) named: BTreeMap<String, Helm>,
}

/// The time given to the sources of clusters to list them. Until then a missing host may still appear.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

impl Hosts for FleetHosts {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>> {
        Box::pin(async {
            if !self.named.is_empty() {
                return Ok(self.named.keys().cloned().collect());
            }
            let unread = self.fleet.unread_sources(LIST_TIMEOUT).await;
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
                None => self.fleet.unread_sources(within.min(LIST_TIMEOUT)).await,
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

impl FleetHosts {
    /// Returns the way in which helm reaches a cluster: by the cluster's kubeconfig and context.
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
    async fn host_lookup_is_unavailable_until_sources_read() {
        let fleet = Fleet::new(FleetOptions::default());
        let hosts = FleetHosts { fleet: fleet.clone(), named: BTreeMap::new() };
        assert_eq!(hosts.names().await, Ok(Vec::new()));
        assert_eq!(hosts.find("a", LIST_TIMEOUT).await.err(), Some(NoHost::Unknown));
        fleet.follow(KubeconfigFile::new("/nowhere/kubeconfig", KubeconfigPolicy::trusted()));
        assert_eq!(hosts.names().await, Err(NoHost::Down));
        assert_eq!(hosts.find("a", LIST_TIMEOUT).await.err(), Some(NoHost::Down));
        assert!(fleet.shutdown(LIST_TIMEOUT).await);
    }

    #[tokio::test]
    async fn helm_uses_own_context_of_renamed_host() {
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
        assert!(fleet.shutdown(LIST_TIMEOUT).await);
    }
}
