//! The clusters in which virtual clusters run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos_fleet::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use skopos_fleet::vcluster::{Helm, Host, HostOptions};
use skopos_fleet::{ClusterId, Fleet};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::config::KubeconfigSource;

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
    pub(crate) files: Vec<KubeconfigSource>,
    /// Held by whoever reads the files, also where nobody waits for that any more: a file system that hangs has one thread.
    pub(crate) reading: Arc<Mutex<()>>,
}

/// How long it may take to read the files. Which hosts are in them is not known by then, so nobody can say that one is not there.
const READING: Duration = Duration::from_secs(5);

impl Hosts for FleetHosts {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>> {
        Box::pin(async {
            match self.named.is_empty() {
                true => Ok(self.contexts(READING).await?.into_keys().collect()),
                false => Ok(self.named.keys().cloned().collect()),
            }
        })
    }

    fn find<'a>(&'a self, name: &'a str, within: Duration) -> BoxFuture<'a, Result<Host, NoHost>> {
        Box::pin(async move {
            let began = Instant::now();
            let helm = match self.named.get(name) {
                Some(helm) => helm.clone(),
                None => self.contexts(within.min(READING)).await?.remove(name).ok_or(NoHost::Unknown)?,
            };
            let cluster = self.fleet.get(name).ok_or(NoHost::Unknown)?;
            let left = within.saturating_sub(began.elapsed());
            let client = cluster.client("default", left).await.map_err(|_| NoHost::Down)?;
            Ok(Host::new(client, HostOptions { helm, ..HostOptions::default() }))
        })
    }
}

// === impl FleetHosts ===

impl FleetHosts {
    /// The clusters of the kubeconfig files as they are now. Of two of one name the first counts, as in the fleet.
    async fn contexts(&self, within: Duration) -> Result<BTreeMap<String, Helm>, NoHost> {
        let reading = async {
            let turn = self.reading.clone().lock_owned().await;
            let files = self.files.clone();
            let reading = spawn_blocking(move || {
                let _turn = turn;
                contexts(&files)
            });
            reading.await.map_err(|_| NoHost::Down)
        };
        timeout(within, reading).await.unwrap_or(Err(NoHost::Down))
    }
}

fn contexts(files: &[KubeconfigSource]) -> BTreeMap<String, Helm> {
    let mut all = BTreeMap::new();
    for KubeconfigSource { path, contexts: wanted, .. } in files {
        // What is wrong with a file is a problem of the fleet, which follows it.
        let Ok(bytes) = std::fs::read(path) else { continue };
        let Ok(file) = Kubeconfig::parse(&bytes, &KubeconfigPolicy::trusted()) else { continue };
        let wanted =
            |context: &&str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == context));
        for context in file.contexts().filter(wanted) {
            let Ok(id) = ClusterId::nearest(context) else { continue };
            let (kubeconfig, context) = (Some(path.clone()), Some(context.to_owned()));
            let helm = Helm { kubeconfig, context, ..Helm::default() };
            all.entry(id.to_string()).or_insert(helm);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use skopos_fleet::FleetOptions;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_that_cannot_be_read_say_of_no_host_that_it_is_not_there() {
        let (named, files, reading) = (BTreeMap::new(), Vec::new(), Arc::<Mutex<()>>::default());
        let fleet = Fleet::new(FleetOptions::default());
        let hosts = FleetHosts { fleet: fleet.clone(), named, files, reading: reading.clone() };
        assert_eq!(hosts.names().await, Ok(Vec::new()));
        assert_eq!(hosts.find("a", READING).await.err(), Some(NoHost::Unknown));
        // As whoever reads them and does not come to the end.
        let _reads = reading.lock_owned().await;
        let began = tokio::time::Instant::now();
        assert_eq!(hosts.names().await, Err(NoHost::Down));
        let within = READING / 5;
        assert_eq!(hosts.find("a", within).await.err(), Some(NoHost::Down));
        assert_eq!(began.elapsed(), READING + within);
        assert!(fleet.shutdown(READING).await);
    }
}
