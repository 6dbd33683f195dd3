//! What is known of the files of one cluster.

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
use crate::id::ClusterId;
use crate::keeper::KeptStats;

/// The files of one cluster. What is on the disk is changed by whoever holds `writing`.
pub(super) struct Folder {
    pub(super) cluster: ClusterId,
    pub(super) name: String,
    /// Filled when it was tried to read the index.
    pub(super) opened: OnceCell<()>,
    pub(super) writing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The index was read, or there is none. Before, nobody knows what the files are.
    open: bool,
    identity: Option<Arc<str>>,
    /// Who the server has said it is, or that it does not tell.
    told: Option<Option<Arc<str>>>,
    /// What the index says.
    indexed: BTreeSet<ResourceId>,
    /// Those of them whose files were not read, and are left where they are until newer ones take their place.
    left: BTreeSet<ResourceId>,
    kinds: BTreeMap<ResourceId, Kept>,
    documents: Option<KeptDocuments>,
    refused: u64,
    problem: Option<Arc<str>>,
}

/// A kind of which there is a file.
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

/// A moment, which may lie before the process began.
#[derive(Clone, Copy)]
struct Since {
    at: Instant,
    age: Duration,
}

/// How often a kind is written of which only the resource version has moved, and documents that were only confirmed.
const REFRESH: Duration = Duration::from_secs(300);

// === impl Folder ===

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

    /// The same, unless the server has said that it is another.
    pub(super) fn presumed(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        let denied = state.told.as_ref().is_some_and(|told| *told != state.identity);
        state.identity.clone().filter(|_| !denied)
    }

    /// Begins with what the index says, if there is one.
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

    pub(super) fn tell(&self, identity: Option<&str>) {
        self.state.lock().told = Some(identity.map(Into::into));
    }

    /// What the server has said does not count any more.
    pub(super) fn untell(&self) {
        self.state.lock().told = None;
    }

    pub(super) fn told(&self) -> Option<Option<Arc<str>>> {
        self.state.lock().told.clone()
    }

    /// Everything is of this identity from now on, and of any other nothing is there. Returns the kinds that had files.
    pub(super) fn begin_anew(&self, identity: Option<&str>) -> BTreeSet<ResourceId> {
        let mut state = self.state.lock();
        let State { open, told, indexed, kinds, refused, problem, .. } = std::mem::take(&mut *state);
        (state.open, state.told, state.identity) = (open, told, identity.map(Into::into));
        // What was in the way is told until it is not any more.
        (state.refused, state.problem) = (refused, problem);
        kinds.into_keys().chain(indexed).collect()
    }

    /// The kinds that the index names.
    pub(super) fn indexed(&self) -> Vec<ResourceId> {
        self.state.lock().indexed.iter().cloned().collect()
    }

    /// A file was read, and its content is that of the memory now.
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

    /// Whether the file is to be written for content of this mark; `all`: also for small differences.
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
            false if kept.mark.has_same_objects(mark) => all || kept.written.elapsed() >= REFRESH,
            false => true,
        };
        if !due {
            kept.as_memory = Since { at: taken, age: Duration::ZERO };
        }
        due
    }

    /// Kinds of which there are files although they are not among these.
    pub(super) fn others(&self, running: &BTreeSet<ResourceId>) -> Vec<ResourceId> {
        let state = self.state.lock();
        state.kinds.keys().filter(|resource| !running.contains(*resource)).cloned().collect()
    }

    pub(super) fn removed(&self, resource: &ResourceId) {
        let mut state = self.state.lock();
        state.kinds.remove(resource);
        state.left.remove(resource);
    }

    /// The index to be written, if the one on the disk says something else.
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
                all || kept.written.elapsed() >= REFRESH || !documents::are_same(&kept.documents, documents)
            }
        }
    }

    pub(super) fn documents_saved(&self, documents: Documents, bytes: u64) {
        let written = Instant::now();
        self.state.lock().documents = Some(KeptDocuments { documents, bytes, written });
    }

    /// A file was refused; returns whether that is news.
    pub(super) fn refused(&self, problem: String) -> bool {
        let news = self.trouble(Some(problem));
        self.state.lock().refused += u64::from(news);
        news
    }

    /// Sets what stands in the way of keeping; returns whether that is news.
    pub(super) fn trouble(&self, problem: Option<String>) -> bool {
        let mut state = self.state.lock();
        let news = state.problem.as_deref() != problem.as_deref();
        state.problem = problem.map(Into::into);
        news
    }

    /// The files that belong here.
    pub(super) fn files(&self) -> BTreeSet<FileName> {
        let state = self.state.lock();
        let kinds = state.kinds.keys().chain(&state.indexed);
        let kinds = kinds.filter_map(|resource| names::kind(&self.name, resource));
        kinds.chain([names::index(&self.name), names::documents(&self.name)]).collect()
    }

    pub(super) fn stats(&self) -> KeptStats {
        let state = self.state.lock();
        let age = |since: &Since| since.at.elapsed().saturating_add(since.age);
        let kinds = || state.kinds.values();
        let documents = state.documents.as_ref();
        KeptStats {
            age: kinds().map(|kept| age(&kept.as_memory)).max(),
            files: state.kinds.len() + usize::from(documents.is_some()),
            bytes: kinds().map(|kept| kept.bytes).sum::<u64>() + documents.map_or(0, |kept| kept.bytes),
            refused: state.refused,
            problem: state.problem.clone(),
        }
    }
}

// === impl State ===

impl State {
    fn keep(&mut self, resource: &ResourceId, kept: Kept) {
        self.left.remove(resource);
        self.kinds.insert(resource.clone(), kept);
    }
}
