//! An informer of a client, from its first handle to its last; perhaps restarted, or started with another client's content.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ApiResource;
use parking_lot::Mutex;
use skopos::checkpoint::{Checkpoint, CheckpointLimits, Checkpointer};
use skopos::{Informer, InformerFactory, InformerOptions};
use tokio_util::task::TaskTracker;

use super::informers::{Ends, options, use_informer};
use super::{Place, Scene};
use crate::cluster::Resource;
use crate::history::{self, ClientId, Fact, InformerId, Selection};
use crate::plan::{Again, InformerPlan};

/// Key by which two informers of a factory are the same.
pub(super) type Sameness = (Resource, Selection, bool);

/// Returns the key of a plan's informer.
pub(super) fn sameness(plan: &InformerPlan) -> Sameness {
    (plan.resource, plan.selection.clone(), plan.metadata_only)
}

/// Last contents of stopped clients, for clients that begin with them.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<BTreeMap<(usize, Sameness), Checkpoint>>>);

/// Checkpointer of an informer.
pub(super) type Keeper = (Sameness, Checkpointer);

impl Shelf {
    /// Stores the checkpoints of a client's informers with content.
    pub(super) fn keep(&self, client: usize, keepers: impl IntoIterator<Item = Keeper>) {
        for (sameness, keeper) in keepers {
            if let Some(Ok(checkpoint)) = keeper.checkpoint() {
                self.0.lock().insert((client, sameness), checkpoint);
            }
        }
    }

    /// Returns the checkpoint of a client's informer, as read from a file.
    fn find(&self, client: usize, sameness: Sameness) -> Option<Checkpoint> {
        let kept = self.0.lock().get(&(client, sameness))?.clone();
        let mut file = Vec::new();
        let written = kept.write_to(&mut file).map_err(anyhow::Error::from);
        let read = written
            .and_then(|_| Ok(Checkpoint::read_from(file.as_slice(), &CheckpointLimits::default())?))
            .unwrap_or_else(|error| panic!("a checkpoint does not come back: {error}"));
        Some(read)
    }
}

/// Context of an informer's users.
pub(super) struct Setup {
    pub(super) place: Place,
    pub(super) client: ClientId,
    pub(super) id: InformerId,
    /// True if no other user looks at this store.
    pub(super) first: bool,
    pub(super) tasks: TaskTracker,
    pub(super) ends: Ends,
}

/// An informer to be started.
pub(super) struct Informing {
    pub(super) place: Place,
    pub(super) client: ClientId,
    /// The client's index in the plan.
    pub(super) number: usize,
    /// The client whose content it begins with.
    pub(super) restores: Option<usize>,
    pub(super) factory: InformerFactory,
    pub(super) tasks: TaskTracker,
    pub(super) ends: Ends,
    pub(super) plan: InformerPlan,
}

const REFUSED: &str = "the plan has an informer that cannot be";

impl Informing {
    /// Returns a new number for it.
    pub(super) fn cast(&self) -> InformerId {
        let Self { plan, place: Place { scene: Scene { recorder, .. }, .. }, .. } = self;
        recorder.informer(history::Informer {
            name: format!("{} of client-{}: {}", plan.resource.plural(), self.number, plan.selection),
            client: self.client,
            resource: recorder.resource(plan.resource.plural()),
            selection: plan.selection.clone(),
            metadata_only: plan.metadata_only,
        })
    }

    /// Creates it, and starts its users. Its last handle is dropped when they end.
    pub(super) fn start(&self, id: InformerId, first: bool, random: &mut fastrand::Rng) {
        self.try_start(id, first, random).unwrap_or_else(|error| panic!("{REFUSED}: {error}"));
    }

    fn try_start(
        &self,
        id: InformerId,
        first: bool,
        random: &mut fastrand::Rng,
    ) -> Result<(), skopos::BuildError> {
        let resource = api_resource(self.plan.resource);
        match self.plan.metadata_only {
            true => {
                self.begin(id, first, random, |options| self.factory.dynamic_metadata(&resource, options))
            }
            false => self.begin(id, first, random, |options| self.factory.raw(&resource, options)),
        }
    }

    fn begin<K: 'static>(
        &self,
        id: InformerId,
        first: bool,
        random: &mut fastrand::Rng,
        have: impl FnOnce(InformerOptions) -> Result<Informer<K>, skopos::BuildError>,
    ) -> Result<(), skopos::BuildError> {
        let scene = &self.place.scene;
        let kept = self.restores.and_then(|client| scene.shelf.find(client, sameness(&self.plan)));
        let options = kept.into_iter().fold(options(&self.plan), InformerOptions::restored);
        let informer = have(options)?;
        scene.recorder.record(Fact::InformerStarted { informer: id });
        if first {
            self.ends.add_keeper((sameness(&self.plan), informer.checkpointer()));
        }
        let setup = Setup {
            place: self.place.clone(),
            client: self.client,
            id,
            first,
            tasks: self.tasks.clone(),
            ends: self.ends.clone(),
        };
        use_informer(&setup, &informer, &self.plan, random);
        Ok(())
    }

    /// Uses it for a while, pauses, and then creates it again, as a new informer in the history.
    pub(super) fn come_and_go(self, id: InformerId, again: Again, random: &mut fastrand::Rng) {
        let mut random = random.fork();
        let (client, tasks) = (self.place.clone(), self.tasks.clone());
        let place = Place { stop: client.stop.child_token(), ..client.clone() };
        let first = Self { place, tasks: TaskTracker::new(), ..self };
        first.start(id, true, &mut random);
        tasks.clone().spawn(async move {
            if client.sleep(again.after).await {
                first.leave(id).await;
            }
            first.tasks.close();
            first.tasks.wait().await;
            if !client.sleep(again.pause).await {
                return;
            }
            let anew = Self { place: client, tasks, ..first };
            // The factory may have been shut down meanwhile.
            let _ = anew.try_start(anew.cast(), true, &mut random);
        });
    }

    /// Ends its users.
    async fn leave(&self, id: InformerId) {
        self.place.scene.recorder.record(Fact::InformerStopped { informer: id });
        self.place.stop.cancel();
        self.ends.leave(id).await;
    }
}

pub(super) fn api_resource(resource: Resource) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: resource.kind().to_owned(),
        plural: resource.plural().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::history::{At, Fact, Freshness, History, InformerId, Look, Walk};
    use crate::plan::{Again, GatewayPlan, Plan};

    /// Makes a quiet plan with one client, one informer and no handlers.
    fn quiet() -> Plan {
        let mut plan = Plan::single(6, 0).expect("a simulated fault");
        // Its start takes a moment.
        plan.gateway = GatewayPlan::default();
        plan.length = Duration::from_secs(100);
        plan.faults.clear();
        plan.clients.truncate(1);
        plan.clients[0].informers.truncate(1);
        plan.clients[0].informers[0].queue = None;
        plan.clients[0].stops = None;
        plan
    }

    fn first_look(history: &History, informer: u16) -> (At, &Look) {
        let mut looks = history.entries.iter().filter_map(|entry| match &entry.fact {
            Fact::Looked(look) if look.walk == Walk::Regular => Some((entry.at, look)),
            _ => None,
        });
        let (at, look) = looks.find(|(_, look)| look.informer == InformerId(informer)).expect("a look");
        (at, look)
    }

    #[test]
    fn stopped_informer_restarts_unsynced() {
        let mut plan = quiet();
        let (after, pause) = (Duration::from_secs(30), Duration::from_secs(10));
        plan.clients[0].informers[0].again = Some(Again { after, pause });
        let history = crate::run(&plan);
        let ended = |at: At, of: u16| {
            history.entries.iter().any(|entry| {
                entry.at == at && matches!(entry.fact, Fact::InformerStopped { informer } if informer.0 == of)
            })
        };
        assert!(ended(At::after_start(after), 0));
        let (at, look) = first_look(&history, 1);
        assert!(at >= At::after_start(after + pause), "{at}");
        assert!(!look.synced, "it has to begin anew: {look:?}");
        assert!(crate::oracle::judge(&history).is_clean());
    }

    #[test]
    fn client_restores_state_of_predecessor() {
        let mut plan = quiet();
        let next = plan.clients[0].clone();
        plan.clients[0].stops = Some(Duration::from_secs(40));
        plan.clients.push(next);
        plan.clients[1].starts = Duration::from_secs(70);
        for (restores, synced) in [(Some(0), true), (None, false)] {
            plan.clients[1].restores = restores;
            let history = crate::run(&plan);
            let (_, look) = first_look(&history, 1);
            assert_eq!(look.synced, synced);
            let age = look.freshness.age();
            let old = matches!(look.freshness, Freshness::Stale { .. })
                && age.is_some_and(|age| age >= Duration::from_secs(30));
            assert_eq!(old, synced, "{look:?}");
            assert!(crate::oracle::judge(&history).is_clean());
        }
    }
}
