//! Members that did not answer the last access review.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The members that did not answer lately, and the tasks that ask them again. The tasks end when this is dropped.
#[derive(Default)]
pub(super) struct Outages {
    down: Mutex<HashMap<Arc<str>, Outage>>,
    tasks: Mutex<JoinSet<()>>,
}

struct Outage {
    failed: Instant,
    asking: Option<AbortHandle>,
}

/// The time after a failed review during which callers do not wait for the member. If it were longer, the first caller after a
/// quiet time would find a recovered member down.
const OUTAGE_DURATION: Duration = Duration::from_secs(30);

/// The pause between two reviews sent to a member that is down, however many callers wait.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Outages {
    /// Records that the member did not answer.
    pub(super) fn failed(&self, cluster: &Arc<str>) {
        let now = Instant::now();
        let mut down = self.down.lock();
        down.retain(|_, outage| now - outage.failed < OUTAGE_DURATION);
        match down.get_mut(cluster) {
            Some(outage) => outage.failed = now,
            None => drop(down.insert(cluster.clone(), Outage { failed: now, asking: None })),
        }
    }

    /// Records that the member answered.
    pub(super) fn answered(&self, cluster: &str) {
        self.down.lock().remove(cluster);
    }

    /// Returns whether the member did not answer lately.
    pub(super) fn is_down(&self, cluster: &str) -> bool {
        self.down.lock().get(cluster).is_some_and(|outage| outage.failed.elapsed() < OUTAGE_DURATION)
    }

    /// Runs `ask` in the background. It must end without outside help and report its result. Runs at most one per failed
    /// member, and none right after the last failure.
    pub(super) fn ask_again(&self, cluster: &str, ask: impl Future<Output = ()> + Send + 'static) {
        let mut down = self.down.lock();
        let Some(outage) = down.get_mut(cluster) else { return };
        let asking = outage.asking.as_ref().is_some_and(|task| !task.is_finished());
        if asking || outage.failed.elapsed() < RETRY_DELAY {
            return;
        }
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        outage.asking = Some(tasks.spawn(ask));
    }
}
