//! Points in a run that are not points in time: "after the tenth write", "between two pages".

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Kind of a counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// A write was committed, and has not been sent to any client.
    Committed,
    /// The first page of a list was answered, and the next has not been requested.
    Paged,
    /// A streamed list has begun, and its end has not been sent.
    ListStreamed,
    /// A watch was opened.
    WatchOpened,
    /// A probe has come.
    Probed,
    /// The first of several changes that share an RV was sent, and the others were not.
    Parted,
}

/// Number of occurrences of each so far.
#[derive(Debug, Default)]
pub struct Moments {
    counts: Mutex<[u64; 6]>,
    changed: Notify,
}

impl Moments {
    /// Counts an occurrence.
    pub fn note(&self, moment: Moment) {
        self.counts.lock()[moment as usize] += 1;
        self.changed.notify_waiters();
    }

    /// Returns the number of occurrences.
    pub fn count(&self, moment: Moment) -> u64 {
        self.counts.lock()[moment as usize]
    }

    /// Waits until it has occurred this many times.
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
