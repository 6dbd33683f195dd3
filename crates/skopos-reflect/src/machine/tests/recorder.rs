//! A sink that checks the order of calls, and records them.

use std::collections::BTreeSet;

use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use super::history::{Delivery, delivery};
use super::server::Content;
use crate::{Change, Commit, Condition, ReflectorState, ReplaceCause, Sink, Time};

#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) content: Content,
    pub(super) rv: Option<u64>,
    pub(super) epoch: u64,
    pub(super) fresh: Option<Time>,
    pub(super) commits: Vec<Commit>,
    pub(super) batches: usize,
    pub(super) conditions: Vec<Condition>,
    /// All reported reflector states.
    pub(super) told: Vec<ReflectorState>,
    /// True if the visible content has changed.
    pub(super) stepped: bool,
    /// The names known to be applied at our RV; `None` if that is everything.
    pub(super) here: Option<BTreeSet<String>>,
    /// The initial content's names at its RV: their events come again, and are dropped as a store drops them.
    kept: Option<(u64, BTreeSet<String>)>,
    /// The position before the unchecked steps; `deliveries` holds their changes.
    pub(super) came_from: Option<(u64, Option<BTreeSet<String>>)>,
    pub(super) deliveries: Vec<Delivery>,
    /// The names that could not be decoded, without a good event since.
    pub(super) set_aside: BTreeSet<String>,
    /// The number of them that was reported.
    undecodable: usize,
    /// True if it receives changes without content, where nothing can be healed.
    pub(super) changes_only: bool,
    /// True if it compares its content on request; `comparisons` counts the requests.
    pub(super) compares: bool,
    pub(super) comparisons: usize,
    /// True if a sink of changes was told to resume from another RV.
    pub(super) went_on: bool,
    /// The last skipped change, and its RV.
    passed: Option<(u64, String)>,
    staged: Option<(Content, BTreeSet<String>)>,
    stopped: bool,
    /// All deliveries of this epoch: (key, rv, deletion).
    delivered: BTreeSet<(String, u64, bool)>,
}

impl Recorder {
    pub(super) fn new(content: crate::Content) -> Self {
        Recorder { changes_only: content == crate::Content::Changes, ..Recorder::default() }
    }

    /// Begins with older content, which has these names at its RV, and perhaps not all.
    pub(super) fn keep(&mut self, rv: u64, content: Content, here: BTreeSet<String>) {
        (self.rv, self.content) = (Some(rv), content);
        if !self.changes_only {
            self.here = Some(here.clone());
            self.kept = Some((rv, here));
        }
    }

    pub(super) fn causes(&self) -> Vec<ReplaceCause> {
        self.commits.iter().map(|commit| commit.cause).collect()
    }

    /// Returns whether a watch from there brings everything that was not applied, and nothing older.
    pub(super) fn goes_on_after(&self, rv: Option<u64>) -> bool {
        self.rv == rv || self.here.is_some() && self.rv == rv.map(|rv| rv + 1)
    }

    pub(super) fn is_staging(&self) -> bool {
        self.staged.is_some()
    }

    fn step(&mut self, rv: &ResourceVersion) {
        assert!(!self.stopped && self.staged.is_none());
        let rv = rv.as_u64().unwrap();
        assert!(self.rv.is_none_or(|before| before <= rv), "RVs never go back inside an epoch");
        if let (None, Some(before)) = (&self.came_from, self.rv) {
            self.came_from = Some((before, self.here.clone()));
        }
        if self.rv != Some(rv) {
            self.here = None;
        }
        self.rv = Some(rv);
        self.stepped = true;
        self.says_what_it_lacks();
    }

    /// Checks that content with missing objects is never visible before that is reported, or beside a condition that says
    /// that all is well.
    fn says_what_it_lacks(&self) {
        let well = self.conditions.last() == Some(&Condition::Watching) || self.undecodable == 0;
        let whole = self.set_aside.is_empty() || self.changes_only;
        assert!(!well || whole, "{:?} is missing, and nothing says so", self.set_aside);
    }
}

fn entry(object: &RawObject) -> (String, (u64, u64)) {
    (object.name().to_owned(), (object.uid().parse().unwrap(), object.resource_version().as_u64().unwrap()))
}

impl Sink for Recorder {
    fn compare(&mut self) -> bool {
        self.comparisons += usize::from(self.compares);
        self.compares
    }

    fn begin_replace(&mut self) {
        assert!(!self.stopped && self.staged.is_none(), "one list at a time");
        self.staged = Some(Default::default());
    }

    fn stage(&mut self, object: RawObject) {
        let (name, value) = entry(&object);
        self.staged.as_mut().expect("begun").0.insert(name, value);
    }

    fn unstage(&mut self, key: &ObjectKey) {
        self.staged.as_mut().expect("begun").0.remove(key.name());
    }

    fn stage_unreadable(&mut self, key: &ObjectKey) {
        self.staged.as_mut().expect("begun").1.insert(key.name().to_owned());
    }

    fn commit_replace(&mut self, commit: Commit) {
        let (mut content, unreadable) = self.staged.take().expect("begun");
        for name in &unreadable {
            if let Some(old) = self.content.get(name) {
                content.insert(name.clone(), *old);
            }
        }
        let lacks = unreadable.len() + commit.nameless;
        assert!(
            self.undecodable >= lacks || self.changes_only,
            "what a list lacks is told before it is visible"
        );
        self.set_aside = unreadable;
        self.content = content;
        assert_eq!(commit.gap, self.rv.is_some());
        assert!(commit.epoch >= self.epoch);
        if commit.epoch > self.epoch {
            self.epoch = commit.epoch;
            self.rv = None;
            self.fresh = None;
            self.delivered.clear();
        }
        self.step(&commit.resource_version);
        // A list says nothing about the changes that led to it.
        self.came_from = self.rv.map(|rv| (rv, None));
        self.here = None;
        self.went_on = self.changes_only;
        self.deliveries.clear();
        self.commits.push(commit);
    }

    fn abort_replace(&mut self) {
        assert!(self.staged.take().is_some(), "only what was begun can be aborted");
    }

    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion) {
        assert!(!changes.is_empty());
        self.batches += 1;
        let mut last = self.rv.expect("a list came before");
        let mut here = self.here.clone().unwrap_or_default();
        for change in changes.drain(..) {
            let (name, value, rv, deletion) = match &change {
                Change::Put(object) => {
                    let (name, value) = entry(object);
                    (name, Some(value), value.1, false)
                }
                Change::Deleted(object) => {
                    let (name, value) = entry(object);
                    (name, None, value.1, true)
                }
                Change::Gone { key, resource_version } => {
                    (key.name().to_owned(), None, resource_version.as_u64().unwrap(), true)
                }
            };
            assert!(rv >= last, "in the order of the log");
            if self.kept.as_mut().is_some_and(|(kept, names)| *kept == rv && names.remove(&name)) {
                continue;
            }
            if rv > last {
                here.clear();
            }
            here.insert(name.clone());
            last = rv;
            assert!(self.delivered.insert((name.clone(), rv, deletion)), "{name}@{rv} was delivered twice");
            self.set_aside.remove(&name);
            self.deliveries.push(delivery(&self.content, &change, rv));
            match value {
                Some(value) => self.content.insert(name, value),
                None => self.content.remove(&name),
            };
        }
        self.step(resource_version);
        self.here = Some(here);
    }

    fn advance(&mut self, resource_version: &ResourceVersion) {
        let before = self.rv;
        self.step(resource_version);
        assert_ne!(before, self.rv, "an advance advances");
        // A bookmark says that everything below it has come; more may be due at its RV.
        let passed = self.passed.take().filter(|(rv, _)| Some(*rv) == self.rv);
        self.here = Some(passed.map(|(_, name)| name).into_iter().collect());
    }

    fn fresh_as_of(&mut self, at: Time) {
        assert!(!self.stopped);
        assert!(self.fresh.is_none_or(|fresh| at > fresh));
        self.fresh = Some(at);
    }

    fn fresh_only_as_of(&mut self, at: Option<Time>) {
        assert!(!self.stopped && at < self.fresh);
        self.fresh = at;
    }

    fn skipped(&mut self, key: &ObjectKey, resource_version: &ResourceVersion) {
        self.passed = resource_version.as_u64().map(|rv| (rv, key.name().to_owned()));
        self.set_aside.insert(key.name().to_owned());
    }

    fn state(&mut self, state: &ReflectorState) {
        assert!(!self.stopped, "nothing comes after the end");
        self.stopped = state.condition == Condition::Stopped;
        self.undecodable = state.undecodable;
        self.told.push(state.clone());
        assert!(!self.stopped || self.staged.is_none(), "nothing stays half done");
        if self.conditions.last() != Some(&state.condition) {
            self.conditions.push(state.condition.clone());
        }
        self.says_what_it_lacks();
    }
}
