//! Raw watches, which have no store.

use std::time::Duration;

use futures::StreamExt as _;
use skopos::{Condition, FieldSelector, LabelSelector, Limits, RawWatch, RawWatchState, Target, Transport};

use super::Place;
use crate::cluster::Resource;
use crate::history::{self, ClientId, Fact, Recorder, Selection, WatcherId};
use crate::plan::WatcherPlan;

/// Context of a raw watch.
pub(super) struct Watching {
    pub(super) place: Place,
    pub(super) client: ClientId,
    /// The client's index in the plan.
    pub(super) number: usize,
    pub(super) transport: Transport,
    pub(super) limits: Limits,
    pub(super) probe_interval: Duration,
    pub(super) plan: WatcherPlan,
}

impl Watching {
    /// Runs the watch until it ends, is dropped as planned, or the run ends.
    pub(super) async fn run(self, mut random: fastrand::Rng) {
        let plan = &self.plan;
        if !self.place.sleep_unless_leaving(plan.begins).await {
            return;
        }
        let recorder = &self.place.scene.recorder;
        let plural = plan.resource.plural();
        let watcher = recorder.watcher(history::Watcher {
            name: format!("raw watch of client-{}: {plural} {}", self.number, plan.selection),
            client: self.client,
            resource: recorder.resource(plural),
            selection: plan.selection.clone(),
            slowness: plan.slowness,
        });
        let target = target(plan.resource, &plan.selection);
        let builder = RawWatch::builder(self.transport.clone(), target);
        let builder = builder.limits(self.limits.clone()).probe_interval(self.probe_interval);
        let watch = builder.seed(random.u64(..)).from_now();
        recorder.record(Fact::WatcherStarted { watcher });
        let follows = follow(recorder, watcher, watch.state());
        let (by_itself, ()) = futures::join!(self.hear(watcher, watch, random), follows);
        recorder.record(Fact::WatcherEnded { watcher, by_itself });
    }

    /// Records its items; returns whether it ended on its own.
    async fn hear(&self, watcher: WatcherId, mut watch: RawWatch, mut random: fastrand::Rng) -> bool {
        let WatcherPlan { leaves, slowness, .. } = self.plan;
        let mut leaves = std::pin::pin!(tokio::time::sleep(leaves.unwrap_or(NEVER)));
        loop {
            let item = tokio::select! {
                biased;
                () = self.place.stop.cancelled() => return false,
                () = &mut leaves => return false,
                item = watch.next() => item,
            };
            let Some(item) = item else { return true };
            self.place.scene.recorder.heard(watcher, &item);
            if !slowness.is_zero() {
                let most = slowness.as_millis() as u64;
                tokio::time::sleep(Duration::from_millis(random.u64(0..=most))).await;
            }
        }
    }
}

/// Records whether its link is healthy, until it ends.
async fn follow(recorder: &Recorder, watcher: WatcherId, mut state: RawWatchState) {
    let mut before = false;
    while let Some(state) = state.changed().await {
        let well = state.condition == Condition::Watching && state.undecodable == 0;
        if std::mem::replace(&mut before, well) != well {
            recorder.record(Fact::WatcherStands { watcher, well });
        }
    }
}

/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1 << 20);

fn target(resource: Resource, selection: &Selection) -> Target {
    let labels: LabelSelector = parsed(selection, &selection.label_selector());
    let fields: FieldSelector = parsed(selection, &selection.field_selector());
    let target = Target::new("", "v1", resource.plural()).with_kind(resource.kind());
    let target = target.with_labels(&labels).with_fields(&fields);
    selection.namespaces.iter().fold(target, |target, namespace| target.in_namespace(namespace))
}

fn parsed<S: std::str::FromStr>(selection: &Selection, text: &str) -> S
where
    S::Err: std::fmt::Display,
{
    text.parse().unwrap_or_else(|error| panic!("{selection} is no selector: {error}"))
}
