//! Plans without writes.

use std::time::Duration;

use skopos::InformerFactory;
use skopos_reflect::Clock;
use tokio::time::timeout;

use super::event_feed::EventFeed;
use super::event_loop::EventSinkOptions;
use super::sink_loop::TICK;
use super::watched::Watched;
use super::{NotifierError, NotifierSink, SinkOptions};
use crate::desired::Desired;
use crate::event::{ChangeKind, EventKey, Outbox};
use crate::plan::{PlanOptions, Planner};
use crate::sink::Observed;

/// Name and plan of one sink, as lines, or the reason why there is none.
pub type DryRun = (String, Result<Vec<String>, String>);

/// Plans for each sink, within `limit`. Nothing is written. Removals that would be held are listed as such.
///
/// # Errors
/// When the cluster cannot be watched.
pub async fn plan(
    factory: &InformerFactory,
    sinks: Vec<NotifierSink>,
    limit: Duration,
) -> Result<Vec<DryRun>, NotifierError> {
    let mut plans = Vec::new();
    for sink in sinks {
        let name = sink.name().to_owned();
        let plan = match sink {
            NotifierSink::State(options) => {
                let watched = Watched::new(factory, &options.sources)?;
                match watched.wait_synced(limit).await {
                    Ok(()) => plan_of(&watched, &options, limit).await,
                    Err(error) => Err(error.to_string()),
                }
            }
            NotifierSink::Events(options) => {
                let planning = timeout(limit, plan_of_events(factory, &options)).await;
                planning.unwrap_or_else(|_| Err(format!("the cluster could not be read within {limit:?}")))
            }
        };
        plans.push((name, plan));
    }
    Ok(plans)
}

/// Plans the messages to a receiver.
async fn plan_of_events(
    factory: &InformerFactory,
    options: &EventSinkOptions,
) -> Result<Vec<String>, String> {
    let clock = Clock::new();
    let content = options.ledgers.read(&options.name).await.map_err(|error| error.to_string())?;
    let mut outbox = Outbox::new(options.outbox(), content);
    for source in &options.sources {
        let mut feed = EventFeed::connect(factory, source.clone(), clock).await?;
        while feed.take_in(clock, &mut outbox).as_of.is_none() {
            // Proofs of age come without events.
            let _ = timeout(TICK, feed.changed(clock)).await;
        }
    }
    let line = |(key, kind, is_unconfirmed): (&EventKey, ChangeKind, bool)| {
        let held = if is_unconfirmed { "held: " } else { "" };
        format!("{held}{} {key}", kind.as_str())
    };
    Ok(outbox.plan().map(line).collect())
}

async fn plan_of(watched: &Watched, options: &SinkOptions, limit: Duration) -> Result<Vec<String>, String> {
    let observed = tokio::time::timeout(limit, options.sink.observe()).await;
    let observed = observed.map_err(|_| format!("no answer in {limit:?}"))?;
    Ok(lines(watched, options, observed.map_err(|error| error.to_string())?))
}

fn lines(watched: &Watched, options: &SinkOptions, observed: Observed) -> Vec<String> {
    let clock = Clock::new();
    let mut desired = Desired::new(options.sink.clone(), options.sources.clone());
    let plan = PlanOptions { steps: usize::MAX, ..options.plan.clone() };
    let mut planner = Planner::new(options.sink.traits(), plan);
    if let Some(cluster) = options.cluster() {
        planner.set_cluster(cluster);
    }
    let is_known = planner.cluster().is_some();
    let (view, problem) = watched.view(&mut desired, clock, is_known);
    planner.set_view(view);
    let now = clock.now();
    planner.observed(now, now, observed);
    let plan = planner.plan(now);
    let steps = plan.steps.iter().map(ToString::to_string);
    let held = plan.held.iter().flat_map(|held| {
        held.removals
            .iter()
            .map(|removal| format!("held: -{removal} ({}: {})", held.reason.as_str(), held.reason))
    });
    let foreign =
        plan.foreign.iter().map(|name| format!("{name}: belongs to another program, and is left alone"));
    let conflicts = plan.conflicts.iter().map(|conflict| {
        format!("{}: belongs to {}, and {} does not get it", conflict.name, conflict.owner, conflict.loser)
    });
    let rejected = desired.rejected().map(|rejected| format!("{}: {}", rejected.object, rejected.reason));
    let problem = problem.map(|problem| format!("the view of the cluster is old: {problem}"));
    problem.into_iter().chain(steps).chain(held).chain(foreign).chain(conflicts).chain(rejected).collect()
}
