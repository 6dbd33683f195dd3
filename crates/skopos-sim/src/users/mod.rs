//! The clients of a run and their users: informers, handlers, readers, raw watches.

mod client;
mod handlers;
mod informers;
mod informing;
mod queues;
mod readers;
mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub use self::client::Client;
pub(crate) use self::client::{limits, times};
pub(crate) use self::handlers::PLANNED_PANIC;
pub use self::informing::Shelf;
use crate::cluster::Cluster;
use crate::fault::Part;
use crate::history::{Fact, Recorder};

/// Context shared by all users.
#[derive(Clone)]
pub struct Scene {
    /// The recorder of facts.
    pub recorder: Recorder,
    /// Nanoseconds by which the wall clock is ahead of the monotonic one.
    pub lead: Arc<AtomicI64>,
    /// Nanoseconds for which the machine has slept.
    pub slept: Arc<AtomicU64>,
    /// Last contents of stopped clients.
    pub shelf: Shelf,
    /// Beginning of the run.
    pub origin: Instant,
    /// Interval at which stores are looked at.
    pub look_interval: Duration,
}

/// Context shared by the users of one informer.
#[derive(Clone)]
struct Place {
    scene: Scene,
    cluster: Arc<Cluster>,
    /// Cancelled just before the client's shutdown.
    leaving: CancellationToken,
    stop: CancellationToken,
}

impl Scene {
    /// Waits until this long after the beginning.
    pub async fn until(&self, at: Duration) {
        sleep_until(self.origin + at).await;
    }

    /// Records a fault that is an action of a user: it is over as soon as it hit.
    fn user_fault(&self, number: u8) {
        let fault = self.recorder.next_fault();
        let recover = Duration::from_secs(5);
        self.recorder.record(Fact::FaultBegan {
            fault,
            number,
            cluster: None,
            lies: false,
            detect: None,
            recover,
            retry_after: None,
            part: Part::WHOLE,
            spares_lists: true,
        });
        self.recorder.record(Fact::FaultHit { fault });
        self.recorder.record(Fact::FaultHealed { fault });
    }
}

impl Place {
    /// Sleeps; false if it is time to end.
    async fn sleep(&self, time: Duration) -> bool {
        self.stop.run_until_cancelled(tokio::time::sleep(time)).await.is_some()
    }

    /// Sleeps; false also as soon as the client's shutdown is near.
    async fn sleep_unless_leaving(&self, time: Duration) -> bool {
        self.leaving.run_until_cancelled(self.sleep(time)).await.unwrap_or(false)
    }
}
