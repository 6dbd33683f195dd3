use std::collections::VecDeque;
use std::sync::Arc;

use skopos_wire::ResourceVersion;
use tokio::sync::watch;

use super::index::{Indexer, StoreIndex};
use super::snapshot::{Snapshot, StoreContent};
use crate::freshness::FreshnessCell;
use crate::handler::{Event, EventQueue};
use crate::journal::{JournalOptions, JournalRecorder};
use crate::sync::{ArcSwap, Guard, Mutex};

/// State shared by the writer, the readers and the handlers of one store.
///
/// Two things change: the pointer to the current content, which readers follow without a lock, and the list of handlers'
/// queues. A lock protects the queues; the writer, and callers that add a handler or an index, hold it for one batch at a
/// time. Under it the current content always matches what the queues have received, so a late handler misses nothing and
/// receives nothing twice.
pub(crate) struct StoreCore {
    freshness: Arc<FreshnessCell>,
    current: ArcSwap<StoreContent>,
    progress: watch::Sender<Progress>,
    feed: Mutex<Feed>,
}

struct Feed {
    queues: Vec<Arc<EventQueue>>,
    retired: VecDeque<Arc<StoreContent>>,
    /// The journals: one for each part of the content, or for the whole; none unless a journal is kept.
    journals: Vec<JournalRecorder>,
    stats: StoreStats,
    closed: bool,
}

/// The progress of a store's content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The RV of the content.
    pub resource_version: ResourceVersion,
    /// The epoch: the stretch of unbroken history that the RV belongs to.
    pub epoch: u64,
    /// True once there was a complete list, or whole content from a checkpoint.
    pub synced: bool,
    /// True once the server has confirmed the content: there was a list, or a consistent read whose revision the restored
    /// content has reached.
    pub confirmed: bool,
    /// True if the store was closed: its content will not change any more.
    pub closed: bool,
}

/// The counters of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Changes that were applied, from watch events.
    pub applied: u64,
    /// Objects that were added, by lists and events.
    pub added: u64,
    /// Objects that got a new version, by lists and events.
    pub updated: u64,
    /// Objects that were deleted, by lists and events.
    pub deleted: u64,
    /// Objects whose name another one took over; each is also counted as deleted and as added.
    pub replaced_uids: u64,
    /// Events that were dropped because the store already had that state or a newer one.
    pub duplicates: u64,
    /// Events that were applied although the store's RV had already passed them: the server broke its order. They are
    /// delivered with the gap flag.
    pub late: u64,
    /// Deletions of objects that the store did not have.
    pub unknown_deletions: u64,
    /// Complete lists.
    pub lists: u64,
    /// Objects of lists that were equal to the store's, so that the old one was kept.
    pub kept: u64,
    /// Handlers that are registered now.
    pub handlers: usize,
}

/// The effect of an update on the content.
pub(crate) enum Update {
    /// Individual changes.
    Changes,
    /// A replacement by a list.
    Replaced {
        /// True if the changes since the previous content are unknown.
        gap: bool,
    },
}

/// The destinations in which an update records its changes.
pub(crate) struct Account<'a> {
    pub(crate) stats: &'a mut StoreStats,
    /// The individual changes.
    pub(crate) events: &'a mut Vec<Event>,
    /// The journal of the part, if there is one.
    pub(crate) journal: Option<&'a mut JournalRecorder>,
}

/// The store, informer or handler was stopped: the caller is at fault, or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped, or its informer factory was shut down")]
pub struct Closed;

/// An index of this name exists already: the caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store already has an index {0:?}: give this one another name")]
pub struct DuplicateIndex(pub String);

impl StoreCore {
    /// Creates a store without content. `nothing` lists the parts that the content will have.
    pub(crate) fn new(nothing: StoreContent, freshness: Arc<FreshnessCell>) -> Arc<Self> {
        let feed = Feed {
            queues: Vec::new(),
            retired: VecDeque::new(),
            journals: Vec::new(),
            stats: StoreStats::default(),
            closed: false,
        };
        Arc::new(Self {
            progress: watch::Sender::new(Progress::new(&nothing, false)),
            current: ArcSwap::from_pointee(nothing),
            feed: Mutex::new(feed),
            freshness,
        })
    }

    /// Returns the current content with its freshness.
    pub(crate) fn snapshot<K>(&self) -> Snapshot<K> {
        // In this order: the content only gets newer, and what it lacks is published before it.
        let evidence = self.freshness.evidence();
        let content = self.current();
        Snapshot::new(content, evidence.reconciled_with(&self.freshness.evidence()))
    }

    /// Returns the freshness of the content.
    pub(crate) fn freshness(&self) -> &Arc<FreshnessCell> {
        &self.freshness
    }

    /// Returns the current content, for holding it.
    pub(crate) fn current(&self) -> Arc<StoreContent> {
        self.current.load_full()
    }

    /// Returns the current content, for a short look.
    pub(crate) fn peek(&self) -> Guard<Arc<StoreContent>> {
        self.current.load()
    }

    /// Returns a receiver of the content's progress. A slow receiver sees only the newest value.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let feed = self.feed.lock();
        StoreStats { handlers: feed.queues.len(), ..feed.stats.clone() }
    }

    /// Changes a part of a copy of the content, publishes the copy and informs the handlers. `update` gets the copy, and
    /// the account in which it records its changes.
    pub(crate) fn update(
        &self,
        part: usize,
        changes: &mut Vec<Event>,
        update: impl FnOnce(&mut StoreContent, Account<'_>) -> Update,
    ) {
        changes.clear();
        let mut feed = self.feed.lock();
        let feed = &mut *feed;
        let before = self.current.load_full();
        let mut after = StoreContent::clone(&before);
        let journal = feed.journals.get_mut(part);
        let what = update(&mut after, Account { stats: &mut feed.stats, events: changes, journal });
        if let Some(journal) = feed.journals.get_mut(part) {
            let position = journal.settle(after.rv_of(part));
            after.set_journal_position(part, position);
        }
        let after = Arc::new(after);
        self.publish(&after, feed.closed);
        match what {
            Update::Changes => {
                feed.queues.iter().for_each(|queue| queue.changed(changes, &before, &after));
                feed.retire(before);
            }
            Update::Replaced { gap } => {
                feed.queues.iter().for_each(|queue| queue.replaced(&before, &after, gap));
                feed.retired.clear();
            }
        }
        changes.clear();
    }

    /// Adds an index over the existing and all later objects. Takes about a microsecond per object, in which the writer
    /// waits.
    pub(crate) fn add_indexer(&self, indexer: Indexer) -> Result<(), DuplicateIndex> {
        let feed = self.feed.lock();
        let mut content = StoreContent::clone(&self.current.load());
        if content.indexes.iter().any(|index| index.name() == indexer.name()) {
            return Err(DuplicateIndex(indexer.name().to_owned()));
        }
        content.indexes.push(StoreIndex::new(indexer, &content.objects));
        self.publish(&Arc::new(content), feed.closed);
        Ok(())
    }

    /// Records that the server has confirmed a part of the restored content.
    pub(crate) fn confirm(&self, part: usize) {
        if !self.peek().is_restored(part) {
            return;
        }
        let feed = self.feed.lock();
        let before = self.current.load_full();
        let mut after = StoreContent::clone(&before);
        after.set_confirmed(part);
        let after = Arc::new(after);
        self.publish(&after, feed.closed);
        if after.is_confirmed() {
            // Nothing has changed, but now the handlers have seen the whole content.
            feed.queues.iter().for_each(|queue| queue.replaced(&before, &after, false));
        }
    }

    /// Keeps a journal from now on, unless there is one already.
    pub(crate) fn keep_journal(&self, options: JournalOptions) {
        let mut feed = self.feed.lock();
        if !feed.journals.is_empty() {
            return;
        }
        let mut content = StoreContent::clone(&self.current.load());
        for part in 0..content.parts.len().max(1) {
            let head = content.is_listed(part).then(|| content.rv_of(part).clone());
            let mut journal = JournalRecorder::new(options, head.as_ref());
            content.set_journal_position(part, journal.settle(&content.rv_of(part).clone()));
            feed.journals.push(journal);
        }
        self.publish(&Arc::new(content), feed.closed);
    }

    /// Returns the bytes that the journal of a part keeps alive.
    pub(crate) fn journal_bytes(&self, part: usize) -> u64 {
        self.feed.lock().journals.get(part).map_or(0, JournalRecorder::bytes)
    }

    /// Adds a queue, which gets the current content first, and then every later change.
    pub(crate) fn subscribe(&self, queue: &Arc<EventQueue>) -> Result<(), Closed> {
        let mut feed = self.feed.lock();
        if feed.closed {
            return Err(Closed);
        }
        queue.start(&self.current.load());
        feed.queues.push(queue.clone());
        Ok(())
    }

    /// Removes a queue; it gets nothing any more.
    pub(crate) fn unsubscribe(&self, queue: &Arc<EventQueue>) {
        self.feed.lock().queues.retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Delivers every object to this queue again, if nothing waits in it.
    pub(crate) fn resync(&self, queue: &EventQueue) -> bool {
        let _fed = self.feed.lock();
        let now = self.current.load_full();
        now.synced && queue.resync(&now)
    }

    /// Closes the store: readers keep the content, no handler can be added.
    pub(crate) fn close(&self) {
        let mut feed = self.feed.lock();
        feed.closed = true;
        feed.queues.clear();
        feed.retired.clear();
        self.progress.send_modify(|progress| progress.closed = true);
    }

    fn publish(&self, content: &Arc<StoreContent>, closed: bool) {
        self.current.store(content.clone());
        // Before waiters are woken: a caller that is notified of the sync must not then read that the content never synced.
        self.freshness.listed(|part| content.is_listed(part));
        self.progress.send_replace(Progress::new(content, closed));
    }
}

impl Progress {
    fn new(content: &StoreContent, closed: bool) -> Self {
        Self {
            resource_version: content.rv.clone(),
            epoch: content.epoch,
            synced: content.synced,
            confirmed: content.is_confirmed(),
            closed,
        }
    }
}

impl Feed {
    /// Holds the previous content while a reader has it, so that the writer frees its nodes and not the last reader. The
    /// newest one stays until the next batch.
    fn retire(&mut self, content: Arc<StoreContent>) {
        self.retired.retain(|content| Arc::strong_count(content) > 1);
        if self.retired.len() == MAX_RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(content);
    }
}

/// The number of previous contents that are held for their readers. A reader that holds one for more batches than this
/// frees it itself.
const MAX_RETIRED: usize = 8;

#[cfg(test)]
mod tests;
