//! Table of the versions of one resource.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::ReadScope;
use super::object::Stored;

/// All versions of one resource since the last compaction.
#[derive(Debug, Default)]
pub(super) struct Table {
    chains: BTreeMap<Arc<str>, Chain>,
    live: usize,
}

/// Versions of one key, oldest first; `None` is a deletion.
type Chain = Vec<(u64, Option<Arc<Stored>>)>;

impl Table {
    /// Returns the newest version of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Stored>> {
        self.chains.get(key)?.last()?.1.as_ref()
    }

    /// Returns the version of a key as of `revision`.
    pub(super) fn get_at(&self, key: &str, revision: u64) -> Option<&Arc<Stored>> {
        at(self.chains.get(key)?, revision)
    }

    /// Returns the current number of objects.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Returns the objects in key order as of `revision`, from `start` on.
    pub(super) fn scan<'a>(
        &'a self,
        scope: ReadScope<'a>,
        start: Option<&str>,
        revision: u64,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        let (from, until) = scope.bounds(start);
        self.chains
            .range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded))
            .take_while(move |(key, _)| until.as_deref().is_none_or(|until| &***key < until))
            .filter_map(move |(_, chain)| at(chain, revision))
    }

    /// Records a new version.
    pub(super) fn put(&mut self, key: &Arc<str>, object: Arc<Stored>) {
        self.push(key, object.revision(), Some(object));
    }

    /// Records that a key was deleted at `revision`.
    pub(super) fn delete(&mut self, key: &Arc<str>, revision: u64) {
        self.push(key, revision, None);
    }

    fn push(&mut self, key: &Arc<str>, revision: u64, version: Option<Arc<Stored>>) {
        let chain = self.chains.entry(key.clone()).or_insert_with(|| Vec::with_capacity(1));
        let was = chain.last().is_some_and(|(_, version)| version.is_some());
        self.live = self.live + usize::from(version.is_some()) - usize::from(was);
        chain.push((revision, version));
    }

    /// Forgets the versions of `key` that no read at `revision` or later can see.
    pub(super) fn compact_key(&mut self, key: &str, revision: u64) {
        let Some(chain) = self.chains.get_mut(key) else { return };
        let newest = chain.partition_point(|(r, _)| *r <= revision);
        chain.drain(..newest.saturating_sub(1));
        if chain.len() == 1 && chain[0].0 <= revision && chain[0].1.is_none() {
            self.chains.remove(key);
        }
    }

    /// Rolls back to the state at `revision`.
    pub(super) fn roll_back(&mut self, revision: u64) {
        self.chains.retain(|_, chain| {
            chain.truncate(chain.partition_point(|(r, _)| *r <= revision));
            !chain.is_empty()
        });
        self.live =
            self.chains.values().filter(|chain| chain.last().is_some_and(|(_, o)| o.is_some())).count();
    }
}

fn at(chain: &Chain, revision: u64) -> Option<&Arc<Stored>> {
    // Nearly all reads want the newest version.
    match chain.last() {
        Some((r, version)) if *r <= revision => version.as_ref(),
        _ => chain[..chain.partition_point(|(r, _)| *r <= revision)].last()?.1.as_ref(),
    }
}
