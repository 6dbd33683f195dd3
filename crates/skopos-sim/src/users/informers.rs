//! One informer: its looks, handlers and readers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::{Informer, InformerOptions};

use super::handlers::{self, Ended};
use super::informing::{Keeper, Setup};
use super::queues::{self, Drain};
use super::readers;
use crate::cluster::Moment;
use crate::history::{Fact, InformerId, Recorder, Selection, Standing, Walk};
use crate::plan::InformerPlan;

/// Final work for every informer of a client.
#[derive(Clone, Default)]
pub(super) struct Ends {
    looks: Arc<Mutex<Vec<(InformerId, LastLook)>>>,
    handlers: Arc<Mutex<Vec<(InformerId, Ended)>>>,
    queues: Arc<Mutex<Vec<Drain>>>,
    keepers: Arc<Mutex<Vec<Keeper>>>,
}

/// The last look at one informer.
type LastLook = Box<dyn Fn() + Send>;

impl Ends {
    pub(super) fn look_last(&self) {
        self.looks.lock().iter().for_each(|(_, look)| look());
        self.handlers.lock().iter().for_each(|(_, handler)| handler.record_stats());
    }

    /// Removes the handlers of an informer that is no longer used.
    pub(super) async fn leave(&self, informer: InformerId) {
        self.looks.lock().retain(|(of, _)| *of != informer);
        let own: Vec<_> = self.handlers.lock().extract_if(.., |(of, _)| *of == informer).collect();
        for (_, handler) in own {
            handler.remove().await;
        }
    }

    /// Records the end of all handlers after the factory's shutdown.
    pub(super) fn closed(&self) {
        self.looks.lock().clear();
        for (_, handler) in self.handlers.lock().drain(..) {
            handler.record_stats();
            handler.record_end();
        }
    }

    /// Ends the work queues, one after the other.
    pub(super) async fn drain_queues(&self) {
        let queues = std::mem::take(&mut *self.queues.lock());
        for queue in queues {
            queue.drain().await;
        }
    }

    pub(super) fn add_keeper(&self, keeper: Keeper) {
        self.keepers.lock().push(keeper);
    }

    /// Returns the checkpointers of its informers.
    pub(super) fn keepers(&self) -> Vec<Keeper> {
        std::mem::take(&mut *self.keepers.lock())
    }

    pub(super) fn add_queue(&self, queue: Drain) {
        self.queues.lock().push(queue);
    }

    pub(super) fn add_handler(&self, of: InformerId, handler: Ended) {
        self.handlers.lock().push((of, handler));
    }
}

/// Returns the options of an informer.
pub(super) fn options(plan: &InformerPlan) -> InformerOptions {
    let Selection { namespaces, .. } = &plan.selection;
    let options = match namespaces.is_empty() {
        true => InformerOptions::all(),
        false => InformerOptions::namespaces(namespaces),
    };
    let options = options.labels(&plan.selection.label_selector());
    let options = options.and_then(|options| options.fields(&plan.selection.field_selector()));
    options.unwrap_or_else(|error| panic!("{:?} is no selector: {error}", plan.selection))
}

/// Starts all users of an informer.
pub(super) fn use_informer<K: 'static>(
    setup: &Setup,
    informer: &Informer<K>,
    plan: &InformerPlan,
    random: &mut fastrand::Rng,
) {
    let recorder = setup.place.scene.recorder.clone();
    let selection = Arc::new(plan.selection.clone());
    if setup.first {
        let (place, id) = (setup.place.clone(), setup.id);
        let look = {
            let (informer, selection, recorder) = (informer.clone(), selection.clone(), recorder.clone());
            move |walk| look(&recorder, id, &selection, &informer, walk)
        };
        let last = look.clone();
        let (informer, last_recorder) = (informer.clone(), recorder.clone());
        let look_last: LastLook = Box::new(move || {
            last(Walk::Last);
            let objects = last_recorder.seen_all(&informer.snapshot());
            last_recorder.record(Fact::Listed { informer: id, objects });
        });
        setup.ends.looks.lock().push((id, look_last));
        setup.tasks.spawn(async move {
            loop {
                look(Walk::Regular);
                let moments = &place.cluster.moments;
                let parted = moments.count(Moment::Parted) + 1;
                // After a part of an RV the next look comes at once.
                let awake = tokio::select! {
                    biased;
                    awake = place.sleep(place.scene.look_interval) => awake,
                    () = moments.wait(Moment::Parted, parted) => true,
                };
                if !awake {
                    return;
                }
            }
        });
    }
    for handler in &plan.handlers {
        handlers::start(setup, informer, handler, random.fork());
    }
    for reader in &plan.readers {
        readers::start(setup, informer, &selection, plan.resource, reader, random.fork());
    }
    if let Some(queue) = &plan.queue {
        queues::start(setup, informer, queue, random.fork());
    }
    if let Some(at) = plan.shared {
        let place = setup.place.clone();
        let other = informer.clone();
        setup.tasks.spawn(async move {
            // Fault 41: one of the users drops its handle.
            if place.sleep(at).await && place.sleep(Duration::from_secs(10)).await {
                drop(other);
                place.scene.user_fault(41);
            }
        });
    }
}

fn look<K>(recorder: &Recorder, id: InformerId, selection: &Selection, informer: &Informer<K>, walk: Walk) {
    let look = recorder.look(id, walk, selection, &informer.snapshot(), standing(informer));
    recorder.record(Fact::Looked(Box::new(look)));
}

/// Returns the state of the link.
pub(super) fn standing<K>(informer: &Informer<K>) -> Standing {
    let (state, stats) = (informer.state(), informer.stats());
    let number = |figure: u64| u32::try_from(figure).unwrap_or(u32::MAX);
    Standing {
        condition: state.condition.as_str(),
        attempts: state.attempts,
        failures: number(stats.failures),
        relists: number(stats.relists),
    }
}
