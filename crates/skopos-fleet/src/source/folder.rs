//! Clusters from a folder with one kubeconfig per file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::Source;
use super::discovered::{DiscoveredCluster, PowerState};
use super::file::POLL_INTERVAL;
use super::publish::ClusterSink;
use super::watched::{FileCheck, HANGING_FILES, SETTLE_DELAY, WatchedFile, report_if_late};
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::labels_of;
use crate::spec_error::SpecError;

/// A folder with one kubeconfig per file. The current (or only) context of each is a cluster with the file's name
/// without extension ([`ClusterId::from_name`]). Of files that differ only in their extensions, the later ones get a
/// hash of their name appended.
///
/// The folder is polled every two seconds, and no file is read while it is being written. Hidden files and those that
/// editors leave (`*~`, `*.tmp`, `*.swp`) are ignored. While the folder cannot be read, its previous contents stay in
/// effect. An unusable file is a problem of that one cluster only.
#[derive(Clone, Debug)]
pub struct KubeconfigFolder {
    path: PathBuf,
    policy: KubeconfigPolicy,
    labels: Arc<BTreeMap<String, String>>,
    every: Duration,
}

/// Limit on the files of one folder.
const MAX_FILES: usize = 10_000;

impl KubeconfigFolder {
    /// Creates a source of the kubeconfigs of a folder.
    pub fn new(path: impl Into<PathBuf>, policy: KubeconfigPolicy) -> Self {
        Self { path: path.into(), policy, labels: Arc::default(), every: POLL_INTERVAL }
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

    /// Sets the polling interval.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn follow(self, sink: ClusterSink) {
        let mut folder = Folder::default();
        let options = Arc::new(self);
        loop {
            let checking = options.clone();
            // Runs in a blocking thread, so that a hanging file system blocks nothing else.
            let check = tokio::task::spawn_blocking(move || {
                let checked = folder.check(&checking);
                (folder, checked)
            });
            let checking = report_if_late(check, || sink.trouble(Some(HANGING_FILES.into())));
            let Ok((back, checked)) = checking.await else { return };
            folder = back;
            let mut pause = options.every;
            match checked {
                Ok(CheckResult { changed, settling }) => {
                    sink.trouble(None);
                    if changed {
                        sink.publish(folder.listed.clone());
                    }
                    if settling {
                        pause = SETTLE_DELAY;
                    }
                }
                Err(error) => sink.trouble(Some(error.to_string().into())),
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// State of a folder.
#[derive(Default)]
struct Folder {
    /// The files with their clusters' names. A file keeps its cluster's name while it exists.
    files: BTreeMap<PathBuf, (ClusterId, WatchedFile)>,
    listed: BTreeMap<ClusterId, DiscoveredCluster>,
    /// Set once all initial files have been read.
    checked: bool,
    checks: u32,
}

/// Limit on the checks for which the first listing is delayed, so that a file that is written continuously does not
/// hold up the others.
const MAX_FIRST_CHECKS: u32 = 25;

/// Result of checking a folder.
struct CheckResult {
    changed: bool,
    settling: bool,
}

impl Folder {
    fn check(&mut self, options: &KubeconfigFolder) -> io::Result<CheckResult> {
        let policy = &options.policy;
        let there = files(&options.path)?;
        let before = self.files.len();
        self.files.retain(|path, _| there.contains(path));
        let names: BTreeSet<ClusterId> = self.files.values().map(|(id, _)| id.clone()).collect();
        self.listed.retain(|id, _| names.contains(id));
        let mut checked =
            CheckResult { changed: before != self.files.len() || !self.checked, settling: false };
        self.add(&there, names);
        for (path, (id, file)) in &mut self.files {
            let spec = match file.check(policy.max_bytes) {
                FileCheck::Same => continue,
                FileCheck::Settling => {
                    checked.settling = true;
                    continue;
                }
                FileCheck::Missing(reason) | FileCheck::Unreadable(reason) => {
                    let place = path.display().to_string();
                    Err(SpecError::Unreadable { place, reason })
                }
                FileCheck::Content(content) => {
                    let kubeconfig = Kubeconfig::parse(&content, policy);
                    let spec = kubeconfig.and_then(|kubeconfig| kubeconfig.in_folder_of(path).cluster(None));
                    spec.map_err(SpecError::from)
                }
            };
            let origin = Some(path.to_string_lossy().into());
            let name = Some(stem(path).0.into());
            let labels = options.labels.clone();
            let listed = DiscoveredCluster {
                spec,
                labels,
                power_state: PowerState::Up,
                origin,
                name,
                kubeconfig: None,
            };
            checked.changed |= !self.listed.get(id).is_some_and(|before| before.is_same(&listed));
            self.listed.insert(id.clone(), listed);
        }
        // The first listing is published as a whole: a file that is not read yet must not count as removed.
        self.checks = self.checks.saturating_add(1);
        let first = !self.checked && checked.settling && self.checks < MAX_FIRST_CHECKS;
        checked.changed &= !first;
        self.checked |= !first;
        Ok(checked)
    }

    /// Starts to watch new files. Each gets the name of its stem, or a distinct one if another file has that.
    fn add(&mut self, there: &BTreeSet<PathBuf>, mut names: BTreeSet<ClusterId>) {
        for path in there {
            if self.files.contains_key(path) {
                continue;
            }
            let (stem, id) = stem(path);
            let place = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let others = id.alternatives(&stem, &place);
            let free = std::iter::once(id.clone()).chain(others).find(|id| !names.contains(id));
            let Some(id) = free else { continue };
            names.insert(id.clone());
            self.files.insert(path.clone(), (id, WatchedFile::new(path.clone())));
        }
    }
}

/// Returns the paths of the kubeconfigs in a folder.
fn files(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let passing = name.starts_with(['.', '#'])
            || [".tmp", ".swp", "~", ".bak", ".part"].iter().any(|ending| name.ends_with(ending));
        if !passing && !path.is_dir() {
            paths.insert(path);
        }
        if paths.len() > MAX_FILES {
            return Err(io::Error::other(format!("it has more than {MAX_FILES} files")));
        }
    }
    Ok(paths)
}

/// Returns a file's name without extension, as text and as a cluster name.
fn stem(path: &Path) -> (String, ClusterId) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let id = ClusterId::from_name(&stem);
    (stem, id)
}

impl Source for KubeconfigFolder {
    fn name(&self) -> String {
        format!("folder {}", self.path.display())
    }

    fn run(self: Box<Self>, sink: ClusterSink, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(sink))
    }
}
