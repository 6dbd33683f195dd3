//! The merger: makes one history of the changes of all members. Pure: no I/O, no clock, no tasks; the same calls give the
//! same history.
//!
//! Each change of a member becomes one [`Event`] with a merged version of its own, greater than all before. So the
//! merged history contains each member's history in order; changes of different members are in the order of arrival.
//! The content at a merged version is a [`View`], which is cheap to keep and never changes.
//!
//! # The state at a merged version
//!
//! The state is a vector: the position of each member's history. Within one process a merged version is a position in
//! the log of events, and needs no vector. Over a restart it does: [`Merger::resume_state`] returns, for each member,
//! the merged versions between which its content was unchanged ([`MemberState`]). If the member's store comes back with
//! exactly that content, of the same cluster, a watcher that has seen all of it can resume without a gap:
//! [`Merger::resume`]. All other watchers get 410: a restarted process does not have the objects of earlier changes, so
//! it cannot send these.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use skopos_fleet::ClusterId;
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use super::contents::{Contents, Entry};
use super::merged_version::{InstanceTag, MergedVersion, VersionClock};
use super::resume_state::{MemberState, ResumeState};

/// The state machine of one kind.
#[derive(Debug)]
pub(crate) struct Merger {
    clock: VersionClock,
    /// The merged version at which the history of this process begins.
    start: MergedVersion,
    roster: Arc<Roster>,
    /// Members whose objects vanished without being deleted, with the merged version. Watchers from before it cannot
    /// resume.
    vanished: BTreeMap<ClusterId, MergedVersion>,
    /// The state that an earlier process saved.
    past: Option<Past>,
    /// True once readers can have seen the content.
    open: bool,
}

/// The members, by name.
pub(crate) type Roster = BTreeMap<ClusterId, Member>;

/// The merged history's state of one member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The position up to which its history was received; `None` before its first content.
    pub(crate) position: Option<Position>,
    /// Its objects.
    pub(crate) contents: Contents,
    /// The position of a list that is ahead of the member's changes: changes up to it are not applied again.
    ahead: Option<Position>,
    /// The merged version of its last change.
    changed: MergedVersion,
    /// The member's own version at that change.
    changed_at: ResourceVersion,
}

impl Member {
    /// Returns whether all changes up to this position were received.
    pub(crate) fn has_received(&self, epoch: u64, version: &ResourceVersion) -> bool {
        let covers = |position: &Position| position.epoch == epoch && position.version >= *version;
        self.position.as_ref().is_some_and(covers)
    }

    /// Returns whether the list ahead covers a change at this position. Drops the list once the position is past it.
    fn is_listed_ahead(&mut self, position: &Position) -> bool {
        let covers = |ahead: &Position| ahead.epoch == position.epoch && ahead.version >= position.version;
        self.ahead = self.ahead.take().filter(covers);
        self.ahead.is_some()
    }

    /// Returns whether a deletion applies although the list ahead covers its version: the listed object is not newer than
    /// the deletion, so the object was deleted after the list. A deletion that a relist detects has the version before
    /// the list's.
    fn is_deleted_after_list(&self, change: &MemberChange, version: &ResourceVersion) -> bool {
        let MemberChange::Deleted(key, _) = change else { return false };
        self.contents.get(key).is_some_and(|entry| entry.object.resource_version() <= version)
    }

    /// Returns the merged version of its last change.
    pub(crate) fn changed(&self) -> MergedVersion {
        self.changed
    }
}

/// A position in a member's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The identity of the cluster, once known: another cluster may have taken its name.
    pub(crate) identity: Option<Arc<str>>,
    /// The epoch: a period of unbroken history.
    pub(crate) epoch: u64,
    /// The member's own version.
    pub(crate) version: ResourceVersion,
}

/// The source of a member's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentSource {
    /// The same store as before: after a gap.
    Same,
    /// Another store, with other epochs.
    New,
}

/// A change of one object, as received from its member.
#[derive(Clone, Debug)]
pub(crate) enum MemberChange {
    /// The object was created or changed to this state.
    Put(RawObject),
    /// The object was deleted. With its last state, if the member sent it.
    Deleted(ObjectKey, Option<RawObject>),
}

/// One change of the merged history.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) merged_version: MergedVersion,
    pub(crate) cluster: ClusterId,
    /// The entry before; `None` for a new object.
    pub(crate) old: Option<Entry>,
    /// The entry now, or the last state of a deleted object. Its merged version is that of the event.
    pub(crate) new: Entry,
    pub(crate) deleted: bool,
}

/// The content at one merged version.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) merged_version: MergedVersion,
    pub(crate) roster: Arc<Roster>,
}

/// The decision whether a watcher may resume from a merged version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Resume: the watcher misses all changes after this merged version.
    After(MergedVersion),
    /// 410: some of the missed changes are not available.
    Expired,
}

/// The state that an earlier process saved; it is kept after the history is opened.
#[derive(Debug)]
struct Past {
    resume_state: ResumeState,
    /// The members that came back, with whether their content was the saved one.
    restored: BTreeMap<ClusterId, bool>,
}

impl Merger {
    /// Makes a history that begins now, after all merged versions of earlier processes; its merged versions are this
    /// gateway instance's.
    pub(crate) fn new(past: Option<ResumeState>, instance: InstanceTag, now: Timestamp) -> Self {
        let floor = past.as_ref().map_or(MergedVersion::default(), |resume_state| resume_state.ceiling);
        let clock = VersionClock::starting_after(floor, now, instance);
        let vanished = past.as_ref().map(|resume_state| resume_state.vanished.clone()).unwrap_or_default();
        Self {
            start: clock.last(),
            clock,
            roster: Arc::default(),
            vanished,
            past: past.map(|resume_state| Past { resume_state, restored: BTreeMap::new() }),
            open: false,
        }
    }

    /// Returns the saved state of an earlier process, with a ceiling for the merged versions that this one gives out
    /// before it saves its own. It must be saved before the first merged version is given out: otherwise a process
    /// after one that was killed early would give out the same merged versions again.
    pub(crate) fn claim(&self) -> Option<ResumeState> {
        let past = self.past.as_ref()?.resume_state.clone();
        Some(ResumeState { ceiling: self.start.after(MAX_LEAD_MICROS), ..past })
    }

    /// Returns the saved position of a member that has not come back yet, before readers can have seen its content.
    pub(crate) fn saved_member(&self, cluster: &ClusterId) -> Option<&MemberState> {
        let known = self.roster.get(cluster).is_some_and(|member| member.position.is_some());
        let past = self.past.as_ref().filter(|_| !known && !self.open)?;
        past.resume_state.members.get(cluster)
    }

    /// Returns the merged version before the first event.
    pub(crate) fn start(&self) -> MergedVersion {
        self.start
    }

    /// Makes the content visible: from now on, content of members that join becomes additions. Before, no watcher can
    /// miss it, so it makes no events. Members of the saved state that have not come back until now count as vanished.
    pub(crate) fn open(&mut self, now: Timestamp) {
        self.open = true;
        let Some(past) = &self.past else { return };
        let lost = past.resume_state.members.keys().filter(|id| !past.restored.contains_key(*id));
        let lost: Vec<_> = lost.cloned().collect();
        for cluster in lost {
            self.vanished.insert(cluster, self.clock.next(now));
        }
    }

    /// Applies a list of a member, sorted by key, that is ahead of its changes. The differences to the previous content
    /// are the events. Returns none if the member is already past the list, or in another epoch. The member's own changes
    /// may lack undecodable objects, even at the version of the list.
    pub(crate) fn take_ahead(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) -> Vec<Event> {
        let is_older = |own: &Position| {
            (&own.identity, own.epoch) == (&position.identity, position.epoch)
                && own.version <= position.version
        };
        let member = self.roster.get(cluster);
        if !member.and_then(|member| member.position.as_ref()).is_some_and(is_older) {
            return Vec::new();
        }
        let events = self.take_new(cluster, position.clone(), objects, now);
        self.member(cluster).ahead = Some(position);
        events
    }

    /// Applies a member's whole content, sorted by key: its first, or one after a gap in its history. The differences to
    /// the previous content are the events. Content of another store replaces any list ahead.
    pub(crate) fn take(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        content_source: ContentSource,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) -> Vec<Event> {
        let listed = content_source == ContentSource::Same && self.member(cluster).is_listed_ahead(&position);
        if listed {
            return Vec::new();
        }
        self.member(cluster).ahead = None;
        self.take_new(cluster, position, objects, now)
    }

    fn take_new(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) -> Vec<Event> {
        let known = self.roster.get(cluster).is_some_and(|member| member.position.is_some());
        if !known && !self.open {
            self.take_quietly(cluster, position, objects, now);
            return Vec::new();
        }
        let before = self.member(cluster).contents.clone();
        let changes = differences(&before, objects);
        self.member(cluster).position = Some(position.clone());
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            self.apply(cluster, &position.version, change, now, &mut events);
        }
        let first = (!known && events.is_empty()).then(|| self.clock.next(now));
        let member = self.member(cluster);
        member.changed = first.unwrap_or(member.changed);
        // Even without a difference: an object may have been created and deleted in between.
        member.changed_at = position.version;
        events
    }

    /// Applies one change of a member.
    pub(crate) fn change(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        change: MemberChange,
        now: Timestamp,
    ) -> Vec<Event> {
        let mut events = Vec::with_capacity(1);
        let version = position.version.clone();
        let member = self.member(cluster);
        if !member.is_listed_ahead(&position) {
            member.position = Some(position);
        } else if !member.is_deleted_after_list(&change, &version) {
            return events;
        }
        self.apply(cluster, &version, change, now, &mut events);
        events
    }

    /// Records that nothing changed up to this position.
    pub(crate) fn reached(&mut self, cluster: &ClusterId, position: Position) {
        let member = self.member(cluster);
        if !member.is_listed_ahead(&position) {
            member.position = Some(position);
        }
    }

    /// Removes the member's objects, without a `DELETED` from its server. Returns whether there were any.
    pub(crate) fn vanish(&mut self, cluster: &ClusterId, now: Timestamp) -> bool {
        let Some(member) = Arc::make_mut(&mut self.roster).remove(cluster) else { return false };
        let had_any = !member.contents.is_empty();
        // A watcher that has seen the empty content misses nothing.
        let merged_version = if had_any { self.clock.next(now) } else { member.changed };
        let last = self.clock.last();
        self.vanished.retain(|_, when| when.after(MAX_ABSENCE_MICROS) > last);
        self.vanished.insert(cluster.clone(), merged_version);
        had_any
    }

    /// Returns the current members.
    pub(crate) fn roster(&self) -> Arc<Roster> {
        self.roster.clone()
    }

    /// Returns the content now: it has all changes so far, and all later ones have a greater merged version.
    pub(crate) fn view(&mut self, now: Timestamp) -> View {
        View { merged_version: self.clock.present(now), roster: self.roster.clone() }
    }

    /// Decides whether a watcher of these clusters, whose state is that of `merged_version`, can get all changes that
    /// it misses. A merged version of neither this process nor a known earlier one has no known state.
    ///
    /// The owner of the event log decides whether the events since then are still there.
    pub(crate) fn resume(
        &self,
        merged_version: MergedVersion,
        selects: impl Fn(&ClusterId) -> bool,
    ) -> Resume {
        let given_out = merged_version <= self.clock.last()
            && merged_version.after(MAX_ABSENCE_MICROS) > self.clock.last();
        let mut vanished = self.vanished.iter().filter(|(_, when)| merged_version < **when);
        if !given_out || vanished.any(|(cluster, _)| selects(cluster)) {
            return Resume::Expired;
        }
        if merged_version >= self.start {
            let is_own = merged_version.instance() == self.clock.instance();
            return if is_own { Resume::After(merged_version) } else { Resume::Expired };
        }
        let Some(past) = self.past.as_ref().filter(|past| past.resume_state.covers(merged_version)) else {
            return Resume::Expired;
        };
        let mut missed = past.resume_state.members.iter().filter(|(cluster, member_state)| {
            let unseen = merged_version < member_state.changed
                || !past.restored.get(*cluster).is_some_and(|good| *good);
            unseen && selects(cluster)
        });
        match missed.next() {
            Some(_) => Resume::Expired,
            None => Resume::After(self.start),
        }
    }

    /// Returns the state that the next process needs so that watchers can resume. It covers all merged versions given
    /// out so far. No merged version beyond [`ResumeState::ceiling`] is given out before the next call.
    pub(crate) fn resume_state(&self) -> ResumeState {
        let member_state = |member: &Member| {
            let position = member.position.clone()?;
            Some(MemberState {
                changed: member.changed,
                identity: position.identity,
                epoch: position.epoch,
                from: member.changed_at.clone(),
                to: position.version,
                content: member.contents.digest().to_string(),
            })
        };
        let members = self.roster.iter().filter_map(|(id, member)| Some((id.clone(), member_state(member)?)));
        let before = self.past.iter().flat_map(|past| &past.resume_state.instances);
        let mut instances = vec![self.clock.instance()];
        instances.extend(before.copied().filter(|instance| *instance != self.clock.instance()));
        instances.truncate(MAX_INSTANCES);
        ResumeState {
            merged_version: self.clock.last(),
            instances,
            ceiling: self.clock.last().after(MAX_LEAD_MICROS),
            members: members.collect(),
            vanished: self.vanished.clone(),
        }
    }

    /// Applies the first content of a member before readers are let in, without events.
    fn take_quietly(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) {
        let objects: Vec<RawObject> = objects.into_iter().collect();
        let since = |changed, changed_at| {
            let entries = objects.iter().cloned().map(|object| Entry { object, merged_version: changed });
            let contents = Contents::from_sorted(entries.collect());
            Member { position: Some(position.clone()), contents, ahead: None, changed, changed_at }
        };
        let saved_member = self.past.as_ref().and_then(|past| past.resume_state.members.get(cluster));
        // The same content as in the earlier process: it keeps its merged version.
        let as_left =
            saved_member.filter(|member_state| member_state.is_at(&position)).and_then(|member_state| {
                Some(since(member_state.changed, member_state.from.clone()))
                    .filter(|member| member_state.has_content(&member.contents))
            });
        if let Some(past) = &mut self.past {
            past.restored.insert(cluster.clone(), as_left.is_some());
        }
        let member = as_left.unwrap_or_else(|| since(self.clock.next(now), position.version.clone()));
        *self.member(cluster) = member;
    }

    /// Makes an event of a change, or two if another object has taken the name.
    fn apply(
        &mut self,
        cluster: &ClusterId,
        version: &ResourceVersion,
        change: MemberChange,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let merged_version = self.clock.next(now);
        let member = self.member(cluster);
        (member.changed, member.changed_at) = (merged_version, version.clone());
        let deleted = matches!(change, MemberChange::Deleted(..));
        let (old, object) = match change {
            MemberChange::Put(object) => {
                let old = member.contents.get(object.key()).cloned();
                if let Some(old) = old.as_ref().filter(|old| old.object.uid() != object.uid()) {
                    let gone = MemberChange::Deleted(old.key().clone(), None);
                    self.apply(cluster, version, gone, now, events);
                    return self.apply(cluster, version, MemberChange::Put(object), now, events);
                }
                member.contents.insert(Entry { object: object.clone(), merged_version });
                (old, object)
            }
            MemberChange::Deleted(key, last) => {
                let Some(old) = member.contents.remove(&key) else { return };
                let object = last.unwrap_or_else(|| old.object.clone());
                (Some(old), object)
            }
        };
        let new = Entry { object, merged_version };
        events.push(Event { merged_version, cluster: cluster.clone(), old, new, deleted });
    }

    fn member(&mut self, cluster: &ClusterId) -> &mut Member {
        Arc::make_mut(&mut self.roster).entry(cluster.clone()).or_default()
    }
}

impl Default for Member {
    fn default() -> Self {
        Self {
            position: None,
            ahead: None,
            contents: Contents::default(),
            changed: MergedVersion::default(),
            changed_at: ResourceVersion::ZERO,
        }
    }
}

/// Returns the changes from one content to another, in key order. Both contents must be in key order.
fn differences(before: &Contents, now: impl IntoIterator<Item = RawObject>) -> Vec<MemberChange> {
    let mut changes = Vec::new();
    let mut before = before.iter().peekable();
    for object in now {
        while let Some(gone) = before.next_if(|old| old.key() < object.key()) {
            changes.push(MemberChange::Deleted(gone.key().clone(), None));
        }
        match before.next_if(|old| old.key() == object.key()) {
            Some(old) if old.object.is_same_content(&object) => {}
            _ => changes.push(MemberChange::Put(object)),
        }
    }
    changes.extend(before.map(|gone| MemberChange::Deleted(gone.key().clone(), None)));
    changes
}

/// Maximum lead of merged versions over the state saved for the next process: a minute, in microseconds.
const MAX_LEAD_MICROS: u64 = 60_000_000;

/// Maximum number of consecutive processes whose merged versions can be resumed from.
const MAX_INSTANCES: usize = 16;

/// Maximum absence of a watcher: an hour, in microseconds.
const MAX_ABSENCE_MICROS: u64 = 3_600_000_000;

#[cfg(test)]
mod tests;
