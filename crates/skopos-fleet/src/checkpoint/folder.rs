//! State of the checkpoint files of one cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::ResourceId;
use skopos::checkpoint::ContentMark;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::documents::{self, Documents};
use super::index::Index;
use super::names;
use super::store::FileName;
use crate::cluster::CheckpointStats;
use crate::id::ClusterId;

/// The checkpoint files of one cluster. Changes on the disk require the lock `writing`.
pub(super) struct Folder {
    pub(super) cluster: ClusterId,
    pub(super) name: String,
    /// Set after the first attempt to read the index.
    pub(super) opened: OnceCell<()>,
    pub(super) writing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Set if the index was read or does not exist. Until then the contents of the folder are unknown.
    open: bool,
    identity: Option<Arc<str>>,
    /// The identity reported by the server, or that it does not reveal one.
    reported: Option<Option<Arc<str>>>,
    /// The resources in the index on the disk.
    indexed: BTreeSet<ResourceId>,
    /// The indexed resources whose files were not read. The files stay until newer ones replace them.
    left: BTreeSet<ResourceId>,
    kinds: BTreeMap<ResourceId, Kept>,
    documents: Option<KeptDocuments>,
    refused: u64,
    problem: Option<Arc<str>>,
}

/// A resource with a checkpoint file.
struct Kept {
    mark: ContentMark,
    bytes: u64,
    written: Instant,
    as_memory: Since,
}

struct KeptDocuments {
    documents: Documents,
    bytes: u64,
    written: Instant,
}

/// A time that may be before the start of the process.
#[derive(Clone, Copy)]
struct Since {
    at: Instant,
    age: Duration,
}

/// Interval of writing resources whose version alone has advanced, and documents that were only confirmed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

impl Folder {
    pub(super) fn new(cluster: &ClusterId) -> Self {
        Self {
            cluster: cluster.clone(),
            name: names::folder(cluster),
            opened: OnceCell::new(),
            writing: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
        }
    }

    pub(super) fn identity(&self) -> Option<Arc<str>> {
        self.state.lock().identity.clone()
    }

    /// Returns the identity, unless the server has reported another one.
    pub(super) fn presumed(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        let denied = state.reported.as_ref().is_some_and(|reported| *reported != state.identity);
        state.identity.clone().filter(|_| !denied)
    }

    /// Starts with the contents of the index, if there is one.
    pub(super) fn open(&self, index: Option<Index>) {
        let mut state = self.state.lock();
        state.open = true;
        let Some(index) = index else { return };
        state.identity = Some(index.identity.into());
        state.indexed = index.kinds.into_iter().collect();
        state.left = state.indexed.clone();
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.lock().open
    }

    pub(super) fn set_reported_identity(&self, identity: Option<&str>) {
        self.state.lock().reported = Some(identity.map(Into::into));
    }

    /// Discards the identity reported by the server.
    pub(super) fn clear_reported_identity(&self) {
        self.state.lock().reported = None;
    }

    pub(super) fn reported_identity(&self) -> Option<Option<Arc<str>>> {
        self.state.lock().reported.clone()
    }

    /// Resets the folder to this identity and no content. Returns the resources that had files.
    pub(super) fn reset(&self, identity: Option<&str>) -> BTreeSet<ResourceId> {
        let mut state = self.state.lock();
        let State { open, reported, indexed, kinds, refused, problem, .. } = std::mem::take(&mut *state);
        (state.open, state.reported, state.identity) = (open, reported, identity.map(Into::into));
        // A problem stays reported until it is solved.
        (state.refused, state.problem) = (refused, problem);
        kinds.into_keys().chain(indexed).collect()
    }

    /// Returns the resources in the index.
    pub(super) fn indexed(&self) -> Vec<ResourceId> {
        self.state.lock().indexed.iter().cloned().collect()
    }

    /// Records that a file was restored, so that it equals the memory now.
    pub(super) fn restored(&self, resource: &ResourceId, mark: ContentMark, bytes: u64, age: Duration) {
        let at = Instant::now();
        let kept = Kept { mark, bytes, written: at, as_memory: Since { at, age } };
        self.state.lock().keep(resource, kept);
    }

    pub(super) fn saved(&self, resource: &ResourceId, mark: ContentMark, bytes: u64, taken: Instant) {
        let as_memory = Since { at: taken, age: Duration::ZERO };
        let kept = Kept { mark, bytes, written: taken, as_memory };
        self.state.lock().keep(resource, kept);
    }

    /// Returns whether the file must be written for content with this mark; with `all`, small differences count, too.
    pub(super) fn is_due(
        &self,
        resource: &ResourceId,
        mark: &ContentMark,
        taken: Instant,
        all: bool,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(kept) = state.kinds.get_mut(resource) else { return true };
        let due = match kept.mark == *mark {
            true => false,
            false if kept.mark.has_same_objects(mark) => all || kept.written.elapsed() >= REFRESH_INTERVAL,
            false => true,
        };
        if !due {
            kept.as_memory = Since { at: taken, age: Duration::ZERO };
        }
        due
    }

    /// Returns the resources with files that are not among `running`.
    pub(super) fn others(&self, running: &BTreeSet<ResourceId>) -> Vec<ResourceId> {
        let state = self.state.lock();
        state.kinds.keys().filter(|resource| !running.contains(*resource)).cloned().collect()
    }

    pub(super) fn removed(&self, resource: &ResourceId) {
        let mut state = self.state.lock();
        state.kinds.remove(resource);
        state.left.remove(resource);
    }

    /// Returns the index to write, if the one on the disk differs.
    pub(super) fn index(&self) -> Option<Index> {
        let state = self.state.lock();
        let kinds: BTreeSet<ResourceId> = state.kinds.keys().chain(&state.left).cloned().collect();
        let identity = state.identity.as_deref()?.to_owned();
        (kinds != state.indexed).then(|| Index { identity, kinds: kinds.into_iter().collect() })
    }

    pub(super) fn index_saved(&self, index: Index) {
        self.state.lock().indexed = index.kinds.into_iter().collect();
    }

    pub(super) fn are_documents_due(&self, documents: &Documents, all: bool) -> bool {
        let state = self.state.lock();
        match &state.documents {
            None => !documents.is_empty(),
            Some(kept) => {
                all || kept.written.elapsed() >= REFRESH_INTERVAL
                    || !documents::are_same(&kept.documents, documents)
            }
        }
    }

    pub(super) fn documents_saved(&self, documents: Documents, bytes: u64) {
        let written = Instant::now();
        self.state.lock().documents = Some(KeptDocuments { documents, bytes, written });
    }

    /// Records a refused file; returns whether the problem is new.
    pub(super) fn refused(&self, problem: String) -> bool {
        let is_new = self.trouble(Some(problem));
        self.state.lock().refused += u64::from(is_new);
        is_new
    }

    /// Sets the current problem; returns whether it is new.
    pub(super) fn trouble(&self, problem: Option<String>) -> bool {
        let mut state = self.state.lock();
        let is_new = state.problem.as_deref() != problem.as_deref();
        state.problem = problem.map(Into::into);
        is_new
    }

    /// Returns the files that belong to the cluster.
    pub(super) fn files(&self) -> BTreeSet<FileName> {
        let state = self.state.lock();
        let kinds = state.kinds.keys().chain(&state.indexed);
        let kinds = kinds.filter_map(|resource| names::kind(&self.name, resource));
        kinds.chain([names::index(&self.name), names::documents(&self.name)]).collect()
    }

    pub(super) fn stats(&self) -> CheckpointStats {
        let state = self.state.lock();
        let age = |since: &Since| since.at.elapsed().saturating_add(since.age);
        let kinds = || state.kinds.values();
        let documents = state.documents.as_ref();
        CheckpointStats {
            age: kinds().map(|kept| age(&kept.as_memory)).max(),
            files: state.kinds.len() + usize::from(documents.is_some()),
            bytes: kinds().map(|kept| kept.bytes).sum::<u64>() + documents.map_or(0, |kept| kept.bytes),
            refused: state.refused,
            problem: state.problem.clone(),
        }
    }
}

impl State {
    fn keep(&mut self, resource: &ResourceId, kept: Kept) {
        self.left.remove(resource);
        self.kinds.insert(resource.clone(), kept);
    }
}
