//! Versioned store behind the server: every version of every object since the last compaction, with one revision for all.
//!
//! ```text
//!  writes ──▶ revision + 1 ──▶ version chain of the key ──▶ event in the resource's window ──▶ watchers woken
//!  reads  ──▶ newest, or any revision that is not compacted, in key order, from any key on
//! ```
//!
//! A [`Storage`] knows nothing of HTTP, selectors or admission. It is a cheap handle; its clones share the content.

mod events;
mod history;
mod object;
mod record;
mod table;
mod timeline;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use skopos_serve::{Compacted, Cursor, Event, EventType, ResourceType, Window, WindowOptions};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::history::Superseded;
pub(crate) use self::object::{Draft, InvalidObject, Stored};
pub(crate) use self::record::WriteObserver;
pub use self::record::WriteRecord;
use self::table::Table;
use self::timeline::Timeline;

/// Key of an object's table: all versions of one resource share a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ResourceKey {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

/// Scope of a read: a namespace or the whole table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadScope<'a> {
    pub(crate) namespace: Option<&'a str>,
}

/// Limits of the history.
#[derive(Clone, Debug)]
pub(crate) struct HistoryLimits {
    /// Limits of each resource's events.
    pub(crate) window: WindowOptions,
    /// Interval of compactions, and age of the compacted versions (kube-apiserver: 5 min).
    pub(crate) compaction_interval: Duration,
    /// Maximum bytes of superseded versions; more are compacted early.
    pub(crate) max_superseded_bytes: usize,
}

/// Reason why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WriteError {
    #[error("an object of that name exists")]
    AlreadyExists,
    #[error("there is no object of that name")]
    NotFound,
    #[error("the object is at another revision: {current}")]
    Conflict { current: u64 },
}

/// Change of one object.
pub(crate) type StoredEvent = Event<Arc<Stored>>;

/// Changes of one revision, by resource.
type ResourceEvents = Vec<(ResourceKey, StoredEvent)>;

/// Events since a revision.
#[derive(Debug)]
pub(crate) enum Tail {
    /// The events, and the revision up to which none is missing.
    Events { events: Vec<Arc<StoredEvent>>, through: u64 },
    /// The window no longer reaches back to the cursor.
    Lost,
}

/// Versioned store. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: RwLock<State>,
    windows: RwLock<BTreeMap<ResourceKey, Arc<Window<Arc<Stored>>>>>,
    limits: HistoryLimits,
    /// Notified of every write.
    activity: Arc<Notify>,
    observer: Option<WriteObserver>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    compacted: u64,
    tables: BTreeMap<ResourceKey, Table>,
    superseded: VecDeque<Superseded>,
    superseded_bytes: usize,
    timeline: Timeline,
    next_compaction: Instant,
}

impl Storage {
    /// Creates an empty storage, which notifies `activity` of every write and calls `observer` with every change.
    pub(crate) fn new(limits: HistoryLimits, activity: Arc<Notify>, observer: Option<WriteObserver>) -> Self {
        let now = Instant::now();
        let state = State {
            revision: 1,
            compacted: 0,
            tables: BTreeMap::new(),
            superseded: VecDeque::new(),
            superseded_bytes: 0,
            timeline: Timeline::new(now, 1),
            next_compaction: now + limits.compaction_interval,
        };
        let state = RwLock::new(state);
        let inner = Inner { state, windows: RwLock::default(), limits, activity, observer };
        Self { inner: Arc::new(inner) }
    }

    /// Stores a new object at the next revision.
    ///
    /// # Errors
    /// [`WriteError::AlreadyExists`].
    pub(crate) fn create(&self, resource: &ResourceKey, draft: Draft) -> Result<Arc<Stored>, WriteError> {
        self.commit(resource, &draft.key(), |current| match current {
            Some(_) => Err(WriteError::AlreadyExists),
            None => Ok(Write::Put(draft)),
        })
    }

    /// Replaces an object; with `expected`, only if it is still at that revision.
    ///
    /// # Errors
    /// [`WriteError::NotFound`], [`WriteError::Conflict`].
    pub(crate) fn update(
        &self,
        resource: &ResourceKey,
        draft: Draft,
        expected: Option<u64>,
    ) -> Result<Arc<Stored>, WriteError> {
        self.commit(resource, &draft.key(), |current| {
            check(current, expected)?;
            Ok(Write::Put(draft))
        })
    }

    /// Stores an object at the next revision, and replaces an existing one of that name.
    ///
    /// # Errors
    /// None.
    pub(crate) fn put(&self, resource: &ResourceKey, draft: Draft) -> Result<Arc<Stored>, WriteError> {
        self.commit(resource, &draft.key(), |_| Ok(Write::Put(draft)))
    }

    /// Deletes an object; returns its last state with the deletion's revision. With `expected`, only if it is still at that
    /// revision.
    ///
    /// # Errors
    /// [`WriteError::NotFound`], [`WriteError::Conflict`].
    pub(crate) fn delete(
        &self,
        resource: &ResourceKey,
        key: &str,
        expected: Option<u64>,
    ) -> Result<Arc<Stored>, WriteError> {
        self.commit(resource, key, |current| {
            check(current, expected)?;
            Ok(Write::Delete)
        })
    }

    /// Deletes all of these objects at one revision, in this order, as etcd does with the keys of an expired lease. Returns the
    /// last state, with that revision, of each that existed.
    pub(crate) fn delete_together<'a>(&self, keys: &'a [(ResourceKey, String)]) -> Vec<Option<Arc<Stored>>> {
        let mut state = self.inner.state.write();
        let revision = state.revision + 1;
        let mut events: BTreeMap<ResourceKey, Vec<StoredEvent>> = BTreeMap::new();
        let delete = |(resource, key): &'a (ResourceKey, String)| {
            let (object, changes) = state.apply_to_both(revision, resource, key, Write::Delete).ok()?;
            for (resource, event) in changes {
                events.entry(resource).or_default().push(event);
            }
            Some(object)
        };
        let deleted = keys.iter().map(delete).collect();
        if !events.is_empty() {
            self.publish(&mut state, revision, events);
        }
        deleted
    }

    fn commit(
        &self,
        resource: &ResourceKey,
        key: &str,
        decide: impl FnOnce(Option<&Arc<Stored>>) -> Result<Write, WriteError>,
    ) -> Result<Arc<Stored>, WriteError> {
        let mut state = self.inner.state.write();
        let current = state.tables.get(resource).and_then(|table| table.get(key));
        let write = decide(current)?;
        let revision = state.revision + 1;
        let (object, changes) = state.apply_to_both(revision, resource, key, write)?;
        let events = changes.into_iter().map(|(resource, event)| (resource, vec![event]));
        self.publish(&mut state, revision, events);
        Ok(object)
    }

    /// Publishes the events of the newest revision, which must be all events of that revision.
    fn publish(
        &self,
        state: &mut State,
        revision: u64,
        events: impl IntoIterator<Item = (ResourceKey, Vec<StoredEvent>)>,
    ) {
        let now = Instant::now();
        state.revision = revision;
        state.timeline.record(now, revision);
        state.compact_when_due(now, &self.inner.limits);
        // Under the lock, so that events are in the order of revisions, and none up to the newest is missing.
        for (resource, events) in events {
            self.inner.observer.iter().for_each(|observer| observer.notify(&resource, &events));
            self.window(&resource).extend(events);
        }
        self.inner.activity.notify_waiters();
    }
}

impl State {
    /// Makes the next version of an object. For an Event, which two API groups serve, also that of its twin in the other group.
    fn apply_to_both(
        &mut self,
        revision: u64,
        resource: &ResourceKey,
        key: &str,
        write: Write,
    ) -> Result<(Arc<Stored>, ResourceEvents), WriteError> {
        let counterpart = events::counterpart(resource).map(|counterpart| {
            let write = match &write {
                Write::Put(draft) => Write::Put(events::convert(draft, &counterpart)),
                Write::Delete => Write::Delete,
            };
            (counterpart, write)
        });
        let (object, event) = self.apply(revision, resource, key, write)?;
        let mut changes = vec![(resource.clone(), event)];
        if let Some((counterpart, write)) = counterpart {
            let (_, event) = self.apply(revision, &counterpart, key, write)?;
            changes.push((counterpart, event));
        }
        Ok((object, changes))
    }

    /// Makes the next version of an object, and its event.
    fn apply(
        &mut self,
        revision: u64,
        resource: &ResourceKey,
        key: &str,
        write: Write,
    ) -> Result<(Arc<Stored>, StoredEvent), WriteError> {
        let table = match self.tables.get_mut(resource) {
            Some(table) => table,
            None => self.tables.entry(resource.clone()).or_default(),
        };
        let previous = table.get(key).cloned();
        let key: Arc<str> = previous.as_ref().map_or_else(|| Arc::from(key), |p| p.key().clone());
        let deletes = matches!(write, Write::Delete);
        let object = match (write, &previous) {
            (Write::Put(draft), None) => draft.stamp(revision, EventType::Added, key.clone()),
            (Write::Put(draft), Some(_)) => draft.stamp(revision, EventType::Modified, key.clone()),
            (Write::Delete, Some(previous)) => previous.deleted_at(revision),
            (Write::Delete, None) => return Err(WriteError::NotFound),
        };
        let object = Arc::new(object);
        if let Some(previous) = &previous {
            let bytes = previous.cost();
            self.superseded_bytes += bytes;
            self.superseded.push_back(Superseded {
                by: revision,
                resource: resource.clone(),
                key: key.clone(),
                bytes,
            });
        }
        let event = if deletes {
            table.delete(&key, revision);
            Event::deleted(revision, object.clone())
        } else {
            table.put(&key, object.clone());
            Event::put(revision, previous, object.clone())
        };
        Ok((object, event))
    }
}

enum Write {
    Put(Draft),
    Delete,
}

fn check(current: Option<&Arc<Stored>>, expected: Option<u64>) -> Result<(), WriteError> {
    let current = current.ok_or(WriteError::NotFound)?;
    match expected {
        Some(expected) if expected != current.revision() => {
            Err(WriteError::Conflict { current: current.revision() })
        }
        _ => Ok(()),
    }
}

impl Storage {
    /// Returns the newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.inner.state.read().revision
    }

    /// Returns the revision that was the newest at `instant` (exact to about 10 ms).
    pub(crate) fn revision_at(&self, instant: Instant) -> u64 {
        self.inner.state.read().timeline.at(instant)
    }

    /// Returns the newest version of an object.
    pub(crate) fn get(&self, resource: &ResourceKey, key: &str) -> Option<Arc<Stored>> {
        self.inner.state.read().tables.get(resource)?.get(key).cloned()
    }

    /// Returns an object as of `revision`.
    ///
    /// # Errors
    /// When that revision is compacted.
    pub(crate) fn get_at(
        &self,
        resource: &ResourceKey,
        key: &str,
        revision: u64,
    ) -> Result<Option<Arc<Stored>>, Compacted> {
        let state = self.inner.state.read();
        state.check_compaction(revision)?;
        Ok(state.tables.get(resource).and_then(|table| table.get_at(key, revision)).cloned())
    }

    /// Returns up to `max` objects in key order as of `revision`, from the key `start` on (without the namespace if the scope has
    /// one).
    ///
    /// # Errors
    /// When that revision is compacted.
    pub(crate) fn scan(
        &self,
        resource: &ResourceKey,
        scope: ReadScope<'_>,
        start: Option<&str>,
        revision: u64,
        max: usize,
    ) -> Result<Vec<Arc<Stored>>, Compacted> {
        let state = self.inner.state.read();
        state.check_compaction(revision)?;
        let Some(table) = state.tables.get(resource) else { return Ok(Vec::new()) };
        Ok(table.scan(scope, start, revision).take(max).cloned().collect())
    }

    /// Returns the newest objects of a scope, and their common revision.
    pub(crate) fn list(&self, resource: &ResourceKey, scope: ReadScope<'_>) -> (Vec<Arc<Stored>>, u64) {
        let state = self.inner.state.read();
        let revision = state.revision;
        let objects = state.tables.get(resource).map(|t| t.scan(scope, None, revision).cloned().collect());
        (objects.unwrap_or_default(), revision)
    }

    /// Returns the number of objects from `start` on as of `revision`.
    pub(crate) fn count_from(
        &self,
        resource: &ResourceKey,
        scope: ReadScope<'_>,
        start: Option<&str>,
        revision: u64,
    ) -> usize {
        let state = self.inner.state.read();
        state.tables.get(resource).map_or(0, |table| table.scan(scope, start, revision).count())
    }

    /// Returns the current number of objects of a resource.
    pub(crate) fn len(&self, resource: &ResourceKey) -> usize {
        self.inner.state.read().tables.get(resource).map_or(0, Table::len)
    }

    /// Drops a resource with all its objects, as when its CustomResourceDefinition is deleted. Watches get the remaining events,
    /// and end. A later resource of that name is another one: no watch can continue there from an older version.
    pub(crate) fn drop_resource(&self, resource: &ResourceKey) {
        let mut state = self.inner.state.write();
        state.tables.remove(resource);
        let next = Arc::new(Window::new(self.inner.limits.window.clone(), state.revision));
        if let Some(window) = self.inner.windows.write().insert(resource.clone(), next) {
            window.finish();
        }
    }
}

impl Storage {
    /// Returns the event window of a resource. A watch from before the first event has missed nothing.
    pub(crate) fn window(&self, resource: &ResourceKey) -> Arc<Window<Arc<Stored>>> {
        if let Some(window) = self.inner.windows.read().get(resource) {
            return window.clone();
        }
        let new = || Arc::new(Window::new(self.inner.limits.window.clone(), 0));
        self.inner.windows.write().entry(resource.clone()).or_insert_with(new).clone()
    }

    /// Returns about `max` events of a resource after revision `after`: of each revision all or none.
    pub(crate) fn events(&self, resource: &ResourceKey, after: u64, max: usize) -> Tail {
        // Read before the events: no event up to it is still to come.
        let newest = self.revision();
        let window = self.window(resource);
        let mut cursor = Cursor::after(after);
        let Some(mut events) = window.read(&cursor, None, max) else { return Tail::Lost };
        let through = match events.last() {
            Some(last) if events.len() == max => last.revision(),
            _ => after.max(newest),
        };
        events.iter().for_each(|event| cursor.take(event));
        let Some(rest) = window.read(&cursor, Some(through), usize::MAX) else { return Tail::Lost };
        events.extend(rest.into_iter().take_while(|event| event.revision() == cursor.revision()));
        Tail::Events { events, through }
    }

    /// Ends all watches without an ERROR event, as a server that relists or shuts down does.
    pub(crate) fn close_watches(&self) {
        self.windows().iter().for_each(|window| window.close_watches());
    }

    fn windows(&self) -> Vec<Arc<Window<Arc<Stored>>>> {
        self.inner.windows.read().values().cloned().collect()
    }
}

impl ResourceKey {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self { group: Arc::from(group), plural: Arc::from(plural) }
    }
}

impl From<&ResourceType> for ResourceKey {
    fn from(resource: &ResourceType) -> Self {
        Self::new(&resource.group, &resource.plural)
    }
}

impl<'a> ReadScope<'a> {
    /// Creates the scope of one namespace, or of all for `None`.
    pub(crate) fn new(namespace: Option<&'a str>) -> Self {
        Self { namespace }
    }

    /// Returns the first key, and the first key after the scope.
    fn bounds(self, start: Option<&str>) -> (Bound<String>, Option<String>) {
        match (self.namespace, start) {
            (Some(ns), start) => {
                // '0' follows '/'.
                (Bound::Included(format!("{ns}/{}", start.unwrap_or_default())), Some(format!("{ns}0")))
            }
            (None, Some(start)) => (Bound::Included(start.to_owned()), None),
            (None, None) => (Bound::Unbounded, None),
        }
    }
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            window: WindowOptions::default(),
            compaction_interval: Duration::from_secs(300),
            max_superseded_bytes: 1 << 30,
        }
    }
}

#[cfg(test)]
mod tests;
