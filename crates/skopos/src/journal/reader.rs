use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use skopos_wire::ResourceVersion;
use tokio::sync::watch;

use super::change::Change;
use super::ring::{JournalPosition, Lost};
use crate::store::{Closed, Progress, Snapshot, StoreContent, StoreCore};
use crate::sync::timeout;

/// The last changes of a store, and the positions from which they can be read. Cheap to clone; no call waits for anything.
///
/// Get one from [`Store::journal`](crate::Store::journal). It keeps the content readable, but not the informer running.
pub struct Journal<K = DynamicObject> {
    core: Arc<StoreCore>,
    part: usize,
    kind: PhantomData<fn() -> K>,
}

/// A reader of a store's changes, one after the other, from its start position. Holds none of them: an unread cursor costs
/// nothing, and falls out of the window.
pub struct Cursor<K = DynamicObject> {
    core: Arc<StoreCore>,
    part: usize,
    next: u64,
    /// The last value of [`Batch::reached`].
    last_reached: Option<ResourceVersion>,
    /// The RV up to which the reader knows everything.
    known: Option<ResourceVersion>,
    progress: watch::Receiver<Progress>,
    kind: PhantomData<fn() -> K>,
}

/// The changes that a cursor has read.
#[derive(Clone)]
pub struct Batch<K = DynamicObject> {
    /// The changes, in order.
    pub changes: Vec<Change<K>>,
    /// The RV that the reader has reached: it knows all that the store has at this RV, and no change at or before it is
    /// still to come. `None` if there is more to read.
    pub reached: Option<ResourceVersion>,
    /// The content at `reached`, if a list has led there: objects that came and went before the list are not among the
    /// changes. A reader that knows of such objects from elsewhere learns from this that they are gone.
    pub relisted: Option<Snapshot<K>>,
    /// The epoch: the stretch of unbroken history that all of this belongs to.
    pub epoch: u64,
}

/// The reason why changes cannot be read from here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The changes after this RV are no longer stored, or never were: list again.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        /// The requested RV.
        requested: ResourceVersion,
        /// The next RV from which a reader can start.
        oldest: ResourceVersion,
    },
    /// The cursor cannot continue: list again.
    #[error("the changes from here on are gone ({cause:?}); the oldest resource version is {oldest}")]
    FellOut {
        /// The reason.
        cause: Lost,
        /// The oldest RV from which a reader can start.
        oldest: ResourceVersion,
    },
    /// The RV lies in the future: wait, or start from the current content.
    #[error("too large resource version: {requested}, current: {newest}")]
    Ahead {
        /// The requested RV.
        requested: ResourceVersion,
        /// The RV that the content has reached.
        newest: ResourceVersion,
    },
    /// Nothing was listed yet: wait.
    #[error("nothing was listed yet")]
    NotSynced,
}

/// The statistics of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStats {
    /// The number of changes that can be read.
    pub events: u64,
    /// The bytes that it keeps alive in addition to the store.
    pub bytes: u64,
    /// The number of gaps among them.
    pub gaps: usize,
    /// The oldest RV from which a reader can start.
    pub oldest: ResourceVersion,
    /// The RV that the content has reached.
    pub newest: ResourceVersion,
}

impl JournalError {
    /// Returns whether a client must list again: the API server's 410 Expired.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::FellOut { .. })
    }
}

impl<K> Journal<K> {
    pub(crate) fn new(core: Arc<StoreCore>, part: usize) -> Self {
        Self { core, part, kind: PhantomData }
    }

    /// Returns the oldest RV from which a reader can start; `None` if nothing was listed yet.
    pub fn oldest(&self) -> Option<ResourceVersion> {
        let content = self.core.peek();
        let position = content.journal_position_of(self.part).filter(|_| content.is_listed(self.part))?;
        Some(position.ring.directory().start.clone())
    }

    /// Returns the RV that the content has reached, by changes, lists and bookmarks; `None` if nothing was listed yet.
    pub fn newest(&self) -> Option<ResourceVersion> {
        let content = self.core.peek();
        content.is_listed(self.part).then(|| content.rv_of(self.part).clone())
    }

    /// Returns the epoch: the stretch of unbroken history that the RVs belong to.
    pub fn epoch(&self) -> u64 {
        self.core.peek().epoch_of(self.part)
    }

    /// Returns the content, and a cursor that begins after it.
    pub fn begin(&self) -> (Snapshot<K>, Cursor<K>) {
        let snapshot = self.core.snapshot();
        let cursor = self.at(&snapshot);
        (snapshot, cursor)
    }

    /// Returns a cursor that begins after a snapshot of this store (a snapshot of another store is an undetected mistake).
    pub fn at(&self, snapshot: &Snapshot<K>) -> Cursor<K> {
        let content = snapshot.content();
        let last_reached = content.is_listed(self.part).then(|| content.rv_of(self.part).clone());
        // A snapshot from before the journal was enabled is treated as read too slowly.
        self.cursor(
            content.journal_position_of(self.part).map_or(0, |position| position.next),
            last_reached.clone(),
            last_reached,
        )
    }

    /// Returns a cursor that begins after this RV, like a watch from there.
    ///
    /// # Errors
    /// If the RV is out of the window, inside of a gap or in the future, or nothing was listed yet.
    pub fn after(&self, rv: &ResourceVersion) -> Result<Cursor<K>, JournalError> {
        let content = self.core.peek();
        let position = content.journal_position_of(self.part).filter(|_| content.is_listed(self.part));
        let position = position.ok_or(JournalError::NotSynced)?;
        let newest = content.rv_of(self.part);
        if rv > newest {
            return Err(JournalError::Ahead { requested: rv.clone(), newest: newest.clone() });
        }
        let next = position.ring.first_after(rv, position.next);
        // Loaded afterwards: if the window has moved on meanwhile, it has moved past what was found.
        let directory = position.ring.directory();
        let oldest = match directory.gaps.iter().find(|gap| gap.after < *rv && *rv < gap.until) {
            _ if *rv < directory.start => Some(&directory.start),
            Some(gap) => Some(&gap.until),
            None => None,
        };
        match oldest {
            Some(oldest) => Err(JournalError::Expired { requested: rv.clone(), oldest: oldest.clone() }),
            None => Ok(self.cursor(next, None, Some(rv.clone()))),
        }
    }

    /// Returns the journal's statistics; `None` if nothing was listed yet.
    pub fn stats(&self) -> Option<JournalStats> {
        let bytes = self.core.journal_bytes(self.part);
        let content = self.core.peek();
        let position = content.journal_position_of(self.part).filter(|_| content.is_listed(self.part))?;
        let directory = position.ring.directory();
        Some(JournalStats {
            events: position.ring.events(position.next),
            bytes,
            gaps: directory.gaps.len(),
            oldest: directory.start.clone(),
            newest: content.rv_of(self.part).clone(),
        })
    }

    /// Returns the same journal with its objects as another type.
    pub fn cast<L>(self) -> Journal<L> {
        Journal::new(self.core, self.part)
    }

    fn cursor(
        &self,
        next: u64,
        last_reached: Option<ResourceVersion>,
        known: Option<ResourceVersion>,
    ) -> Cursor<K> {
        let progress = self.core.progress();
        Cursor {
            core: self.core.clone(),
            part: self.part,
            next,
            last_reached,
            known,
            progress,
            kind: PhantomData,
        }
    }
}

impl<K> Cursor<K> {
    /// Returns the next changes, at most `most`; none if nothing has changed. Does not wait.
    ///
    /// # Errors
    /// If the cursor has fallen out of the window, or nothing was listed yet.
    pub fn read(&mut self, most: usize) -> Result<Batch<K>, JournalError> {
        let evidence = self.core.freshness().evidence();
        let content = self.core.peek();
        let position = listed(&content, self.part)?;
        let mut changes = Vec::new();
        let read =
            position.ring.read(self.next, position.next, most, &mut |record| changes.push(record.change()));
        self.next = match read {
            Ok(next) => next,
            Err(cause) => {
                let oldest = position.ring.directory().start.clone();
                return Err(JournalError::FellOut { cause, oldest });
            }
        };
        let reached = (self.next == position.next).then(|| content.rv_of(self.part).clone());
        let mut relisted = None;
        if reached.is_some() {
            if self.known.as_ref().is_none_or(|known| position.ring.directory().has_gap_after(known)) {
                let newer = self.core.freshness().evidence();
                relisted = Some(Snapshot::new(Arc::clone(&content), evidence.reconciled_with(&newer)));
            }
            self.last_reached.clone_from(&reached);
            self.known.clone_from(&reached);
        }
        Ok(Batch { changes, reached, relisted, epoch: content.epoch_of(self.part) })
    }

    /// Waits until [`read`](Cursor::read) has new changes, for at most `limit`. Returns whether it has.
    ///
    /// # Errors
    /// If the store was closed, and everything was read.
    pub async fn changed(&mut self, limit: Duration) -> Result<bool, Closed> {
        let news = async {
            loop {
                // Marked as seen before the content is read: later changes wake us.
                let closed = self.progress.borrow_and_update().closed;
                if has_changes(&self.core.peek(), self.part, self.next, self.last_reached.as_ref()) {
                    return Ok(true);
                }
                if closed || self.progress.changed().await.is_err() {
                    return Err(Closed);
                }
            }
        };
        timeout(limit, news).await.unwrap_or(Ok(false))
    }
}

fn listed(content: &StoreContent, part: usize) -> Result<&JournalPosition, JournalError> {
    content.journal_position_of(part).filter(|_| content.is_listed(part)).ok_or(JournalError::NotSynced)
}

fn has_changes(
    content: &StoreContent,
    part: usize,
    next: u64,
    last_reached: Option<&ResourceVersion>,
) -> bool {
    listed(content, part).is_ok_and(|position| {
        position.next != next
            || last_reached != Some(content.rv_of(part))
            || position.ring.directory().has(next).is_err()
    })
}

// None is derived: that would require `K: Clone` and `K: Debug`, and there is no `K` in them.
impl<K> Clone for Journal<K> {
    fn clone(&self) -> Self {
        Self::new(self.core.clone(), self.part)
    }
}

impl<K> Clone for Cursor<K> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
            part: self.part,
            next: self.next,
            last_reached: self.last_reached.clone(),
            known: self.known.clone(),
            progress: self.progress.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Journal<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Journal").field(&self.stats()).finish()
    }
}

impl<K> fmt::Debug for Cursor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Batch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("changes", &self.changes)
            .field("reached", &self.reached)
            .field("epoch", &self.epoch)
            .finish()
    }
}
