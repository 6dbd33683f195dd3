//! Cache of compressed blocks for the next lists, bounded in bytes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::Block;

/// Cache of the compressed blocks of a process. Clones share it.
///
/// A block is keyed by the buffer of its object. The cache keeps that buffer as long as the block, so that no other object can
/// reuse the address. The bound counts both the block and the buffer that it keeps alive.
#[derive(Clone, Debug)]
pub struct BlockCache {
    shared: Arc<Shared>,
}

/// Blocks of one source, within the bound of the shared cache. Clones share them.
#[derive(Clone, Debug)]
pub struct Blocks {
    cache: BlockCache,
    space: u64,
}

/// Statistics of a block cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockStats {
    /// Number of cached blocks.
    pub blocks: usize,
    /// Bytes of the blocks, with the objects that they keep alive.
    pub bytes: usize,
    /// Number of blocks compressed so far: one for each object and form, if the bound is large enough.
    pub compressed: u64,
    /// Number of cache hits.
    pub found: u64,
}

/// Part of an object that a block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The whole object.
    Whole,
    /// The text after kind and apiVersion.
    Tail,
    /// The metadata, as an object.
    Metadata,
}

/// Cache key of a block. The text depends on this buffer, revision and part, and on nothing else.
#[derive(Clone, Debug)]
pub(crate) struct BlockKey {
    pub(crate) origin: Bytes,
    pub(crate) revision: u64,
    pub(crate) part: Part,
}

struct Shared {
    max_bytes: usize,
    kept: Mutex<Kept>,
    spaces: AtomicU64,
    compressed: AtomicU64,
    found: AtomicU64,
}

#[derive(Default)]
struct Kept {
    places: HashMap<Place, usize>,
    entries: Vec<Entry>,
    bytes: usize,
    /// Entry that the clock hand examines next.
    hand: usize,
    /// Number of blocks refused for lack of room.
    refused: usize,
}

/// Address of the buffer of a block's object, and the revision and part of the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    space: u64,
    address: usize,
    len: usize,
    revision: u64,
    part: Part,
}

struct Entry {
    place: Place,
    origin: Bytes,
    block: Arc<Block>,
    /// Whether the entry was requested since the hand passed.
    used: bool,
}

// === impl BlockCache ===

impl BlockCache {
    /// Creates an empty cache of at most `max_bytes` bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        let shared = Shared {
            max_bytes,
            kept: Mutex::default(),
            spaces: AtomicU64::new(0),
            compressed: AtomicU64::new(0),
            found: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Creates a key space for the blocks of one source, whose objects are made from their buffers in one way.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks { cache: self.clone(), space: self.shared.spaces.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the statistics.
    #[must_use]
    pub fn stats(&self) -> BlockStats {
        let kept = self.shared.kept.lock();
        BlockStats {
            blocks: kept.entries.len(),
            bytes: kept.bytes,
            compressed: self.shared.compressed.load(Ordering::Relaxed),
            found: self.shared.found.load(Ordering::Relaxed),
        }
    }
}

// === impl Blocks ===

impl Blocks {
    /// Returns the cache that contains these blocks.
    #[must_use]
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns the block of a text; on a miss, `write` writes the text.
    pub(crate) fn get_or_make(&self, key: BlockKey, write: impl FnOnce(&mut Vec<u8>)) -> Arc<Block> {
        let shared = &self.cache.shared;
        let place = Place {
            space: self.space,
            address: key.origin.as_ptr() as usize,
            len: key.origin.len(),
            revision: key.revision,
            part: key.part,
        };
        if let Some(block) = shared.kept.lock().find(&place) {
            shared.found.fetch_add(1, Ordering::Relaxed);
            return block;
        }
        let mut text = Vec::with_capacity(key.origin.len() + 128);
        write(&mut text);
        let block = Arc::new(Block::of(&text));
        shared.compressed.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { place, origin: key.origin, block: block.clone(), used: false };
        shared.kept.lock().insert(entry, shared.max_bytes);
        block
    }
}

// === impl Kept ===

impl Kept {
    fn find(&mut self, place: &Place) -> Option<Arc<Block>> {
        let entry = &mut self.entries[*self.places.get(place)?];
        entry.used = true;
        Some(entry.block.clone())
    }

    /// Caches a block if there is room. Room is made slowly, and from entries not requested lately: otherwise a list longer than
    /// the bound would evict everything that the next list begins with.
    fn insert(&mut self, entry: Entry, max_bytes: usize) {
        if self.places.contains_key(&entry.place) {
            return;
        }
        for _ in 0..STEPS {
            self.step(false);
        }
        if self.bytes + entry.cost() > max_bytes {
            self.refused += 1;
            if !self.refused.is_multiple_of(PATIENCE) {
                return;
            }
            self.step(true);
        }
        if self.bytes + entry.cost() > max_bytes {
            return;
        }
        self.bytes += entry.cost();
        self.places.insert(entry.place, self.entries.len());
        self.entries.push(entry);
    }

    /// Examines one entry. It is evicted if it is the last owner of the object, or if room is needed and nothing requested it.
    fn step(&mut self, full: bool) {
        if self.entries.is_empty() {
            return;
        }
        self.hand %= self.entries.len();
        let entry = &mut self.entries[self.hand];
        let used = std::mem::take(&mut entry.used);
        if !entry.origin.is_unique() && (used || !full) {
            // Without need of room, the entry stays marked as used.
            entry.used = used && !full;
            self.hand += 1;
            return;
        }
        let gone = self.entries.swap_remove(self.hand);
        self.bytes -= gone.cost();
        self.places.remove(&gone.place);
        if let Some(moved) = self.entries.get(self.hand) {
            self.places.insert(moved.place, self.hand);
        }
    }
}

/// Number of entries examined per insertion for objects without another owner.
const STEPS: usize = 2;
/// Number of refused blocks per eviction: every fourth may replace another.
const PATIENCE: usize = 4;

impl Entry {
    fn cost(&self) -> usize {
        self.block.size() + self.origin.len() + OVERHEAD
    }
}

/// Overhead of an entry besides block and object, in bytes.
const OVERHEAD: usize = 160;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: usize = 1000;

    fn objects(n: usize) -> Vec<Bytes> {
        (0..n).map(|i| Bytes::from(format!("{i:01000}"))).collect()
    }

    /// Gets the blocks of all objects, one after the other.
    fn ask(blocks: &Blocks, objects: &[Bytes]) {
        for object in objects {
            let key = BlockKey { origin: object.clone(), revision: 1, part: Part::Whole };
            blocks.get_or_make(key, |text| text.extend_from_slice(object));
        }
    }

    #[test]
    fn a_block_is_compressed_once_for_each_source_revision_and_part() {
        let cache = BlockCache::new(1 << 20);
        let (blocks, others) = (cache.blocks(), cache.blocks());
        let objects = objects(3);
        for _ in 0..5 {
            ask(&blocks, &objects);
        }
        assert_eq!((cache.stats().compressed, cache.stats().found), (3, 12));
        ask(&others, &objects);
        blocks.get_or_make(BlockKey { origin: objects[0].clone(), revision: 1, part: Part::Tail }, |_| {});
        blocks.get_or_make(BlockKey { origin: objects[0].clone(), revision: 2, part: Part::Tail }, |_| {});
        assert_eq!((cache.stats().compressed, cache.stats().blocks), (8, 8));
    }

    #[test]
    fn no_more_is_kept_than_the_bound_and_lists_that_are_longer_still_find_much() {
        let cache = BlockCache::new(100 * (EACH + OVERHEAD + 200));
        let blocks = cache.blocks();
        let objects = objects(200);
        for _ in 0..20 {
            ask(&blocks, &objects);
            assert!(cache.stats().bytes <= 100 * (EACH + OVERHEAD + 200));
        }
        let stats = cache.stats();
        assert!(stats.found as usize > 20 * 200 / 4, "{stats:?}");
    }

    #[test]
    fn what_nobody_has_any_more_goes_and_what_is_asked_for_no_more_makes_room() {
        let cache = BlockCache::new(100 * (EACH + OVERHEAD + 200));
        let blocks = cache.blocks();
        let mut old = objects(80);
        ask(&blocks, &old);
        old.truncate(10);
        let new = objects(300);
        ask(&blocks, &new);
        ask(&blocks, &new);
        let before = cache.stats().found;
        ask(&blocks, &old);
        assert!(cache.stats().found - before <= 10);
        let bytes: usize = cache.shared.kept.lock().entries.iter().map(Entry::cost).sum();
        assert_eq!(bytes, cache.stats().bytes);
        let gone = cache.shared.kept.lock().entries.iter().filter(|entry| entry.origin.is_unique()).count();
        assert_eq!(gone, 0);
    }
}
