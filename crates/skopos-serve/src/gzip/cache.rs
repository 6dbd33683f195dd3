//! Cache of compressed blocks, and of JSON made from another form, for the next lists; bounded in bytes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::Block;

/// Cache of the compressed blocks of a process, and of JSON that objects in another form were rendered as. Clones share it.
///
/// A block or text is keyed by the buffer of its object. The cache keeps that buffer as long as the block, so that no other object can
/// reuse the address. The bound counts both the block and the buffer that it keeps alive.
#[derive(Clone, Debug)]
pub struct BlockCache {
    inner: Arc<Inner>,
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
pub(crate) enum BlockPart {
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
    pub(crate) part: BlockPart,
}

struct Inner {
    max_bytes: usize,
    clock_cache: Mutex<ClockCache>,
    spaces: AtomicU64,
    compressed: AtomicU64,
    found: AtomicU64,
}

#[derive(Default)]
struct ClockCache {
    index: HashMap<EntryKey, usize>,
    entries: Vec<CachedBlock>,
    bytes: usize,
    /// Entry that the clock hand examines next.
    hand: usize,
    /// Number of blocks refused for lack of room.
    refused: usize,
}

/// Address of the buffer of a block's object, and the revision, part and form of the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct EntryKey {
    space: u64,
    address: usize,
    len: usize,
    revision: u64,
    part: BlockPart,
    is_compressed: bool,
}

struct CachedBlock {
    entry_key: EntryKey,
    origin: Bytes,
    text: CachedText,
    /// True if the entry was requested since the hand passed.
    used: bool,
}

/// A text, compressed or not.
#[derive(Clone)]
enum CachedText {
    Compressed(Arc<Block>),
    Plain(Bytes),
}

impl BlockCache {
    /// Creates an empty cache of at most `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> Self {
        let inner = Inner {
            max_bytes,
            clock_cache: Mutex::default(),
            spaces: AtomicU64::new(0),
            compressed: AtomicU64::new(0),
            found: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Creates a key space for the blocks of one source, whose objects are made from their buffers in one way.
    pub fn blocks(&self) -> Blocks {
        Blocks { cache: self.clone(), space: self.inner.spaces.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the statistics.
    pub fn stats(&self) -> BlockStats {
        let clock_cache = self.inner.clock_cache.lock();
        BlockStats {
            blocks: clock_cache.entries.len(),
            bytes: clock_cache.bytes,
            compressed: self.inner.compressed.load(Ordering::Relaxed),
            found: self.inner.found.load(Ordering::Relaxed),
        }
    }
}

impl Blocks {
    /// Returns the cache that contains these blocks.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns the block of a text; on a miss, `write` writes the text.
    pub(crate) fn get_or_compress(&self, key: BlockKey, write: impl FnOnce(&mut Vec<u8>)) -> Arc<Block> {
        let inner = &self.cache.inner;
        let entry_key = self.entry_key(&key, true);
        if let Some(CachedText::Compressed(block)) = inner.clock_cache.lock().find(&entry_key) {
            inner.found.fetch_add(1, Ordering::Relaxed);
            return block;
        }
        let block = Arc::new(Block::new(&written(&key, write)));
        inner.compressed.fetch_add(1, Ordering::Relaxed);
        self.insert(entry_key, key.origin, CachedText::Compressed(block.clone()));
        block
    }

    /// Returns a text, which is worth caching if it takes time to write; on a miss, `write` writes it.
    pub(crate) fn get_or_write(&self, key: BlockKey, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let entry_key = self.entry_key(&key, false);
        if let Some(CachedText::Plain(text)) = self.cache.inner.clock_cache.lock().find(&entry_key) {
            return text;
        }
        let text = Bytes::from(written(&key, write).into_boxed_slice());
        self.insert(entry_key, key.origin, CachedText::Plain(text.clone()));
        text
    }

    fn entry_key(&self, key: &BlockKey, is_compressed: bool) -> EntryKey {
        EntryKey {
            space: self.space,
            address: key.origin.as_ptr() as usize,
            len: key.origin.len(),
            revision: key.revision,
            part: key.part,
            is_compressed,
        }
    }

    fn insert(&self, entry_key: EntryKey, origin: Bytes, text: CachedText) {
        let entry = CachedBlock { entry_key, origin, text, used: false };
        self.cache.inner.clock_cache.lock().insert(entry, self.cache.inner.max_bytes);
    }
}

fn written(key: &BlockKey, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut text = Vec::with_capacity(key.origin.len() + 128);
    write(&mut text);
    text
}

impl ClockCache {
    fn find(&mut self, entry_key: &EntryKey) -> Option<CachedText> {
        let entry = &mut self.entries[*self.index.get(entry_key)?];
        entry.used = true;
        Some(entry.text.clone())
    }

    /// Caches a block if there is room. Room is made slowly, and from entries not requested lately: otherwise a list longer than
    /// the bound would evict everything that the next list begins with.
    fn insert(&mut self, entry: CachedBlock, max_bytes: usize) {
        if self.index.contains_key(&entry.entry_key) {
            return;
        }
        for _ in 0..STEPS_PER_INSERT {
            self.step(false);
        }
        if self.bytes + entry.cost() > max_bytes {
            self.refused += 1;
            if !self.refused.is_multiple_of(REFUSALS_PER_EVICTION) {
                return;
            }
            self.step(true);
        }
        if self.bytes + entry.cost() > max_bytes {
            return;
        }
        self.bytes += entry.cost();
        self.index.insert(entry.entry_key, self.entries.len());
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
        let evicted = self.entries.swap_remove(self.hand);
        self.bytes -= evicted.cost();
        self.index.remove(&evicted.entry_key);
        if let Some(moved) = self.entries.get(self.hand) {
            self.index.insert(moved.entry_key, self.hand);
        }
    }
}

/// Number of entries examined per insertion for objects without another owner.
const STEPS_PER_INSERT: usize = 2;
/// Number of refused blocks per eviction: every fourth may replace another.
const REFUSALS_PER_EVICTION: usize = 4;

impl CachedBlock {
    fn cost(&self) -> usize {
        let text = match &self.text {
            CachedText::Compressed(block) => block.size(),
            CachedText::Plain(text) => text.len(),
        };
        text + self.origin.len() + OVERHEAD
    }
}

/// Overhead of an entry besides block and object, in bytes.
const OVERHEAD: usize = 160;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
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
    fn request_all(blocks: &Blocks, objects: &[Bytes]) {
        for object in objects {
            let key = BlockKey { origin: object.clone(), revision: 1, part: BlockPart::Whole };
            blocks.get_or_compress(key, |text| text.extend_from_slice(object));
        }
    }

    #[test]
    fn compresses_block_once_per_source_and_revision() {
        let cache = BlockCache::new(1 << 20);
        let (blocks, others) = (cache.blocks(), cache.blocks());
        let objects = objects(3);
        for _ in 0..5 {
            request_all(&blocks, &objects);
        }
        assert_eq!((cache.stats().compressed, cache.stats().found), (3, 12));
        request_all(&others, &objects);
        blocks.get_or_compress(
            BlockKey { origin: objects[0].clone(), revision: 1, part: BlockPart::Tail },
            |_| {},
        );
        blocks.get_or_compress(
            BlockKey { origin: objects[0].clone(), revision: 2, part: BlockPart::Tail },
            |_| {},
        );
        assert_eq!((cache.stats().compressed, cache.stats().blocks), (8, 8));
    }

    #[test]
    fn plain_and_compressed_texts_are_apart() {
        let cache = BlockCache::new(1 << 20);
        let (blocks, object) = (cache.blocks(), Bytes::from_static(b"object"));
        let key = || BlockKey { origin: object.clone(), revision: 1, part: BlockPart::Tail };
        let mut made = 0;
        for _ in 0..3 {
            let text = blocks.get_or_write(key(), |text| {
                made += 1;
                text.extend_from_slice(b"json");
            });
            assert_eq!(text, "json");
            blocks.get_or_compress(key(), |text| text.extend_from_slice(b"json"));
        }
        assert_eq!((made, cache.stats().compressed, cache.stats().blocks), (1, 1, 2));
    }

    #[test]
    fn bounded_cache_still_hits_on_longer_lists() {
        let cache = BlockCache::new(100 * (EACH + OVERHEAD + 200));
        let blocks = cache.blocks();
        let objects = objects(200);
        for _ in 0..20 {
            request_all(&blocks, &objects);
            assert!(cache.stats().bytes <= 100 * (EACH + OVERHEAD + 200));
        }
        let stats = cache.stats();
        assert!(stats.found as usize > 20 * 200 / 4, "{stats:?}");
    }

    #[test]
    fn evicts_dead_and_unrequested_blocks() {
        let cache = BlockCache::new(100 * (EACH + OVERHEAD + 200));
        let blocks = cache.blocks();
        let mut old = objects(80);
        request_all(&blocks, &old);
        old.truncate(10);
        let new = objects(300);
        request_all(&blocks, &new);
        request_all(&blocks, &new);
        let before = cache.stats().found;
        request_all(&blocks, &old);
        assert!(cache.stats().found - before <= 10);
        let bytes: usize = cache.inner.clock_cache.lock().entries.iter().map(CachedBlock::cost).sum();
        assert_eq!(bytes, cache.stats().bytes);
        let evicted =
            cache.inner.clock_cache.lock().entries.iter().filter(|entry| entry.origin.is_unique()).count();
        assert_eq!(evicted, 0);
    }
}
