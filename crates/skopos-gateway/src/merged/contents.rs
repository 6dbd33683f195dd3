//! Content of one member in the merged view: its objects in key order, shared between the merger and all readers.

use std::sync::Arc;

use skopos::Digest;
use skopos_wire::{ObjectKey, RawObject};

use super::merged_version::MergedVersion;

/// One version of an object, with the merged version of its change. Cloning copies two words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The object as the member's server sent it.
    pub(crate) object: RawObject,
    /// The merged version of its last change.
    pub(crate) merged_version: MergedVersion,
}

/// The objects of one member in key order. Cloning copies a pointer. A change copies the changed chunk and the list of
/// chunks if clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    chunks: Arc<Vec<Arc<Vec<Entry>>>>,
    digest: Digest,
}

/// The maximum number of objects in a chunk.
const MAX_CHUNK_LEN: usize = 128;

impl Entry {
    pub(crate) fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    fn add_to(&self, digest: &mut Digest) {
        digest.add(self.key(), self.object.uid(), self.object.resource_version());
    }

    fn remove_from(&self, digest: &mut Digest) {
        digest.remove(self.key(), self.object.uid(), self.object.resource_version());
    }
}

impl Contents {
    /// Makes the content of entries that are sorted by key, without duplicate keys.
    pub(crate) fn from_sorted(entries: Vec<Entry>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.key() < b.key()));
        let mut digest = Digest::EMPTY;
        entries.iter().for_each(|entry| entry.add_to(&mut digest));
        // Half full, so that the first insertions do not split each chunk.
        let chunks = entries.chunks(MAX_CHUNK_LEN / 2).map(|chunk| Arc::new(chunk.to_vec())).collect();
        Self { chunks: Arc::new(chunks), digest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the digest of all objects. Each change updates it.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Entry> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        chunk.binary_search_by(|entry| entry.key().cmp(key)).ok().map(|at| &chunk[at])
    }

    /// Inserts an entry, and returns the one that it replaces.
    pub(crate) fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let last = self.chunks.len().saturating_sub(1);
        let index = self.chunk_of(entry.key()).min(last);
        let chunks = Arc::make_mut(&mut self.chunks);
        entry.add_to(&mut self.digest);
        let Some(chunk) = chunks.get_mut(index) else {
            chunks.push(Arc::new(vec![entry]));
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|own| own.key().cmp(entry.key())) {
            Ok(at) => {
                let replaced = std::mem::replace(&mut chunk[at], entry);
                replaced.remove_from(&mut self.digest);
                return Some(replaced);
            }
            Err(at) => chunk.insert(at, entry),
        }
        if chunk.len() > MAX_CHUNK_LEN {
            let upper = chunk.split_off(MAX_CHUNK_LEN / 2);
            chunks.insert(index + 1, Arc::new(upper));
        }
        None
    }

    /// Removes the entry of this key.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Entry> {
        self.get(key)?;
        let index = self.chunk_of(key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.get_mut(index)?);
        let at = chunk.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
        let removed = chunk.remove(at);
        if chunk.is_empty() {
            chunks.remove(index);
        }
        removed.remove_from(&mut self.digest);
        Some(removed)
    }

    /// Returns all entries in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Returns the entries in key order, from the first whose key is not `before`. `before` must hold for a prefix of the
    /// keys.
    pub(crate) fn seek(&self, before: impl Fn(&ObjectKey) -> bool) -> impl Iterator<Item = &Entry> {
        let all_before = |chunk: &Arc<Vec<Entry>>| chunk.last().is_some_and(|last| before(last.key()));
        let first = self.chunks.partition_point(all_before);
        let within = self.chunks.get(first).map_or(0, |chunk| chunk.partition_point(|e| before(e.key())));
        self.chunks[first..].iter().flat_map(|chunk| chunk.iter()).skip(within)
    }

    /// Returns the index of the only chunk that may have the key.
    fn chunk_of(&self, key: &ObjectKey) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| last.key() < key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use skopos_wire::Limits;

    use super::*;

    fn entry(name: u32, version: u64) -> Entry {
        let value = json!({"metadata": {"namespace": "n", "name": format!("{name:04}"), "uid": "u",
            "resourceVersion": version.to_string()}});
        Entry {
            object: RawObject::from_value(&value, &Limits::default()).unwrap(),
            merged_version: MergedVersion::new(version),
        }
    }

    #[test]
    fn behaves_as_ordered_map_with_stable_clones() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..30 {
            let mut model = BTreeMap::new();
            let sorted: Vec<Entry> = (0..random.u32(0..400)).map(|name| entry(name * 2, 1)).collect();
            model.extend(sorted.iter().map(|entry| (entry.key().clone(), entry.clone())));
            let mut contents = Contents::from_sorted(sorted);
            let mut held = Vec::new();
            for step in 0..500 {
                let entry = entry(random.u32(..900), step + 2);
                match random.u32(..5) {
                    0 | 1 => assert_eq!(
                        contents.insert(entry.clone()),
                        model.insert(entry.key().clone(), entry.clone())
                    ),
                    2 | 3 => assert_eq!(contents.remove(entry.key()), model.remove(entry.key())),
                    _ if held.len() < 5 => held.push((contents.clone(), model.clone())),
                    _ => {}
                }
                assert_eq!(contents.get(entry.key()), model.get(entry.key()), "round {round}");
                assert_eq!(contents.is_empty(), model.is_empty());
                assert_eq!(
                    contents.digest(),
                    Contents::from_sorted(model.values().cloned().collect()).digest()
                );
            }
            held.push((contents, model));
            for (contents, model) in held {
                assert!(contents.iter().eq(model.values()));
                let from = entry(random.u32(..900), 0);
                assert!(contents.seek(|key| key < from.key()).eq(model.range(from.key()..).map(|(_, e)| e)));
            }
        }
    }
}
