//! A folder with one kubeconfig per file.

use std::collections::BTreeMap;
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

/// A folder with one kubeconfig per file, whose current (or only) context is a cluster of the file's name without its ending.
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
                Ok(Looked { changed, settling, trouble }) => {
                    roster.trouble(trouble.map(Into::into));
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
    files: BTreeMap<ClusterId, WatchedFile>,
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
    trouble: Option<String>,
}

impl Folder {
    fn look(&mut self, options: &KubeconfigFolder) -> io::Result<Looked> {
        let policy = &options.policy;
        let (there, trouble) = files(&options.path)?;
        let before = self.files.len();
        self.files.retain(|id, file| there.get(id).is_some_and(|path| path == file.path()));
        self.listed.retain(|id, _| there.contains_key(id));
        let mut looked =
            Looked { changed: before != self.files.len() || !self.looked, settling: false, trouble };
        for (id, path) in there {
            let file = self.files.entry(id.clone()).or_insert_with(|| WatchedFile::new(path));
            let spec = match file.look(policy.max_bytes) {
                Look::Same => continue,
                Look::Settling => {
                    looked.settling = true;
                    continue;
                }
                Look::Unreadable(reason) => {
                    let place = file.path().display().to_string();
                    Err(SpecError::Unreadable { place, reason })
                }
                Look::Content(content) => {
                    let kubeconfig = Kubeconfig::parse(&content, policy);
                    let spec =
                        kubeconfig.and_then(|kubeconfig| kubeconfig.in_folder_of(file.path()).cluster(None));
                    spec.map_err(SpecError::from)
                }
            };
            let origin = Some(file.path().to_string_lossy().into());
            let listed = Listed { spec, labels: options.labels.clone(), standing: Standing::Up, origin };
            looked.changed |= !self.listed.get(&id).is_some_and(|before| before.is_same(&listed));
            self.listed.insert(id, listed);
        }
        // What is there at first is published as a whole: what is not listed yet has not left.
        self.looks = self.looks.saturating_add(1);
        let first = !self.looked && looked.settling && self.looks < MOST_FIRST_LOOKS;
        looked.changed &= !first;
        self.looked |= !first;
        Ok(looked)
    }
}

/// The kubeconfigs of a folder by their clusters' names, and what of them cannot be told apart.
fn files(folder: &Path) -> io::Result<(BTreeMap<ClusterId, PathBuf>, Option<String>)> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let passing = name.starts_with(['.', '#'])
            || [".tmp", ".swp", "~", ".bak", ".part"].iter().any(|ending| name.ends_with(ending));
        if !passing && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > MOST_FILES {
            return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
        }
    }
    paths.sort();
    let (mut files, mut doubles) = (BTreeMap::new(), Vec::new());
    for path in paths {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match ClusterId::nearest(stem) {
            Ok(id) if !files.contains_key(&id) => _ = files.insert(id, path),
            _ => doubles.push(path.display().to_string()),
        }
    }
    let trouble = (!doubles.is_empty()).then(|| {
        let some = &doubles[..doubles.len().min(5)];
        format!("{} files have names that no cluster, or another cluster, has: {some:?}", doubles.len())
    });
    Ok((files, trouble))
}

impl Source for KubeconfigFolder {
    fn name(&self) -> String {
        format!("folder {}", self.path.display())
    }

    fn run(self: Box<Self>, roster: Roster, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(roster))
    }
}
