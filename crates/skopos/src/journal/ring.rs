//! The window of the last changes: a store's writer pushes to it, readers take no lock.
//!
//! ```text
//!   JournalRecorder (in the writer's lock)      Directory (one atomic pointer)
//!     push ──▶ slot of the last block             oldest, start, gaps
//!     a full block: a new directory               [ block ][ block ][ block … ]
//!                                                     ▲ a reader: binary search, then slots that are set once
//! ```
//!
//! Changes are numbered from 1 on and never renumbered. The content of the store carries the number of the next change
//! ([`JournalPosition`]), so a reader that loads the content first finds every change before it in the window, or an
//! error that it is gone. A push sets one slot; the directory is renewed for each eighth of the window, or at most 256
//! changes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use skopos_wire::ResourceVersion;

use super::change::ChangeRecord;
use super::gap::{self, ListReplacement};
use crate::store::object::StoredObject;
use crate::sync::{ArcSwap, Guard};

/// The size limits of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The maximum number of changes (10,000).
    pub events: usize,
    /// The maximum bytes that the journal keeps alive and the store does not: old versions, final states of deleted
    /// objects, and the overhead of storing them (16 MiB). A larger single change is stored until the next one comes.
    pub bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { events: 10_000, bytes: 16 << 20 }
    }
}

/// The reason why a cursor cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The cursor was read too slowly: the changes that it needs were dropped for newer ones.
    TooSlow,
    /// The server's history was broken, an etcd restore for example.
    NewEpoch,
    /// A list contradicts earlier changes, or changed more than the window holds.
    Corrected,
    /// The cursor began before there was a first list.
    FirstList,
}

/// The position of a store's content in its journal.
#[derive(Clone)]
pub(crate) struct JournalPosition {
    pub(super) ring: Arc<Ring>,
    /// The number of the first change that the content does not have.
    pub(super) next: u64,
}

/// The window, as seen by readers.
pub(crate) struct Ring {
    directory: ArcSwap<Directory>,
}

#[derive(Clone)]
pub(super) struct Directory {
    /// The number of the oldest change that can be read.
    oldest: u64,
    /// The lowest RV after which a reader can start.
    pub(super) start: ResourceVersion,
    blocks: VecDeque<Arc<Block>>,
    pub(super) gaps: VecDeque<Gap>,
    /// The number before which changes are gone for this reason, and not because of the window's size.
    cut: (u64, Lost),
}

/// A stretch of history whose changes are not known. The content was never at any RV inside of it.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) after: ResourceVersion,
    pub(super) until: ResourceVersion,
}

struct Block {
    /// The number of its first change.
    first: u64,
    slots: Box<[OnceLock<ChangeRecord>]>,
}

impl Ring {
    pub(super) fn directory(&self) -> Guard<Arc<Directory>> {
        self.directory.load()
    }

    /// Passes the changes numbered `from` to before `upto`, at most `max` of them, to `visit`, and returns the number of
    /// the next one. `upto` must come from a [`JournalPosition`].
    pub(super) fn read(
        &self,
        from: u64,
        upto: u64,
        max: usize,
        visit: &mut dyn FnMut(&ChangeRecord),
    ) -> Result<u64, Lost> {
        let directory = self.directory();
        directory.has(from)?;
        let upto = upto.min(from.saturating_add(max as u64));
        let mut next = from;
        let mut block = directory.block_of(from);
        while next < upto {
            let Some(here) = directory.blocks.get(block) else { break };
            match here.get(next) {
                Some(record) => visit(record),
                // A block that was ended before it was full; the next change is in the block after it.
                None if directory.blocks.get(block + 1).is_some_and(|after| after.first == next) => {
                    block += 1;
                    continue;
                }
                None => break,
            }
            next += 1;
        }
        Ok(next)
    }

    /// Returns the number of the first change, before `upto`, that has a greater RV; `upto` if there is none.
    pub(super) fn first_after(&self, rv: &ResourceVersion, upto: u64) -> u64 {
        let directory = self.directory();
        let is_before = |block: &Arc<Block>| {
            let first = block.slots.first().and_then(OnceLock::get);
            block.first < upto && first.is_some_and(|first| first.resource_version <= *rv)
        };
        let Some(block) = directory.blocks.partition_point(is_before).checked_sub(1) else {
            return directory.oldest.min(upto);
        };
        let block = &directory.blocks[block];
        let is_before =
            |slot: &OnceLock<ChangeRecord>| slot.get().is_some_and(|record| record.resource_version <= *rv);
        (block.first + block.slots.partition_point(is_before) as u64).min(upto)
    }

    pub(super) fn events(&self, upto: u64) -> u64 {
        upto.saturating_sub(self.directory().oldest)
    }
}

impl Directory {
    /// Returns whether the changes from this number on are all available.
    pub(super) fn has(&self, number: u64) -> Result<(), Lost> {
        match number {
            _ if number >= self.oldest => Ok(()),
            _ if number < self.cut.0 => Err(self.cut.1),
            _ => Err(Lost::TooSlow),
        }
    }

    /// Returns whether there is a gap after this RV, as far as gaps are stored.
    pub(super) fn has_gap_after(&self, rv: &ResourceVersion) -> bool {
        *rv < self.start || self.gaps.back().is_some_and(|gap| gap.until > *rv)
    }

    /// Returns the index of the block that has this number, or would have it.
    fn block_of(&self, number: u64) -> usize {
        self.blocks.partition_point(|block| block.first <= number).saturating_sub(1)
    }
}

impl Block {
    fn new(first: u64, slots: usize) -> Arc<Self> {
        Arc::new(Self { first, slots: (0..slots).map(|_| OnceLock::new()).collect() })
    }

    fn get(&self, number: u64) -> Option<&ChangeRecord> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get(at)?.get()
    }
}

/// The writer of a ring. There is one for each part of a store's content.
pub(crate) struct JournalRecorder {
    ring: Arc<Ring>,
    options: JournalOptions,
    /// The number of the next change.
    next: u64,
    /// The RV of the content, according to the recorded changes.
    head: ResourceVersion,
    /// The size of each block of the directory, and of the set slots of the last one.
    usage: VecDeque<BlockUsage>,
    last: Option<Arc<Block>>,
    /// The reason why the recorded changes cannot be continued; changes until [`JournalRecorder::settle`] are not recorded.
    broken: Option<Lost>,
}

#[derive(Clone, Copy, Default)]
struct BlockUsage {
    events: usize,
    bytes: u64,
}

impl JournalRecorder {
    /// Creates a journal that begins with content at `head`; `None` if nothing was listed yet.
    pub(crate) fn new(options: JournalOptions, head: Option<&ResourceVersion>) -> Self {
        let head = head.cloned().unwrap_or(ResourceVersion::ZERO);
        let directory = Directory {
            oldest: 1,
            start: head.clone(),
            blocks: VecDeque::new(),
            gaps: VecDeque::new(),
            cut: (0, Lost::FirstList),
        };
        Self {
            ring: Arc::new(Ring { directory: ArcSwap::from_pointee(directory) }),
            options,
            next: 1,
            head,
            usage: VecDeque::new(),
            last: None,
            broken: None,
        }
    }

    /// Records one change of a watch.
    pub(crate) fn changed(&mut self, record: ChangeRecord) {
        if self.broken.is_some() {
            return;
        }
        // The same RV again is a transaction over several objects. A lower one comes from a server that broke its order: no
        // RV could place it for readers that have received later changes.
        if record.resource_version < self.head {
            self.broken = Some(Lost::Corrected);
            return;
        }
        self.push(ChangeRecord { further: record.resource_version == self.head, ..record });
    }

    /// Records an object that took the place of another whose deletion was not reported.
    pub(crate) fn name_reused(&mut self, old: StoredObject, new: StoredObject) {
        let before = new.rv().as_u64().and_then(|rv| rv.checked_sub(1)).map(ResourceVersion::from);
        match before.filter(|before| *before > self.head) {
            Some(before) => {
                self.changed(ChangeRecord::deleted(old, None, before));
                self.changed(ChangeRecord::put(None, new));
            }
            // Between the last change and this one is no room for a deletion.
            None => self.broken = Some(Lost::Corrected),
        }
    }

    /// Records that a list has replaced the content.
    pub(crate) fn listed(&mut self, listed: ListReplacement) {
        let Some(before) = listed.before else {
            self.broken = Some(Lost::FirstList);
            return;
        };
        if !listed.same_epoch {
            self.broken = Some(Lost::NewEpoch);
            return;
        }
        let records =
            listed.differences.and_then(|differences| gap::records(differences, &before, &listed.now));
        let Some(records) = records else {
            self.broken = Some(Lost::Corrected);
            return;
        };
        records.into_iter().for_each(|record| self.push(record));
        if listed.now > before {
            self.add_gap(Gap { after: before, until: listed.now });
        }
    }

    /// Returns the maximum number of a list's differences that are worth storing.
    pub(crate) fn max_differences(&self) -> usize {
        self.options.events
    }

    /// Ends the recording of all changes that led to content at `rv`. Returns the position that the content carries.
    pub(crate) fn settle(&mut self, rv: &ResourceVersion) -> JournalPosition {
        if let Some(why) = self.broken.take() {
            self.cut(why, rv);
        }
        self.head = rv.clone();
        JournalPosition { ring: self.ring.clone(), next: self.next }
    }

    /// Returns the number of bytes that are stored.
    pub(crate) fn bytes(&self) -> u64 {
        self.usage.iter().map(|usage| usage.bytes).sum()
    }

    fn push(&mut self, record: ChangeRecord) {
        let cost = record.bytes();
        let full = match (&self.last, self.usage.back()) {
            (Some(last), Some(usage)) => {
                usage.events == last.slots.len() || usage.bytes + cost > self.max_block_bytes()
            }
            _ => true,
        };
        if full {
            self.begin_block(cost);
        }
        let (Some(last), Some(usage)) = (&self.last, self.usage.back_mut()) else { return };
        self.head = record.resource_version.clone();
        if last.slots[usage.events].set(record).is_ok() {
            usage.events += 1;
            usage.bytes += cost;
            self.next += 1;
        }
    }

    /// Begins a new block at the end, whose first change costs `cost` bytes, and makes room for it.
    fn begin_block(&mut self, cost: u64) {
        let max = (self.options.events / MIN_BLOCKS).clamp(1, MAX_BLOCK_CHANGES);
        let before = self.last.as_ref().map_or(FIRST_BLOCK_CHANGES / 2, |last| last.slots.len());
        let slots = (before * 2).min(max);
        let block = Block::new(self.next, slots);
        let mut directory = Directory::clone(&self.ring.directory());
        let mut events: usize = self.usage.iter().map(|usage| usage.events).sum();
        let mut bytes = self.bytes();
        let room = cost.max(self.max_block_bytes());
        while events + slots > self.options.events || bytes + room > self.options.bytes {
            let Some(gone) = self.usage.pop_front() else { break };
            let block = directory.blocks.pop_front();
            events -= gone.events;
            bytes -= gone.bytes;
            let last = block.as_ref().and_then(|block| block.slots.get(gone.events.checked_sub(1)?)?.get());
            if let Some(last) = last {
                directory.start = last.resource_version.clone().max(directory.start);
            }
        }
        directory.blocks.push_back(block.clone());
        directory.oldest = directory.blocks.front().map_or(self.next, |first| first.first);
        directory.prune_gaps();
        self.usage.push_back(BlockUsage::default());
        self.last = Some(block);
        self.ring.directory.store(Arc::new(directory));
    }

    fn add_gap(&mut self, gap: Gap) {
        let mut directory = Directory::clone(&self.ring.directory());
        directory.gaps.push_back(gap);
        directory.prune_gaps();
        self.ring.directory.store(Arc::new(directory));
    }

    /// Drops all changes: none can be continued. One number is left out, so that a cursor that has read everything notices
    /// too.
    fn cut(&mut self, why: Lost, start: &ResourceVersion) {
        self.next += 1;
        self.usage.clear();
        self.last = None;
        self.ring.directory.store(Arc::new(Directory {
            oldest: self.next,
            start: start.clone(),
            blocks: VecDeque::new(),
            gaps: VecDeque::new(),
            cut: (self.next, why),
        }));
    }

    fn max_block_bytes(&self) -> u64 {
        self.options.bytes / MIN_BLOCKS as u64
    }
}

impl Directory {
    /// Drops gaps in which no reader can start any more. There are at most `MAX_GAPS`: readers cannot start before the
    /// oldest.
    fn prune_gaps(&mut self) {
        while self.gaps.len() > MAX_GAPS {
            let Some(gap) = self.gaps.pop_front() else { break };
            self.start = gap.until.max(self.start.clone());
        }
        while self.gaps.front().is_some_and(|gap| gap.until <= self.start) {
            self.gaps.pop_front();
        }
    }
}

/// The minimum number of blocks in a full window, which moves on by whole blocks.
const MIN_BLOCKS: usize = 8;
/// The maximum number of changes in a block.
const MAX_BLOCK_CHANGES: usize = 256;
/// The number of changes in a first block: most resources change seldom.
const FIRST_BLOCK_CHANGES: usize = 8;
/// The number of gaps that are stored.
const MAX_GAPS: usize = 64;
