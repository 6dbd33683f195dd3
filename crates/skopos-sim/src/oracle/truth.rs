//! What the servers really had: their logs, and for each store the story that it should tell.
//!
//! A rollback begins a new *line*: the log up to the point that was gone back to, and what came after. A story is a line as
//! one selector sees it: a change that brings an object into scope is an addition, one that takes it out a deletion.

use std::collections::HashMap;

use crate::history::{
    At, Change, ClusterId, Content, Entry, Fact, History, InformerId, KeyId, Kind, ResourceId, Seen,
    Selection, ShapeId, WatcherId,
};

/// Of all clusters.
pub(super) struct Truth {
    clusters: Vec<Vec<Line>>,
    /// By informer, then by view.
    stories: Vec<Vec<Story>>,
    /// By raw watch.
    watched: Vec<Story>,
    shapes: HashMap<u32, ShapeId>,
}

/// A log, and since when it is the one that counts.
#[derive(Clone, Default)]
pub(super) struct Line {
    pub(super) began: At,
    /// The RV that was gone back to; 0 for the first line.
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

/// What one view of an informer should be like.
pub(super) struct Story {
    /// The lines, oldest first.
    pub(super) lines: Vec<Chapter>,
}

/// One line as a selector sees it.
#[derive(Default)]
pub(super) struct Chapter {
    pub(super) began: At,
    /// The RV that was gone back to.
    pub(super) cut: u64,
    pub(super) events: Vec<Event>,
    keys: HashMap<KeyId, Vec<usize>>,
}

/// A change as a selector sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) at: At,
    pub(super) kind: Kind,
    /// As it is delivered: a deletion has the last state that was in scope, with the RV of the change.
    pub(super) object: Seen,
    pub(super) before: Content,
    pub(super) after: Content,
    /// Another change of its resource came before it at its RV: content of that RV may lack it and what follows at the RV, for as
    /// long as nothing of a later one is there.
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

    /// When history went back.
    pub(super) fn rollbacks(&self, cluster: ClusterId) -> impl Iterator<Item = At> + '_ {
        self.lines(cluster).iter().skip(1).map(|line| line.began)
    }

    /// By view.
    pub(super) fn stories(&self, informer: InformerId) -> &[Story] {
        &self.stories[informer.index()]
    }

    /// What a raw watch should tell.
    pub(super) fn watched(&self, watcher: WatcherId) -> &Story {
        &self.watched[watcher.index()]
    }

    /// What selectors saw of the version that bears this stamp.
    pub(super) fn shape(&self, stamp: u32) -> Option<ShapeId> {
        self.shapes.get(&stamp).copied()
    }

    /// When, up to a moment, a cluster first came to a later RV.
    pub(super) fn passed(&self, cluster: ClusterId, rv: u64, at: At) -> Option<At> {
        let line = self.lines(cluster).iter().rev().find(|line| line.began <= at)?;
        let next = line.commits.partition_point(|commit| commit.object.rv <= rv);
        line.commits.get(next).map(|commit| commit.at).filter(|passed| *passed <= at)
    }

    /// The newest RV of a cluster at a moment.
    pub(super) fn newest(&self, cluster: ClusterId, at: At) -> u64 {
        let lines = self.lines(cluster);
        let line = lines.iter().rev().find(|line| line.began <= at);
        let Some(line) = line else { return 0 };
        let until = line.commits.partition_point(|commit| commit.at <= at);
        line.commits[..until].last().map_or(line.cut, |commit| commit.object.rv.max(line.cut))
    }
}

/// One selection for each view.
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

    /// The lines that there were at a moment, newest first.
    pub(super) fn lines_at(&self, at: At) -> impl Iterator<Item = (usize, &Chapter)> {
        self.lines.iter().enumerate().rev().filter(move |(_, line)| line.began <= at)
    }

    /// The line that counted at a moment.
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

    /// How many events there are up to an RV.
    pub(super) fn until(&self, rv: u64) -> usize {
        self.events.partition_point(|event| event.object.rv <= rv)
    }

    /// The content at an RV, when all of it is there.
    pub(super) fn content(&self, rv: u64) -> Content {
        self.events[..self.until(rv)].last().map_or(Content::EMPTY, |event| event.after)
    }

    /// The content at a moment.
    pub(super) fn content_at(&self, at: At) -> Content {
        let until = self.events.partition_point(|event| event.at <= at);
        self.events[..until].last().map_or(Content::EMPTY, |event| event.after)
    }

    /// How many events there are in content of an RV: all up to it, or, where several changes share it, some of the first of
    /// them. `None`: it is no such content.
    pub(super) fn place(&self, rv: u64, content: Content) -> Option<usize> {
        if self.content(rv) == content {
            return Some(self.until(rv));
        }
        self.parts(rv).find(|(_, event)| event.before == content).map(|(place, _)| place)
    }

    /// The events of an RV that content of it may lack, with what follows them at the RV.
    fn parts(&self, rv: u64) -> impl Iterator<Item = (usize, &Event)> {
        let first = self.events.partition_point(|event| event.object.rv < rv);
        (first..self.until(rv)).map(|place| (place, &self.events[place])).filter(|(_, event)| event.shares)
    }

    /// The first event that content of this RV lacks of it.
    pub(super) fn rest(&self, rv: u64, content: Content) -> Option<&Event> {
        self.missing(rv, content).filter(|event| event.object.rv == rv)
    }

    /// The first event that content of this RV lacks.
    pub(super) fn missing(&self, rv: u64, content: Content) -> Option<&Event> {
        self.events.get(self.place(rv, content).unwrap_or_else(|| self.until(rv)))
    }

    /// The change with which the server ceased to have this content, of this RV, the last time up to a moment; `None` while it has
    /// it. Content that a list confirmed is as old as that, however much came and went before.
    pub(super) fn ceased(&self, rv: u64, content: Content, at: At) -> Option<&Event> {
        let past = &self.events[..self.events.partition_point(|event| event.at <= at)];
        if past.last().map_or(Content::EMPTY, |event| event.after) == content {
            return None;
        }
        let last = past.iter().rfind(|event| event.before == content);
        last.or_else(|| self.missing(rv, content).filter(|event| event.at <= at))
    }

    /// The event of this RV, if it is of this key.
    pub(super) fn event(&self, rv: u64, key: KeyId) -> Option<&Event> {
        let before = self.events[..self.until(rv)].iter().rev().take_while(|event| event.object.rv == rv);
        before.into_iter().find(|event| event.object.key == key)
    }

    /// The object of a key at an RV.
    pub(super) fn object(&self, key: KeyId, rv: u64) -> Option<Seen> {
        let events = self.keys.get(&key)?.iter().map(|event| &self.events[*event]);
        state(events.take_while(|event| event.object.rv <= rv).last())
    }

    /// Whether content of an RV may have this object, or none, under a key.
    pub(super) fn may_have(&self, key: KeyId, rv: u64, object: Option<Seen>) -> bool {
        let before = || self.parts(rv).find(|(_, event)| event.object.key == key);
        self.object(key, rv) == object || before().is_some() && self.object(key, rv - 1) == object
    }

    /// The last change of a key up to a moment, if this is what there was before, and it may be missing from content of its RV.
    pub(super) fn lacking(&self, key: KeyId, object: Option<Seen>, at: At) -> Option<&Event> {
        let events = self.keys.get(&key).into_iter().flatten().map(|event| &self.events[*event]);
        let last = events.take_while(|event| event.at <= at).last()?;
        (last.shares && self.object(key, last.object.rv - 1) == object).then_some(last)
    }

    /// Whether a key's object was this at any time from `from` to `to`.
    pub(super) fn was(&self, key: KeyId, object: Option<Seen>, from: At, to: At) -> bool {
        let events = || self.keys.get(&key).into_iter().flatten().map(|event| &self.events[*event]);
        // What was changed at that very moment was there at it.
        let at_first = state(events().take_while(|event| event.at < from).last());
        let mut later = events().filter(|event| event.at >= from && event.at <= to);
        at_first == object || later.any(|event| state(Some(event)) == object)
    }

    /// Whether a list of an RV of at least `from` ever had this.
    pub(super) fn was_listed_from(&self, from: u64, content: Content) -> bool {
        let later = &self.events[self.until(from)..];
        let whole = |at: usize| later.get(at + 1).is_none_or(|next| next.object.rv > later[at].object.rv);
        self.content(from) == content
            || later.iter().enumerate().any(|(at, event)| event.after == content && whole(at))
    }

    /// Whether what was told ever added up to this, by whoever began with content of an RV of at least `from`.
    pub(super) fn was_told_from(&self, from: u64, content: Content) -> bool {
        self.place(from, content).is_some()
            || self.events[self.until(from)..].iter().any(|event| event.after == content)
    }
}

fn state(last: Option<&Event>) -> Option<Seen> {
    last.filter(|event| event.kind != Kind::Deleted).map(|event| event.object)
}
