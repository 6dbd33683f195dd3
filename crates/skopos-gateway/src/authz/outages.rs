//! Members that did not answer the last question about rights.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Which members did not answer lately, and who asks them again. What it has started ends with it.
#[derive(Default)]
pub(super) struct Outages {
    out: Mutex<HashMap<Arc<str>, Outage>>,
    tasks: Mutex<JoinSet<()>>,
}

struct Outage {
    failed: Instant,
    asking: Option<AbortHandle>,
}

/// For so long after a question that was not answered no answer is waited for. Longer, and one that is well again would be
/// taken for down by the first who asks after a quiet time.
const OUT_FOR: Duration = Duration::from_secs(30);

/// A member that cannot be asked is asked again after this, however many want to know.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

impl Outages {
    /// It did not answer.
    pub(super) fn failed(&self, cluster: &Arc<str>) {
        let now = Instant::now();
        let mut out = self.out.lock();
        out.retain(|_, outage| now - outage.failed < OUT_FOR);
        match out.get_mut(cluster) {
            Some(outage) => outage.failed = now,
            None => drop(out.insert(cluster.clone(), Outage { failed: now, asking: None })),
        }
    }

    /// It answered.
    pub(super) fn answered(&self, cluster: &str) {
        self.out.lock().remove(cluster);
    }

    /// Whether it did not answer lately.
    pub(super) fn is_out(&self, cluster: &str) -> bool {
        self.out.lock().get(cluster).is_some_and(|outage| outage.failed.elapsed() < OUT_FOR)
    }

    /// Has `ask` run in the background, which has to end by itself and to say what came of it; at most one for each member
    /// that is out, and none right after the last.
    pub(super) fn ask_again(&self, cluster: &str, ask: impl Future<Output = ()> + Send + 'static) {
        let mut out = self.out.lock();
        let Some(outage) = out.get_mut(cluster) else { return };
        let asking = outage.asking.as_ref().is_some_and(|task| !task.is_finished());
        if asking || outage.failed.elapsed() < PAUSE {
            return;
        }
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        outage.asking = Some(tasks.spawn(ask));
    }
}
