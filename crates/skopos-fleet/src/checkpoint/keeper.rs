//! Writing, restoring and cleaning up checkpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use skopos::checkpoint::{Checkpoint, IdentityMismatch};
use skopos::{Form, InformerOptions, ResourceId};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::documents;
use super::folder::Folder;
use super::index::Index;
use super::names::{self, REFUSED};
use super::options::KeeperOptions;
use super::refusal::{Refusal, RefusalReason};
use super::store::{Content, FileName, Store, blocking};
use crate::cluster::{CheckpointStats, Cluster, Condition, Persistence, RestoredState};
use crate::fleet::{Fleet, Keeper, Members};
use crate::id::ClusterId;

/// Persistence of a fleet's clusters in a [`Store`], for [`FleetOptions::keeper`](crate::FleetOptions).
pub struct CheckpointKeeper {
    store: Arc<dyn Store>,
    changes: Changes,
    options: KeeperOptions,
    folders: Mutex<BTreeMap<ClusterId, Arc<Folder>>>,
    sizes: Mutex<BTreeMap<FileName, u64>>,
    refusals: Mutex<VecDeque<Refusal>>,
    refused: AtomicU64,
    /// The files that are not checkpoints and were reported in the log.
    foreign: Mutex<BTreeSet<FileName>>,
    /// The limit on concurrently decoded files.
    reading: Semaphore,
    began: Instant,
}

/// Reason why a file yielded nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// The file does not exist, or no longer does.
    Gone,
    /// The file stays in place: it may be readable later.
    Left,
}

/// Problem of a cluster whose server does not reveal its identity.
const HIDDEN_IDENTITY: &str = "the server does not let its namespace kube-system be read, by which it is known again: \
                      nothing of it is kept";

/// Limit on files reported in the log as not being checkpoints.
const MAX_FOREIGN: usize = 100;

/// Limit on refusals remembered individually.
const MAX_REFUSALS: usize = 100;

/// Limit on concurrently read files, and on concurrently written clusters.
const MAX_CONCURRENT: usize = 4;

/// Interval between searches for orphaned files.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// Age below which a file may still be being written.
const MIN_SETTLED_AGE: Duration = Duration::from_secs(60);

impl CheckpointKeeper {
    /// Creates a keeper that uses this store.
    pub fn new(store: impl Store, options: KeeperOptions) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        Self {
            changes: Changes::new(store.clone()),
            store,
            options,
            folders: Mutex::default(),
            sizes: Mutex::default(),
            refusals: Mutex::default(),
            refused: AtomicU64::new(0),
            foreign: Mutex::default(),
            reading: Semaphore::new(MAX_CONCURRENT),
            began: Instant::now(),
        }
    }

    /// Returns the latest refused files, at most 100.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.lock().iter().cloned().collect()
    }

    /// Returns the number of refused files.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Writes all changes of all clusters, including mere advances of resource versions. Returns when everything is on
    /// the disk.
    pub async fn save_now(&self, fleet: &Fleet) {
        self.save_all(fleet, true, &CancellationToken::new()).await;
    }

    async fn save_all(&self, fleet: &Fleet, all: bool, stop: &CancellationToken) {
        let members: Vec<Cluster> = fleet.members().values().cloned().collect();
        let saves = futures::stream::iter(members);
        saves
            .for_each_concurrent(
                MAX_CONCURRENT,
                |cluster| async move { self.save(&cluster, all, stop).await },
            )
            .await;
    }

    /// Writes the changes of one cluster. A file that was started is completed before this yields to `stop`.
    async fn save(&self, cluster: &Cluster, all: bool, stop: &CancellationToken) {
        if cluster.state().condition == Condition::Removed || stop.is_cancelled() {
            return;
        }
        let folder = self.folder(cluster.id()).await;
        let _writing = folder.writing.lock().await;
        self.settle(&folder).await;
        let Some(identity) = folder.identity() else { return };
        let taken = Instant::now();
        let (mut running, mut problem) = (BTreeSet::new(), None);
        for (resource, checkpoint) in cluster.checkpoints() {
            if stop.is_cancelled() {
                return;
            }
            // A resource that may no longer be stored loses its file, like one that no longer runs.
            if !self.options.admits.admits(&resource) {
                continue;
            }
            running.insert(resource.clone());
            let whole = checkpoint.ok().filter(|whole| whole.cluster() == Some(&*identity));
            let Some(checkpoint) = whole else { continue };
            if let Err(error) = self.save_kind(&folder, &resource, checkpoint, taken, all).await {
                problem = Some(format!("{resource} is not kept: {error}"));
            }
        }
        if cluster.inner.restored.is_cancelled() {
            for gone in folder.others(&running) {
                self.drop_kind(&folder, &gone).await;
            }
        }
        let index = self.save_index(&folder).await;
        let documents = self.save_documents(&folder, &identity, cluster, all).await;
        if let Err(error) = index.and(documents) {
            problem = Some(error.to_string());
        }
        // A refusal stays reported.
        let silent = problem.is_none() && folder.stats().refused > 0;
        if !silent
            && folder.trouble(problem.clone())
            && let Some(problem) = problem
        {
            tracing::warn!(cluster = %folder.cluster, problem, "checkpoints");
        }
    }

    async fn save_kind(
        &self,
        folder: &Folder,
        resource: &ResourceId,
        checkpoint: Checkpoint,
        taken: Instant,
        all: bool,
    ) -> io::Result<()> {
        let mark = checkpoint.mark();
        let Some(file) = names::kind(&folder.name, resource) else { return Ok(()) };
        if !folder.is_due(resource, &mark, taken, all) {
            return Ok(());
        }
        let limits = &self.options.limits;
        if checkpoint.json_bytes() > limits.bytes || checkpoint.objects() > limits.objects {
            // An older checkpoint would soon be of no use.
            self.drop_kind(folder, resource).await;
            return Err(io::Error::other("it has more objects or bytes than one file may have"));
        }
        let full = || {
            let most = self.options.total_bytes;
            io::Error::other(format!("all files together would have more than {most} bytes"))
        };
        if !self.sizes.lock().contains_key(&file) && self.total() >= self.options.total_bytes {
            return Err(full());
        }
        let bytes = self.write(&file, Content::Checkpoint(checkpoint)).await?;
        folder.saved(resource, mark, bytes, taken);
        if self.total() > self.options.total_bytes {
            self.drop_kind(folder, resource).await;
            return Err(full());
        }
        Ok(())
    }

    async fn drop_kind(&self, folder: &Folder, resource: &ResourceId) {
        folder.removed(resource);
        if let Some(file) = names::kind(&folder.name, resource) {
            self.remove(&file).await;
        }
    }

    async fn save_index(&self, folder: &Folder) -> io::Result<()> {
        let Some(index) = folder.index() else { return Ok(()) };
        let bytes = index.encode(&folder.cluster);
        self.write(&names::index(&folder.name), Content::Bytes(bytes.into())).await?;
        folder.index_saved(index);
        Ok(())
    }

    async fn save_documents(
        &self,
        folder: &Folder,
        identity: &str,
        cluster: &Cluster,
        all: bool,
    ) -> io::Result<()> {
        let documents = cluster.documents();
        let bytes: usize = documents.iter().map(|(_, document)| document.body.len()).sum();
        // Half of the limit is left for the header.
        if bytes > self.options.document_bytes / 2 || !folder.are_documents_due(&documents, all) {
            return Ok(());
        }
        let (identity, clock, copy) = (identity.to_owned(), self.options.clock.clone(), documents.clone());
        let encoded = blocking(move || documents::encode(&identity, &copy, &clock)).await?;
        let bytes = self.write(&names::documents(&folder.name), Content::Bytes(encoded.into())).await?;
        folder.documents_saved(documents, bytes);
        Ok(())
    }

    /// Returns the files of a cluster, after an attempt to read its index.
    async fn folder(&self, cluster: &ClusterId) -> Arc<Folder> {
        let folder = {
            let mut folders = self.folders.lock();
            let folder = folders.entry(cluster.clone()).or_insert_with(|| Arc::new(Folder::new(cluster)));
            folder.clone()
        };
        folder.opened.get_or_init(|| self.open(&folder)).await;
        folder
    }

    async fn open(&self, folder: &Folder) {
        let (file, id) = (names::index(&folder.name), folder.cluster.clone());
        match self.read(folder, &file, move |reader| Index::decode(reader, &id)).await {
            Ok(index) => folder.open(Some(index)),
            Err(Unread::Gone) => folder.open(None),
            // It is retried: the folder may hold all that is left of a cluster that is down.
            Err(Unread::Left) => {}
        }
    }

    /// Retries reading an index that could not be read, and deletes content of another identity than the server's. The
    /// caller holds `writing`.
    async fn settle(&self, folder: &Folder) {
        if !folder.is_open() {
            self.open(folder).await;
        }
        let Some(reported) = folder.reported_identity().filter(|_| folder.is_open()) else { return };
        if reported.is_none() {
            folder.trouble(Some(HIDDEN_IDENTITY.to_owned()));
        }
        if reported != folder.identity() {
            self.discard(folder, reported.as_deref()).await;
        }
    }

    /// Reads and decodes a file.
    async fn read<T: Send + 'static>(
        &self,
        folder: &Folder,
        file: &FileName,
        decode: impl FnOnce(&mut (dyn Read + Send)) -> Result<T, RefusalReason> + Send + 'static,
    ) -> Result<T, Unread> {
        // The semaphore is never closed.
        let _one_of_few = self.reading.acquire().await.map_err(|_| Unread::Left)?;
        let decoded = match self.store.read(file).await {
            Ok(mut reader) => {
                let decoded = spawn_blocking(move || decode(&mut *reader)).await;
                decoded.unwrap_or_else(|error| Err(RefusalReason::Unreadable(error.to_string())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unread::Gone),
            Err(error) => Err(RefusalReason::Unreadable(error.to_string())),
        };
        match decoded {
            Ok(decoded) => Ok(decoded),
            Err(reason) => {
                let unread = if reason.leaves_it() { Unread::Left } else { Unread::Gone };
                self.refuse(folder, file, reason).await;
                Err(unread)
            }
        }
    }

    /// Handles a refused file. A repeated refusal for the same reason is reported once.
    async fn refuse(&self, folder: &Folder, file: &FileName, reason: RefusalReason) {
        if folder.refused(format!("{file} was refused: {reason}")) {
            self.report_refusal(folder, file, &reason);
        }
        match reason {
            RefusalReason::Damaged(_) => {
                if let Err(error) = self.changes.rename(file, &file.with(REFUSED)).await {
                    tracing::warn!(%file, %error, "it cannot be moved aside");
                }
            }
            RefusalReason::Foreign(_) => self.remove(file).await,
            RefusalReason::Unreadable(_) | RefusalReason::Ageless => {}
        }
    }

    fn report_refusal(&self, folder: &Folder, file: &FileName, reason: &RefusalReason) {
        tracing::warn!(cluster = %folder.cluster, %file, %reason, "a checkpoint is refused");
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals.lock();
        if refusals.len() == MAX_REFUSALS {
            refusals.pop_front();
        }
        refusals.push_back(Refusal { file: file.clone(), reason: reason.clone(), at: SystemTime::now() });
    }

    async fn write(&self, file: &FileName, content: Content) -> io::Result<u64> {
        let bytes = self.changes.write(file, content).await?;
        self.sizes.lock().insert(file.clone(), bytes);
        Ok(bytes)
    }

    async fn remove(&self, file: &FileName) {
        self.sizes.lock().remove(file);
        if let Err(error) = self.changes.remove(file).await {
            tracing::warn!(%file, %error, "a file that is not needed any more cannot be removed");
        }
    }

    fn total(&self) -> u64 {
        self.sizes.lock().values().sum()
    }

    /// Removes orphaned files, and updates the sizes of the others.
    async fn clean_up(&self, members: &Members) {
        let files = match self.store.list().await {
            Ok(files) => files,
            Err(error) => return tracing::warn!(%error, "the checkpoints cannot be listed"),
        };
        let folders: BTreeMap<String, Option<Arc<Folder>>> = {
            let known = self.folders.lock();
            let entry = |id: &ClusterId| (names::folder(id), known.get(id).cloned());
            members.keys().map(entry).collect()
        };
        let age = |modified: SystemTime| modified.elapsed().unwrap_or_default();
        let mut youngest: BTreeMap<String, Duration> = BTreeMap::new();
        for file in &files {
            let age = age(file.modified);
            let youngest_age = youngest.entry(file.name.folder().to_owned()).or_insert(age);
            *youngest_age = age.min(*youngest_age);
        }
        let mut sizes = BTreeMap::new();
        for file in files {
            if !names::is_own(file.name.file()) {
                self.leave_alone(&file.name);
                continue;
            }
            let settled = age(file.modified) >= MIN_SETTLED_AGE;
            let superfluous = match folders.get(file.name.folder()) {
                // Its index was not read yet, or could not be.
                Some(None) => false,
                Some(Some(folder)) => {
                    let refused = file.name.file().ends_with(REFUSED);
                    settled && !refused && folder.is_open() && !folder.files().contains(&file.name)
                }
                // Files of any age: every source must have had time to list its clusters.
                None if self.began.elapsed() < self.options.orphans => false,
                None => youngest.get(file.name.folder()).is_some_and(|age| *age >= self.options.orphans),
            };
            match superfluous && self.is_checkpoint(&file.name).await {
                true => {
                    let age = age(file.modified);
                    tracing::info!(file = %file.name, bytes = file.bytes, ?age, "a checkpoint that belongs to no cluster any more is removed");
                    self.remove(&file.name).await;
                }
                false => drop(sizes.insert(file.name, file.bytes)),
            }
        }
        *self.sizes.lock() = sizes;
    }

    /// Returns whether a file begins as checkpoints do. Its name alone does not prove that.
    async fn is_checkpoint(&self, file: &FileName) -> bool {
        let Ok(mut reader) = self.store.read(file).await else { return false };
        let begin = spawn_blocking(move || {
            let mut begin = Vec::new();
            reader.by_ref().take(names::BEGINNING).read_to_end(&mut begin).map(|_| begin)
        });
        let begins = matches!(begin.await, Ok(Ok(begin)) if names::begins_as_own(&begin));
        if !begins {
            self.leave_alone(file);
        }
        begins
    }

    /// Reports once that a file is left alone.
    fn leave_alone(&self, file: &FileName) {
        let mut foreign = self.foreign.lock();
        if foreign.len() < MAX_FOREIGN && foreign.insert(file.clone()) {
            tracing::warn!(%file, "it is no checkpoint, and is left alone: give checkpoints a place of their own");
        }
    }

    /// Deletes all content of another identity. An unread index proves nothing, so the folder stays then. The index
    /// goes first: after an interruption at any point, no other file is read without it.
    async fn discard(&self, folder: &Folder, identity: Option<&str>) {
        if !folder.is_open() {
            return;
        }
        let kinds = folder.reset(identity);
        let kind_files = kinds.iter().filter_map(|resource| names::kind(&folder.name, resource));
        let files: Vec<FileName> = [names::index(&folder.name), names::documents(&folder.name)]
            .into_iter()
            .chain(kind_files)
            .collect();
        for file in files {
            self.remove(&file).await;
            self.remove(&file.with(REFUSED)).await;
        }
    }
}

impl Persistence for CheckpointKeeper {
    fn identity<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { self.folder(cluster).await.presumed().as_deref().map(str::to_owned) })
    }

    fn load<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, RestoredState> {
        Box::pin(async move {
            let folder = self.folder(cluster).await;
            let Some(identity) = folder.presumed() else { return RestoredState::default() };
            let (mut kinds, barred): (Vec<_>, Vec<_>) =
                folder.indexed().into_iter().partition(|resource| self.options.admits.admits(resource));
            for resource in barred {
                self.drop_kind(&folder, &resource).await;
            }
            for resource in kinds.drain(self.options.kinds.min(kinds.len())..) {
                folder.removed(&resource);
            }
            let (most, clock) = (self.options.document_bytes, self.options.clock.clone());
            let decode =
                move |reader: &mut (dyn Read + Send)| documents::decode(&identity, reader, most, &clock);
            let documents = self.read(&folder, &names::documents(&folder.name), decode).await;
            RestoredState { kinds, documents: documents.unwrap_or_default() }
        })
    }

    fn prepare<'a>(
        &'a self,
        cluster: &'a ClusterId,
        identity: &'a str,
        resource: &'a ResourceId,
        options: InformerOptions,
    ) -> BoxFuture<'a, InformerOptions> {
        Box::pin(async move {
            let folder = self.folder(cluster).await;
            let file = names::kind(&folder.name, resource).filter(|_| self.options.admits.admits(resource));
            let Some(file) = file.filter(|_| folder.presumed().as_deref() == Some(identity)) else {
                return options;
            };
            let limits = self.options.limits.clone();
            let (whose, which, wanted) = (identity.to_owned(), resource.clone(), options.clone());
            let decode = move |reader: &mut (dyn Read + Send)| {
                let checkpoint = Checkpoint::read_from(reader, &limits).map_err(RefusalReason::from_error)?;
                if checkpoint.cluster() != Some(&whose) {
                    let found = checkpoint.cluster().unwrap_or("no name").to_owned();
                    return Err(IdentityMismatch { what: "cluster", expected: whose, found }.into());
                }
                checkpoint.fits(&which, Form::Full, &wanted)?;
                Ok(checkpoint)
            };
            let checkpoint = match self.read(&folder, &file, decode).await {
                Ok(checkpoint) => checkpoint,
                Err(unread) => {
                    if unread == Unread::Gone {
                        folder.removed(resource);
                    }
                    return options;
                }
            };
            let bytes = self.sizes.lock().get(&file).copied().unwrap_or_default();
            let age = checkpoint.written_at().elapsed().unwrap_or_default();
            folder.restored(resource, checkpoint.mark(), bytes, age);
            options.restored(checkpoint)
        })
    }

    fn set_identity<'a>(&'a self, cluster: &'a ClusterId, identity: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let folder = self.folder(cluster).await;
            // This comes first, because a writer may hold the lock for long.
            folder.set_reported_identity(identity);
            let _writing = folder.writing.lock().await;
            self.settle(&folder).await;
        })
    }

    fn delete<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let folder = self.folder(cluster).await;
            folder.clear_reported_identity();
            let _writing = folder.writing.lock().await;
            self.discard(&folder, None).await;
            // Otherwise the cluster has come back meanwhile, and a waiting writer continues with this folder.
            if folder.reported_identity().is_none() {
                self.folders.lock().remove(cluster);
            }
        })
    }

    fn stats(&self, cluster: &ClusterId) -> Option<CheckpointStats> {
        self.folders.lock().get(cluster).map(|folder| folder.stats())
    }
}

impl Keeper for CheckpointKeeper {
    fn run(self: Arc<Self>, fleet: Fleet, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut clean_up_at = Instant::now();
            loop {
                if Instant::now() >= clean_up_at {
                    clean_up_at = Instant::now() + CLEANUP_INTERVAL;
                    // A file that is not removed now is removed at a later run.
                    stop.run_until_cancelled(self.clean_up(&fleet.members())).await;
                }
                if stop.run_until_cancelled(tokio::time::sleep(self.options.every)).await.is_none() {
                    break;
                }
                let over = async {
                    stop.cancelled().await;
                    tokio::time::sleep(self.options.end).await;
                };
                tokio::select! {
                    () = self.save_all(&fleet, false, &stop) => {}
                    // Nothing can be written: starting once more would gain nothing.
                    () = over => return tracing::warn!("checkpoints cannot be written: older ones are left"),
                }
            }
            let saving = async {
                self.save_now(&fleet).await;
                self.changes.finish().await;
            };
            if timeout(self.options.end, saving).await.is_err() {
                tracing::warn!("not all checkpoints could be written in time: older ones are left");
            }
        })
    }
}

impl fmt::Debug for CheckpointKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointKeeper").field("options", &self.options).finish_non_exhaustive()
    }
}
