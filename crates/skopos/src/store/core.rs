use std::collections::VecDeque;
use std::sync::Arc;

use skopos_wire::ResourceVersion;
use tokio::sync::watch;

use super::index::{Index, Indexer};
use super::snapshot::{Content, Snapshot};
use crate::freshness::FreshnessCell;
use crate::handler::{Event, Queue};
use crate::journal::{JournalOptions, Recorder};
use crate::sync::{ArcSwap, Guard, Mutex};

/// What the writer, the readers and the handlers of one store share.
///
/// Two things change: the pointer to the current content, which readers follow without a lock, and the list of handlers'
/// queues behind a lock that the writer, and whoever adds a handler or an index, holds for one batch at a time. Under that lock
/// "the current content" and "what the queues were told" are the same, so that a late handler misses nothing and hears
/// nothing twice.
pub(crate) struct StoreCore {
    freshness: Arc<FreshnessCell>,
    current: ArcSwap<Content>,
    progress: watch::Sender<Progress>,
    feed: Mutex<Feed>,
}

struct Feed {
    queues: Vec<Arc<Queue>>,
    retired: VecDeque<Arc<Content>>,
    /// One for each part of the content, or for the whole; none unless a journal is kept.
    journals: Vec<Recorder>,
    stats: StoreStats,
    closed: bool,
}

/// How far a store's content has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The RV that the content belongs to.
    pub resource_version: ResourceVersion,
    /// The stretch of unbroken history that the RV belongs to.
    pub epoch: u64,
    /// Whether there was a complete list yet, or whole content from a checkpoint.
    pub synced: bool,
    /// Whether the server has confirmed it: there was a list, or a consistent read whose revision a checkpoint's content
    /// has reached.
    pub confirmed: bool,
    /// Whether the store was closed: it will not go on.
    pub closed: bool,
}

/// What a store has done since it exists.
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
    /// Objects of lists that were the same as the store's, so that the old one was kept.
    pub kept: u64,
    /// Handlers that are registered now.
    pub handlers: usize,
}

/// What an update did to the content.
pub(crate) enum Update {
    /// These changes.
    Changes,
    /// A list replaced it.
    Replaced {
        /// Whether the changes since the content before are unknown.
        gap: bool,
    },
}

/// Where an update accounts for what it does to the content.
pub(crate) struct Account<'a> {
    pub(crate) stats: &'a mut StoreStats,
    /// The changes that it makes one by one.
    pub(crate) events: &'a mut Vec<Event>,
    /// The journal of the part, if there is one.
    pub(crate) journal: Option<&'a mut Recorder>,
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
    /// A store without content. `nothing` says of which parts the content will be.
    pub(crate) fn new(nothing: Content, freshness: Arc<FreshnessCell>) -> Arc<Self> {
        let feed = Feed {
            queues: Vec::new(),
            retired: VecDeque::new(),
            journals: Vec::new(),
            stats: StoreStats::default(),
            closed: false,
        };
        Arc::new(Self {
            progress: watch::Sender::new(Progress::of(&nothing, false)),
            current: ArcSwap::from_pointee(nothing),
            feed: Mutex::new(feed),
            freshness,
        })
    }

    /// The current content and what is known of its age.
    pub(crate) fn snapshot<K>(&self) -> Snapshot<K> {
        // In this order: the content only gets newer, and what it lacks is told before it.
        let basis = self.freshness.basis();
        let content = self.current();
        Snapshot::of(content, basis.of_content_before(&self.freshness.basis()))
    }

    /// What is known of the age of the content.
    pub(crate) fn freshness(&self) -> &Arc<FreshnessCell> {
        &self.freshness
    }

    /// The current content, to hold.
    pub(crate) fn current(&self) -> Arc<Content> {
        self.current.load_full()
    }

    /// The current content, for one look.
    pub(crate) fn peek(&self) -> Guard<Arc<Content>> {
        self.current.load()
    }

    /// Follows the progress of the content. A receiver that is slow sees only the newest.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let feed = self.feed.lock();
        StoreStats { handlers: feed.queues.len(), ..feed.stats.clone() }
    }

    /// Changes a part of a copy of the content, publishes it and tells the handlers: `update` gets the copy, and where to
    /// account for what it does.
    pub(crate) fn update(
        &self,
        part: usize,
        changes: &mut Vec<Event>,
        update: impl FnOnce(&mut Content, Account<'_>) -> Update,
    ) {
        changes.clear();
        let mut feed = self.feed.lock();
        let feed = &mut *feed;
        let before = self.current.load_full();
        let mut after = Content::clone(&before);
        let journal = feed.journals.get_mut(part);
        let what = update(&mut after, Account { stats: &mut feed.stats, events: changes, journal });
        if let Some(journal) = feed.journals.get_mut(part) {
            let mark = journal.settle(after.rv_of(part));
            after.set_mark(part, mark);
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

    /// Adds an index over what is there and what comes. Takes about a microsecond per object, in which the writer waits.
    pub(crate) fn add_indexer(&self, indexer: Indexer) -> Result<(), DuplicateIndex> {
        let feed = self.feed.lock();
        let mut content = Content::clone(&self.current.load());
        if content.indexes.iter().any(|index| index.name() == indexer.name()) {
            return Err(DuplicateIndex(indexer.name().to_owned()));
        }
        content.indexes.push(Index::new(indexer, &content.objects));
        self.publish(&Arc::new(content), feed.closed);
        Ok(())
    }

    /// The server has confirmed a part of what a checkpoint said.
    pub(crate) fn confirm(&self, part: usize) {
        if !self.peek().is_restored(part) {
            return;
        }
        let feed = self.feed.lock();
        let before = self.current.load_full();
        let mut after = Content::clone(&before);
        after.set_confirmed(part);
        let after = Arc::new(after);
        self.publish(&after, feed.closed);
        if after.is_confirmed() {
            // Nothing has changed, but now they have seen what there is.
            feed.queues.iter().for_each(|queue| queue.replaced(&before, &after, false));
        }
    }

    /// Keeps a journal from now on, unless one is kept already.
    pub(crate) fn keep_journal(&self, options: JournalOptions) {
        let mut feed = self.feed.lock();
        if !feed.journals.is_empty() {
            return;
        }
        let mut content = Content::clone(&self.current.load());
        for part in 0..content.parts.len().max(1) {
            let head = content.is_listed(part).then(|| content.rv_of(part).clone());
            let mut journal = Recorder::new(options, head.as_ref());
            content.set_mark(part, journal.settle(&content.rv_of(part).clone()));
            feed.journals.push(journal);
        }
        self.publish(&Arc::new(content), feed.closed);
    }

    /// What the journal of a part keeps alive, in bytes.
    pub(crate) fn journal_bytes(&self, part: usize) -> u64 {
        self.feed.lock().journals.get(part).map_or(0, Recorder::bytes)
    }

    /// Adds a queue, which gets the present content as a beginning, and then every change after it.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue>) -> Result<(), Closed> {
        let mut feed = self.feed.lock();
        if feed.closed {
            return Err(Closed);
        }
        queue.start(&self.current.load());
        feed.queues.push(queue.clone());
        Ok(())
    }

    /// Takes a queue out; it gets nothing any more.
    pub(crate) fn unsubscribe(&self, queue: &Arc<Queue>) {
        self.feed.lock().queues.retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Has every object delivered to this queue again, if nothing waits in it.
    pub(crate) fn resync(&self, queue: &Queue) -> bool {
        let _fed = self.feed.lock();
        let now = self.current.load_full();
        now.synced && queue.resync(&now)
    }

    /// Ends the store: readers keep the content, nobody can be added.
    pub(crate) fn close(&self) {
        let mut feed = self.feed.lock();
        feed.closed = true;
        feed.queues.clear();
        feed.retired.clear();
        self.progress.send_modify(|progress| progress.closed = true);
    }

    fn publish(&self, content: &Arc<Content>, closed: bool) {
        self.current.store(content.clone());
        // Before anybody is woken: who is told that it is synced must not then read that it never was.
        self.freshness.listed(|part| content.is_listed(part));
        self.progress.send_replace(Progress::of(content, closed));
    }
}

impl Progress {
    fn of(content: &Content, closed: bool) -> Self {
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
    /// Keeps the content that was current until now as long as a reader has it in hand, so that taking its nodes apart
    /// falls to the writer and not to whoever happened to read last. The newest one stays until the next batch.
    fn retire(&mut self, content: Arc<Content>) {
        self.retired.retain(|content| Arc::strong_count(content) > 1);
        if self.retired.len() == RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(content);
    }
}

/// How many former contents are kept for their readers. Readers that hold one for longer than so many batches take it apart
/// themselves.
const RETIRED: usize = 8;

#[cfg(test)]
mod tests;
