//! Change signal for followers of a fleet.

use std::sync::Arc;

use tokio::sync::watch;

/// Counter of changes. Followers compare states to find out what changed.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSignal {
    count: Arc<watch::Sender<u64>>,
}

impl ChangeSignal {
    pub(crate) fn new() -> Self {
        Self { count: Arc::new(watch::Sender::new(0)) }
    }

    /// Signals a change.
    pub(crate) fn notify(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
}
