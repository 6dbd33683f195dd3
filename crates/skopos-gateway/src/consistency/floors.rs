//! Floors: the minimum content of a read of a resource, because callers have already seen it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::{ObjectKey, RawObject, Snapshot, StaleReason};
use skopos_fleet::ClusterId;
use tokio::time::Instant;

use super::outcome::{Deleted, Outcome};

/// The floors of all resources of all clusters. Cheap to clone; all clones share the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floors {
    clusters: Arc<Mutex<HashMap<ClusterId, ClusterFloors>>>,
}

/// The floor of one resource: the writes through the gateway, and other state that a caller has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    /// The highest version named by an answer, and the time of the answer.
    version: Option<(u64, Instant)>,
    /// The recent changes of single objects, the last one of each, oldest first.
    objects: Vec<ObjectChange>,
    /// The time of the last answer that says only that something may have changed before it.
    changed: Option<Instant>,
}

/// The last change of one object.
#[derive(Clone, Debug)]
struct ObjectChange {
    key: ObjectKey,
    change: ChangeKind,
    at: Instant,
}

#[derive(Clone, Debug)]
enum ChangeKind {
    /// The object has this version or a later one, unless it was deleted since.
    Written(u64),
    /// The object with this UID is gone. Content that still has it must be proven to be newer than the deletion.
    Deleted(String),
}

/// A write without an answer so far. If it is dropped, the write may have been done.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    floors: Floors,
    cluster: ClusterId,
    kind: Kind,
    settled: bool,
}

#[derive(Debug, Default)]
struct ClusterFloors {
    kinds: HashMap<Kind, Floor>,
    /// The floor of resources without an entry of their own, because there was no room.
    others: Option<Instant>,
}

/// Group and resource. All versions of a resource share one storage.
type Kind = (String, String);

/// The maximum number of single objects in the floor of one resource.
const MAX_OBJECTS: usize = 32;

/// The time that single objects stay in a floor. After it any live content is newer.
const OBJECT_TTL: Duration = Duration::from_secs(120);

/// The maximum number of resources of one cluster with a floor of their own: more than any cluster serves.
const MAX_KINDS: usize = 4096;

impl Floors {
    /// Begins a write. If it is done, later reads contain it, whatever its answer is.
    pub(crate) fn write(&self, cluster: &ClusterId, group: &str, resource: &str) -> PendingWrite {
        PendingWrite {
            floors: self.clone(),
            cluster: cluster.clone(),
            kind: kind(group, resource),
            settled: false,
        }
    }

    /// Returns the floor of a resource.
    pub(crate) fn get(&self, cluster: &ClusterId, group: &str, resource: &str) -> Floor {
        let clusters = self.clusters.lock();
        let Some(of) = clusters.get(cluster) else { return Floor::default() };
        let mut floor = of.kinds.get(&kind(group, resource)).cloned().unwrap_or_default();
        floor.changed = floor.changed.max(of.others);
        floor
    }

    /// Records that memory has lost changes of these objects, and requires newer content.
    pub(crate) fn lost(&self, cluster: &ClusterId, group: &str, resource: &str, keys: &[ObjectKey]) {
        let mut clusters = self.clusters.lock();
        let floor = clusters.get_mut(cluster).and_then(|of| of.kinds.get_mut(&kind(group, resource)));
        if let Some(floor) = floor {
            floor.forget(keys, Instant::now());
        }
    }

    /// Returns how many clusters have floors.
    pub(crate) fn clusters(&self) -> usize {
        self.clusters.lock().len()
    }

    /// Removes the clusters that are gone.
    pub(crate) fn retain(&self, is_there: impl Fn(&ClusterId) -> bool) {
        self.clusters.lock().retain(|id, _| is_there(id));
    }

    fn raise(&self, cluster: &ClusterId, kind: &Kind, outcome: Outcome) {
        let now = Instant::now();
        let mut clusters = self.clusters.lock();
        let of = clusters.entry(cluster.clone()).or_default();
        if of.kinds.len() >= MAX_KINDS && !of.kinds.contains_key(kind) {
            of.others = Some(now);
            return;
        }
        of.kinds.entry(kind.clone()).or_default().raise(outcome, now);
    }
}

/// Returns the storage of a resource. Events are served under two groups.
fn kind(group: &str, resource: &str) -> Kind {
    let group = if group == "events.k8s.io" && resource == "events" { "" } else { group };
    (group.to_owned(), resource.to_owned())
}

impl PendingWrite {
    /// Records the outcome of the write.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.settled = true;
        self.floors.raise(&self.cluster, &self.kind, outcome);
    }

    /// Records that nothing was written, and that the caller learned nothing.
    pub(crate) fn cancel(mut self) {
        self.settled = true;
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if !self.settled {
            self.floors.raise(&self.cluster, &self.kind, Outcome::Unknown);
        }
    }
}

impl Floor {
    /// Returns whether a read of this content contains everything that callers have seen.
    pub(crate) fn is_met_by(&self, content: &Snapshot<RawObject>) -> bool {
        let proven = |at: Instant| content.is_proven_after(at);
        self.version.is_none_or(|(version, at)| has_reached(content, version) || proven(at))
            && self.changed.is_none_or(proven)
            && self.objects.iter().all(|known| known.is_met_by(content))
    }

    /// Returns whether there is no floor.
    pub(crate) fn is_empty(&self) -> bool {
        self.version.is_none() && self.objects.is_empty() && self.changed.is_none()
    }

    /// Returns whether the watch alone can meet the floor: it brings versions and deletions, but no proof.
    pub(crate) fn is_brought_by_watch(&self) -> bool {
        self.changed.is_none()
    }

    /// Returns the objects with a change missing from this content, although the content is past it, with the versions of
    /// these changes.
    pub(crate) fn lost<'a>(
        &'a self,
        content: &'a Snapshot<RawObject>,
    ) -> impl Iterator<Item = (&'a ObjectKey, u64)> + 'a {
        let lost = |known: &'a ObjectChange| match known.change {
            ChangeKind::Written(version) => known.is_lost_in(content).then_some((&known.key, version)),
            ChangeKind::Deleted(_) => None,
        };
        self.objects.iter().filter_map(lost)
    }

    fn raise(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Written { key, version } => {
                self.raise_version(version, now);
                if let Some(key) = key {
                    self.record(key, ChangeKind::Written(version), now);
                }
            }
            Outcome::Deleted(Deleted { key, uid }) => self.record(key, ChangeKind::Deleted(uid), now),
            Outcome::Leaving { object: Deleted { key, uid }, version } => {
                self.raise_version(version, now);
                self.record(key, ChangeKind::Deleted(uid), now);
            }
            Outcome::Unknown => self.changed = Some(now),
        }
        let over = self.objects.len().saturating_sub(MAX_OBJECTS);
        let old = self.objects.iter().take_while(|known| known.at.elapsed() >= OBJECT_TTL).count();
        // A reached version covers the dropped writes, and a proof covers the dropped deletions.
        let gone = self.objects.drain(..over.max(old));
        let deleted =
            gone.filter(|known| matches!(known.change, ChangeKind::Deleted(_))).map(|known| known.at).max();
        self.changed = self.changed.max(deleted);
    }

    fn raise_version(&mut self, version: u64, now: Instant) {
        let highest = self.version.map_or(version, |(highest, _)| highest.max(version));
        self.version = Some((highest, now));
    }

    fn record(&mut self, key: ObjectKey, change: ChangeKind, at: Instant) {
        self.objects.retain(|known| known.key != key);
        self.objects.push(ObjectChange { key, change, at });
    }

    /// Removes objects with a lost change. From now on a proof is needed in their place.
    fn forget(&mut self, lost: &[ObjectKey], now: Instant) {
        self.objects.retain(|known| !lost.contains(&known.key));
        self.changed = Some(now);
    }
}

impl ObjectChange {
    fn is_met_by(&self, content: &Snapshot<RawObject>) -> bool {
        match &self.change {
            ChangeKind::Written(_) => !self.is_lost_in(content) && !self.may_be_unreadable_in(content),
            ChangeKind::Deleted(uid) => {
                content.get(&self.key).is_none_or(|object| object.uid() != uid)
                    || content.is_proven_after(self.at)
            }
        }
    }

    /// Returns whether the object is absent and the content lacks undecodable objects. Then its absence does not mean that it
    /// was deleted.
    fn may_be_unreadable_in(&self, content: &Snapshot<RawObject>) -> bool {
        let lacks_objects = || match content.freshness().reason() {
            Some(StaleReason::Undecodable { .. }) => true,
            Some(StaleReason::Reflector(state)) => state.undecodable > 0,
            _ => false,
        };
        content.get(&self.key).is_none() && lacks_objects()
    }

    /// Returns whether the content is past the written version but still has an older object.
    fn is_lost_in(&self, content: &Snapshot<RawObject>) -> bool {
        let ChangeKind::Written(version) = self.change else { return false };
        let is_older = |object: skopos::Object<RawObject>| object.resource_version().as_u64() < Some(version);
        has_reached(content, version) && content.get(&self.key).is_some_and(is_older)
    }
}

fn has_reached(content: &Snapshot<RawObject>, version: u64) -> bool {
    content.resource_version().as_u64() >= Some(version)
}
