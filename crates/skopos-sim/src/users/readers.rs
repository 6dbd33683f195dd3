//! Readers, which repeat a call with a deadline.

use std::sync::Arc;
use std::time::Duration;

use skopos::{AuditError, Informer, ReadError, ReadOneError, ResourceVersion, Snapshot, Source, WaitError};
use skopos_wire::ObjectKey;

use super::Place;
use super::informers::standing;
use super::informing::Setup;
use crate::cluster::{NAMES, NAMESPACES, Resource};
use crate::history::{CallId, CallKind, ClientId, Fact, InformerId, Outcome, Selection, Walk};
use crate::plan::{ReaderKind, ReaderPlan};

/// Starts a reader.
pub(super) fn start<K: 'static>(
    setup: &Setup,
    informer: &Informer<K>,
    selection: &Arc<Selection>,
    resource: Resource,
    plan: &ReaderPlan,
    random: fastrand::Rng,
) {
    let mut reader = Reader {
        place: setup.place.clone(),
        client: setup.client,
        id: setup.id,
        informer: informer.clone(),
        selection: selection.clone(),
        resource,
        plan: plan.clone(),
        random,
    };
    setup.tasks.spawn(async move {
        reader.call().await;
        while reader.is_left_alone().await {
            reader.call().await;
        }
        for pause in WHILE_SHUT_DOWN {
            // A user that drops its informer ends.
            if reader.place.stop.is_cancelled() {
                return;
            }
            reader.call().await;
            reader.place.sleep(pause).await;
        }
    });
}

/// Pauses between the calls during the client's shutdown: one is in progress when it begins, some follow.
const WHILE_SHUT_DOWN: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(50), Duration::from_secs(1)];

struct Reader<K> {
    place: Place,
    client: ClientId,
    id: InformerId,
    informer: Informer<K>,
    selection: Arc<Selection>,
    resource: Resource,
    plan: ReaderPlan,
    random: fastrand::Rng,
}

impl<K: 'static> Reader<K> {
    /// Waits until the next call is due; false if the client is being shut down.
    async fn is_left_alone(&mut self) -> bool {
        let every = self.plan.every.as_millis() as u64;
        let pause = Duration::from_millis(self.random.u64(every / 2..=every * 3 / 2));
        self.place.sleep_unless_leaving(pause).await
    }

    async fn call(&mut self) {
        let limit = self.plan.limit;
        match self.plan.what {
            ReaderKind::Snapshot => self.looked(Walk::Snapshot, &self.informer.snapshot()),
            ReaderKind::Get => self.get(),
            ReaderKind::WaitSynced => {
                let call = self.called(CallKind::WaitSynced);
                let outcome = match self.informer.wait_synced(limit).await {
                    Ok(()) => Outcome::Done,
                    Err(error) if error.closed => Outcome::Closed,
                    Err(error) => Outcome::NotInTime {
                        named: !error.who.is_empty() && error.who.iter().all(|who| !who.reason.is_empty()),
                    },
                };
                self.returned(call, outcome);
            }
            ReaderKind::WaitFor => self.wait_for(limit).await,
            ReaderKind::Read(max_age) => self.read(max_age, limit).await,
            ReaderKind::ReadOne(max_age) => self.read_one(max_age, limit).await,
            ReaderKind::Audit => {
                let call = self.called(CallKind::Audit);
                let outcome = match self.informer.audit(limit).await {
                    Ok(report) => Outcome::Audited {
                        differences: u32::try_from(report.differences).unwrap_or(u32::MAX),
                    },
                    Err(AuditError::Closed(_)) => Outcome::Closed,
                    Err(AuditError::List(_)) => Outcome::NotInTime { named: true },
                    Err(_) => Outcome::Refused,
                };
                self.returned(call, outcome);
            }
        }
    }

    fn get(&mut self) {
        let key = self.some_key();
        let snapshot = self.informer.snapshot();
        if !snapshot.is_synced() {
            return;
        }
        let recorder = &self.place.scene.recorder;
        let rv = match key.namespace() {
            Some(namespace) if self.selection.namespaces.iter().any(|other| other == namespace) => {
                snapshot.resource_version_in(namespace)
            }
            Some(_) if !self.selection.namespaces.is_empty() => return,
            _ => snapshot.resource_version(),
        };
        recorder.record(Fact::Got {
            informer: self.id,
            rv: rv.as_u64().unwrap_or(u64::MAX),
            epoch: u32::try_from(snapshot.epoch()).unwrap_or(u32::MAX),
            key: recorder.key(&key),
            object: snapshot.get(&key).map(|object| recorder.seen(object.raw())),
        });
    }

    /// Waits for the last write of any client.
    async fn wait_for(&mut self, limit: Duration) {
        let rv = self.place.cluster.server.resource_version();
        let call = self.called(CallKind::WaitFor { rv });
        let outcome = match self.informer.wait_for(&ResourceVersion::from(rv), limit).await {
            Ok(snapshot) => {
                self.looked(Walk::Answer(call), &snapshot);
                Outcome::Done
            }
            Err(WaitError::Closed(_)) => Outcome::Closed,
            Err(WaitError::HistoryBroken { .. }) => Outcome::HistoryBroken,
            Err(WaitError::NotReached { .. }) => Outcome::NotInTime { named: true },
            Err(_) => Outcome::Refused,
        };
        self.returned(call, outcome);
    }

    async fn read(&mut self, max_age: Duration, limit: Duration) {
        let call = self.called(CallKind::Read { max_age });
        let outcome = match self.informer.read(max_age, limit).await {
            Ok(read) => {
                let walk = match read.source {
                    Source::Cache => Walk::Answer(call),
                    Source::Live => Walk::Live(call),
                };
                self.looked(walk, &read.snapshot);
                Outcome::Done
            }
            Err(error) => refusal(&error),
        };
        self.returned(call, outcome);
    }

    async fn read_one(&mut self, max_age: Duration, limit: Duration) {
        let key = self.some_key();
        let recorder = self.place.scene.recorder.clone();
        let call = self.called(CallKind::ReadOne { max_age, key: recorder.key(&key) });
        let outcome = match self.informer.read_one(&key, max_age, limit).await {
            Ok(read) => {
                let object = read.object.map(|object| recorder.seen(object.raw()));
                Outcome::Found { object, age: read.age }
            }
            Err(ReadOneError::Read(error)) => refusal(&error),
            Err(_) => Outcome::Refused,
        };
        self.returned(call, outcome);
    }

    fn some_key(&mut self) -> ObjectKey {
        let name = format!("o{}", self.random.u8(0..NAMES));
        match self.resource.is_namespaced() {
            true => ObjectKey::namespaced(NAMESPACES[self.random.usize(0..NAMESPACES.len())], name),
            false => ObjectKey::cluster(name),
        }
    }

    fn called(&self, kind: CallKind) -> CallId {
        self.place.scene.recorder.called(self.client, Some(self.id), kind, self.plan.limit)
    }

    fn returned(&self, call: CallId, outcome: Outcome) {
        self.place.scene.recorder.record(Fact::Returned { call, outcome });
    }

    fn looked(&self, walk: Walk, snapshot: &Snapshot<K>) {
        let recorder = &self.place.scene.recorder;
        let look = recorder.look(self.id, walk, &self.selection, snapshot, standing(&self.informer));
        recorder.record(Fact::Looked(Box::new(look)));
    }
}

fn refusal(error: &ReadError) -> Outcome {
    match error {
        ReadError::Closed(_) => Outcome::Closed,
        ReadError::TooOld { .. } => Outcome::NotInTime { named: true },
        _ => Outcome::Refused,
    }
}
