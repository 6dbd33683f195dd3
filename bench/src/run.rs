//! Runs the server and every client, each in a process of its own, and prints the ratios.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::time::Instant;

use crate::client::{self, Count, Peer, Synced};
use crate::figures::{median, table};
use crate::process::Process;
use crate::serve::MAX_HELD;

#[derive(Args)]
pub(crate) struct Options {
    /// How many pods the server has, for each round.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 50_000])]
    pods: Vec<usize>,
    /// How many watch events are sent as fast as the client takes them.
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    /// How many watch events come a few at a time after that, 5,000 a second.
    #[arg(long, default_value_t = 40_000)]
    trickle: usize,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these clients; the first is what the others are compared with.
    #[arg(long, value_delimiter = ',', value_enum)]
    peers: Vec<Peer>,
    /// Write the figures to this file too, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One peer at one size: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    peer: String,
    pods: usize,
    sync_cpu_us_per_pod: f64,
    peak_kib_per_pod: f64,
    steady_kib_per_pod: f64,
    /// As fast as the client takes them.
    events_per_cpu_second: f64,
    /// How many cores the client used meanwhile, and how many the server.
    client_cores: f64,
    server_cores: f64,
    /// A few at a time.
    trickle_per_cpu_second: f64,
}

/// How many events a second make a trickle.
const TRICKLE_RATE: usize = 5_000;

pub(crate) async fn run(options: &Options) -> Result<()> {
    let peers = if options.peers.is_empty() { Peer::value_variants() } else { &options.peers };
    let mut all = Vec::new();
    for &pods in &options.pods {
        let mut server = Server::start(pods).await?;
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            for &peer in peers {
                eprintln!("{pods} pods, round {} of {}: {}", round + 1, options.rounds, name(peer));
                rounds.push((peer, measure(&mut server, peer, pods, options).await?));
            }
        }
        server.stop().await?;
        let figures: Vec<_> = peers.iter().map(|peer| medians(*peer, pods, &rounds)).collect();
        print(&figures);
        all.extend(figures);
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&all)?).context("writing the figures")?;
    }
    Ok(())
}

async fn measure(server: &mut Server, peer: Peer, pods: usize, options: &Options) -> Result<Figures> {
    let kubeconfig = server.kubeconfig.as_os_str();
    let peer_name = name(peer);
    let arguments =
        ["client".as_ref(), "--peer".as_ref(), peer_name.as_ref(), "--kubeconfig".as_ref(), kubeconfig];
    let mut client = Process::of_self(None, arguments).await.context("the client did not sync")?;
    let synced: Synced = serde_json::from_str(&client.ready)?;
    ensure!(synced.objects == pods as u64 + 1, "{peer_name} synced {} of {} pods", synced.objects, pods + 1);
    let Synced { before, now, .. } = synced;

    let flood = flood(server, &mut client, pods, options.events).await?;
    let mut trickle = Spent::default();
    let started = client.ask_for(COUNT).await?;
    server.ask(&format!("trickle {} {TRICKLE_RATE}", options.trickle)).await?;
    let ended: Count = client.ask_for(AWAIT).await?;
    trickle.add(&started, &ended, options.trickle)?;
    client.stop().await?;

    let per_pod = |kib: u64| kib as f64 / pods as f64;
    Ok(Figures {
        peer: peer_name,
        pods,
        sync_cpu_us_per_pod: (now.cpu_us - before.cpu_us) as f64 / pods as f64,
        peak_kib_per_pod: per_pod(now.peak_kib.saturating_sub(before.resident_kib)),
        steady_kib_per_pod: per_pod(ended.now.resident_kib.saturating_sub(before.resident_kib)),
        events_per_cpu_second: flood.spent.rate(),
        client_cores: flood.spent.cpu.as_secs_f64() / flood.wall.as_secs_f64(),
        server_cores: flood.server.as_secs_f64() / flood.wall.as_secs_f64(),
        trickle_per_cpu_second: trickle.rate(),
    })
}

const COUNT: &str = "count";
const AWAIT: &str = "await";

/// What a client used for events.
#[derive(Default)]
struct Spent {
    events: u64,
    cpu: Duration,
}

/// What was used while the client was sent as much as it took.
#[derive(Default)]
struct Flood {
    spent: Spent,
    wall: Duration,
    server: Duration,
}

/// All events, in portions that the server has ready before the first of them is sent. No portion has a pod twice, so that
/// who falls behind has still to tell its handler of each change.
async fn flood(server: &mut Server, client: &mut Process, pods: usize, events: usize) -> Result<Flood> {
    let mut flood = Flood::default();
    let mut left = events;
    while left > 0 {
        let portion = left.min(pods).min(MAX_HELD);
        left -= portion;
        server.ask(&format!("hold {portion}")).await?;
        let started = client.ask_for(COUNT).await?;
        let (begun, server_before) = (Instant::now(), server.process.cpu()?);
        server.ask("release").await?;
        let ended = client.ask_for(AWAIT).await?;
        flood.wall += begun.elapsed();
        flood.server += server.process.cpu()? - server_before;
        flood.spent.add(&started, &ended, portion)?;
    }
    Ok(flood)
}

impl Spent {
    fn add(&mut self, started: &Count, ended: &Count, changes: usize) -> Result<()> {
        let seen = ended.events - started.events;
        // And the change of the last pod. Whoever sees several changes of a pod as one had less to do.
        ensure!(
            seen == changes as u64 + 1,
            "the client saw {seen} of {} events: such a round compares nothing",
            changes + 1
        );
        self.events += seen;
        self.cpu += Duration::from_micros(ended.now.cpu_us - started.now.cpu_us);
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.events as f64 / self.cpu.as_secs_f64()
    }
}

fn medians(peer: Peer, pods: usize, rounds: &[(Peer, Figures)]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| {
        median(rounds.iter().filter(|(p, _)| *p == peer).map(|(_, f)| figure(f)).collect())
    };
    Figures {
        peer: name(peer),
        pods,
        sync_cpu_us_per_pod: of(|f| f.sync_cpu_us_per_pod),
        peak_kib_per_pod: of(|f| f.peak_kib_per_pod),
        steady_kib_per_pod: of(|f| f.steady_kib_per_pod),
        events_per_cpu_second: of(|f| f.events_per_cpu_second),
        client_cores: of(|f| f.client_cores),
        server_cores: of(|f| f.server_cores),
        trickle_per_cpu_second: of(|f| f.trickle_per_cpu_second),
    }
}

/// A table, each figure with its ratio to the first row's in brackets.
fn print(figures: &[Figures]) {
    let base = &figures[0];
    let rows = figures.iter().map(|row| {
        let with = |figure: fn(&Figures) -> f64, digits: usize| {
            format!("{:.*} ({:.2})", digits, figure(row), figure(row) / figure(base))
        };
        [
            row.pods.to_string(),
            row.peer.clone(),
            with(|f| f.sync_cpu_us_per_pod, 1),
            with(|f| f.peak_kib_per_pod, 1),
            with(|f| f.steady_kib_per_pod, 1),
            with(|f| f.events_per_cpu_second, 0),
            format!("{:.2}, {:.2}", row.client_cores, row.server_cores),
            with(|f| f.trickle_per_cpu_second, 0),
        ]
    });
    let header = [
        "pods",
        "client",
        "sync, CPU µs per pod",
        "peak KiB per pod",
        "steady KiB per pod",
        "events per CPU second",
        "cores used by client, server",
        "events per CPU second, 5000/s",
    ];
    println!("{}\nIn brackets: the ratio to the first row, in the same run.\n", table(header, rows));
}

fn name(peer: Peer) -> String {
    peer.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The server's process.
pub(crate) struct Server {
    process: Process,
    kubeconfig: PathBuf,
}

impl Server {
    pub(crate) async fn start(pods: usize) -> Result<Server> {
        let kubeconfig = std::env::temp_dir().join(format!("skopos-bench-{}.kubeconfig", std::process::id()));
        let pods = pods.to_string();
        let arguments = [
            "serve".as_ref(),
            "--pods".as_ref(),
            pods.as_ref(),
            "--kubeconfig-out".as_ref(),
            kubeconfig.as_os_str(),
        ];
        let process = Process::of_self(None, arguments).await?;
        Ok(Server { process, kubeconfig })
    }

    /// The configuration of a client of it.
    pub(crate) async fn config(&self) -> Result<kube::Config> {
        client::config(&self.kubeconfig).await
    }

    /// Gives the server a command, and waits until it is carried out.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<()> {
        let answer = self.process.ask(command).await?;
        ensure!(answer == "done", "the server said {answer:?} after {command:?}");
        Ok(())
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.process.stop().await?;
        std::fs::remove_file(&self.kubeconfig).context("removing the kubeconfig")
    }
}
