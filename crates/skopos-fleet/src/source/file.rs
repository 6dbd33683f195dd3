//! The contexts of one kubeconfig file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::watched::{HANGS, LATE, Look, SETTLE, WatchedFile, patiently};
use super::{Listed, Roster, Source, Standing};
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::{ClusterSpec, SpecError, labels_of};

/// The contexts of a kubeconfig file, each a cluster of the context's name (of the nearest name that a cluster can have).
///
/// The file is looked at every two seconds, and never taken while it is being written. While it is away or broken as a
/// whole, or names no contexts at all, what it had before stays; `contexts: []` is none.
#[derive(Clone, Debug)]
pub struct KubeconfigFile {
    path: PathBuf,
    policy: KubeconfigPolicy,
    contexts: Option<Vec<String>>,
    labels: Arc<BTreeMap<String, String>>,
    /// The only context is this cluster, which the process names itself.
    own: Option<ClusterId>,
    every: Duration,
}

/// How often files are looked at.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// How often a file that is being written is looked at before it is left to whoever follows it.
const LOOKS: usize = 5;

/// Most contexts of one file.
const MOST_CONTEXTS: usize = 10_000;

impl KubeconfigFile {
    /// All contexts of a file. [`KubeconfigPolicy::trusted`] is for the user's own files.
    pub fn new(path: impl Into<PathBuf>, policy: KubeconfigPolicy) -> Self {
        Self { path: path.into(), policy, contexts: None, labels: Arc::default(), own: None, every: EVERY }
    }

    /// Only these contexts.
    pub fn contexts<S: Into<String>>(mut self, contexts: impl IntoIterator<Item = S>) -> Self {
        self.contexts = Some(contexts.into_iter().map(Into::into).collect());
        self
    }

    /// With these labels on each cluster, by which members are selected.
    pub fn labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels_of(labels);
        self
    }

    /// Of this context alone, for a cluster that the process names itself.
    pub(crate) fn own(mut self, id: ClusterId, context: &str) -> Self {
        self.own = Some(id);
        self.contexts([context])
    }

    /// What it says now of the only context, in less than [`LATE`].
    pub(crate) async fn now(&self) -> Listed {
        let listed = timeout(LATE, self.looked()).await;
        listed.unwrap_or_else(|_| self.unreadable(HANGS.to_owned()))
    }

    fn unreadable(&self, reason: String) -> Listed {
        let place = self.path.display().to_string();
        self.listed(Err(SpecError::Unreadable { place, reason }), None)
    }

    async fn looked(&self) -> Listed {
        let mut watched = WatchedFile::new(self.path.clone());
        for _ in 0..LOOKS {
            let Some((back, looked)) = self.look(watched).await else { break };
            watched = back;
            match looked {
                Looked::Read(Ok(read)) => match read.clusters.into_values().next() {
                    Some(listed) => return listed,
                    None => return self.unreadable(read.trouble.unwrap_or_default()),
                },
                Looked::Read(Err(reason)) => return self.unreadable(reason),
                Looked::Same | Looked::Settling => tokio::time::sleep(SETTLE).await,
            }
        }
        self.unreadable("it is being written".to_owned())
    }

    /// Looks at the file so often.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file, and reads it if it is another. A file system that hangs must hang nobody else.
    async fn look(&self, mut watched: WatchedFile) -> Option<(WatchedFile, Looked)> {
        let reader = self.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let looked = match watched.look(reader.policy.max_bytes) {
                Look::Same => Looked::Same,
                Look::Settling => Looked::Settling,
                Look::Unreadable(reason) => Looked::Read(Err(reason)),
                Look::Content(content) => Looked::Read(reader.read(&content)),
            };
            (watched, looked)
        });
        looking.await.ok()
    }

    /// What the file says; `Err`: it says nothing at all that can be used.
    fn read(&self, content: &[u8]) -> Result<Contexts, String> {
        let kubeconfig = Kubeconfig::parse(content, &self.policy).map_err(|error| error.to_string())?;
        let kubeconfig = kubeconfig.in_folder_of(&self.path);
        let names: Vec<&str> = match &self.contexts {
            Some(wanted) => wanted.iter().map(String::as_str).collect(),
            None => {
                let all = kubeconfig.listed_contexts().map_err(|error| error.to_string())?;
                all.take(MOST_CONTEXTS).collect()
            }
        };
        let (mut clusters, mut doubles) = (BTreeMap::new(), Vec::new());
        for name in names {
            let Ok(id) = ClusterId::nearest(name) else {
                doubles.push(name);
                continue;
            };
            let spec = kubeconfig.cluster(Some(name)).map_err(Into::into);
            let listed = self.listed(spec, Some(name));
            if clusters.contains_key(&id) {
                doubles.push(name);
                continue;
            }
            clusters.insert(id, listed);
        }
        let trouble = (!doubles.is_empty()).then(|| {
            let some: Vec<&str> = doubles.iter().take(5).copied().collect();
            format!(
                "{} contexts have names that no cluster, or another cluster, has: {some:?}",
                doubles.len()
            )
        });
        Ok(Contexts { clusters, trouble })
    }

    /// What the process names itself is one place, whichever context it reads.
    fn listed(&self, spec: Result<ClusterSpec, SpecError>, context: Option<&str>) -> Listed {
        let origin = context.filter(|_| self.own.is_none()).map(Into::into);
        Listed { spec, labels: self.labels.clone(), standing: Standing::Up, origin }
    }

    async fn follow(self, roster: Roster) {
        let mut watched = WatchedFile::new(self.path.clone());
        let mut trouble: Option<Arc<str>> = None;
        loop {
            let looking = patiently(self.look(watched), || roster.trouble(Some(HANGS.into())));
            let Some((back, looked)) = looking.await else { return };
            watched = back;
            let mut pause = self.every;
            match looked {
                Looked::Same => {}
                Looked::Settling => pause = SETTLE,
                Looked::Read(Err(reason)) => trouble = Some(reason.into()),
                Looked::Read(Ok(read)) => {
                    trouble = read.trouble.map(Into::into);
                    match &self.own {
                        None => roster.publish(read.clusters),
                        Some(id) => {
                            for listed in read.clusters.into_values() {
                                roster.publish_own(id, listed);
                            }
                        }
                    }
                }
            }
            roster.trouble(trouble.clone());
            tokio::time::sleep(pause).await;
        }
    }
}

/// What a look at the file found.
enum Looked {
    Same,
    Settling,
    Read(Result<Contexts, String>),
}

/// What a file says.
struct Contexts {
    clusters: BTreeMap<ClusterId, Listed>,
    trouble: Option<String>,
}

impl Source for KubeconfigFile {
    fn name(&self) -> String {
        format!("kubeconfig {}", self.path.display())
    }

    fn is_trusted(&self) -> bool {
        self.policy == KubeconfigPolicy::trusted()
    }

    fn run(self: Box<Self>, roster: Roster, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(roster))
    }
}
