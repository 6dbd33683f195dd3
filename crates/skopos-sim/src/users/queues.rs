//! Work queues: a handler adds keys, workers take them; some fail, some are slow.

use std::time::Duration;

use skopos::workqueue::{WorkQueue, WorkQueueOptions};
use skopos::{Event, HandlerOptions, Informer};
use skopos_wire::ObjectKey;
use tokio_util::task::TaskTracker;

use super::informing::Setup;
use crate::history::{self, Fact, KeyId, QueueId, Recorder};
use crate::plan::QueuePlan;

/// A queue to be drained at the end.
pub(super) struct Drain {
    id: QueueId,
    queue: WorkQueue<ObjectKey>,
    recorder: Recorder,
}

/// Far longer than all keys take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of failures of a worker on the same key.
const FAILURES: u32 = 3;

/// Starts the handler that feeds the queue, and its workers.
pub(super) fn start<K: 'static>(
    setup: &Setup,
    informer: &Informer<K>,
    plan: &QueuePlan,
    mut random: fastrand::Rng,
) {
    let recorder = &setup.place.scene.recorder;
    let id = recorder.queue(history::Queue {
        name: format!("queue of {} workers", plan.workers),
        workers: usize::from(plan.workers),
    });
    let queue = WorkQueue::new(WorkQueueOptions::named("simulated"));
    let (feed, notes) = (queue.clone(), recorder.clone());
    let handler = move |event: Event<K>| {
        // No other task runs between the two statements.
        if feed.add(event.key().clone()).is_ok() {
            notes.record(Fact::QueueAdded { queue: id, key: notes.key(event.key()) });
        }
        std::future::ready(())
    };
    if informer.add_handler(handler, HandlerOptions::named("feeds a queue")).is_err() {
        return;
    }
    for worker in 0..plan.workers {
        let worker = Worker {
            queue: queue.clone(),
            id,
            number: worker,
            plan: plan.clone(),
            recorder: recorder.clone(),
            random: random.fork(),
        };
        run(&setup.tasks, worker);
    }
    setup.ends.add_queue(Drain { id, queue, recorder: recorder.clone() });
}

struct Worker {
    queue: WorkQueue<ObjectKey>,
    id: QueueId,
    number: u16,
    plan: QueuePlan,
    recorder: Recorder,
    random: fastrand::Rng,
}

fn run(tasks: &TaskTracker, mut worker: Worker) {
    tasks.spawn(async move {
        while let Some(item) = worker.queue.get().await {
            let key = worker.recorder.key(item.key());
            let (queue, number) = (worker.id, worker.number);
            worker.recorder.record(Fact::QueueTaken { queue, worker: number, key });
            worker.work().await;
            let again = item.failures() < FAILURES && worker.random.u32(0..worker.plan.fails.max(2)) == 0;
            worker.done(key, again);
            if again { item.retry() } else { item.done() }
        }
    });
}

impl Worker {
    async fn work(&mut self) {
        let millis = self.random.u64(0..=self.plan.slowness.as_millis() as u64);
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }

    fn done(&self, key: KeyId, again: bool) {
        self.recorder.record(Fact::QueueDone { queue: self.id, worker: self.number, key, again });
    }
}

impl Drain {
    /// Drains the queue, to which no more keys are added.
    pub(super) async fn drain(self) {
        // Keys that failed are delayed by some milliseconds; keys that are delayed when the queue closes are dropped.
        tokio::time::sleep(Duration::from_secs(30)).await;
        self.recorder.record(Fact::QueueClosed { queue: self.id, drains: true });
        if self.queue.shut_down_with_drain(TIMEOUT).await.is_ok() {
            self.recorder.record(Fact::QueueEnded { queue: self.id });
        }
    }
}
