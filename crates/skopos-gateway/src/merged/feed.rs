//! From the members' journals to the merged history: one task for each member, none of which can hold up another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::Store;
use skopos::journal::{Change, ChangeKind, Cursor, JournalError};
use skopos_fleet::{CachedKind, Cluster, ClusterId, Ended, Fleet, FleetChange, FleetError};
use skopos_wire::{RawObject, ResourceVersion};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::follows::{Follows, Turn};
use super::history::{History, Since};
use super::kinds::Shape;
use super::merger::{Copy, Position, Told};
use super::missed::Missed;
use super::union;
use crate::catalog::Catalogs;
use crate::reasons;

/// Feeds the history of one kind until told to stop.
pub(crate) struct Feed {
    pub(crate) fleet: Fleet,
    pub(crate) shape: Shape,
    pub(crate) catalogs: Catalogs,
    pub(crate) history: Arc<History>,
    pub(crate) absences: Absences,
    pub(crate) follows: Follows,
}

/// Why members have no content, for those who ask what is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences {
    reasons: Arc<Mutex<BTreeMap<ClusterId, Absence>>>,
}

/// Why a member has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Its server does not have the kind: nothing is missing.
    NotServed,
    /// Something stands in the way.
    Because(Arc<str>),
}

/// How long the first content of a member may take before the attempt counts as failed, and is made again.
const START: Duration = Duration::from_secs(30);

/// How long after a failure the next attempt is made, if the member does not change before.
const RETRY: Duration = Duration::from_secs(5);

/// How many other versions of a resource are told.
const SAID: usize = 5;

/// How many changes are read in one go.
const BATCH: usize = 256;

/// Changes are waited for so long, again and again.
const WAIT: Duration = Duration::from_secs(60);

// === impl Feed ===

impl Feed {
    /// Runs until `stop`, or until the fleet ends.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let feed = Arc::new(self);
        let mut changes = feed.fleet.changes();
        let mut members: BTreeMap<ClusterId, Followed> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        let waiting: BTreeSet<ClusterId> = feed.fleet.members().keys().cloned().collect();
        let opening = Arc::new(Opening { waiting: Mutex::new(waiting), history: feed.history.clone() });
        opening.look();
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
                        Followed { cluster: cluster.clone(), stop: token.clone(), over: over.clone() };
                    let before = members.insert(cluster.id().clone(), followed);
                    let (feed, opening) = (feed.clone(), opening.clone());
                    tasks.spawn(async move {
                        let _over = over.drop_guard();
                        if cluster.replaces() {
                            if let Some(before) = before {
                                before.over.cancelled().await;
                            }
                            feed.forget(cluster.id());
                        }
                        token.run_until_cancelled(feed.follow(cluster, &opening)).await;
                    });
                }
                Some(FleetChange::Forgotten(cluster)) => {
                    let id = cluster.id();
                    if let Some(followed) = members.get(id).filter(|followed| followed.cluster == cluster) {
                        followed.stop.cancel();
                    }
                    opening.settled(id);
                    // One that came back under its name tells what differs.
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

    /// Nothing is known of a member any more.
    fn forget(&self, id: &ClusterId) {
        self.absences.clear(id);
        self.follows.forget(id);
        self.history.vanish(id);
    }

    /// Reads one member's journal for as long as the member is there.
    async fn follow(&self, cluster: Cluster, opening: &Opening) {
        let id = cluster.id();
        let mut states = cluster.states();
        loop {
            match self.look(&cluster).await {
                Ok(()) => match cluster.kind(&self.shape.resource, START).await {
                    Ok(kind) => {
                        self.read(id, &kind, opening).await;
                        self.let_go(id, &kind);
                    }
                    Err(error) => self.absences.set(id, Absence::of(&error)),
                },
                Err(absence) => self.absences.set(id, absence),
            }
            opening.settled(id);
            // Sooner when the member stands otherwise.
            let _ = tokio::time::timeout(RETRY, states.changed()).await;
        }
    }

    /// What had to make room, or may not be kept, is followed by nobody: to go on showing it would be to say that nothing changes
    /// in a cluster that is well, and would take the very room. So its objects vanish, and come back as those of a cluster that
    /// comes.
    fn let_go(&self, id: &ClusterId, kind: &CachedKind) {
        let why = match kind.end_reason() {
            Some(Ended::Evicted) => Absence::Because("the memory of the cluster is used up".into()),
            Some(Ended::Unwanted) => Absence::Because("it may not be kept any more".into()),
            Some(Ended::NotServed) => Absence::NotServed,
            _ => return,
        };
        self.absences.set(id, why);
        self.follows.forget(id);
        self.history.vanish(id);
    }

    /// Whether the member serves the kind, as far as its discovery says: nobody is asked for what it does not have.
    async fn look(&self, cluster: &Cluster) -> Result<(), Absence> {
        let Shape { resource, namespaced, custom: true } = &self.shape else { return Ok(()) };
        let catalog = self.catalogs.of(cluster, START).await.map_err(Absence::Because)?;
        if let Some(own) = catalog.get(&resource.group, &resource.version, &resource.plural) {
            return match own.kind == resource.kind && own.namespaced == *namespaced {
                true => Ok(()),
                false => Err(Absence::Because(union::describe(own).into())),
            };
        }
        let others: Vec<&str> = catalog.versions(&resource.group, &resource.plural).take(SAID).collect();
        match others.is_empty() {
            true => Err(Absence::NotServed),
            false => {
                let why =
                    format!("it has {}.{} in {} only", resource.plural, resource.group, others.join(", "));
                Err(Absence::Because(why.into()))
            }
        }
    }

    /// Reads until the kind is not kept any more.
    async fn read(&self, id: &ClusterId, kind: &CachedKind, opening: &Opening) {
        let Some(journal) = kind.informer().store().journal() else {
            return self.absences.set(id, Absence::Because("the gateway keeps no journal of it".into()));
        };
        let store = kind.informer().store();
        let mut turn = None;
        loop {
            let (snapshot, mut cursor) = journal.begin();
            if snapshot.is_synced() {
                let version = snapshot.resource_version().clone();
                let identity = kind.informer().cluster();
                let position = Position { identity, epoch: snapshot.epoch(), version };
                let objects: Vec<RawObject> = snapshot.iter().map(|object| object.raw().clone()).collect();
                drop(snapshot);
                let left = self.history.left(id).filter(|left| left.leads_to(&position));
                let missed =
                    left.and_then(|left| Some((Missed::since(&left, &journal, objects.clone())?, left.to)));
                let copy = if turn.is_none() { Copy::New } else { Copy::Same };
                turn = Some(match missed {
                    None => self.take(id, &store, position, copy, objects, Since::default()),
                    Some((missed, version)) => {
                        cursor = missed.cursor;
                        let at = |version| Position { version, ..position.clone() };
                        let since = since(at, missed.changes, Some(missed.reached));
                        self.take(id, &store, at(version), copy, missed.objects, since)
                    }
                });
                self.absences.clear(id);
                opening.settled(id);
            }
            tokio::select! {
                over = self.read_on(id, kind, &mut cursor) => if !over { continue },
                _ = kind.ended() => {}
            }
            // What was told until then, and nothing that comes while it is read.
            let last = store.snapshot();
            let rest = loop {
                match self.read_batch(id, kind, &mut cursor) {
                    Ok(true) => {}
                    rest => break rest,
                }
            };
            if let Some(turn) = turn {
                self.follows.end(id, turn, rest.is_ok().then_some(last));
            }
            return;
        }
    }

    /// Shows that content, and what age it has. Whoever looks in between may find neither content of unknown age, nor this age with
    /// what was shown before.
    fn take(
        &self,
        id: &ClusterId,
        store: &Store<RawObject>,
        position: Position,
        copy: Copy,
        objects: Vec<RawObject>,
        since: Since,
    ) -> Turn {
        let follow = || self.follows.begin(id, store.clone());
        let first = self.history.view().roster.get(id).is_none_or(|member| member.position.is_none());
        let followed = first.then(follow);
        self.history.take(id, position, copy, objects, since);
        followed.unwrap_or_else(follow)
    }

    /// Reads changes until the cursor has lost its place, or (true) there will be no more.
    async fn read_on(&self, id: &ClusterId, kind: &CachedKind, cursor: &mut Cursor<RawObject>) -> bool {
        let mut closed = false;
        loop {
            match self.read_batch(id, kind, cursor) {
                Ok(true) => tokio::task::consume_budget().await,
                Ok(false) if closed => return true,
                Ok(false) => closed = cursor.changed(WAIT).await.is_err(),
                Err(JournalError::NotSynced) => return cursor.changed(WAIT).await.is_err(),
                // History was broken: the content tells what differs.
                Err(_) => return false,
            }
        }
    }

    /// Reads some changes. Returns whether there are more.
    fn read_batch(
        &self,
        id: &ClusterId,
        kind: &CachedKind,
        cursor: &mut Cursor<RawObject>,
    ) -> Result<bool, JournalError> {
        let batch = cursor.read(BATCH)?;
        // Of one kept kind it is known at some time, and the same from then on.
        let (identity, epoch) = (kind.informer().cluster(), batch.epoch);
        let at = |version| Position { identity: identity.clone(), epoch, version };
        let more = batch.reached.is_none();
        let relisted = batch.relisted.zip(batch.reached.clone()).map(|(content, version)| {
            let objects = content.iter().map(|object| object.raw().clone()).collect();
            (at(version), objects)
        });
        let since = since(at, batch.changes, batch.reached);
        self.history.change(id, Since { relisted, ..since });
        Ok(more)
    }
}

/// What is told of changes; `at` is the position of a version.
fn since(
    at: impl Fn(ResourceVersion) -> Position,
    changes: Vec<Change<RawObject>>,
    reached: Option<ResourceVersion>,
) -> Since {
    let tell = |change: Change<RawObject>| {
        let position = at(change.resource_version.clone());
        let told = match (change.kind, change.new) {
            (ChangeKind::Deleted, _) => {
                let last = change.last.map(|last| last.raw().clone());
                Told::Deleted(change.old?.key().clone(), last)
            }
            (_, new) => Told::Put(new?.raw().clone()),
        };
        Some((position, told))
    };
    let changes = changes.into_iter().filter_map(tell).collect();
    Since { changes, relisted: None, reached: reached.map(at) }
}

/// A member that is followed.
struct Followed {
    cluster: Cluster,
    stop: CancellationToken,
    /// Cancelled when nothing more is told of it.
    over: CancellationToken,
}

/// Lets readers in once every member that was there at the start has content, or a reason why it has none.
struct Opening {
    waiting: Mutex<BTreeSet<ClusterId>>,
    history: Arc<History>,
}

impl Opening {
    fn settled(&self, id: &ClusterId) {
        self.waiting.lock().remove(id);
        self.look();
    }

    fn look(&self) {
        if self.waiting.lock().is_empty() {
            self.history.open();
        }
    }
}

// === impl Absences ===

impl Absences {
    /// Why this member has no content, if that is known.
    pub(crate) fn of(&self, id: &ClusterId) -> Option<Absence> {
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
    fn of(error: &FleetError) -> Self {
        match error {
            FleetError::Refused { code: 404, .. } => Self::NotServed,
            other => Self::Because(reasons::of_error(other).into()),
        }
    }
}
