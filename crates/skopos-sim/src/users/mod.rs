//! The clients of a run and those who use them: informers, handlers, readers, raw watches.

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

/// What all users share.
#[derive(Clone)]
pub struct Scene {
    /// Where they write down what they see.
    pub recorder: Recorder,
    /// By how many nanoseconds the wall clock is ahead of the monotonic one.
    pub lead: Arc<AtomicI64>,
    /// For how many nanoseconds the machine has slept.
    pub slept: Arc<AtomicU64>,
    /// What clients that were stopped had.
    pub shelf: Shelf,
    /// When the run began.
    pub origin: Instant,
    /// How often stores are looked at.
    pub look_interval: Duration,
}

/// What the users of one informer share.
#[derive(Clone)]
struct Place {
    scene: Scene,
    cluster: Arc<Cluster>,
    /// The client is about to be shut down.
    leaving: CancellationToken,
    stop: CancellationToken,
}

impl Scene {
    /// Waits until so long after the beginning.
    pub async fn until(&self, at: Duration) {
        sleep_until(self.origin + at).await;
    }

    /// A fault that a user is himself: over as soon as it hit.
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

    /// Sleeps; false as soon as the client is about to be shut down, too.
    async fn sleep_unless_leaving(&self, time: Duration) -> bool {
        self.leaving.run_until_cancelled(self.sleep(time)).await.unwrap_or(false)
    }
}
