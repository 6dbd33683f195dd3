//! Registry of the listed clusters and their names. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::id::ClusterId;
use crate::source::{DiscoveredCluster, PowerState, SourceNumber};
use crate::spec_error::SpecError;

/// An unusable entry of a source, or the reason why a source cannot list its clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceProblem {
    /// The source.
    pub source: String,
    /// The cluster; `None`: the problem concerns the whole source.
    pub cluster: Option<ClusterId>,
    /// The error.
    pub error: SpecError,
}

/// Change of a member.
#[derive(Debug)]
pub(super) enum Step {
    /// The member exists with these settings. `before`: its power state at the previous step.
    Put { listed: DiscoveredCluster, before: Option<PowerState> },
    /// The name belongs to another cluster from now on, as far as is known.
    Replace { listed: DiscoveredCluster, reason: Arc<str> },
    /// The member leaves.
    Take { reason: Arc<str> },
}

/// Registry of all listed clusters and their names.
///
/// A cluster has the name by which its source lists it. If another cluster has that name, it gets one with a hash of
/// its origin. It keeps its name while it is listed. So that names do not depend on which source is faster, a source
/// gets its names after all earlier sources have listed their clusters or reported trouble.
pub(super) struct Registry {
    sources: Vec<Listing>,
    /// The owner of each name.
    holders: BTreeMap<ClusterId, Holder>,
    /// The last entries of names that no cluster has any more: their data can still be read.
    left: BTreeMap<ClusterId, (usize, DiscoveredCluster)>,
    /// Set if a listed cluster has no name yet.
    waiting: bool,
}

/// The owner of a name: an entry of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    source: usize,
    /// The name by which the source lists it.
    wanted: ClusterId,
}

struct Listing {
    name: String,
    trusted: bool,
    listed: BTreeMap<ClusterId, DiscoveredCluster>,
    /// The assigned names, by the names that the source lists.
    names: BTreeMap<ClusterId, ClusterId>,
    /// Set once the source has listed its clusters.
    read: bool,
    /// Set if listing took too long: later sources no longer wait.
    late: bool,
    trouble: Option<Arc<str>>,
}

/// The number of the clusters that this process itself joins.
const OWN: usize = 0;

impl Default for Registry {
    fn default() -> Self {
        let own = Listing { read: true, ..Listing::new("this process".to_owned(), true) };
        Self { sources: vec![own], holders: BTreeMap::new(), left: BTreeMap::new(), waiting: false }
    }
}

impl Registry {
    pub(super) fn add_source(&mut self, name: String, trusted: bool) -> SourceNumber {
        self.sources.push(Listing::new(name, trusted));
        SourceNumber(self.sources.len() - 1)
    }

    pub(super) fn list_own(&mut self, id: ClusterId, listed: DiscoveredCluster) -> Vec<(ClusterId, Step)> {
        let mut all = self.sources[OWN].listed.clone();
        all.insert(id, listed);
        self.list(SourceNumber(OWN), all)
    }

    /// Removes a cluster that this process joined; `None` if there was none.
    pub(super) fn unlist_own(&mut self, id: &ClusterId, reason: Arc<str>) -> Option<Vec<(ClusterId, Step)>> {
        let mut all = self.sources[OWN].listed.clone();
        all.remove(id)?;
        Some(self.replace(OWN, all, &reason))
    }

    /// Replaces the complete list of a source.
    pub(super) fn list(
        &mut self,
        source: SourceNumber,
        listed: BTreeMap<ClusterId, DiscoveredCluster>,
    ) -> Vec<(ClusterId, Step)> {
        self.sources[source.0].read = true;
        let reason = format!("{} does not list it any more", self.sources[source.0].name).into();
        self.replace(source.0, listed, &reason)
    }

    /// Marks the source as late: later sources no longer wait for it.
    pub(super) fn stop_waiting(&mut self, source: SourceNumber) -> Vec<(ClusterId, Step)> {
        self.sources[source.0].late = true;
        self.assign_names()
    }

    /// Returns the number of sources that have never listed their clusters.
    pub(super) fn unread(&self) -> usize {
        self.sources.iter().filter(|source| !source.read).count()
    }

    fn replace(
        &mut self,
        source: usize,
        listed: BTreeMap<ClusterId, DiscoveredCluster>,
        reason: &Arc<str>,
    ) -> Vec<(ClusterId, Step)> {
        let old = std::mem::replace(&mut self.sources[source].listed, listed);
        let mut steps = Vec::new();
        for (wanted, before) in old {
            let Some(name) = self.sources[source].names.get(&wanted).cloned() else { continue };
            match self.sources[source].listed.get(&wanted).cloned() {
                None => {
                    self.release(source, &wanted);
                    self.left.insert(name.clone(), (source, before));
                    steps.push((name, Step::Take { reason: reason.clone() }));
                }
                Some(now) => {
                    let step = self.change(source, (source, &before), now);
                    steps.extend(step.map(|step| (name, step)));
                }
            }
        }
        self.waiting = true;
        steps.extend(self.assign_names());
        steps
    }

    /// Returns the step for a name that belonged to one entry, and belongs to `now` of a source.
    fn change(
        &self,
        source: usize,
        (was, before): (usize, &DiscoveredCluster),
        now: DiscoveredCluster,
    ) -> Option<Step> {
        if is_another((was, before), (source, &now)) {
            return Some(self.replacement(source, now));
        }
        match was == source && before.is_same(&now) {
            true => None,
            false => {
                Some(Step::Put { before: (was == source).then(|| before.power_state.clone()), listed: now })
            }
        }
    }

    fn replacement(&self, source: usize, listed: DiscoveredCluster) -> Step {
        let reason = format!("{} has another of its name", self.sources[source].name).into();
        Step::Replace { listed, reason }
    }

    fn release(&mut self, source: usize, wanted: &ClusterId) -> Option<ClusterId> {
        let name = self.sources[source].names.remove(wanted)?;
        self.holders.remove(&name);
        Some(name)
    }

    /// Assigns names to clusters without one, source by source.
    fn assign_names(&mut self) -> Vec<(ClusterId, Step)> {
        let mut steps = Vec::new();
        if !std::mem::take(&mut self.waiting) {
            return steps;
        }
        for source in 0..self.sources.len() {
            let listing = &self.sources[source];
            let nameless = |wanted: &&ClusterId| !listing.names.contains_key(*wanted);
            let nameless: Vec<ClusterId> = listing.listed.keys().filter(nameless).cloned().collect();
            for wanted in nameless {
                steps.extend(self.assign_name(source, wanted));
            }
            let listing = &self.sources[source];
            if !listing.read && !listing.late && listing.trouble.is_none() {
                // Later sources wait until this one has chosen its names.
                self.waiting = true;
                break;
            }
        }
        steps
    }

    fn assign_name(&mut self, source: usize, wanted: ClusterId) -> Vec<(ClusterId, Step)> {
        let mut steps = Vec::new();
        let listed = self.sources[source].listed[&wanted].clone();
        let name = match self.holders.get(&wanted).cloned() {
            None => wanted.clone(),
            Some(holder) if source != OWN && self.is_same_context(&holder, &listed) => return steps,
            Some(holder) if self.yields(&holder, &wanted, source) => {
                self.release(holder.source, &holder.wanted);
                let held = self.sources[holder.source].listed[&holder.wanted].clone();
                self.left.insert(wanted.clone(), (holder.source, held));
                // The previous owner gets another name: at once, or at its source's turn.
                self.waiting = true;
                self.record_holder(source, wanted.clone(), wanted.clone());
                let replaced = self.entry_step(source, &wanted, listed);
                steps.push((wanted, replaced));
                if holder.source < source {
                    steps.extend(self.assign_name(holder.source, holder.wanted));
                }
                return steps;
            }
            Some(_) => match self.alternative(source, &wanted, &listed) {
                Some(name) => name,
                None => return steps,
            },
        };
        self.record_holder(source, wanted, name.clone());
        let step = self.entry_step(source, &name, listed);
        steps.push((name, step));
        steps
    }

    /// Returns whether the holder of a name yields it to a source that lists a cluster by that name. Names that this
    /// process chose win, and a generated name yields to an original one.
    fn yields(&self, holder: &Holder, wanted: &ClusterId, source: usize) -> bool {
        let is_exact = |source: usize, wanted: &ClusterId| {
            let name = self.sources[source].listed.get(wanted).and_then(|listed| listed.name.as_deref());
            name.is_none_or(|name| name == wanted.as_str())
        };
        let made_up = holder.wanted != *wanted || !is_exact(holder.source, &holder.wanted);
        (source == OWN && holder.source != OWN) || (made_up && is_exact(source, wanted))
    }

    fn is_same_context(&self, holder: &Holder, listed: &DiscoveredCluster) -> bool {
        let held = self.sources[holder.source].listed.get(&holder.wanted);
        held.is_some_and(|held| held.is_same_context(listed))
    }

    /// Returns a name for a cluster whose own name belongs to another.
    fn alternative(
        &self,
        source: usize,
        wanted: &ClusterId,
        listed: &DiscoveredCluster,
    ) -> Option<ClusterId> {
        let original = listed.name.as_deref().unwrap_or(wanted.as_str());
        let mut names = wanted.alternatives(original, &self.sources[source].name);
        names.find(|name| !self.holders.contains_key(name))
    }

    fn record_holder(&mut self, source: usize, wanted: ClusterId, name: ClusterId) {
        self.sources[source].names.insert(wanted.clone(), name.clone());
        self.holders.insert(name, Holder { source, wanted });
    }

    /// Returns the step for a name that an entry of a source gets.
    fn entry_step(&mut self, source: usize, name: &ClusterId, listed: DiscoveredCluster) -> Step {
        match self.left.remove(name) {
            Some((was, before)) if is_another((was, &before), (source, &listed)) => {
                self.replacement(source, listed)
            }
            _ => Step::Put { listed, before: None },
        }
    }

    /// Drops the last entry of a cluster whose data was dropped.
    pub(super) fn forget(&mut self, id: &ClusterId) {
        self.left.remove(id);
    }

    /// Returns whether the source that lists the cluster is trusted.
    pub(super) fn is_trusted(&self, id: &ClusterId) -> bool {
        self.holders.get(id).is_some_and(|holder| self.sources[holder.source].trusted)
    }

    /// Records why a source cannot list its clusters.
    pub(super) fn trouble(
        &mut self,
        source: SourceNumber,
        trouble: Option<Arc<str>>,
    ) -> Vec<(ClusterId, Step)> {
        self.sources[source.0].trouble = trouble;
        self.assign_names()
    }

    pub(super) fn problems(&self) -> Vec<SourceProblem> {
        let mut problems = Vec::new();
        for source in &self.sources {
            let problem = |cluster, error| SourceProblem { source: source.name.clone(), cluster, error };
            if let Some(trouble) = &source.trouble {
                let (place, reason) = (source.name.clone(), trouble.to_string());
                problems.push(problem(None, SpecError::Unreadable { place, reason }));
            }
            for (wanted, listed) in &source.listed {
                let name = source.names.get(wanted).unwrap_or(wanted);
                let error = listed.spec.as_ref().err().cloned();
                problems.extend(error.map(|error| problem(Some(name.clone()), error)));
            }
        }
        problems
    }
}

impl Listing {
    fn new(name: String, trusted: bool) -> Self {
        let (listed, names) = (BTreeMap::new(), BTreeMap::new());
        Self { name, trusted, listed, names, read: false, late: false, trouble: None }
    }
}

/// Returns whether two entries, each of a source, are different clusters. While neither is usable, they count as
/// different: an entry that becomes usable later is another cluster then.
fn is_another((was, before): (usize, &DiscoveredCluster), (is, now): (usize, &DiscoveredCluster)) -> bool {
    (was != is || before.origin != now.origin) && !before.leads_where(now)
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{}: cluster {cluster}: {}", self.source, self.error),
            None => write!(f, "{}", self.error),
        }
    }
}
