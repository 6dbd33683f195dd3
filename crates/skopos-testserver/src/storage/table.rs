//! The versions and the events of one resource.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::time::Instant;

use super::object::{EventType, Stored};
use super::{HistoryLimits, Scope};

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) kind: EventType,
    /// The new version; of a deletion, the last state with the deletion's revision.
    pub(crate) object: Arc<Stored>,
    /// The version before it.
    pub(crate) previous: Option<Arc<Stored>>,
    at: Instant,
}

/// All versions of one resource since the last compaction, and its latest events.
#[derive(Debug)]
pub(super) struct Table {
    chains: BTreeMap<Arc<str>, Chain>,
    live: usize,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// A watch may start at this revision or a later one.
    oldest_start: u64,
}

/// The versions of one key, oldest first; `None` is a deletion.
type Chain = Vec<(u64, Option<Arc<Stored>>)>;

// === impl Table ===

impl Table {
    /// An empty table. Whoever watches from before `revision` has missed nothing either, as nothing happened.
    pub(super) fn new() -> Self {
        Self { chains: BTreeMap::new(), live: 0, history: VecDeque::new(), history_bytes: 0, oldest_start: 0 }
    }

    /// The newest version of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Stored>> {
        self.chains.get(key)?.last()?.1.as_ref()
    }

    /// The version of a key as of `revision`.
    pub(super) fn get_at(&self, key: &str, revision: u64) -> Option<&Arc<Stored>> {
        at(self.chains.get(key)?, revision)
    }

    /// How many objects there are now.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// The objects in key order as of `revision`, from `start` on.
    pub(super) fn scan<'a>(
        &'a self,
        scope: Scope<'a>,
        start: Option<&str>,
        revision: u64,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        let (from, until) = scope.bounds(start);
        self.chains
            .range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded))
            .take_while(move |(key, _)| until.as_deref().is_none_or(|until| &***key < until))
            .filter_map(move |(_, chain)| at(chain, revision))
    }

    /// Notes a new version (or, with `None`, a deletion) and its event.
    pub(super) fn push(&mut self, key: &Arc<str>, version: Option<Arc<Stored>>, event: Event) {
        match event.kind {
            EventType::Added => self.live += 1,
            EventType::Deleted => self.live -= 1,
            EventType::Modified => {}
        }
        let chain = self.chains.entry(key.clone()).or_insert_with(|| Vec::with_capacity(1));
        chain.push((event.revision, version));
        self.history_bytes += event.object.cost();
        self.history.push_back(Arc::new(event));
    }

    /// Drops events that the window need not hold.
    pub(super) fn trim(&mut self, limits: &HistoryLimits, now: Instant) {
        while let Some(oldest) = self.history.front() {
            let many = self.history.len() > limits.min_events;
            let old = now.saturating_duration_since(oldest.at) > limits.window;
            let full = self.history.len() > limits.max_events || self.history_bytes > limits.max_bytes;
            if !(many && (old || full)) {
                return;
            }
            self.oldest_start = oldest.revision;
            self.history_bytes -= oldest.object.cost();
            self.history.pop_front();
        }
    }

    /// The oldest revision from which a watch may start.
    pub(super) fn oldest_start(&self) -> u64 {
        self.oldest_start
    }

    /// Up to `limit` events after `after` and at or before `until`.
    pub(super) fn events(&self, after: u64, until: u64, limit: usize) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.history.partition_point(|event| event.revision <= after);
        self.history.range(first..).take_while(move |event| event.revision <= until).take(limit)
    }

    /// How many events follow `after`.
    pub(super) fn events_behind(&self, after: u64) -> usize {
        self.history.len() - self.history.partition_point(|event| event.revision <= after)
    }

    /// Forgets all events up to `revision`.
    pub(super) fn forget_events(&mut self, revision: u64) {
        while self.history.front().is_some_and(|event| event.revision <= revision) {
            if let Some(event) = self.history.pop_front() {
                self.history_bytes -= event.object.cost();
            }
        }
        self.oldest_start = self.oldest_start.max(revision);
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

    /// Goes back to what was at `revision`.
    pub(super) fn roll_back(&mut self, revision: u64) {
        self.chains.retain(|_, chain| {
            chain.truncate(chain.partition_point(|(r, _)| *r <= revision));
            !chain.is_empty()
        });
        self.live =
            self.chains.values().filter(|chain| chain.last().is_some_and(|(_, o)| o.is_some())).count();
        while self.history.back().is_some_and(|event| event.revision > revision) {
            if let Some(event) = self.history.pop_back() {
                self.history_bytes -= event.object.cost();
            }
        }
        self.oldest_start = self.oldest_start.min(revision);
    }
}

// === impl Event ===

impl Event {
    pub(super) fn new(kind: EventType, object: Arc<Stored>, previous: Option<Arc<Stored>>) -> Self {
        Self { revision: object.revision(), kind, object, previous, at: Instant::now() }
    }
}

fn at(chain: &Chain, revision: u64) -> Option<&Arc<Stored>> {
    // Nearly always the newest version is asked for.
    match chain.last() {
        Some((r, version)) if *r <= revision => version.as_ref(),
        _ => chain[..chain.partition_point(|(r, _)| *r <= revision)].last()?.1.as_ref(),
    }
}
