//! Three controllers at the same job, one after the other and each on a fresh server.
//!
//! ```text
//!  parents made ─▶ controller starts ─▶ all children right ─▶ burst of changes ──────────────────▶ all children right ─▶ counted
//!                                                                   └ server killed, started again
//! ```

mod children;
mod parents;
mod requests;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use parents::Parents;
use peer_protocol::{Line, Reconciled, What, job};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::machine::Machine;
use crate::programs;
use crate::results::{self, ControllerResult, ControllerResults, Library};
use crate::server::Real;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many objects have a child.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How many changes the burst has.
    #[arg(long, default_value_t = 50_000)]
    events: usize,
    /// The most reconciliations at the same time.
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// Seconds between the server's kill and its new start.
    #[arg(long, default_value_t = 2.0)]
    down: f64,
    /// Seconds that children may take before they count as lost.
    #[arg(long, default_value_t = 300.0)]
    patience: f64,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Library>,
    /// Build the programs first.
    #[arg(long)]
    build: bool,
    /// Where the results go.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// How long after the last child was right the controller's work counts on.
const CALM: Duration = Duration::from_secs(3);
/// How long the controller may take for an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Measures each controller, and writes the results. An error names what a controller has lost.
pub(crate) async fn run(options: &Options) -> Result<()> {
    ensure!(options.objects > 1, "--objects is at least 2");
    if options.build {
        programs::build_controllers()?;
    }
    let out = options.out.clone().unwrap_or_else(|| results::folder().join("controllers.json"));
    let chosen = |runtime: &Library| options.only.is_empty() || options.only.contains(runtime);
    let mut rows = Vec::new();
    for runtime in Library::ALL.into_iter().filter(chosen) {
        let row = measure(runtime, options).await.with_context(|| runtime.name())?;
        println!("{}", serde_json::to_string_pretty(&row)?);
        rows.push(row);
        let measured = ControllerResults {
            machine: Machine::this(),
            objects: options.objects,
            events: options.events,
            workers: options.workers,
            down_s: options.down,
            patience_s: options.patience,
            rows: rows.clone(),
        };
        results::write(&out, &measured)?;
    }
    Ok(())
}

/// A controller at work on a server.
struct Scene<'a, L> {
    options: &'a Options,
    server: Real,
    server_cpu: Duration,
    children: Api<ConfigMap>,
    parents: Parents,
    controller: Client,
    lines: L,
}

/// What a burst with a restart in its middle came to.
struct Burst {
    lasted: Duration,
    outage: Duration,
    ready: SystemTime,
    right_again: Option<Duration>,
    settled: Option<Duration>,
    lost: usize,
}

async fn measure(runtime: Library, options: &Options) -> Result<ControllerResult> {
    let server = Real::start(0, true).await?;
    let parents = Parents::create(server.client().clone(), options.objects).await?;
    let children = Api::namespaced(server.client().clone(), job::NAMESPACE);
    let began = Instant::now();
    let (controller, lines) = start(runtime, options, &server)?;
    let mut scene =
        Scene { options, server, server_cpu: Duration::ZERO, children, parents, controller, lines };
    let patience = Duration::from_secs_f64(options.patience);
    let lost = children::wait_for(&scene.children, &scene.parents.children(), patience).await?;
    let first = began.elapsed();
    ensure!(lost == 0, "{lost} children are not right after {first:?}");
    let at_first = scene.usage().await?;
    eprintln!("{}: all children right after {first:.1?}", runtime.name());
    sleep(CALM).await;
    let burst = scene.burst().await?;
    eprintln!("{}: settled after {:.1?}, {} lost", runtime.name(), burst.settled, burst.lost);
    sleep(CALM).await;
    let end = scene.usage().await?;
    let changes = scene.changes().await?;
    scene.controller.quit().await;
    scene.end_server().await?;
    let requests = requests::of(&scene.server.requests(), runtime.user_agent())?;
    Ok(ControllerResult {
        runtime,
        first_s: first.as_secs_f64(),
        first_reconciles: at_first.reconciles,
        first_cpu_s: at_first.usage.cpu_us as f64 / 1e6,
        burst_s: burst.lasted.as_secs_f64(),
        outage_s: burst.outage.as_secs_f64(),
        written_again_s: requests::first_write_after(&requests, burst.ready).map(|after| after.as_secs_f64()),
        right_again_s: burst.right_again.map(|after| after.as_secs_f64()),
        settled_s: burst.settled.map(|after| after.as_secs_f64()),
        lost: burst.lost,
        reconciles: end.reconciles,
        failed: end.failed,
        cpu_s: end.usage.cpu_us as f64 / 1e6,
        peak_kib: end.usage.peak_kib,
        steady_kib: end.usage.rss_kib,
        requests: requests::by_verb(&requests),
        states: scene.parents.states() as u64,
        changes,
        server_cpu_s: scene.server_cpu.as_secs_f64(),
    })
}

fn start(
    runtime: Library,
    options: &Options,
    server: &Real,
) -> Result<(Client, impl Stream<Item = Line> + Unpin + use<>)> {
    let workers = options.workers.to_string();
    let mut flags = vec!["--workers", &workers];
    if runtime == Library::ControllerRuntimeOwnWrites {
        flags.push("--read-your-writes");
    }
    Client::start_program(&programs::controller(runtime)?, &server.kubeconfig(), &flags)
}

impl<L: Stream<Item = Line> + Unpin> Scene<'_, L> {
    /// Changes parents, and kills the server in the middle of that.
    async fn burst(&mut self) -> Result<Burst> {
        let began = Instant::now();
        let burst = self.parents.burst(self.options.events);
        burst.reaches(self.options.events / 2).await;
        let killed = Instant::now();
        self.end_server().await?;
        sleep(Duration::from_secs_f64(self.options.down)).await;
        self.server.launch().await?;
        let (ready, outage) = (SystemTime::now(), killed.elapsed());
        let (again, first) = (Instant::now(), self.parents.change_first().await?);
        let patience = Duration::from_secs_f64(self.options.patience);
        let children = self.children.clone();
        let right_again = async {
            let right = timeout(patience, children::becomes(&children, &first)).await;
            right.ok().map(|()| again.elapsed())
        };
        let rest = async {
            burst.ends().await?;
            let (lasted, ended) = (began.elapsed(), Instant::now());
            let lost = children::wait_for(&children, &self.parents.children(), patience).await?;
            anyhow::Ok((lasted, lost, (lost == 0).then(|| ended.elapsed())))
        };
        let (right_again, rest) = tokio::join!(right_again, rest);
        let (lasted, lost, settled) = rest?;
        Ok(Burst { lasted, outage, ready, right_again, settled, lost })
    }

    /// Kills the server. Its CPU time so far is added up.
    async fn end_server(&mut self) -> Result<()> {
        self.server_cpu += self.server.cpu();
        self.server.kill().await
    }

    /// What the controller has done and used.
    async fn usage(&mut self) -> Result<Reconciled> {
        self.controller.ask("usage").await;
        let answer = async {
            while let Some(line) = self.lines.next().await {
                if let What::Reconciled(done) = line.what {
                    return Some(done);
                }
            }
            None
        };
        timeout(ANSWER, answer).await?.context("the controller has ended")
    }

    /// How often children were changed in the server's storage.
    async fn changes(&self) -> Result<u64> {
        let path =
            format!("/debug/changes?prefix=configmaps/{}/&suffix={}", job::NAMESPACE, job::child_name(""));
        let answer = self.server.send("POST", &path, &Value::Null).await?;
        answer["revision"].as_u64().context("no number of changes")
    }
}
