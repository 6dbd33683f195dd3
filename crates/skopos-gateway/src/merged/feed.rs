//! Feeds from the members' journals into the merged history: one task per member, so that no member delays another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::Store;
use skopos::journal::{Change, ChangeKind, Cursor, JournalError};
use skopos_fleet::{CachedKind, Cluster, ClusterId, Fleet, FleetChange, FleetError, StopReason};
use skopos_wire::{RawObject, ResourceVersion};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::followed_stores::{FollowId, FollowedStores};
use super::history::{History, MemberChanges};
use super::kinds::Shape;
use super::merger::{ContentSource, MemberChange, Position};
use super::missed::MissedChanges;
use super::union;
use crate::catalog::Catalogs;
use crate::response::reasons;

/// Feed of one kind's history.
pub(crate) struct Feed {
    pub(crate) fleet: Fleet,
    pub(crate) shape: Shape,
    pub(crate) catalogs: Catalogs,
    pub(crate) history: Arc<History>,
    pub(crate) absences: Absences,
    pub(crate) followed_stores: FollowedStores,
}

/// The reasons why members have no content, for reports of missing members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences {
    reasons: Arc<Mutex<BTreeMap<ClusterId, Absence>>>,
}

/// The reason why a member has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The server does not serve the kind: nothing is missing.
    NotServed,
    /// An obstacle, as text.
    Because(Arc<str>),
}

/// Timeout for the first content of a member; after it the attempt counts as failed and is repeated.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay between a failure and the next attempt, unless the member changes earlier.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Maximum number of other versions of a resource in a message.
const MAX_NAMED_VERSIONS: usize = 5;

/// Changes per read of the journal.
const BATCH_SIZE: usize = 256;

/// Timeout of one wait for changes; the wait is repeated.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

impl Feed {
    /// Runs until `stop`, or until the fleet ends.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let feed = Arc::new(self);
        let mut changes = feed.fleet.changes();
        let mut members: BTreeMap<ClusterId, MemberTask> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        let waiting: BTreeSet<ClusterId> = feed.fleet.members().keys().cloned().collect();
        let gate = Arc::new(ReadyGate { waiting: Mutex::new(waiting), history: feed.history.clone() });
        gate.open_if_ready();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                change = changes.next() => change,
            };
            match change {
                None => break,
                Some(FleetChange::Added(cluster)) => {
                    let (token, over) = (stop.child_token(), CancellationToken::new());
                    let followed =
                        MemberTask { cluster: cluster.clone(), stop: token.clone(), over: over.clone() };
                    let before = members.insert(cluster.id().clone(), followed);
                    let (feed, gate) = (feed.clone(), gate.clone());
                    tasks.spawn(async move {
                        let _over = over.drop_guard();
                        if cluster.is_replacement() {
                            if let Some(before) = before {
                                before.over.cancelled().await;
                            }
                            feed.forget(cluster.id());
                        }
                        token.run_until_cancelled(feed.follow(cluster, &gate)).await;
                    });
                }
                Some(FleetChange::Forgotten(cluster)) => {
                    let id = cluster.id();
                    if let Some(followed) = members.get(id).filter(|followed| followed.cluster == cluster) {
                        followed.stop.cancel();
                    }
                    gate.settled(id);
                    // A cluster that came back under this name sends the difference.
                    if feed.fleet.get(id.as_str()).is_none() {
                        members.remove(id);
                        feed.forget(id);
                    }
                }
                Some(_) => {}
            }
        }
        tasks.shutdown().await;
    }

    /// Forgets everything about a member.
    fn forget(&self, id: &ClusterId) {
        self.absences.clear(id);
        self.followed_stores.forget(id);
        self.history.vanish(id);
    }

    /// Reads one member's journal until the member is removed.
    async fn follow(&self, cluster: Cluster, gate: &ReadyGate) {
        let id = cluster.id();
        let mut states = cluster.states();
        loop {
            match self.check_discovery(&cluster).await {
                Ok(()) => match cluster.kind(&self.shape.resource, START_TIMEOUT).await {
                    Ok(kind) => {
                        self.read(id, &kind, gate).await;
                        self.drop_ended(id, &kind);
                    }
                    Err(error) => self.absences.set(id, Absence::from_error(&error)),
                },
                Err(absence) => self.absences.set(id, absence),
            }
            gate.settled(id);
            // A change of the member's state ends the delay early.
            let _ = tokio::time::timeout(RETRY_DELAY, states.changed()).await;
        }
    }

    /// Removes the objects of a kind that was evicted or may not be kept any more. Nothing follows it now: to keep
    /// showing the objects would claim that nothing changes in a healthy cluster, and would use the memory that was to be
    /// freed. So the objects vanish, and later come back like those of a new cluster.
    fn drop_ended(&self, id: &ClusterId, kind: &CachedKind) {
        let why = match kind.end_reason() {
            Some(StopReason::Evicted) => Absence::Because("the memory of the cluster is used up".into()),
            Some(StopReason::Unwanted) => Absence::Because("it may not be kept any more".into()),
            Some(StopReason::NotServed) => Absence::NotServed,
            _ => return,
        };
        self.absences.set(id, why);
        self.followed_stores.forget(id);
        self.history.vanish(id);
    }

    /// Checks with the member's discovery whether it serves the kind, so that no server gets requests for kinds it does
    /// not have.
    async fn check_discovery(&self, cluster: &Cluster) -> Result<(), Absence> {
        let Shape { resource, namespaced, custom: true } = &self.shape else { return Ok(()) };
        let catalog = self.catalogs.get(cluster, START_TIMEOUT).await.map_err(Absence::Because)?;
        if let Some(own) = catalog.get(&resource.group, &resource.version, &resource.plural) {
            return match own.kind == resource.kind && own.namespaced == *namespaced {
                true => Ok(()),
                false => Err(Absence::Because(union::describe(own).into())),
            };
        }
        let others: Vec<&str> =
            catalog.versions(&resource.group, &resource.plural).take(MAX_NAMED_VERSIONS).collect();
        match others.is_empty() {
            true => Err(Absence::NotServed),
            false => {
                let why =
                    format!("it has {}.{} in {} only", resource.plural, resource.group, others.join(", "));
                Err(Absence::Because(why.into()))
            }
        }
    }

    /// Reads the journal until the cluster stops caching the kind.
    async fn read(&self, id: &ClusterId, kind: &CachedKind, gate: &ReadyGate) {
        let Some(journal) = kind.informer().store().journal() else {
            return self.absences.set(id, Absence::Because("the gateway keeps no journal of it".into()));
        };
        let store = kind.informer().store();
        let mut follow_id = None;
        loop {
            let (snapshot, mut cursor) = journal.begin();
            if snapshot.is_synced() {
                let version = snapshot.resource_version().clone();
                let identity = kind.informer().cluster();
                let position = Position { identity, epoch: snapshot.epoch(), version };
                let objects: Vec<RawObject> = snapshot.iter().map(|object| object.raw().clone()).collect();
                drop(snapshot);
                let saved_member =
                    self.history.saved_member(id).filter(|saved_member| saved_member.precedes(&position));
                let missed = saved_member.and_then(|saved_member| {
                    Some((MissedChanges::since(&saved_member, &journal, objects.clone())?, saved_member.to))
                });
                let content_source =
                    if follow_id.is_none() { ContentSource::New } else { ContentSource::Same };
                follow_id = Some(match missed {
                    None => {
                        self.take(id, &store, position, content_source, objects, MemberChanges::default())
                    }
                    Some((missed, version)) => {
                        cursor = missed.cursor;
                        let at = |version| Position { version, ..position.clone() };
                        let since = since(at, missed.changes, Some(missed.reached));
                        self.take(id, &store, at(version), content_source, missed.objects, since)
                    }
                });
                self.absences.clear(id);
                gate.settled(id);
            }
            tokio::select! {
                over = self.read_on(id, kind, &mut cursor) => if !over { continue },
                _ = kind.ended() => {}
            }
            // Only the changes until now, and none that arrive while these are read.
            let last = store.snapshot();
            let rest = loop {
                match self.read_batch(id, kind, &mut cursor) {
                    Ok(true) => {}
                    rest => break rest,
                }
            };
            if let Some(follow_id) = follow_id {
                self.followed_stores.end(id, follow_id, rest.is_ok().then_some(last));
            }
            return;
        }
    }

    /// Shows the content and its age. A concurrent reader never sees content of unknown age, nor the new age with the old
    /// content.
    fn take(
        &self,
        id: &ClusterId,
        store: &Store<RawObject>,
        position: Position,
        content_source: ContentSource,
        objects: Vec<RawObject>,
        since: MemberChanges,
    ) -> FollowId {
        let follow = || self.followed_stores.begin(id, store.clone());
        let first = self.history.view().roster.get(id).is_none_or(|member| member.position.is_none());
        let followed = first.then(follow);
        self.history.take(id, position, content_source, objects, since);
        followed.unwrap_or_else(follow)
    }

    /// Reads changes until the cursor has lost its place, or (true) the journal has ended.
    async fn read_on(&self, id: &ClusterId, kind: &CachedKind, cursor: &mut Cursor<RawObject>) -> bool {
        let mut closed = false;
        loop {
            match self.read_batch(id, kind, cursor) {
                Ok(true) => tokio::task::consume_budget().await,
                Ok(false) if closed => return true,
                Ok(false) => closed = cursor.changed(WAIT_TIMEOUT).await.is_err(),
                Err(JournalError::NotSynced) => return cursor.changed(WAIT_TIMEOUT).await.is_err(),
                // History was broken: the next content yields the difference.
                Err(_) => return false,
            }
        }
    }

    /// Reads one batch of changes. Returns whether there are more.
    fn read_batch(
        &self,
        id: &ClusterId,
        kind: &CachedKind,
        cursor: &mut Cursor<RawObject>,
    ) -> Result<bool, JournalError> {
        let batch = cursor.read(BATCH_SIZE)?;
        // The identity of a cached kind becomes known once, and does not change after that.
        let (identity, epoch) = (kind.informer().cluster(), batch.epoch);
        let at = |version| Position { identity: identity.clone(), epoch, version };
        let more = batch.reached.is_none();
        let relisted = batch.relisted.zip(batch.reached.clone()).map(|(content, version)| {
            let objects = content.iter().map(|object| object.raw().clone()).collect();
            (at(version), objects)
        });
        let since = since(at, batch.changes, batch.reached);
        self.history.change(id, MemberChanges { relisted, ..since });
        Ok(more)
    }
}

/// Converts changes of the journal; `at` makes the position of a version.
fn since(
    at: impl Fn(ResourceVersion) -> Position,
    changes: Vec<Change<RawObject>>,
    reached: Option<ResourceVersion>,
) -> MemberChanges {
    let member_change = |change: Change<RawObject>| {
        let position = at(change.resource_version.clone());
        let change = match (change.kind, change.new) {
            (ChangeKind::Deleted, _) => {
                let last = change.last.map(|last| last.raw().clone());
                MemberChange::Deleted(change.old?.key().clone(), last)
            }
            (_, new) => MemberChange::Put(new?.raw().clone()),
        };
        Some((position, change))
    };
    let changes = changes.into_iter().filter_map(member_change).collect();
    MemberChanges { changes, relisted: None, reached: reached.map(at) }
}

/// A member with a running feed task.
struct MemberTask {
    cluster: Cluster,
    stop: CancellationToken,
    /// Cancelled when the task has sent its last change.
    over: CancellationToken,
}

/// Gate that lets readers in once each initial member has content, or a reason why it has none.
struct ReadyGate {
    waiting: Mutex<BTreeSet<ClusterId>>,
    history: Arc<History>,
}

impl ReadyGate {
    fn settled(&self, id: &ClusterId) {
        self.waiting.lock().remove(id);
        self.open_if_ready();
    }

    fn open_if_ready(&self) {
        if self.waiting.lock().is_empty() {
            self.history.open();
        }
    }
}

impl Absences {
    /// Returns the reason why this member has no content, if known.
    pub(crate) fn get(&self, id: &ClusterId) -> Option<Absence> {
        self.reasons.lock().get(id).cloned()
    }

    pub(crate) fn set(&self, id: &ClusterId, absence: Absence) {
        self.reasons.lock().insert(id.clone(), absence);
    }

    fn clear(&self, id: &ClusterId) {
        self.reasons.lock().remove(id);
    }
}

impl Absence {
    fn from_error(error: &FleetError) -> Self {
        match error {
            FleetError::Refused { code: 404, .. } => Self::NotServed,
            other => Self::Because(reasons::describe_error(other).into()),
        }
    }
}
