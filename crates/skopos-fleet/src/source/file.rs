//! Clusters from the contexts of kubeconfig files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Source;
use super::discovered::{DiscoveredCluster, PowerState};
use super::files::{Files, FilesCheck};
use super::publish::ClusterSink;
use super::watched::{HANGING_FILES, LATE_TIMEOUT, SETTLE_DELAY, report_if_late};
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPaths, KubeconfigPolicy};
use crate::spec::{ClusterSpec, labels_of};
use crate::spec_error::SpecError;

/// The contexts of a kubeconfig file, or of several that are merged as kubectl merges them. Each is a cluster with the
/// context's name ([`ClusterId::from_names`]).
///
/// The files are polled every two seconds, and never read while they are being written. If a file is missing, is
/// unusable as a whole or has no list of contexts, its previous contents stay in effect; `contexts: []` removes all.
/// Files of a list that do not exist at first are skipped until they do.
#[derive(Clone, Debug)]
pub struct KubeconfigFile {
    paths: KubeconfigPaths,
    policy: KubeconfigPolicy,
    contexts: Option<Vec<String>>,
    labels: Arc<BTreeMap<String, String>>,
    /// The cluster of the only context, if this process itself chose its name.
    own: Option<ClusterId>,
    every: Duration,
}

/// Polling interval of files.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Number of checks of a file that is being written, before [`KubeconfigFile::now`] leaves it to the follower.
const MAX_CHECKS: usize = 5;

/// Limit on the contexts of one file.
const MAX_CONTEXTS: usize = 10_000;

impl KubeconfigFile {
    /// Creates a source of all contexts of a file. [`KubeconfigPolicy::trusted`] is for the user's own files.
    pub fn new(path: impl Into<PathBuf>, policy: KubeconfigPolicy) -> Self {
        Self::list(KubeconfigPaths::file(path), policy)
    }

    /// Creates a source of all contexts of several files, merged as kubectl merges them.
    pub fn list(paths: KubeconfigPaths, policy: KubeconfigPolicy) -> Self {
        Self { paths, policy, contexts: None, labels: Arc::default(), own: None, every: POLL_INTERVAL }
    }

    /// Restricts the source to these contexts.
    #[must_use]
    pub fn contexts<S: Into<String>>(mut self, contexts: impl IntoIterator<Item = S>) -> Self {
        self.contexts = Some(contexts.into_iter().map(Into::into).collect());
        self
    }

    /// Sets labels of each cluster, by which members are selected.
    #[must_use]
    pub fn labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels_of(labels);
        self
    }

    /// Restricts the source to one context, for a cluster whose name this process itself chose.
    pub(crate) fn own(mut self, id: ClusterId, context: &str) -> Self {
        self.own = Some(id);
        self.contexts([context])
    }

    /// Returns the current entry of the only context, in less than [`LATE_TIMEOUT`].
    pub(crate) async fn now(&self) -> DiscoveredCluster {
        let listed = timeout(LATE_TIMEOUT, self.read_now()).await;
        listed.unwrap_or_else(|_| self.unreadable(HANGING_FILES.to_owned()))
    }

    fn unreadable(&self, reason: String) -> DiscoveredCluster {
        let place = self.paths.to_string();
        self.listed(Err(SpecError::Unreadable { place, reason }), None)
    }

    async fn read_now(&self) -> DiscoveredCluster {
        let mut files = Files::new(&self.paths);
        for _ in 0..MAX_CHECKS {
            let Some((back, checked)) = self.check(files).await else { break };
            files = back;
            match checked {
                CheckResult::Read(Ok(read)) => match read.clusters.into_values().next() {
                    Some(listed) => return listed,
                    None => return self.unreadable(read.trouble.unwrap_or_default()),
                },
                CheckResult::Read(Err(reason)) => return self.unreadable(reason),
                CheckResult::Same | CheckResult::Settling => tokio::time::sleep(SETTLE_DELAY).await,
            }
        }
        self.unreadable("it is being written".to_owned())
    }

    /// Sets the polling interval.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> &KubeconfigPaths {
        &self.paths
    }

    /// Checks the files, and reads them if one has changed. Runs in a blocking thread, so that a hanging file system
    /// blocks nothing else.
    async fn check(&self, mut files: Files) -> Option<(Files, CheckResult)> {
        let reader = self.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let checked = match files.check(&reader.policy) {
                FilesCheck::Same => CheckResult::Same,
                FilesCheck::Settling => CheckResult::Settling,
                FilesCheck::Unreadable(reason) => CheckResult::Read(Err(reason)),
                FilesCheck::Read(kubeconfig) => CheckResult::Read(reader.read(&kubeconfig)),
            };
            (files, checked)
        });
        checking.await.ok()
    }

    /// Returns the contexts of the files; `Err`: they are unusable as a whole.
    fn read(&self, kubeconfig: &Kubeconfig) -> Result<Contexts, String> {
        let names: Vec<&str> = match &self.contexts {
            Some(wanted) => wanted.iter().map(String::as_str).collect(),
            None => kubeconfig.listed_contexts().map_err(|error| error.to_string())?.collect(),
        };
        let mut trouble = hidden(kubeconfig.hidden_contexts());
        if names.len() > MAX_CONTEXTS {
            trouble = Some(format!("it has more than {MAX_CONTEXTS} contexts: the others are left out"));
        }
        let names = &names[..names.len().min(MAX_CONTEXTS)];
        let ids = ClusterId::from_names(names.iter().copied());
        let clusters = ids.into_iter().zip(names).map(|(id, name)| {
            let spec = kubeconfig.cluster(Some(name)).map_err(Into::into);
            (id, self.listed(spec, Some(name)))
        });
        Ok(Contexts { clusters: clusters.collect(), trouble })
    }

    /// Returns the entry of a context. A cluster whose name this process chose has no origin: it counts as one place,
    /// whichever context it reads.
    fn listed(&self, spec: Result<ClusterSpec, SpecError>, context: Option<&str>) -> DiscoveredCluster {
        let name: Option<Arc<str>> = context.map(Into::into);
        let origin = name.clone().filter(|_| self.own.is_none());
        let kubeconfig = self.is_trusted().then(|| Arc::new(self.paths.clone()));
        DiscoveredCluster {
            spec,
            labels: self.labels.clone(),
            power_state: PowerState::Up,
            origin,
            name,
            kubeconfig,
        }
    }

    async fn follow(self, sink: ClusterSink) {
        let mut files = Files::new(&self.paths);
        let mut trouble: Option<Arc<str>> = None;
        loop {
            let checking = report_if_late(self.check(files), || sink.trouble(Some(HANGING_FILES.into())));
            let Some((back, checked)) = checking.await else { return };
            files = back;
            let mut pause = self.every;
            match checked {
                CheckResult::Same => {}
                CheckResult::Settling => pause = SETTLE_DELAY,
                CheckResult::Read(Err(reason)) => trouble = Some(reason.into()),
                CheckResult::Read(Ok(read)) => {
                    trouble = read.trouble.map(Into::into);
                    match &self.own {
                        None => sink.publish(read.clusters),
                        Some(id) => {
                            for listed in read.clusters.into_values() {
                                sink.publish_own(id, listed);
                            }
                        }
                    }
                }
            }
            sink.trouble(trouble.clone());
            tokio::time::sleep(pause).await;
        }
    }
}

/// Result of checking the files.
enum CheckResult {
    Same,
    Settling,
    Read(Result<Contexts, String>),
}

/// Contents of the files.
struct Contexts {
    clusters: BTreeMap<ClusterId, DiscoveredCluster>,
    trouble: Option<String>,
}

/// Returns a warning about contexts that lead elsewhere than in their own file.
fn hidden(contexts: &[String]) -> Option<String> {
    let some = &contexts[..contexts.len().min(5)];
    (!some.is_empty()).then(|| {
        format!(
            "contexts {some:?} lead elsewhere than their own file says, because an earlier file of the list has a context, \
             cluster or user of the same name: give each file its own --kubeconfig, or rename them"
        )
    })
}

impl Source for KubeconfigFile {
    fn name(&self) -> String {
        format!("kubeconfig {}", self.paths)
    }

    fn is_trusted(&self) -> bool {
        self.policy == KubeconfigPolicy::trusted()
    }

    fn run(self: Box<Self>, sink: ClusterSink, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(sink))
    }
}
