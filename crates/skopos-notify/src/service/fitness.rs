//! Fitness of this process: whether it can reach its sinks. In an election an unfit process lets another go first.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;

use super::NotifierSink;
use super::control::NotifierPhase;
use crate::sink::{Sink, SinkError};

/// Interval between two checks of the reports of a working notifier.
const LOOK: Duration = Duration::from_secs(1);
/// Interval between two attempts to reach sinks that could not be reached, while another process works.
const PROBE: Duration = Duration::from_secs(30);
/// Time limit of an attempt.
const TRY: Duration = Duration::from_secs(20);

/// Follows whether all sinks that are read back can be reached, and reports it. It never ends; dropping it ends it.
///
/// While this process works, its reports show it. A standby that could not reach a sink retries until it can.
pub async fn follow_fitness(
    mut phase: watch::Receiver<NotifierPhase>,
    sinks: &[NotifierSink],
    tell: impl Fn(bool),
) {
    let sinks: Vec<Arc<dyn Sink>> = sinks
        .iter()
        .filter_map(|sink| match sink {
            NotifierSink::State(options) => Some(options.sink.clone()),
            NotifierSink::Events(_) => None,
        })
        .collect();
    let mut is_fit = true;
    loop {
        let known = phase.borrow_and_update().clone();
        let pause = match known {
            NotifierPhase::Working(handle) => {
                is_fit = !handle.reports().iter().any(|report| report.unreachable || report.fenced);
                LOOK
            }
            _ => {
                if !is_fit {
                    is_fit = join_all(sinks.iter().map(|sink| can_reach(&**sink)))
                        .await
                        .into_iter()
                        .all(|can| can);
                }
                PROBE
            }
        };
        tell(is_fit);
        // A phase whose sender is gone does not change.
        let _ = timeout(pause, async {
            if phase.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
        .await;
    }
}

/// Returns whether a sink can be reached. A sink that refuses can be reached: it would refuse another process too.
async fn can_reach(sink: &dyn Sink) -> bool {
    !matches!(timeout(TRY, sink.observe()).await, Err(_) | Ok(Err(SinkError::Unreachable(_))))
}
