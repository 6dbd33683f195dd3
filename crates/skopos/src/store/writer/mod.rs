//! The writer of a store: turns the reflector's data into content and changes.

mod order;

use std::collections::BTreeSet;
use std::collections::btree_map::{self, BTreeMap};
use std::sync::Arc;

use skopos_reflect::{Change, Commit, ReflectorState, Sink, Time};
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use self::order::EventOrder;
use super::core::{Account, StoreCore, StoreStats, Update};
use super::object::StoredObject;
use super::snapshot::StoreContent;
use super::tree::{Tree, TreeItem};
use crate::handler::{Event, EventFlags};
use crate::journal::{ChangeRecord, JournalRecorder, ListDifference, ListReplacement};

/// An observer of the reflector's state and of proofs of the content's age. Calls must not block.
///
/// Content comes first: when `fresh_as_of` is called, a snapshot taken then holds what the proof is about. So a reader that
/// first reads the proven time and then takes the snapshot never claims too young an age. A proof may be retracted in
/// between; reading the proven time again shows that. Only the first list comes after its proof: before it there is no
/// content that could have an age.
pub(crate) trait ReflectorObserver: Send {
    /// Records that the content holds every change that the server had committed by `at`.
    fn fresh_as_of(&mut self, at: Time);

    /// Records that the content to be published next is proven only up to `at`, or not at all. Called before it is
    /// published.
    fn fresh_only_as_of(&mut self, at: Option<Time>);

    /// Records the reflector's state.
    fn state(&mut self, state: &ReflectorState);
}

/// The observer that does nothing.
impl ReflectorObserver for () {
    fn fresh_as_of(&mut self, _at: Time) {}
    fn fresh_only_as_of(&mut self, _at: Option<Time>) {}
    fn state(&mut self, _state: &ReflectorState) {}
}

/// The only writer of a store. It keeps the guarantees of the content and of [`Event`], whatever the server sends:
///
/// * an object of another uid under the same name is a deletion and an addition;
/// * a version that the store already has, or has a newer one of, is dropped and counted;
/// * changes that share an RV are in order, also if they come in more than one batch;
/// * an object of a namespace that belongs to another writer is left out;
/// * a list is built next to the old content and replaces it in one step. An object with the same content keeps its old
///   memory and the new bytes are dropped at once, so a relist of an unchanged store needs almost none.
pub(crate) struct StoreWriter {
    core: Arc<StoreCore>,
    /// The part of the content that it writes; there is only one unless the content is of a set of namespaces.
    part: usize,
    observer: Box<dyn ReflectorObserver>,
    staging: Option<Staging>,
    events: Vec<Event>,
    order: EventOrder,
    /// Keys with a change that was, or may have been, skipped because it could not be read. Their next event does not
    /// directly follow the previous one.
    skipped: BTreeSet<ObjectKey>,
}

impl StoreWriter {
    /// Creates a writer for a part of this store (0, unless the content is of a set of namespaces). There must be only one
    /// at a time for each part.
    pub(crate) fn new(core: Arc<StoreCore>, part: usize, observer: impl ReflectorObserver + 'static) -> Self {
        let order = EventOrder::after(core.peek().rv_of(part).clone());
        Self {
            core,
            part,
            observer: Box::new(observer),
            staging: None,
            events: Vec::new(),
            order,
            skipped: BTreeSet::new(),
        }
    }

    /// Returns the list that is being received, if this key belongs to the writer's part.
    fn staging_of(&mut self, key: &ObjectKey) -> Option<&mut Staging> {
        let part = self.part;
        self.staging.as_mut().filter(|staging| staging.base.is_of(part, key))
    }
}

impl Sink for StoreWriter {
    fn begin_replace(&mut self) {
        self.staging = Some(Staging { base: self.core.current(), items: Vec::new() });
    }

    fn stage(&mut self, object: RawObject) {
        if let Some(staging) = self.staging_of(object.key()) {
            staging.stage(object);
        }
    }

    fn unstage(&mut self, key: &ObjectKey) {
        if let Some(staging) = self.staging_of(key) {
            staging.items.push(Staged::Absent(key.clone()));
        }
    }

    fn stage_unreadable(&mut self, key: &ObjectKey) {
        if let Some(staging) = self.staging_of(key) {
            staging.items.push(Staged::Unreadable(key.clone()));
        }
    }

    fn commit_replace(&mut self, commit: Commit) {
        let Some(staging) = self.staging.take() else { return };
        let part = self.part;
        self.skipped = staging.unreadable().cloned().collect();
        self.order = EventOrder::after_complete(commit.resource_version.clone());
        if !commit.gap {
            // A caller that is woken by the first list must not read that its age is unknown.
            self.observer.fresh_as_of(commit.asked_at);
        }
        self.core.update(part, &mut self.events, |content, account| {
            staging.commit(content, part, account, &commit, &mut self.skipped);
            Update::Replaced { gap: commit.gap }
        });
    }

    fn abort_replace(&mut self) {
        self.staging = None;
    }

    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion) {
        let part = self.part;
        self.core.update(part, &mut self.events, |content, account| {
            let (order, skipped) = (&mut self.order, &mut self.skipped);
            let mut batch = Batch { content, account, order, skipped };
            for change in changes.drain(..) {
                if batch.content.is_of(part, change.key()) {
                    batch.apply(change);
                }
            }
            batch.order.reach(resource_version);
            advance(content, part, resource_version);
            Update::Changes
        });
    }

    fn advance(&mut self, resource_version: &ResourceVersion) {
        let part = self.part;
        self.order.reach(resource_version);
        self.core.update(part, &mut self.events, |content, _| {
            advance(content, part, resource_version);
            Update::Changes
        });
    }

    fn skipped(&mut self, key: &ObjectKey, _resource_version: &ResourceVersion) {
        if self.core.peek().is_of(self.part, key) {
            self.skipped.insert(key.clone());
        }
    }

    fn fresh_as_of(&mut self, at: Time) {
        self.observer.fresh_as_of(at);
    }

    fn fresh_only_as_of(&mut self, at: Option<Time>) {
        self.observer.fresh_only_as_of(at);
    }

    fn state(&mut self, state: &ReflectorState) {
        self.observer.state(state);
    }
}

fn advance(content: &mut StoreContent, part: usize, to: &ResourceVersion) {
    if to > content.rv_of(part) {
        content.set_rv(part, to);
    }
}

/// One batch of watch events that is being applied to the content.
struct Batch<'a> {
    content: &'a mut StoreContent,
    account: Account<'a>,
    order: &'a mut EventOrder,
    skipped: &'a mut BTreeSet<ObjectKey>,
}

impl Batch<'_> {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(object) => self.put(object),
            Change::Deleted(object) => self.delete(object),
            Change::Gone { key, resource_version } => self.forget(&key, resource_version),
        }
    }

    fn put(&mut self, object: RawObject) {
        let rv = object.resource_version();
        let known = self.content.objects.get(object.key());
        let lost = known.is_some_and(|known| self.order.is_beyond(known.rv()));
        let is_old = match known {
            Some(known) => rv <= known.rv() && !lost,
            // A deleted object no longer has an RV of its own.
            None => self.order.is_past(object.key(), rv),
        };
        if is_old {
            self.account.stats.duplicates += 1;
            return;
        }
        let flags = self.follow(object.key(), object.resource_version(), lost);
        let Account { stats, events, journal } = &mut self.account;
        let new = StoredObject::new(object);
        stats.applied += 1;
        let old = self.content.put(new.clone());
        if let Some(journal) = journal {
            match old.clone() {
                Some(old) if old.uid() != new.uid() => journal.name_reused(old, new.clone()),
                old => journal.changed(ChangeRecord::put(old, new.clone())),
            }
        }
        let Some(old) = old else {
            stats.added += 1;
            events.push(Event::Added { object: new.into(), initial: false, flags });
            return;
        };
        if old.uid() == new.uid() {
            stats.updated += 1;
            events.push(Event::Updated { old: old.into(), new: new.into(), flags });
        } else {
            stats.replaced_uids += 1;
            stats.deleted += 1;
            stats.added += 1;
            events.push(Event::deleted(old, flags));
            events.push(Event::Added { object: new.into(), initial: false, flags });
        }
    }

    fn delete(&mut self, object: RawObject) {
        let at = object.resource_version().clone();
        let Some(known) = self.content.objects.get(object.key()) else {
            // Its versions in between are not delivered, and no longer matter.
            self.skipped.remove(object.key());
            self.account.stats.unknown_deletions += 1;
            return;
        };
        let lost = self.order.is_beyond(known.rv());
        // Equal is right: servers that do not count deletions send the RV of the last change.
        if at < *known.rv() && !lost {
            self.account.stats.duplicates += 1;
            return;
        }
        let flags = self.follow(object.key(), &at, lost);
        let Some(old) = self.content.take(object.key()) else { return };
        self.order.deleted(object.key(), &at);
        let Account { stats, events, journal } = &mut self.account;
        // If another object of this name was deleted, then ours was deleted before, and its final state is unknown.
        let last = (old.uid() == object.uid()).then(|| StoredObject::new(object));
        stats.applied += 1;
        stats.deleted += 1;
        if let Some(journal) = journal {
            journal.changed(ChangeRecord::deleted(old.clone(), last.clone(), at));
        }
        events.push(match last {
            Some(last) => {
                Event::Deleted { object: last.into(), old: old.into(), final_state_known: true, flags }
            }
            None => Event::deleted(old, flags),
        });
    }

    fn forget(&mut self, key: &ObjectKey, at: ResourceVersion) {
        let Some(old) = self.content.take(key) else {
            self.skipped.remove(key);
            self.account.stats.unknown_deletions += 1;
            return;
        };
        let lost = self.order.is_beyond(old.rv());
        let flags = self.follow(key, &at, lost);
        self.order.deleted(key, &at);
        let Account { stats, events, journal } = &mut self.account;
        stats.applied += 1;
        stats.deleted += 1;
        if let Some(journal) = journal {
            journal.changed(ChangeRecord::deleted(old.clone(), None, at));
        }
        events.push(Event::deleted(old, flags));
    }

    /// Advances to the RV of a change that is applied, and returns its flags. A change that the content has already passed
    /// is new for its object, but not in order. Neither is one after an unreadable change, or after a version of a lost
    /// history.
    fn follow(&mut self, key: &ObjectKey, rv: &ResourceVersion, lost: bool) -> EventFlags {
        let late = self.order.is_late(rv);
        self.order.reach(rv);
        self.account.stats.late += u64::from(late);
        let skipped = self.skipped.remove(key);
        EventFlags { gap: late || skipped || lost, ..EventFlags::default() }
    }
}

/// A list that is being received, next to the content that readers see.
struct Staging {
    base: Arc<StoreContent>,
    /// The items as received. Lists come in the order of keys, or nearly.
    items: Vec<Staged>,
}

enum Staged {
    Object(StoredObject),
    Absent(ObjectKey),
    Unreadable(ObjectKey),
}

impl Staging {
    fn stage(&mut self, object: RawObject) {
        let known = self.base.objects.get(object.key());
        // A compressed object replaces the same object that is not.
        let is_compacted = |known: &StoredObject| object.is_compact() && !known.raw().is_compact();
        let known = known.filter(|known| !is_compacted(known) && known.has_content_of(&object)).cloned();
        self.items.push(Staged::Object(known.unwrap_or_else(|| StoredObject::new(object))));
    }

    /// Returns the keys of objects that exist and cannot be read.
    fn unreadable(&self) -> impl Iterator<Item = &ObjectKey> {
        self.items.iter().filter_map(|item| match item {
            Staged::Unreadable(key) => Some(key),
            Staged::Object(_) | Staged::Absent(_) => None,
        })
    }

    /// Replaces the content, or one part of it, by the staged list.
    fn commit(
        self,
        content: &mut StoreContent,
        part: usize,
        account: Account<'_>,
        commit: &Commit,
        skipped: &mut BTreeSet<ObjectKey>,
    ) {
        let same_epoch = content.epoch_of(part) == commit.epoch;
        let before = content.is_listed(part).then(|| content.rv_of(part).clone());
        let old = content.objects.clone();
        let namespace = content.parts.get(part).map(|part| part.namespace.clone());
        let listed = self.settle();
        let differences = JournalDifferences::new(account.journal.as_deref(), same_epoch && before.is_some());
        let keeps_unlisted = commit.nameless > 0;
        let mut merge = Merge { content, stats: account.stats, keeps_unlisted, skipped, differences };
        if old.len() == 0 && merge.differences.is_unwanted() {
            merge.first(listed);
        } else {
            merge.merge(&old, listed, namespace.as_deref());
        }
        let differences = merge.differences.0;
        content.set_listed(part, &commit.resource_version, commit.epoch);
        account.stats.lists += 1;
        if let Some(journal) = account.journal {
            let now = commit.resource_version.clone();
            journal.listed(ListReplacement {
                before,
                now,
                same_epoch,
                differences: differences.map(|(_, list)| list),
            });
        }
    }

    /// Returns the objects of the list, each key once and in order; of a repeated key, the last item counts.
    fn settle(self) -> Vec<StoredObject> {
        let in_order = self.items.is_sorted_by(|a, b| a.key() < b.key());
        if in_order && self.items.iter().all(|item| matches!(item, Staged::Object(_))) {
            let objects = self.items.into_iter().filter_map(|item| match item {
                Staged::Object(entry) => Some(entry),
                _ => None,
            });
            return objects.collect();
        }
        let mut last: BTreeMap<ObjectKey, StoredObject> = BTreeMap::new();
        for item in self.items {
            match item {
                Staged::Object(entry) => drop(last.insert(entry.key().clone(), entry)),
                Staged::Absent(key) => drop(last.remove(&key)),
                Staged::Unreadable(key) => {
                    // The object exists, so an older version of it is nearer to the truth than none.
                    if let (Some(known), btree_map::Entry::Vacant(vacant)) =
                        (self.base.objects.get(&key), last.entry(key))
                    {
                        vacant.insert(known.clone());
                    }
                }
            }
        }
        last.into_values().collect()
    }
}

impl Staged {
    fn key(&self) -> &ObjectKey {
        match self {
            Staged::Object(entry) => entry.key(),
            Staged::Absent(key) | Staged::Unreadable(key) => key,
        }
    }
}

/// The merge of the listed objects into the content. Only differences are touched, so that the contents before and after
/// share the rest.
struct Merge<'a> {
    content: &'a mut StoreContent,
    stats: &'a mut StoreStats,
    keeps_unlisted: bool,
    /// The keys whose objects were kept although they may have changed.
    skipped: &'a mut BTreeSet<ObjectKey>,
    differences: JournalDifferences,
}

/// The differences that a list makes, for the journal, with the number that is worth storing. `None` if no differences are
/// needed, or there are too many.
struct JournalDifferences(Option<(usize, Vec<ListDifference>)>);

impl JournalDifferences {
    fn new(journal: Option<&JournalRecorder>, continues: bool) -> Self {
        Self(journal.filter(|_| continues).map(|journal| (journal.max_differences(), Vec::new())))
    }

    fn is_unwanted(&self) -> bool {
        self.0.is_none()
    }

    fn add(&mut self, old: Option<&StoredObject>, new: Option<&StoredObject>) {
        match &mut self.0 {
            Some((max, differences)) if differences.len() < *max => {
                differences.push(ListDifference { old: old.cloned(), new: new.cloned() });
            }
            _ => self.0 = None,
        }
    }
}

impl Merge<'_> {
    /// Makes the listed objects the content of an empty store.
    fn first(&mut self, listed: Vec<StoredObject>) {
        self.stats.added += listed.len() as u64;
        listed.iter().for_each(|entry| self.content.account(None, Some(entry)));
        self.content.objects = Tree::from_sorted(listed);
    }

    /// Replaces the old objects, or those of one namespace, by the listed ones. Both are in order.
    fn merge(&mut self, old: &Tree<StoredObject>, listed: Vec<StoredObject>, namespace: Option<&str>) {
        let old = old.seek(|key| namespace.is_some_and(|namespace| key.namespace() < Some(namespace)));
        let old = old.take_while(|entry| namespace.is_none() || entry.key().namespace() == namespace);
        let mut old = old.peekable();
        for listed in listed {
            while let Some(before) = old.next_if(|old| old.key() < listed.key()) {
                self.unlisted(before);
            }
            match old.next_if(|old| old.key() == listed.key()) {
                Some(before) => self.known(before, listed),
                None => {
                    self.stats.added += 1;
                    self.differences.add(None, Some(&listed));
                    self.content.put(listed);
                }
            }
        }
        old.for_each(|before| self.unlisted(before));
    }

    fn unlisted(&mut self, before: &StoredObject) {
        if !self.keeps_unlisted {
            self.stats.deleted += 1;
            self.differences.add(Some(before), None);
            self.content.take(before.key());
        } else {
            self.skipped.insert(before.key().clone());
        }
    }

    fn known(&mut self, before: &StoredObject, listed: StoredObject) {
        // The same RV may have other content: in the history after a rollback, and where the server decodes its data
        // differently than before (a new default, a fixed conversion, an upgrade), without an event.
        if before.is_same(&listed) || before.has_content_of(listed.raw()) {
            self.stats.kept += 1;
            if listed.raw().is_compact() && !before.raw().is_compact() {
                self.content.put(listed);
            }
            return;
        }
        if before.uid() == listed.uid() {
            self.stats.updated += 1;
        } else {
            self.stats.replaced_uids += 1;
            self.stats.deleted += 1;
            self.stats.added += 1;
        }
        self.differences.add(Some(before), Some(&listed));
        self.content.put(listed);
    }
}

#[cfg(test)]
mod tests;
