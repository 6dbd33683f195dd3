//! A folder with one kubeconfig per file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::file::EVERY;
use super::watched::{HANGS, Look, SETTLE, WatchedFile, patiently};
use super::{Listed, Roster, Source, Standing};
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::{SpecError, labels_of};

/// A folder with one kubeconfig per file, whose current (or only) context is a cluster of the file's name without its ending
/// ([`ClusterId::from_name`]). Of files that differ in their endings only, the later ones get a hash of their name behind it.
///
/// It is looked at every two seconds, and no file is taken while it is being written. Hidden files and those that editors
/// leave (`*~`, `*.tmp`, `*.swp`) do not count. While the folder cannot be read, what it had before stays; a file that
/// cannot be used is the problem of that one cluster.
#[derive(Clone, Debug)]
pub struct KubeconfigFolder {
    path: PathBuf,
    policy: KubeconfigPolicy,
    labels: Arc<BTreeMap<String, String>>,
    every: Duration,
}

/// Most files of one folder.
const MOST_FILES: usize = 10_000;

impl KubeconfigFolder {
    /// The kubeconfigs of a folder.
    pub fn new(path: impl Into<PathBuf>, policy: KubeconfigPolicy) -> Self {
        Self { path: path.into(), policy, labels: Arc::default(), every: EVERY }
    }

    /// With these labels on each cluster, by which members are selected.
    pub fn labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels_of(labels);
        self
    }

    /// Looks at it so often.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn follow(self, roster: Roster) {
        let mut folder = Folder::default();
        let options = Arc::new(self);
        loop {
            let looking = options.clone();
            // A file system that hangs must hang nobody else.
            let look = tokio::task::spawn_blocking(move || {
                let looked = folder.look(&looking);
                (folder, looked)
            });
            let looking = patiently(look, || roster.trouble(Some(HANGS.into())));
            let Ok((back, looked)) = looking.await else { return };
            folder = back;
            let mut pause = options.every;
            match looked {
                Ok(Looked { changed, settling }) => {
                    roster.trouble(None);
                    if changed {
                        roster.publish(folder.listed.clone());
                    }
                    if settling {
                        pause = SETTLE;
                    }
                }
                Err(error) => roster.trouble(Some(error.to_string().into())),
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// What is known of a folder.
#[derive(Default)]
struct Folder {
    /// A file keeps its cluster's name for as long as it is there.
    files: BTreeMap<PathBuf, (ClusterId, WatchedFile)>,
    listed: BTreeMap<ClusterId, Listed>,
    /// What was there at first has been read.
    looked: bool,
    looks: u32,
}

/// A file that is written to without an end does not keep the others from being listed.
const MOST_FIRST_LOOKS: u32 = 25;

/// What a look at a folder found.
struct Looked {
    changed: bool,
    settling: bool,
}

impl Folder {
    fn look(&mut self, options: &KubeconfigFolder) -> io::Result<Looked> {
        let policy = &options.policy;
        let there = files(&options.path)?;
        let before = self.files.len();
        self.files.retain(|path, _| there.contains(path));
        let names: BTreeSet<ClusterId> = self.files.values().map(|(id, _)| id.clone()).collect();
        self.listed.retain(|id, _| names.contains(id));
        let mut looked = Looked { changed: before != self.files.len() || !self.looked, settling: false };
        self.add(&there, names);
        for (path, (id, file)) in &mut self.files {
            let spec = match file.look(policy.max_bytes) {
                Look::Same => continue,
                Look::Settling => {
                    looked.settling = true;
                    continue;
                }
                Look::Missing(reason) | Look::Unreadable(reason) => {
                    let place = path.display().to_string();
                    Err(SpecError::Unreadable { place, reason })
                }
                Look::Content(content) => {
                    let kubeconfig = Kubeconfig::parse(&content, policy);
                    let spec = kubeconfig.and_then(|kubeconfig| kubeconfig.in_folder_of(path).cluster(None));
                    spec.map_err(SpecError::from)
                }
            };
            let origin = Some(path.to_string_lossy().into());
            let name = Some(stem(path).0.into());
            let labels = options.labels.clone();
            let listed = Listed { spec, labels, standing: Standing::Up, origin, name, kubeconfig: None };
            looked.changed |= !self.listed.get(id).is_some_and(|before| before.is_same(&listed));
            self.listed.insert(id.clone(), listed);
        }
        // What is there at first is published as a whole: what is not listed yet has not left.
        self.looks = self.looks.saturating_add(1);
        let first = !self.looked && looked.settling && self.looks < MOST_FIRST_LOOKS;
        looked.changed &= !first;
        self.looked |= !first;
        Ok(looked)
    }

    /// Begins to watch new files. Each gets the name of its stem, or one that is distinct where another file has that.
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

/// Returns the kubeconfigs of a folder.
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
        if paths.len() > MOST_FILES {
            return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
        }
    }
    Ok(paths)
}

/// Returns a file's name without its ending, as it is and as the name of a cluster.
fn stem(path: &Path) -> (String, ClusterId) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let id = ClusterId::from_name(&stem);
    (stem, id)
}

impl Source for KubeconfigFolder {
    fn name(&self) -> String {
        format!("folder {}", self.path.display())
    }

    fn run(self: Box<Self>, roster: Roster, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(roster))
    }
}
