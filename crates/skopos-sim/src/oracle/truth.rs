//! The true states: the servers' logs, and for each store the story that it should tell.
//!
//! A rollback begins a new *line*: the log up to the target of the rollback, and the later commits. A story is a line as
//! one selector sees it: a change that brings an object into scope is an addition, one that takes it out a deletion.

use std::collections::HashMap;

use crate::history::{
    At, Change, ClusterId, Content, Entry, Fact, History, InformerId, KeyId, Kind, ResourceId, Seen,
    Selection, ShapeId, WatcherId,
};

/// The true states of all clusters.
pub(super) struct Truth {
    clusters: Vec<Vec<Line>>,
    /// Stories by informer, then by view.
    stories: Vec<Vec<Story>>,
    /// Stories by raw watch.
    watched: Vec<Story>,
    shapes: HashMap<u32, ShapeId>,
}

/// A log, with the time since which it is valid.
#[derive(Clone, Default)]
pub(super) struct Line {
    pub(super) began: At,
    /// The target RV of the rollback; 0 for the first line.
    pub(super) cut: u64,
    pub(super) commits: Vec<Commit>,
}

/// A write.
#[derive(Clone, Copy)]
pub(super) struct Commit {
    pub(super) at: At,
    pub(super) resource: ResourceId,
    pub(super) object: Seen,
    pub(super) shape: ShapeId,
    pub(super) change: Change,
}

/// Expected content of one view of an informer.
pub(super) struct Story {
    /// The lines, oldest first.
    pub(super) lines: Vec<Chapter>,
}

/// One line as a selector sees it.
#[derive(Default)]
pub(super) struct Chapter {
    pub(super) began: At,
    /// The target RV of the rollback.
    pub(super) cut: u64,
    pub(super) events: Vec<Event>,
    keys: HashMap<KeyId, Vec<usize>>,
}

/// A change as a selector sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) at: At,
    pub(super) kind: Kind,
    /// The delivered object: a deletion has the last state that was in scope, with the RV of the change.
    pub(super) object: Seen,
    pub(super) before: Content,
    pub(super) after: Content,
    /// True if another change of its resource came before it at its RV. Content of that RV may lack this event and those after it
    /// at the RV, until an event of a later RV is there.
    pub(super) shares: bool,
}

impl Truth {
    pub(super) fn of(history: &History) -> Self {
        let mut clusters = vec![vec![Line::default()]; history.cast.clusters.len()];
        let mut shapes = HashMap::new();
        for Entry { at, fact } in &history.entries {
            match fact {
                Fact::Committed { cluster, resource, object, shape, change } => {
                    let commit = Commit {
                        at: *at,
                        resource: *resource,
                        object: *object,
                        shape: *shape,
                        change: *change,
                    };
                    if let Some(line) = clusters[cluster.index()].last_mut() {
                        line.commits.push(commit);
                    }
                    if *change != Change::Deleted {
                        shapes.insert(object.stamp, *shape);
                    }
                }
                Fact::RolledBack { cluster, rv } => {
                    let lines = &mut clusters[cluster.index()];
                    let kept = lines.last().map(|line| &line.commits[..]).unwrap_or_default();
                    let commits = kept.iter().copied().take_while(|commit| commit.object.rv <= *rv).collect();
                    lines.push(Line { began: *at, cut: *rv, commits });
                }
                _ => {}
            }
        }
        let stories = history
            .cast
            .informers
            .iter()
            .map(|informer| {
                let cluster = history.cast.clients[informer.client.index()].cluster;
                let lines = &clusters[cluster.index()];
                views(&informer.selection)
                    .iter()
                    .map(|view| Story::of(history, lines, informer.resource, view))
                    .collect()
            })
            .collect();
        let watched = history.cast.watchers.iter().map(|watcher| {
            let cluster = history.cast.clients[watcher.client.index()].cluster;
            Story::of(history, &clusters[cluster.index()], watcher.resource, &watcher.selection)
        });
        Self { watched: watched.collect(), clusters, stories, shapes }
    }

    pub(super) fn lines(&self, cluster: ClusterId) -> &[Line] {
        &self.clusters[cluster.index()]
    }

    /// Returns the times of the rollbacks.
    pub(super) fn rollbacks(&self, cluster: ClusterId) -> impl Iterator<Item = At> + '_ {
        self.lines(cluster).iter().skip(1).map(|line| line.began)
    }

    /// Returns the stories of an informer, by view.
    pub(super) fn stories(&self, informer: InformerId) -> &[Story] {
        &self.stories[informer.index()]
    }

    /// Returns the expected story of a raw watch.
    pub(super) fn watched(&self, watcher: WatcherId) -> &Story {
        &self.watched[watcher.index()]
    }

    /// Returns the labels and fields of the version with this stamp.
    pub(super) fn shape(&self, stamp: u32) -> Option<ShapeId> {
        self.shapes.get(&stamp).copied()
    }

    /// Returns the time at which a cluster first reached a later RV, up to a moment.
    pub(super) fn passed(&self, cluster: ClusterId, rv: u64, at: At) -> Option<At> {
        let line = self.lines(cluster).iter().rev().find(|line| line.began <= at)?;
        let next = line.commits.partition_point(|commit| commit.object.rv <= rv);
        line.commits.get(next).map(|commit| commit.at).filter(|passed| *passed <= at)
    }

    /// Returns the newest RV of a cluster at a moment.
    pub(super) fn newest(&self, cluster: ClusterId, at: At) -> u64 {
        let lines = self.lines(cluster);
        let line = lines.iter().rev().find(|line| line.began <= at);
        let Some(line) = line else { return 0 };
        let until = line.commits.partition_point(|commit| commit.at <= at);
        line.commits[..until].last().map_or(line.cut, |commit| commit.object.rv.max(line.cut))
    }
}

/// Returns one selection for each view.
pub(super) fn views(selection: &Selection) -> Vec<Selection> {
    if selection.namespaces.is_empty() {
        return vec![selection.clone()];
    }
    let of = |namespace: &String| Selection { namespaces: vec![namespace.clone()], ..selection.clone() };
    selection.namespaces.iter().map(of).collect()
}

impl Story {
    fn of(history: &History, lines: &[Line], resource: ResourceId, selection: &Selection) -> Self {
        let chapter = |line: &Line| Chapter::of(history, line, resource, selection);
        Self { lines: lines.iter().map(chapter).collect() }
    }

    /// Returns the lines that existed at a moment, newest first.
    pub(super) fn lines_at(&self, at: At) -> impl Iterator<Item = (usize, &Chapter)> {
        self.lines.iter().enumerate().rev().filter(move |(_, line)| line.began <= at)
    }

    /// Returns the valid line at a moment.
    pub(super) fn line_at(&self, at: At) -> &Chapter {
        self.lines_at(at).next().map_or(&self.lines[0], |(_, line)| line)
    }
}

impl Chapter {
    fn of(history: &History, line: &Line, resource: ResourceId, selection: &Selection) -> Self {
        let mut chapter = Self { began: line.began, cut: line.cut, ..Self::default() };
        let mut scope: HashMap<KeyId, Seen> = HashMap::new();
        let mut content = Content::EMPTY;
        let mut rv = 0;
        for commit in line.commits.iter().filter(|commit| commit.resource == resource) {
            let object = commit.object;
            let shares = std::mem::replace(&mut rv, object.rv) == object.rv;
            let (key, shape) =
                (&history.names.keys[object.key.index()], &history.names.shapes[commit.shape.index()]);
            let wanted = commit.change != Change::Deleted && selection.matches(key, shape);
            let known = scope.get(&object.key).copied();
            let (kind, object) = match (known, wanted) {
                (None, true) => (Kind::Added, object),
                (Some(_), true) => (Kind::Updated, object),
                (Some(last), false) => (Kind::Deleted, Seen { rv: object.rv, ..last }),
                (None, false) => continue,
            };
            let before = content;
            if let Some(last) = known {
                content.remove(&last);
            }
            if wanted {
                content.add(&object);
                scope.insert(object.key, object);
            } else {
                scope.remove(&object.key);
            }
            chapter.keys.entry(object.key).or_default().push(chapter.events.len());
            chapter.events.push(Event { at: commit.at, kind, object, before, after: content, shares });
        }
        chapter
    }

    /// Returns the number of events up to an RV.
    pub(super) fn until(&self, rv: u64) -> usize {
        self.events.partition_point(|event| event.object.rv <= rv)
    }

    /// Returns the complete content at an RV.
    pub(super) fn content(&self, rv: u64) -> Content {
        self.events[..self.until(rv)].last().map_or(Content::EMPTY, |event| event.after)
    }

    /// Returns the content at a moment.
    pub(super) fn content_at(&self, at: At) -> Content {
        let until = self.events.partition_point(|event| event.at <= at);
        self.events[..until].last().map_or(Content::EMPTY, |event| event.after)
    }

    /// Returns the number of events in content of an RV: all up to it, or, where several changes share it, some of the first of
    /// them. `None`: it is no such content.
    pub(super) fn place(&self, rv: u64, content: Content) -> Option<usize> {
        if self.content(rv) == content {
            return Some(self.until(rv));
        }
        self.parts(rv).find(|(_, event)| event.before == content).map(|(place, _)| place)
    }

    /// Returns the events of an RV that content of it may lack, together with the later ones at the RV.
    fn parts(&self, rv: u64) -> impl Iterator<Item = (usize, &Event)> {
        let first = self.events.partition_point(|event| event.object.rv < rv);
        (first..self.until(rv)).map(|place| (place, &self.events[place])).filter(|(_, event)| event.shares)
    }

    /// Returns the first event of this RV that content of it lacks.
    pub(super) fn rest(&self, rv: u64, content: Content) -> Option<&Event> {
        self.missing(rv, content).filter(|event| event.object.rv == rv)
    }

    /// Returns the first event that content of this RV lacks.
    pub(super) fn missing(&self, rv: u64, content: Content) -> Option<&Event> {
        self.events.get(self.place(rv, content).unwrap_or_else(|| self.until(rv)))
    }

    /// Returns the change that last ended this content of the server, at this RV, up to a moment; `None` while the server has it.
    /// Content that a list confirmed is as old as that, whatever came and went before.
    pub(super) fn ceased(&self, rv: u64, content: Content, at: At) -> Option<&Event> {
        let past = &self.events[..self.events.partition_point(|event| event.at <= at)];
        if past.last().map_or(Content::EMPTY, |event| event.after) == content {
            return None;
        }
        let last = past.iter().rfind(|event| event.before == content);
        last.or_else(|| self.missing(rv, content).filter(|event| event.at <= at))
    }

    /// Returns the event of this RV, if it is about this key.
    pub(super) fn event(&self, rv: u64, key: KeyId) -> Option<&Event> {
        let before = self.events[..self.until(rv)].iter().rev().take_while(|event| event.object.rv == rv);
        before.into_iter().find(|event| event.object.key == key)
    }

    /// Returns the object of a key at an RV.
    pub(super) fn object(&self, key: KeyId, rv: u64) -> Option<Seen> {
        let events = self.keys.get(&key)?.iter().map(|event| &self.events[*event]);
        state(events.take_while(|event| event.object.rv <= rv).last())
    }

    /// Returns whether content of an RV may have this object, or none, under a key.
    pub(super) fn may_have(&self, key: KeyId, rv: u64, object: Option<Seen>) -> bool {
        let before = || self.parts(rv).find(|(_, event)| event.object.key == key);
        self.object(key, rv) == object || before().is_some() && self.object(key, rv - 1) == object
    }

    /// Returns the last change of a key up to a moment, if this is the object before it, and content of its RV may lack it.
    pub(super) fn lacking(&self, key: KeyId, object: Option<Seen>, at: At) -> Option<&Event> {
        let events = self.keys.get(&key).into_iter().flatten().map(|event| &self.events[*event]);
        let last = events.take_while(|event| event.at <= at).last()?;
        (last.shares && self.object(key, last.object.rv - 1) == object).then_some(last)
    }

    /// Returns whether a key's object was this at any time from `from` to `to`.
    pub(super) fn was(&self, key: KeyId, object: Option<Seen>, from: At, to: At) -> bool {
        let events = || self.keys.get(&key).into_iter().flatten().map(|event| &self.events[*event]);
        // An object that was changed at exactly that moment existed at it.
        let at_first = state(events().take_while(|event| event.at < from).last());
        let mut later = events().filter(|event| event.at >= from && event.at <= to);
        at_first == object || later.any(|event| state(Some(event)) == object)
    }

    /// Returns whether a list of an RV of at least `from` ever had this content.
    pub(super) fn was_listed_from(&self, from: u64, content: Content) -> bool {
        let later = &self.events[self.until(from)..];
        let whole = |at: usize| later.get(at + 1).is_none_or(|next| next.object.rv > later[at].object.rv);
        self.content(from) == content
            || later.iter().enumerate().any(|(at, event)| event.after == content && whole(at))
    }

    /// Returns whether events ever added up to this content, for a reader that began with content of an RV of at least `from`.
    pub(super) fn was_told_from(&self, from: u64, content: Content) -> bool {
        self.place(from, content).is_some()
            || self.events[self.until(from)..].iter().any(|event| event.after == content)
    }
}

fn state(last: Option<&Event>) -> Option<Seen> {
    last.filter(|event| event.kind != Kind::Deleted).map(|event| event.object)
}
