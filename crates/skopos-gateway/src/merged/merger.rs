//! The merger: what the members tell, made one history. Pure: no I/O, no clock, no tasks; the same calls give the same
//! history.
//!
//! Each change of a member becomes one [`Event`] with a mark of its own, which is greater than all before. So for each member
//! the merged history holds exactly that member's, in its order; between members, the order in which they were heard. The
//! content at a mark is a [`View`], which is cheap to keep and never changes.
//!
//! # What stands behind a mark
//!
//! A vector: where each member's history stood. Within one process a mark is a place in the log of events, and needs no
//! vector. Over a restart it does: [`Merger::standing`] says, for each member, from which mark to which its content was one
//! and the same ([`Stand`]). If the member's store then comes back at just that content, of the same cluster, a watcher who
//! had seen all of it can go on, and has missed nothing: [`Merger::resume`]. Everybody else gets 410. What a restarted process
//! does not have is the objects of the changes before it, so it could not tell more.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use skopos_fleet::ClusterId;
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use super::contents::{Contents, Entry};
use super::mark::{Maker, Mark, Marks};
use super::restart::{Stand, Standing};

/// The state machine. One for each kind.
#[derive(Debug)]
pub(crate) struct Merger {
    marks: Marks,
    /// Where the history of this process begins.
    start: Mark,
    roster: Arc<Roster>,
    /// Members whose objects vanished without being deleted, and when: who read before cannot read on.
    vanished: BTreeMap<ClusterId, Mark>,
    /// What an earlier process left behind.
    past: Option<Past>,
    /// Whether anybody could have seen the content yet.
    open: bool,
}

/// The members, by name.
pub(crate) type Roster = BTreeMap<ClusterId, Member>;

/// What the merged history knows of one member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// How far its history was heard; `None` before its first content.
    pub(crate) position: Option<Position>,
    /// Its objects.
    pub(crate) contents: Contents,
    /// Up to where its content was listed ahead of what it tells one by one: that is not told once more.
    ahead: Option<Position>,
    /// The mark of its last change.
    changed: Mark,
    /// Its own version at that change.
    changed_at: ResourceVersion,
}

impl Member {
    /// Returns whether it was told all up to this position.
    pub(crate) fn has_told(&self, epoch: u64, version: &ResourceVersion) -> bool {
        let told = |position: &Position| position.epoch == epoch && position.version >= *version;
        self.position.as_ref().is_some_and(told)
    }

    /// Returns whether what it tells of this position was listed before. Past that the list is forgotten.
    fn is_listed_ahead(&mut self, position: &Position) -> bool {
        let covers = |ahead: &Position| ahead.epoch == position.epoch && ahead.version >= position.version;
        self.ahead = self.ahead.take().filter(covers);
        self.ahead.is_some()
    }

    /// Returns whether an object that is told to be deleted was listed ahead, at the version of the deletion or later, as older than that:
    /// then the deletion came after the list. Where a list finds it, it comes at the version before that of the list.
    fn has_after_all(&self, told: &Told, version: &ResourceVersion) -> bool {
        let Told::Deleted(key, _) = told else { return false };
        self.contents.get(key).is_some_and(|entry| entry.object.resource_version() <= version)
    }

    /// The mark of its last change.
    pub(crate) fn changed(&self) -> Mark {
        self.changed
    }
}

/// Where a member's history stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Which cluster it is, once that is known: another may have taken its name.
    pub(crate) identity: Option<Arc<str>>,
    /// The stretch of unbroken history.
    pub(crate) epoch: u64,
    /// The member's own version.
    pub(crate) version: ResourceVersion,
}

/// Which copy of a member its content is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// The one that has told before: after a gap.
    Same,
    /// Another, whose epochs are others.
    New,
}

/// What happened to one object, as its member told it.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// It is this now.
    Put(RawObject),
    /// It is gone. With its last state, if the member said it.
    Deleted(ObjectKey, Option<RawObject>),
}

/// One change of the merged history.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) mark: Mark,
    pub(crate) cluster: ClusterId,
    /// What there was before; `None` for an object that is new.
    pub(crate) old: Option<Entry>,
    /// What there is now, or the last state of a deleted object. Its mark is that of the event.
    pub(crate) new: Entry,
    pub(crate) deleted: bool,
}

/// The content at one mark.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) mark: Mark,
    pub(crate) roster: Arc<Roster>,
}

/// Whether a watcher may go on from a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// All changes behind this mark are what it misses.
    After(Mark),
    /// 410: part of what it misses cannot be told.
    Expired,
}

/// What an earlier process left behind, until the history is opened and after.
#[derive(Debug)]
struct Past {
    standing: Standing,
    /// Of which members the content was taken up as it was left.
    taken_up: BTreeMap<ClusterId, bool>,
}

// === impl Merger ===

impl Merger {
    /// A history that begins now, behind whatever an earlier process gave out; the marks are this maker's.
    pub(crate) fn new(past: Option<Standing>, maker: Maker, now: Timestamp) -> Self {
        let floor = past.as_ref().map_or(Mark::default(), |standing| standing.ceiling);
        let marks = Marks::beginning(floor, now, maker);
        let vanished = past.as_ref().map(|standing| standing.vanished.clone()).unwrap_or_default();
        Self {
            start: marks.last(),
            marks,
            roster: Arc::default(),
            vanished,
            past: past.map(|standing| Past { standing, taken_up: BTreeMap::new() }),
            open: false,
        }
    }

    /// What an earlier process left, with the marks that this one gives out until it leaves something itself: to be kept before any of
    /// them is, or a process that comes after one that was killed early would give them out again.
    pub(crate) fn claim(&self) -> Option<Standing> {
        let past = self.past.as_ref()?.standing.clone();
        Some(Standing { ceiling: self.start.after(HEADROOM), ..past })
    }

    /// Where an earlier process left a member that has not come back yet, as long as nobody could have seen what it brings.
    pub(crate) fn left(&self, cluster: &ClusterId) -> Option<&Stand> {
        let known = self.roster.get(cluster).is_some_and(|member| member.position.is_some());
        let past = self.past.as_ref().filter(|_| !known && !self.open)?;
        past.standing.members.get(cluster)
    }

    /// The mark before the first event.
    pub(crate) fn start(&self) -> Mark {
        self.start
    }

    /// From here on the content can be seen: what members bring with them is told as additions. Before, it is not: nobody
    /// could have missed it. What an earlier process had of members that did not come back until now has vanished.
    pub(crate) fn open(&mut self, now: Timestamp) {
        self.open = true;
        let Some(past) = &self.past else { return };
        let lost = past.standing.members.keys().filter(|id| !past.taken_up.contains_key(*id));
        let lost: Vec<_> = lost.cloned().collect();
        for cluster in lost {
            self.vanished.insert(cluster, self.marks.next(now));
        }
    }

    /// Takes in what a member has listed, sorted by key, ahead of what it tells one by one. The differences to what there was are
    /// the events. Returns none if it has told more, or is of another stretch of history. What it tells may lack objects that could not
    /// be read, also at the version of the list.
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

    /// A member's whole content, sorted by key: its first, or one after a gap in its history. The differences to what there
    /// was are the events. The content of another copy of the member counts whatever was listed ahead.
    pub(crate) fn take(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        copy: Copy,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) -> Vec<Event> {
        let listed = copy == Copy::Same && self.member(cluster).is_listed_ahead(&position);
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
        let told = differences(&before, objects);
        self.member(cluster).position = Some(position.clone());
        let mut events = Vec::with_capacity(told.len());
        for told in told {
            self.tell(cluster, &position.version, told, now, &mut events);
        }
        let first = (!known && events.is_empty()).then(|| self.marks.next(now));
        let member = self.member(cluster);
        member.changed = first.unwrap_or(member.changed);
        // Also where nothing differs: something may have been there and gone in between.
        member.changed_at = position.version;
        events
    }

    /// One change of a member.
    pub(crate) fn change(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        told: Told,
        now: Timestamp,
    ) -> Vec<Event> {
        let mut events = Vec::with_capacity(1);
        let version = position.version.clone();
        let member = self.member(cluster);
        if !member.is_listed_ahead(&position) {
            member.position = Some(position);
        } else if !member.has_after_all(&told, &version) {
            return events;
        }
        self.tell(cluster, &version, told, now, &mut events);
        events
    }

    /// A member said that nothing changed up to here.
    pub(crate) fn reached(&mut self, cluster: &ClusterId, position: Position) {
        let member = self.member(cluster);
        if !member.is_listed_ahead(&position) {
            member.position = Some(position);
        }
    }

    /// The member's objects vanish, although nobody said that they were deleted. Returns whether there were any.
    pub(crate) fn vanish(&mut self, cluster: &ClusterId, now: Timestamp) -> bool {
        let Some(member) = Arc::make_mut(&mut self.roster).remove(cluster) else { return false };
        let had_any = !member.contents.is_empty();
        // Who has seen that there was nothing left misses nothing.
        let mark = if had_any { self.marks.next(now) } else { member.changed };
        let last = self.marks.last();
        self.vanished.retain(|_, when| when.after(MEMORY) > last);
        self.vanished.insert(cluster.clone(), mark);
        had_any
    }

    /// Returns the members as they are.
    pub(crate) fn roster(&self) -> Arc<Roster> {
        self.roster.clone()
    }

    /// The content at this moment: everything so far is in it, and everything to come has a greater mark.
    pub(crate) fn view(&mut self, now: Timestamp) -> View {
        View { mark: self.marks.present(now), roster: self.roster.clone() }
    }

    /// Whether a watcher of these clusters, whose state is that of `mark`, can be told all that it misses. Where the mark is of neither
    /// this process nor one before it, nobody knows what that is.
    ///
    /// Whether the events since are still there is for who keeps them to say.
    pub(crate) fn resume(&self, mark: Mark, selects: impl Fn(&ClusterId) -> bool) -> Resume {
        let given_out = mark <= self.marks.last() && mark.after(MEMORY) > self.marks.last();
        let mut vanished = self.vanished.iter().filter(|(_, when)| mark < **when);
        if !given_out || vanished.any(|(cluster, _)| selects(cluster)) {
            return Resume::Expired;
        }
        if mark >= self.start {
            return if mark.maker() == self.marks.maker() { Resume::After(mark) } else { Resume::Expired };
        }
        let Some(past) = self.past.as_ref().filter(|past| past.standing.covers(mark)) else {
            return Resume::Expired;
        };
        let mut missed = past.standing.members.iter().filter(|(cluster, stand)| {
            let unseen = mark < stand.changed || !past.taken_up.get(*cluster).is_some_and(|good| *good);
            unseen && selects(cluster)
        });
        match missed.next() {
            Some(_) => Resume::Expired,
            None => Resume::After(self.start),
        }
    }

    /// What the next process needs to know, so that watchers can go on. All marks given out so far are covered, and none
    /// beyond [`Standing::ceiling`] is given out before the next call.
    pub(crate) fn standing(&self) -> Standing {
        let stand = |member: &Member| {
            let position = member.position.clone()?;
            Some(Stand {
                changed: member.changed,
                identity: position.identity,
                epoch: position.epoch,
                from: member.changed_at.clone(),
                to: position.version,
                content: member.contents.digest().to_string(),
            })
        };
        let members = self.roster.iter().filter_map(|(id, member)| Some((id.clone(), stand(member)?)));
        let before = self.past.iter().flat_map(|past| &past.standing.makers);
        let mut makers = vec![self.marks.maker()];
        makers.extend(before.copied().filter(|maker| *maker != self.marks.maker()));
        makers.truncate(MAKERS);
        Standing {
            mark: self.marks.last(),
            makers,
            ceiling: self.marks.last().after(HEADROOM),
            members: members.collect(),
            vanished: self.vanished.clone(),
        }
    }

    /// The first content of a member that nobody could have seen without.
    fn take_quietly(
        &mut self,
        cluster: &ClusterId,
        position: Position,
        objects: impl IntoIterator<Item = RawObject>,
        now: Timestamp,
    ) {
        let objects: Vec<RawObject> = objects.into_iter().collect();
        let since = |changed, changed_at| {
            let entries = objects.iter().cloned().map(|object| Entry { object, mark: changed });
            let contents = Contents::from_sorted(entries.collect());
            Member { position: Some(position.clone()), contents, ahead: None, changed, changed_at }
        };
        let left = self.past.as_ref().and_then(|past| past.standing.members.get(cluster));
        // The very content that the earlier process had: it keeps the mark that it had.
        let as_left = left.filter(|stand| stand.is_at(&position)).and_then(|stand| {
            Some(since(stand.changed, stand.from.clone())).filter(|member| stand.has(&member.contents))
        });
        if let Some(past) = &mut self.past {
            past.taken_up.insert(cluster.clone(), as_left.is_some());
        }
        let member = as_left.unwrap_or_else(|| since(self.marks.next(now), position.version.clone()));
        *self.member(cluster) = member;
    }

    /// Makes what was told an event, or two where another object has taken the name.
    fn tell(
        &mut self,
        cluster: &ClusterId,
        version: &ResourceVersion,
        told: Told,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let mark = self.marks.next(now);
        let member = self.member(cluster);
        (member.changed, member.changed_at) = (mark, version.clone());
        match told {
            Told::Put(object) => {
                let old = member.contents.get(object.key()).cloned();
                match old {
                    Some(old) if old.object.uid() != object.uid() => {
                        self.tell(cluster, version, Told::Deleted(old.key().clone(), None), now, events);
                        self.tell(cluster, version, Told::Put(object), now, events);
                    }
                    old => {
                        let new = Entry { object, mark };
                        member.contents.insert(new.clone());
                        events.push(Event { mark, cluster: cluster.clone(), old, new, deleted: false });
                    }
                }
            }
            Told::Deleted(key, last) => {
                let Some(old) = member.contents.remove(&key) else { return };
                let object = last.unwrap_or_else(|| old.object.clone());
                let new = Entry { object, mark };
                events.push(Event { mark, cluster: cluster.clone(), old: Some(old), new, deleted: true });
            }
        }
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
            changed: Mark::default(),
            changed_at: ResourceVersion::ZERO,
        }
    }
}

/// What turns one content into another, both in key order: deletions and puts as they come.
fn differences(before: &Contents, now: impl IntoIterator<Item = RawObject>) -> Vec<Told> {
    let mut told = Vec::new();
    let mut before = before.iter().peekable();
    for object in now {
        while let Some(gone) = before.next_if(|old| old.key() < object.key()) {
            told.push(Told::Deleted(gone.key().clone(), None));
        }
        match before.next_if(|old| old.key() == object.key()) {
            Some(old) if old.object.is_same_content(&object) => {}
            _ => told.push(Told::Put(object)),
        }
    }
    told.extend(before.map(|gone| Told::Deleted(gone.key().clone(), None)));
    told
}

/// How far marks may run ahead of what was written down for the next process: a minute of microseconds.
const HEADROOM: u64 = 60_000_000;

/// The marks of so many processes in a row are gone on from.
const MAKERS: usize = 16;

/// For how long a watcher may have been away: an hour of microseconds.
const MEMORY: u64 = 3_600_000_000;

#[cfg(test)]
mod tests;
