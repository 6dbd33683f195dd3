//! Model tests of random interleavings: members' histories, failures, returns and restarts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use skopos_wire::Limits;

use super::*;

/// The state of a watcher's client: for each object its uid and the member's own version.
type State = BTreeMap<(ClusterId, ObjectKey), (String, u64)>;

/// The true state of a member.
struct Truth {
    id: ClusterId,
    /// All changes so far, each with its version. A version may have several changes, as etcd deletes all keys of an
    /// expired lease at once.
    history: Vec<(usize, MemberChange)>,
    /// The number of changes that the merger received; `None` before the first content.
    received: Option<usize>,
    /// The number of changes in a list ahead of that.
    listed: usize,
    /// The version that gets no more changes: it was listed, and a list has all changes of a version.
    closed: usize,
}

/// A client that lists, watches, disconnects, and comes back.
struct Watcher {
    merged_version: MergedVersion,
    selected: BTreeSet<ClusterId>,
    state: State,
}

struct World {
    random: fastrand::Rng,
    clock: i64,
    members: Vec<Truth>,
    merger: Merger,
    /// The events of this process.
    log: Vec<Event>,
    watchers: Vec<Watcher>,
    relists: usize,
    resumed: usize,
}

impl Truth {
    /// Returns the content after the first `count` changes.
    fn content(&self, count: usize) -> BTreeMap<ObjectKey, RawObject> {
        let mut content = BTreeMap::new();
        for (_, change) in &self.history[..count] {
            match change {
                MemberChange::Put(object) => content.insert(object.key().clone(), object.clone()),
                MemberChange::Deleted(key, _) => content.remove(key),
            };
        }
        content
    }

    /// Returns whether the content after the first `count` changes has all changes of its version.
    fn is_whole(&self, count: usize) -> bool {
        count == self.history.len() || self.version(count) < self.version(count + 1)
    }

    /// Returns the version of the content after the first `count` changes.
    fn version(&self, count: usize) -> usize {
        self.history[..count].last().map_or(0, |(version, _)| *version)
    }

    /// Returns the number of changes that the merger must show.
    fn shown(&self) -> Option<usize> {
        self.received.map(|received| received.max(self.listed))
    }

    fn happen(&mut self, random: &mut fastrand::Rng) {
        let name = format!("o{}", random.u32(..6));
        let newest = self.version(self.history.len());
        let mut at_once = self.history.iter().filter(|(version, _)| *version == newest);
        let shares = newest > self.closed
            && random.u32(..3) == 0
            && at_once.all(|(_, change)| key_of(change).name() != name);
        let version = if shares { newest.max(1) } else { newest + 1 };
        let object = |uid: &str| {
            let value = json!({"metadata": {"namespace": "n", "name": name, "uid": uid,
                "resourceVersion": version.to_string()}});
            RawObject::from_value(&value, &Limits::default()).unwrap()
        };
        let content = self.content(self.history.len());
        let change = match content.get(&ObjectKey::namespaced("n", &name)) {
            None => MemberChange::Put(object(&format!("u{version}"))),
            Some(old) if random.u32(..3) == 0 => {
                MemberChange::Deleted(old.key().clone(), random.bool().then(|| object(old.uid())))
            }
            // The object was deleted and created again, and the member only sends the new one.
            Some(_) if random.u32(..5) == 0 => MemberChange::Put(object(&format!("u{version}"))),
            Some(old) => MemberChange::Put(object(old.uid())),
        };
        self.history.push((version, change));
    }
}

fn key_of(change: &MemberChange) -> &ObjectKey {
    match change {
        MemberChange::Put(object) => object.key(),
        MemberChange::Deleted(key, _) => key,
    }
}

fn position(version: usize) -> Position {
    Position { identity: Some("uid 1".into()), epoch: 0, version: (version as u64).into() }
}

impl World {
    fn new(seed: u64) -> Self {
        let member = |n: u32| Truth {
            id: ClusterId::new(format!("c{n}")).unwrap(),
            history: Vec::new(),
            received: None,
            listed: 0,
            closed: 0,
        };
        let began = Timestamp::from_microsecond(1_000).unwrap();
        let mut merger = Merger::new(None, InstanceTag::new(seed), began);
        merger.open(began);
        Self {
            random: fastrand::Rng::with_seed(seed),
            clock: 1_000,
            members: (0..4).map(member).collect(),
            merger,
            log: Vec::new(),
            watchers: Vec::new(),
            relists: 0,
            resumed: 0,
        }
    }

    /// Makes a world in which a member has content, and returns the merged version of a list.
    fn shown() -> (Self, MergedVersion) {
        let mut world = Self::new(1);
        world.members[0].happen(&mut world.random);
        world.take(0);
        let now = world.now();
        let merged_version = world.merger.view(now).merged_version;
        (world, merged_version)
    }

    fn now(&mut self) -> Timestamp {
        // Sometimes the clock stops, or goes back.
        self.clock += self.random.i64(-3..10);
        Timestamp::from_microsecond(self.clock).unwrap()
    }

    fn step(&mut self) {
        let which = self.random.usize(..self.members.len());
        match self.random.u32(..40) {
            0..12 => self.members[which].happen(&mut self.random),
            12..22 => self.tell_next(which),
            22..24 => self.take(which),
            24 => self.vanish(which),
            28..31 => self.list_ahead(which),
            25..27 => self.new_watcher(),
            27 => self.restart(),
            _ if self.watchers.is_empty() => {}
            _ => {
                let watcher = self.random.usize(..self.watchers.len());
                let most = self.random.usize(..6);
                self.watch(watcher, most);
            }
        }
        self.check_contents();
    }

    /// Checks that the merger shows all received or listed changes of each member, whichever are more: the content never
    /// goes back.
    fn check_contents(&self) {
        for member in &self.members {
            let shown = self.merger.roster.get(&member.id).filter(|member| member.position.is_some());
            let shown = shown.map(|shown| shown.contents.iter().map(|entry| seen(&entry.object)).collect());
            let content = |count| member.content(count).values().map(seen).collect::<Vec<_>>();
            assert_eq!(shown, member.shown().map(content), "{}", member.id);
        }
    }

    fn tell_next(&mut self, which: usize) {
        let now = self.now();
        let member = &mut self.members[which];
        let Some(received) = member.received else { return self.take(which) };
        let Some((version, next)) = member.history.get(received) else {
            return self.merger.reached(&member.id, position(member.version(received)));
        };
        member.received = Some(received + 1);
        let events = self.merger.change(&member.id, position(*version), next.clone(), now);
        self.publish(events);
    }

    fn take(&mut self, which: usize) {
        let now = self.now();
        let member = &mut self.members[which];
        // After a gap the list may be late. A list has all changes that share a version.
        let newest = member.history.len();
        let counts = (member.received.unwrap_or(newest)..=newest).filter(|count| member.is_whole(*count));
        let counts: Vec<usize> = counts.collect();
        let count = counts[self.random.usize(..counts.len())];
        let content_source = if member.received.is_some() { ContentSource::Same } else { ContentSource::New };
        if content_source == ContentSource::New {
            member.listed = 0;
        }
        member.received = Some(count);
        let at = position(member.version(count));
        let events =
            self.merger.take(&member.id, at, content_source, member.content(count).into_values(), now);
        self.publish(events);
    }

    fn list_ahead(&mut self, which: usize) {
        let now = self.now();
        let member = &mut self.members[which];
        let count = member.history.len();
        member.closed = member.version(count);
        let at = position(member.version(count));
        let objects = member.content(count).into_values();
        let events = self.merger.take_ahead(&member.id, at, objects, now);
        // The list has all changes of its version; the member may not have sent some of these yet.
        if member.shown().is_some() {
            member.listed = count;
        } else {
            assert!(events.is_empty());
        }
        self.publish(events);
    }

    fn vanish(&mut self, which: usize) {
        let now = self.now();
        (self.members[which].received, self.members[which].listed) = (None, 0);
        self.merger.vanish(&self.members[which].id, now);
    }

    fn publish(&mut self, events: Vec<Event>) {
        for event in events {
            assert!(
                self.log.last().is_none_or(|last| last.merged_version < event.merged_version),
                "marks grow strictly"
            );
            assert_eq!(event.new.merged_version, event.merged_version);
            self.log.push(event);
        }
    }

    /// Adds a watcher after a list of some members or all.
    fn new_watcher(&mut self) {
        let all = self.members.iter().map(|member| member.id.clone());
        let some = self.random.bool();
        let mut random = self.random.fork();
        let selected = all.filter(|_| !some || random.bool()).collect();
        let mut watcher = Watcher { merged_version: MergedVersion::default(), selected, state: State::new() };
        self.list(&mut watcher);
        self.watchers.push(watcher);
    }

    fn list(&mut self, watcher: &mut Watcher) {
        let now = self.now();
        let view = self.merger.view(now);
        assert!(view.merged_version >= watcher.merged_version, "lists do not go back");
        watcher.state = state_of(&view, &watcher.selected);
        watcher.merged_version = view.merged_version;
    }

    /// Runs one connection of a watcher, which ends after some events.
    fn watch(&mut self, which: usize, most: usize) {
        let mut watcher = self.watchers.remove(which);
        let resume = self.merger.resume(watcher.merged_version, |cluster| watcher.selected.contains(cluster));
        let Resume::After(from) = resume else {
            self.relists += 1;
            self.list(&mut watcher);
            return self.watchers.push(watcher);
        };
        self.resumed += 1;
        let after = self.log.iter().filter(|event| event.merged_version > from);
        let mut events = after.filter(|event| watcher.selected.contains(&event.cluster));
        for event in events.by_ref().take(most) {
            assert!(event.merged_version > watcher.merged_version);
            watcher.merged_version = event.merged_version;
            apply(&mut watcher.state, event);
        }
        if events.next().is_none() {
            // A bookmark.
            let now = self.now();
            let view = self.merger.view(now);
            watcher.merged_version = view.merged_version;
            assert_eq!(watcher.state, state_of(&view, &watcher.selected), "caught up is equal");
        }
        self.watchers.push(watcher);
    }

    /// Restarts the process. Members are restored from checkpoints that are as new as the changes received, older, or
    /// lost; some have newer content before the first request.
    fn restart(&mut self) {
        let resume_state = ResumeState::decode(&self.merger.resume_state().encode("k"), "k").unwrap();
        let now = self.now();
        self.merger = Merger::new(Some(resume_state), InstanceTag::new(self.random.u64(..)), now);
        self.log.clear();
        let graceful = self.random.bool();
        let mut ahead = BTreeSet::new();
        for which in 0..self.members.len() {
            let now = self.now();
            let Some(received) = self.members[which].received else { continue };
            if std::mem::take(&mut self.members[which].listed) > received {
                ahead.insert(self.members[which].id.clone());
            }
            let earliest = received.saturating_sub(2);
            let latest = self.members[which].history.len().min(received + 2);
            let restored = if graceful { received } else { self.random.usize(earliest..=latest) };
            if !graceful && self.random.u32(..5) == 0 {
                self.members[which].received = None;
                continue;
            }
            let member = &mut self.members[which];
            member.received = Some(restored);
            let content = member.content(restored).into_values();
            let at = position(member.version(restored));
            let events = self.merger.take(&member.id, at, ContentSource::New, content, now);
            assert!(events.is_empty());
            if self.random.bool() {
                self.tell_next(which);
            }
        }
        let now = self.now();
        self.merger.open(now);
        if graceful {
            for watcher in &self.watchers {
                let member_state =
                    |id: &ClusterId| self.merger.past.as_ref().unwrap().resume_state.members.get(id);
                let seen = |id: &ClusterId| {
                    member_state(id).is_none_or(|member_state| member_state.changed <= watcher.merged_version)
                };
                let vanished = |id: &ClusterId| {
                    self.merger.vanished.get(id).is_some_and(|m| *m > watcher.merged_version)
                };
                // Checkpoints do not have the list ahead.
                if watcher.selected.iter().all(|id| seen(id) && !vanished(id) && !ahead.contains(id)) {
                    let resume =
                        self.merger.resume(watcher.merged_version, |id| watcher.selected.contains(id));
                    assert_eq!(resume, Resume::After(self.merger.start()), "who has seen all goes on");
                }
            }
        }
    }

    /// Delivers all changes, and lets all watchers catch up.
    fn settle(&mut self) {
        for which in 0..self.members.len() {
            while self.members[which].received != Some(self.members[which].history.len()) {
                self.tell_next(which);
            }
        }
        for _ in 0..self.watchers.len() {
            self.watch(0, usize::MAX);
        }
        let truth = self.members.iter().flat_map(|member| {
            let content = member.content(member.history.len()).into_values();
            content.map(|object| ((member.id.clone(), object.key().clone()), seen(&object)))
        });
        let truth: State = truth.collect();
        for watcher in &self.watchers {
            let mut expected = truth.clone();
            expected.retain(|(cluster, _), _| watcher.selected.contains(cluster));
            assert_eq!(watcher.state, expected);
        }
    }
}

fn seen(object: &RawObject) -> (String, u64) {
    (object.uid().to_owned(), object.resource_version().as_u64().unwrap())
}

fn state_of(view: &View, selected: &BTreeSet<ClusterId>) -> State {
    let members = view.roster.iter().filter(|(id, _)| selected.contains(*id));
    let entries = members.flat_map(|(id, member)| member.contents.iter().map(move |entry| (id, entry)));
    entries
        .inspect(|(_, entry)| assert!(entry.merged_version <= view.merged_version))
        .map(|(id, entry)| ((id.clone(), entry.key().clone()), seen(&entry.object)))
        .collect()
}

/// Applies an event to a client's state; checks that it matches that state.
fn apply(state: &mut State, event: &Event) {
    let key = (event.cluster.clone(), event.new.key().clone());
    let had = state.get(&key).cloned();
    assert_eq!(
        had,
        event.old.as_ref().map(|old| seen(&old.object)),
        "{event:?} fits to what was told before"
    );
    match event.deleted {
        true => state.remove(&key),
        false => {
            let now = seen(&event.new.object);
            if let Some(had) = had {
                assert_eq!(had.0, now.0, "an update never spans two uids");
                assert!(had.1 < now.1, "no object goes back");
            }
            state.insert(key, now)
        }
    };
}

#[test]
fn watchers_see_each_member_history_through_restarts() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let (mut relists, mut resumed) = (0, 0);
    for seed in 0..cases {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        world.settle();
        relists += world.relists;
        resumed += world.resumed;
    }
    assert!(resumed > relists && relists > 0, "both happen: {resumed} resumed, {relists} listed anew");
}

#[test]
fn a_view_does_not_change() {
    let mut world = World::new(3);
    let mut views = Vec::new();
    for _ in 0..300 {
        world.step();
        let now = world.now();
        let view = world.merger.view(now);
        let all = view.roster.keys().cloned().collect();
        views.push((state_of(&view, &all), view));
    }
    for (then, view) in views {
        assert_eq!(state_of(&view, &view.roster.keys().cloned().collect()), then);
    }
}

#[test]
fn resume_with_unissued_version_expires() {
    let (world, merged_version) = World::shown();
    let resume = |merger: &Merger, merged_version| merger.resume(merged_version, |_| true);
    assert_eq!(resume(&world.merger, merged_version), Resume::After(merged_version));
    assert_eq!(resume(&world.merger, merged_version.after(1)), Resume::Expired);
    assert_eq!(resume(&world.merger, MergedVersion::new(1)), Resume::Expired);
    // A merged version given out after the last write of the resume file.
    let resume_state = world.merger.resume_state();
    let merger =
        Merger::new(Some(resume_state), InstanceTag::new(2), Timestamp::from_microsecond(0).unwrap());
    assert_eq!(resume(&merger, merged_version.after(1)), Resume::Expired);
    assert!(
        merger.start() > merged_version.after(MAX_LEAD_MICROS),
        "marks of two processes never meet, whatever the clock says"
    );
}

/// Checks that a merged version of another gateway expires. Two gateways behind one address receive changes in
/// different orders.
#[test]
fn resume_with_version_of_other_gateway_expires() {
    let (world, merged_version) = World::shown();
    let resume_state = world.merger.resume_state();
    let resume = |past: Option<ResumeState>, instance| {
        let began = Timestamp::from_microsecond(500).unwrap();
        let mut other = Merger::new(past, InstanceTag::new(instance), began);
        let content = world.members[0].content(1).into_values();
        other.take(&world.members[0].id, position(1), ContentSource::New, content, began);
        other.open(began);
        other.view(Timestamp::from_microsecond(1_000_000).unwrap());
        other.resume(merged_version, |_| true)
    };
    assert_eq!(resume(None, 2), Resume::Expired);
    assert!(matches!(resume(Some(resume_state.clone()), 2), Resume::After(_)), "the process after it");
    let of_others = ResumeState { instances: vec![InstanceTag::new(3)], ..resume_state };
    assert_eq!(resume(Some(of_others), 2), Resume::Expired);
}

#[test]
fn removed_member_ends_only_its_own_watches() {
    let mut world = World::new(1);
    for which in 0..2 {
        world.members[which].happen(&mut world.random);
        world.take(which);
    }
    let now = world.now();
    let merged_version = world.merger.view(now).merged_version;
    let (a, b) = (world.members[0].id.clone(), world.members[1].id.clone());
    let log = world.log.len();
    world.vanish(0);
    assert_eq!(world.log.len(), log, "nothing is said to have been deleted");
    assert_eq!(world.merger.resume(merged_version, |id| *id == a), Resume::Expired);
    assert_eq!(world.merger.resume(merged_version, |id| *id == b), Resume::After(merged_version));
}

#[test]
fn deletion_of_object_listed_ahead_is_sent() {
    let now = Timestamp::from_microsecond(1_000).unwrap();
    let mut merger = Merger::new(None, InstanceTag::new(1), now);
    merger.open(now);
    let id = ClusterId::new("c0").unwrap();
    let object = |name: &str, version: u64| {
        let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name,
            "resourceVersion": version.to_string()}});
        RawObject::from_value(&value, &Limits::default()).unwrap()
    };
    merger.take(&id, position(5), ContentSource::New, [object("a", 3), object("b", 4)], now);
    merger.take_ahead(&id, position(8), [object("a", 3), object("b", 8)], now);
    // A deletion that a list at 9 detects has the version before it.
    let gone = |name: &str| MemberChange::Deleted(object(name, 3).key().clone(), None);
    let events = merger.change(&id, position(8), gone("a"), now);
    assert!(
        matches!(events.as_slice(), [event] if event.deleted && event.new.object.name() == "a"),
        "{events:?}"
    );
    // The list has a later object of this name, so the deletion was before it.
    assert!(merger.change(&id, position(7), gone("b"), now).is_empty());
    assert_eq!(merger.change(&id, position(9), gone("b"), now).len(), 1);
}

#[test]
fn restore_sends_changed_content_of_same_version() {
    let now = Timestamp::from_microsecond(1_000).unwrap();
    let mut merger = Merger::new(None, InstanceTag::new(1), now);
    merger.open(now);
    let id = ClusterId::new("c0").unwrap();
    let at = |epoch| Position { epoch, ..position(7) };
    let object = |name: &str, phase: &str| {
        let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "7"},
            "phase": phase});
        RawObject::from_value(&value, &Limits::default()).unwrap()
    };
    let before = [object("a", "old"), object("b", "old")];
    assert_eq!(merger.take(&id, at(1), ContentSource::New, before.clone(), now).len(), 2);
    assert!(
        merger.take(&id, at(1), ContentSource::Same, before, now).is_empty(),
        "nothing differs within one history"
    );
    let other = object("a", "new");
    let events = merger.take(&id, at(2), ContentSource::Same, [other.clone(), object("b", "old")], now);
    let [event] = events.as_slice() else { panic!("one object differs: {events:?}") };
    assert_eq!((event.new.object.content(), event.deleted), (other.content(), false));
    assert_eq!(
        event.old.as_ref().map(|old| old.object.content().clone()),
        Some(object("a", "old").content().clone())
    );
    let view = merger.view(now);
    let shown = view.roster[&id].contents.get(other.key()).unwrap();
    assert_eq!(shown.object.content(), other.content(), "lists show what the restored server has");
    // A later read of the same store begins with the same epoch number, and may have another form of the same version.
    assert_eq!(
        merger.take(&id, at(2), ContentSource::Same, [object("a", "newest"), object("b", "old")], now).len(),
        1
    );
    let with_kind = r#"{"kind":"K","apiVersion":"v1","#.to_owned();
    let as_in_watches = |object: RawObject| {
        let text = with_kind.clone() + std::str::from_utf8(&object.content()[1..]).unwrap();
        RawObject::copy_from(text.as_bytes(), &Limits::default()).unwrap()
    };
    let same = [object("a", "newest"), object("b", "old")].map(as_in_watches);
    assert!(merger.take(&id, at(3), ContentSource::Same, same, now).is_empty(), "it is the same content");
}
