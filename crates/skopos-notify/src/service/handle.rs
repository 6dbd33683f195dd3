use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::Clock;
use tokio::sync::{mpsc, oneshot, watch};

use super::propagation::Propagation;
use super::report::SinkReport;

/// Handle of a running notifier. Cheap to clone.
#[derive(Clone)]
pub struct NotifierHandle {
    sinks: Arc<[SinkHandle]>,
    propagation: Propagation,
}

/// Handle of one sink of a running notifier. Cheap to clone.
#[derive(Clone)]
pub struct SinkHandle {
    commands: mpsc::Sender<SinkCommand>,
    reports: watch::Receiver<Arc<SinkReport>>,
    clock: Clock,
}

/// A command to a loop.
pub(super) enum SinkCommand {
    /// Approves held removals.
    Approve { id: String, known: oneshot::Sender<bool> },
    /// Retries failed work at once.
    Retry,
    /// Retries dead letters: the one with this ID, or all.
    RetryDead { id: Option<String>, count: oneshot::Sender<usize> },
    /// Reads everything back now.
    Verify { done: oneshot::Sender<()> },
}

impl SinkCommand {
    /// Answers a command that this loop has nothing for.
    pub(super) fn decline(self) {
        // The requester may be gone.
        match self {
            Self::Approve { known, .. } => drop(known.send(false)),
            Self::RetryDead { count, .. } => drop(count.send(0)),
            Self::Verify { done } => drop(done.send(())),
            Self::Retry => {}
        }
    }
}

impl NotifierHandle {
    pub(super) fn new(sinks: Vec<SinkHandle>, propagation: Propagation) -> Self {
        Self { sinks: sinks.into(), propagation }
    }

    /// Returns the propagation times of changes to the outside.
    pub(super) fn propagation(&self) -> &Propagation {
        &self.propagation
    }

    /// Returns the sinks, in the order of the options.
    pub fn sinks(&self) -> &[SinkHandle] {
        &self.sinks
    }

    /// Returns the report of each sink.
    pub fn reports(&self) -> Vec<SinkReport> {
        self.sinks.iter().map(SinkHandle::report).collect()
    }

    /// Approves the held removals of this ID, and no others. `false` if there are none, or the notifier does not run.
    pub async fn approve(&self, id: &str) -> bool {
        for sink in &*self.sinks {
            if sink.approve(id).await {
                return true;
            }
        }
        false
    }

    /// Retries failed work at once.
    pub async fn retry(&self) {
        for sink in &*self.sinks {
            // A loop that has ended retries nothing.
            let _ = sink.commands.send(SinkCommand::Retry).await;
        }
    }

    /// Retries dead letters: the one with this ID, or all. Returns their number.
    pub async fn retry_dead(&self, id: Option<&str>) -> usize {
        let mut tried = 0;
        for sink in &*self.sinks {
            tried += sink.retry_dead(id).await;
        }
        tried
    }

    /// Reads everything back from all sinks, and returns their reports.
    pub async fn verify(&self) -> Vec<SinkReport> {
        for sink in &*self.sinks {
            sink.verify().await;
        }
        self.reports()
    }

    /// Waits until all sinks are equal to the cluster, or `limit` has passed, and returns their reports.
    pub async fn settled(&self, limit: Duration) -> Vec<SinkReport> {
        let all = async {
            for sink in &*self.sinks {
                let _ = sink.wait_for(SinkReport::is_equal).await;
            }
        };
        // A sink that is not equal by then shows this in its report.
        let _ = tokio::time::timeout(limit, all).await;
        self.reports()
    }
}

impl SinkHandle {
    pub(super) fn new(
        commands: mpsc::Sender<SinkCommand>,
        reports: watch::Receiver<Arc<SinkReport>>,
        clock: Clock,
    ) -> Self {
        Self { commands, reports, clock }
    }

    /// Returns the report of the sink.
    pub fn report(&self) -> SinkReport {
        self.reports.borrow().at(self.clock.now())
    }

    /// Waits for a report that satisfies `what`; `None` if the notifier ends before. Cancel safe.
    pub async fn wait_for(&self, mut what: impl FnMut(&SinkReport) -> bool) -> Option<SinkReport> {
        let mut reports = self.reports.clone();
        let now = || self.clock.now();
        let found = reports.wait_for(|report| what(&report.at(now()))).await.ok()?;
        Some(found.at(self.clock.now()))
    }

    async fn approve(&self, id: &str) -> bool {
        let (known, answer) = oneshot::channel();
        let sent = self.commands.send(SinkCommand::Approve { id: id.to_owned(), known }).await;
        sent.is_ok() && answer.await.unwrap_or(false)
    }

    async fn retry_dead(&self, id: Option<&str>) -> usize {
        let (count, answer) = oneshot::channel();
        let command = SinkCommand::RetryDead { id: id.map(str::to_owned), count };
        if self.commands.send(command).await.is_err() {
            return 0;
        }
        answer.await.unwrap_or(0)
    }

    async fn verify(&self) {
        let (done, answer) = oneshot::channel();
        if self.commands.send(SinkCommand::Verify { done }).await.is_ok() {
            // The loop ended meanwhile, so its last report is final.
            let _ = answer.await;
        }
    }
}
