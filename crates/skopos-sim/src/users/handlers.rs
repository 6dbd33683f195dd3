//! Handlers: quick, slow, panicking; added late, removed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use skopos::{Event, HandlerHandle, HandlerOptions, Informer};

use super::informing::Setup;
use super::{Place, Scene};
use crate::history::{self, CallKind, ClientId, Fact, HandlerId, InformerId, Outcome, Recorder};
use crate::plan::{HandlerPlan, Manner};

/// A handler whose end is not recorded yet.
#[derive(Clone)]
pub(super) struct Ended {
    id: HandlerId,
    of: (ClientId, InformerId),
    handle: HandlerHandle,
    recorder: Recorder,
    told: Arc<AtomicBool>,
}

/// Message of planned panics.
pub(crate) const PLANNED_PANIC: &str = "a planned panic";

/// Starts the tasks that add the handler and remove it, if planned.
pub(super) fn start<K: 'static>(
    setup: &Setup,
    informer: &Informer<K>,
    plan: &HandlerPlan,
    random: fastrand::Rng,
) {
    let (informer, place, plan, ends) =
        (informer.clone(), setup.place.clone(), plan.clone(), setup.ends.clone());
    let (of, tasks) = ((setup.client, setup.id), setup.tasks.clone());
    setup.tasks.spawn(async move {
        if !plan.added.is_zero() && !place.sleep(plan.added).await {
            return;
        }
        let Some(ended) = add(&place, &informer, of, &plan, random) else { return };
        ends.add_handler(of.1, ended.clone());
        let (waits, recorder) = (ended.clone(), place.scene.recorder.clone());
        tasks.spawn(async move {
            if waits.handle.wait_synced(Duration::MAX).await.is_ok() {
                recorder.record(Fact::HandlerSynced { handler: waits.id });
            }
        });
        if let Some(removed) = plan.removed {
            if !place.sleep(removed).await {
                return;
            }
            ended.remove().await;
        }
    });
}

fn add<K: 'static>(
    place: &Place,
    informer: &Informer<K>,
    of: (ClientId, InformerId),
    plan: &HandlerPlan,
    random: fastrand::Rng,
) -> Option<Ended> {
    let Scene { recorder, .. } = &place.scene;
    let mut options = HandlerOptions::default();
    options.capacity = plan.capacity;
    options.resync = plan.resync;
    let id = recorder.handler(history::Handler {
        name: format!("{:?}", plan.manner),
        informer: of.1,
        capacity: plan.capacity,
        retries: options.retries,
        resyncs: plan.resync.is_some(),
        slowness: match plan.manner {
            Manner::Slow(most) => most,
            Manner::Quick | Manner::Panics(_) => Duration::ZERO,
        },
    });
    recorder.record(Fact::HandlerAdded { handler: id });
    let conduct = Arc::new(Conduct {
        id,
        manner: plan.manner,
        scene: place.scene.clone(),
        state: Mutex::new((random, false)),
    });
    let handler = move |event: Event<K>| {
        let conduct = conduct.clone();
        async move { conduct.handle(&event).await }
    };
    let handle = informer.add_handler(handler, options).ok()?;
    Some(Ended { id, of, handle, recorder: recorder.clone(), told: Arc::default() })
}

/// Behavior of a handler when it is called.
struct Conduct {
    id: HandlerId,
    manner: Manner,
    scene: Scene,
    /// Its random generator, and whether it has misbehaved yet.
    state: Mutex<(fastrand::Rng, bool)>,
}

impl Conduct {
    async fn handle<K>(&self, event: &Event<K>) {
        let recorder = &self.scene.recorder;
        recorder.callback(self.id, event);
        match self.manner {
            Manner::Quick => {}
            Manner::Slow(most) => {
                let millis = self.state.lock().0.u64(0..=most.as_millis() as u64);
                self.misbehaves(43);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                recorder.record(Fact::CallbackEnded { handler: self.id, panicked: false });
            }
            Manner::Panics(one_in) => {
                let panics = self.state.lock().0.u32(0..one_in.max(1)) == 0;
                recorder.record(Fact::CallbackEnded { handler: self.id, panicked: panics });
                if panics {
                    self.misbehaves(44);
                    panic!("{PLANNED_PANIC}");
                }
            }
        }
    }

    fn misbehaves(&self, number: u8) {
        if !std::mem::replace(&mut self.state.lock().1, true) {
            self.scene.user_fault(number);
        }
    }
}

impl Ended {
    /// Records its statistics.
    pub(super) fn record_stats(&self) {
        let stats = self.handle.stats();
        let number = |figure: u64| u32::try_from(figure).unwrap_or(u32::MAX);
        self.recorder.record(Fact::HandlerStats {
            handler: self.id,
            deepest: number(stats.deepest as u64),
            overflows: number(stats.overflows),
            panics: number(stats.panics),
            poisoned: number(stats.poisoned),
        });
    }

    /// Removes it, unless it has ended already.
    pub(super) async fn remove(&self) {
        if self.told.load(Ordering::SeqCst) {
            return;
        }
        // Maximum duration of a call.
        let limit = HandlerOptions::default().shutdown_limit;
        let (client, informer) = self.of;
        let call = self.recorder.called(client, Some(informer), CallKind::Remove, limit);
        let outcome = match self.handle.remove(limit * 2).await {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::NotInTime { named: true },
        };
        self.recorder.record(Fact::Returned { call, outcome });
        self.record_stats();
        self.record_end();
    }

    /// Records its end, once.
    pub(super) fn record_end(&self) {
        if !self.told.swap(true, Ordering::SeqCst) {
            self.recorder.record(Fact::HandlerRemoved { handler: self.id });
        }
    }
}
