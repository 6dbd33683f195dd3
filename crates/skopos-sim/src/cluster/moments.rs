//! Points in a run that are not moments of time: "after the tenth write", "between two pages".

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// A write was committed, and nobody has been told of it yet.
    Committed,
    /// The first page of a list was answered, and the next was not asked for yet.
    Paged,
    /// A streamed list has begun, and its end has not been sent.
    ListStreamed,
    /// A watch was opened.
    WatchOpened,
    /// A probe has come.
    Probed,
    /// Of several changes that share an RV the first was told of, and the others were not yet.
    Parted,
}

/// How often each has come so far.
#[derive(Debug, Default)]
pub struct Moments {
    counts: Mutex<[u64; 6]>,
    changed: Notify,
}

impl Moments {
    /// It has come once more.
    pub fn note(&self, moment: Moment) {
        self.counts.lock()[moment as usize] += 1;
        self.changed.notify_waiters();
    }

    /// How often it has come.
    pub fn count(&self, moment: Moment) -> u64 {
        self.counts.lock()[moment as usize]
    }

    /// Waits until it has come so often.
    pub async fn wait(&self, moment: Moment, times: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.count(moment) >= times {
                return;
            }
            changed.await;
        }
    }
}
