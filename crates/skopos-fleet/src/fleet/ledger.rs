//! Who lists which cluster, and whose word counts. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::id::ClusterId;
use crate::source::{Listed, Standing};
use crate::spec::SpecError;

/// What a source lists and cannot be used, or why it cannot list at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceProblem {
    /// The source.
    pub source: String,
    /// The cluster; `None`: it concerns the source as a whole.
    pub cluster: Option<ClusterId>,
    /// What is wrong.
    pub error: SpecError,
}

/// A source of one fleet. Lower numbers count more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceNumber(usize);

/// What has to be done with a member.
#[derive(Debug)]
pub(super) enum Step {
    /// There shall be one, like this. `before`: how it stood when this was last said.
    Put { listed: Listed, before: Option<Standing> },
    /// Another source's has the name now, or one from another place of the same: another cluster, as far as anybody knows.
    Replace { listed: Listed, reason: Arc<str> },
    /// There shall be none.
    Take { reason: Arc<str> },
}

/// Everything that is listed.
pub(super) struct Ledger {
    sources: Vec<Listing>,
    /// What counted last for names that nobody lists any more: what they had can still be read.
    left: BTreeMap<ClusterId, (usize, Listed)>,
}

struct Listing {
    name: String,
    trusted: bool,
    listed: BTreeMap<ClusterId, Listed>,
    /// It has said at least once what it lists.
    read: bool,
    trouble: Option<Arc<str>>,
}

/// What this process names itself.
const OWN: usize = 0;

impl Default for Ledger {
    fn default() -> Self {
        let own = Listing { read: true, ..Listing::new("this process".to_owned(), true) };
        Self { sources: vec![own], left: BTreeMap::new() }
    }
}

impl Ledger {
    pub(super) fn add_source(&mut self, name: String, trusted: bool) -> SourceNumber {
        self.sources.push(Listing::new(name, trusted));
        SourceNumber(self.sources.len() - 1)
    }

    pub(super) fn list_own(&mut self, id: ClusterId, listed: Listed) -> Vec<(ClusterId, Step)> {
        let mut all = self.sources[OWN].listed.clone();
        all.insert(id, listed);
        self.list(SourceNumber(OWN), all)
    }

    /// `None` if there was none.
    pub(super) fn unlist_own(&mut self, id: &ClusterId, reason: Arc<str>) -> Option<Vec<(ClusterId, Step)>> {
        let mut all = self.sources[OWN].listed.clone();
        all.remove(id)?;
        Some(self.replace(OWN, all, &reason))
    }

    /// All that a source lists now.
    pub(super) fn list(
        &mut self,
        source: SourceNumber,
        listed: BTreeMap<ClusterId, Listed>,
    ) -> Vec<(ClusterId, Step)> {
        self.sources[source.0].read = true;
        let reason = format!("{} does not list it any more", self.sources[source.0].name).into();
        self.replace(source.0, listed, &reason)
    }

    /// How many sources have never said what they list.
    pub(super) fn unread(&self) -> usize {
        self.sources.iter().filter(|source| !source.read).count()
    }

    fn replace(
        &mut self,
        source: usize,
        listed: BTreeMap<ClusterId, Listed>,
        reason: &Arc<str>,
    ) -> Vec<(ClusterId, Step)> {
        let old = std::mem::take(&mut self.sources[source].listed);
        let concerned: BTreeSet<ClusterId> = old.keys().chain(listed.keys()).cloned().collect();
        let before = |ledger: &Self, id: &ClusterId| {
            let of_others = ledger.counts(id).map(|(at, listed)| (at, listed.clone()));
            match (of_others, old.get(id)) {
                (Some((at, theirs)), Some(_)) if at < source => Some((at, theirs)),
                (_, Some(ours)) => Some((source, ours.clone())),
                (theirs, None) => theirs,
            }
        };
        let before: Vec<Option<(usize, Listed)>> = concerned.iter().map(|id| before(self, id)).collect();
        self.sources[source].listed = listed;
        let changes = concerned.into_iter().zip(before);
        changes.filter_map(|(id, before)| Some((id.clone(), self.step(id, before, reason)?))).collect()
    }

    /// What follows for a name, of which this counted before.
    fn step(&mut self, id: ClusterId, before: Option<(usize, Listed)>, reason: &Arc<str>) -> Option<Step> {
        let now = self.counts(&id).map(|(at, listed)| (at, listed.clone()));
        let Some((is, now)) = now else {
            self.left.insert(id, before?);
            return Some(Step::Take { reason: reason.clone() });
        };
        let left = self.left.remove(&id);
        // Also while neither can be used: what can be used later is of another cluster then.
        let is_another = |(was, before): &(usize, Listed)| {
            (*was != is || before.origin != now.origin) && !before.leads_where(&now)
        };
        if before.as_ref().or(left.as_ref()).is_some_and(is_another) {
            let reason = format!("{} has another of its name", self.sources[is].name).into();
            return Some(Step::Replace { listed: now, reason });
        }
        if before.as_ref().is_some_and(|(_, before)| before.is_same(&now)) {
            return None;
        }
        Some(Step::Put { listed: now, before: before.map(|(_, before)| before.standing) })
    }

    /// Of a cluster that left nothing is there any more.
    pub(super) fn forget(&mut self, id: &ClusterId) {
        self.left.remove(id);
    }

    /// What counts for a name, and who says it.
    fn counts(&self, id: &ClusterId) -> Option<(usize, &Listed)> {
        self.sources.iter().enumerate().find_map(|(at, source)| Some((at, source.listed.get(id)?)))
    }

    /// Whether who lists it is trusted.
    pub(super) fn is_trusted(&self, id: &ClusterId) -> bool {
        self.counts(id).is_some_and(|(at, _)| self.sources[at].trusted)
    }

    pub(super) fn trouble(&mut self, source: SourceNumber, trouble: Option<Arc<str>>) {
        self.sources[source.0].trouble = trouble;
    }

    pub(super) fn problems(&self) -> Vec<SourceProblem> {
        let mut problems = Vec::new();
        for (at, source) in self.sources.iter().enumerate() {
            let problem = |cluster, error| SourceProblem { source: source.name.clone(), cluster, error };
            if let Some(trouble) = &source.trouble {
                let (place, reason) = (source.name.clone(), trouble.to_string());
                problems.push(problem(None, SpecError::Unreadable { place, reason }));
            }
            for (id, listed) in &source.listed {
                let by = self.counts(id).filter(|(first, _)| *first != at);
                let taken =
                    by.map(|(first, _)| SpecError::NameTaken { by: self.sources[first].name.clone() });
                let error = taken.or_else(|| listed.spec.as_ref().err().cloned());
                problems.extend(error.map(|error| problem(Some(id.clone()), error)));
            }
        }
        problems
    }
}

impl Listing {
    fn new(name: String, trusted: bool) -> Self {
        Self { name, trusted, listed: BTreeMap::new(), read: false, trouble: None }
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{}: cluster {cluster}: {}", self.source, self.error),
            None => write!(f, "{}", self.error),
        }
    }
}
