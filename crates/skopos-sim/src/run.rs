//! One run, from a plan to its history.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Guests};
use crate::fault::{Active, Harmed, Inflict};
use crate::gateway::Visited;
use crate::history::{Fact, History, Pace, Recorder};
use crate::notifier::Notified;
use crate::plan::{Burst, ClientPlan, FaultPlan, Plan, Strikes};
use crate::users::{Client, Scene, Shelf};

/// Runs a plan in virtual time, in this thread. Equal plans give equal histories.
pub fn run(plan: &Plan) -> History {
    run_at(plan, Pace::Full)
}

/// Runs a plan on a machine that pauses briefly now and then. Code that depends on real clocks then behaves differently.
pub(crate) fn run_haltingly(plan: &Plan) -> History {
    run_at(plan, Pace::Halting)
}

fn run_at(plan: &Plan, pace: Pace) -> History {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    // Otherwise tokio uses the system's randomness for the order in which it wakes the waiters of one `watch` channel. Its builder
    // takes a seed only with this flag, which `cargo xtask sim` sets.
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&plan.seed.to_le_bytes()));
    let runtime = runtime.build().unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(play(plan, pace))
}

async fn play(plan: &Plan, pace: Pace) -> History {
    let recorder = Recorder::new(plan.seed, plan.look_interval, pace);
    let scene = Scene {
        recorder: recorder.clone(),
        lead: Arc::default(),
        slept: Arc::default(),
        shelf: Shelf::default(),
        origin: Instant::now(),
        look_interval: plan.look_interval,
    };
    let mut random = fastrand::Rng::with_seed(plan.seed ^ 0x5ca1_ab1e);
    let clusters: Vec<_> = plan
        .clusters
        .iter()
        .enumerate()
        .map(|(at, cluster)| {
            let notifiers = plan.notifier.is_there() && plan.notifier.cluster == at;
            let guests = Guests { gateway: plan.gateway.is_there(), notifiers };
            Cluster::start(cluster, format!("cluster-{at}"), random.u64(..), &recorder, guests)
                .unwrap_or_else(|error| panic!("a cluster does not start: {error}"))
        })
        .collect();
    // Code without an explicit generator draws from this one.
    fastrand::seed(plan.seed);
    let ending = CancellationToken::new();
    let mut clients = JoinSet::new();
    let mut events = JoinSet::new();
    // The initial objects exist before the first request.
    let (early, late): (Vec<_>, Vec<_>) = plan.bursts.iter().partition(|burst| burst.at.is_zero());
    for burst in early {
        write(&scene, &clusters[burst.cluster], burst).await;
    }
    for burst in late {
        let (scene, cluster, burst) = (scene.clone(), clusters[burst.cluster].clone(), burst.clone());
        events.spawn(async move { write(&scene, &cluster, &burst).await });
    }
    for fault in &plan.faults {
        let harmed = Harmed {
            cluster: clusters[fault.cluster].clone(),
            lead: scene.lead.clone(),
            slept: scene.slept.clone(),
            recorder: recorder.clone(),
        };
        let (scene, fault, length) = (scene.clone(), fault.clone(), plan.length);
        events.spawn(async move { strike(&scene, harmed, &fault, length).await });
    }
    let mut visits = JoinSet::new();
    let visited = match plan.gateway.is_there() {
        true => Some(visited(&scene, &clusters, plan, &mut visits).await),
        false => None,
    };
    let notifier = &plan.notifier;
    let notified = notifier.is_there().then(|| Notified::new(&scene, &clusters[notifier.cluster], notifier));
    if let Some(notified) = &notified {
        notified.write_first(notifier);
        let seed = plan.seed ^ 0x6e6f_7469_6679;
        notified.begin(notifier, plan.length, seed, &ending, &mut events, &mut clients);
    }
    for (number, client) in plan.clients.iter().enumerate() {
        let (scene, cluster, client) = (scene.clone(), clusters[client.cluster].clone(), client.clone());
        let (seed, ending, length) = (random.u64(..), ending.clone(), plan.length);
        clients.spawn(async move { live(scene, cluster, number, &client, seed, length, &ending).await });
    }
    scene.until(plan.length).await;
    while let Some(done) = events.join_next().await {
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    recorder.record(Fact::Quiet);
    tokio::time::sleep(plan.quiet).await;
    recorder.record(Fact::Settled);
    ending.cancel();
    while let Some(done) = clients.join_next().await {
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    while let Some(done) = visits.join_next().await {
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    if let Some(visited) = visited {
        visited.stop().await;
    }
    if let Some(notified) = notified {
        notified.stop().await;
    }
    for cluster in &clusters {
        cluster.stop(Duration::from_secs(10)).await;
    }
    recorder.finish()
}

/// Starts the gateway and its visitors.
async fn visited(scene: &Scene, clusters: &[Arc<Cluster>], plan: &Plan, visits: &mut JoinSet<()>) -> Visited {
    let seed = plan.seed ^ 0x6761_7465;
    let visited = Visited::start(scene, clusters, &plan.gateway, seed).await;
    let visited = visited.unwrap_or_else(|error| panic!("the gateway does not start: {error:#}"));
    visited.admit(scene, &plan.gateway, plan.length, seed, visits);
    visited
}

/// Runs a client, from its start to its end.
async fn live(
    scene: Scene,
    cluster: Arc<Cluster>,
    number: usize,
    plan: &ClientPlan,
    seed: u64,
    length: Duration,
    ending: &CancellationToken,
) {
    scene.until(plan.starts).await;
    let client = Client::start(scene.clone(), cluster, number, plan, seed)
        .unwrap_or_else(|error| panic!("a client does not start: {error}"));
    match plan.stops.filter(|stops| *stops < length) {
        Some(stops) => scene.until(stops).await,
        None => {
            ending.cancelled().await;
            client.look_last();
        }
    }
    client.stop().await;
}

async fn write(scene: &Scene, cluster: &Cluster, burst: &Burst) {
    if !burst.at.is_zero() {
        scene.until(burst.at).await;
    }
    for (at, write) in burst.writes.iter().enumerate() {
        if at > 0 && !burst.spacing.is_zero() {
            tokio::time::sleep(burst.spacing).await;
        }
        cluster.write(write);
    }
}

/// Waits for the fault's moment, inflicts it, holds it and heals it; all before the quiet time.
async fn strike(scene: &Scene, harmed: Harmed, plan: &FaultPlan, length: Duration) {
    let moments = harmed.cluster.moments.clone();
    let in_time = async {
        match plan.strikes {
            Strikes::At(at) => scene.until(at).await,
            Strikes::Moment(moment, times, from) => {
                scene.until(from).await;
                moments.wait(moment, moments.count(moment) + times).await;
            }
        }
    };
    let end = scene.origin + length;
    if tokio::time::timeout_at(end, in_time).await.is_err() {
        return;
    }
    let active = Active::begin(harmed, plan.number, &plan.what);
    if let Inflict::Starve(time) = plan.what {
        // The clock advances, and no task is polled.
        tokio::time::advance(time).await;
    }
    active.hold_until((Instant::now() + plan.lasts).min(end), &plan.what).await;
}
