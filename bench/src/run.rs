//! Runs the server and every client, each in a process of its own, and prints the ratios.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::{self, Peer, Report};

#[derive(Args)]
pub(crate) struct Options {
    /// How many pods the server has, for each round.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 50_000])]
    pods: Vec<usize>,
    /// How many watch events follow the sync.
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    /// How often everything is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
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
    events_seen: u64,
    events_per_cpu_second: f64,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let mut all = Vec::new();
    for &pods in &options.pods {
        let mut server = Server::start(pods).await?;
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            for peer in Peer::value_variants() {
                eprintln!("{pods} pods, round {} of {}: {}", round + 1, options.rounds, name(*peer));
                rounds.push((*peer, measure(&mut server, *peer, pods, options.events).await?));
            }
        }
        server.stop().await?;
        let figures = medians(pods, &rounds);
        print(&figures);
        all.extend(figures);
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&all)?).context("writing the figures")?;
    }
    Ok(())
}

async fn measure(server: &mut Server, peer: Peer, pods: usize, events: usize) -> Result<Figures> {
    let mut client = spawn(peer, &server.kubeconfig)?;
    let mut lines = BufReader::new(client.stdout.take().context("no standard output")?).lines();
    let synced = next_report(&mut lines).await.context("the client did not sync")?;
    ensure!(synced.objects >= pods as u64, "{} synced {} of {pods} pods", name(peer), synced.objects);
    server.ask(&format!("churn {events}")).await?;
    let done = next_report(&mut lines).await.context("the client did not see the last event")?;
    client.wait().await?;
    server.ask("unlast").await?;
    // And the creation of the last one. Whoever falls behind sees several changes of an object as one, and had less to do.
    ensure!(
        done.events == events as u64 + 1,
        "{} saw {} of {} events: such a round compares nothing",
        name(peer),
        done.events,
        events + 1
    );
    Ok(figures(peer, pods, &synced, &done))
}

fn figures(peer: Peer, pods: usize, synced: &Report, done: &Report) -> Figures {
    let per_pod = |kib: u64| kib as f64 / pods as f64;
    let event_seconds = (done.now.cpu_us - synced.now.cpu_us) as f64 / 1e6;
    Figures {
        peer: name(peer),
        pods,
        sync_cpu_us_per_pod: (synced.now.cpu_us - synced.before.cpu_us) as f64 / pods as f64,
        peak_kib_per_pod: per_pod(synced.now.peak_kib.saturating_sub(synced.before.resident_kib)),
        steady_kib_per_pod: per_pod(done.now.resident_kib.saturating_sub(synced.before.resident_kib)),
        events_seen: done.events,
        events_per_cpu_second: done.events as f64 / event_seconds,
    }
}

fn medians(pods: usize, rounds: &[(Peer, Figures)]) -> Vec<Figures> {
    let of = |peer: Peer, figure: fn(&Figures) -> f64| {
        let mut values: Vec<f64> =
            rounds.iter().filter(|(p, _)| *p == peer).map(|(_, f)| figure(f)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let median = |peer: &Peer| Figures {
        peer: name(*peer),
        pods,
        sync_cpu_us_per_pod: of(*peer, |f| f.sync_cpu_us_per_pod),
        peak_kib_per_pod: of(*peer, |f| f.peak_kib_per_pod),
        steady_kib_per_pod: of(*peer, |f| f.steady_kib_per_pod),
        events_seen: of(*peer, |f| f.events_seen as f64) as u64,
        events_per_cpu_second: of(*peer, |f| f.events_per_cpu_second),
    };
    Peer::value_variants().iter().map(median).collect()
}

/// A table, each figure with its ratio to kube-rs's in brackets.
fn print(figures: &[Figures]) {
    let base = figures[0].clone();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "pods",
        "client",
        "sync, CPU µs per pod",
        "peak KiB per pod",
        "steady KiB per pod",
        "events seen",
        "events per CPU second",
    ]);
    for row in figures {
        let with = |figure: fn(&Figures) -> f64, digits: usize| {
            format!("{:.*} ({:.2})", digits, figure(row), figure(row) / figure(&base))
        };
        table.add_row([
            row.pods.to_string(),
            row.peer.clone(),
            with(|f| f.sync_cpu_us_per_pod, 1),
            with(|f| f.peak_kib_per_pod, 1),
            with(|f| f.steady_kib_per_pod, 1),
            row.events_seen.to_string(),
            with(|f| f.events_per_cpu_second, 0),
        ]);
    }
    println!("{table}\nIn brackets: the ratio to kube-rs with its defaults, in the same run.\n");
}

fn name(peer: Peer) -> String {
    peer.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The server's process.
pub(crate) struct Server {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl Server {
    pub(crate) async fn start(pods: usize) -> Result<Server> {
        let kubeconfig = std::env::temp_dir().join(format!("skopos-bench-{}.kubeconfig", std::process::id()));
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--pods", &pods.to_string(), "--kubeconfig-out"])
            .arg(&kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().context("no standard input")?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut server = Server { child, stdin, lines, kubeconfig };
        server.expect("ready").await?;
        Ok(server)
    }

    /// The configuration of a client of it.
    pub(crate) async fn config(&self) -> Result<kube::Config> {
        client::config(&self.kubeconfig).await
    }

    /// Gives the server a command, and waits until it is carried out.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<()> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.expect("done").await
    }

    async fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.lines.next_line().await?.context("the server ended")?;
        ensure!(line == word, "the server said {line:?} instead of {word:?}");
        Ok(())
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.stdin);
        self.child.wait().await?;
        std::fs::remove_file(&self.kubeconfig).context("removing the kubeconfig")
    }
}

fn spawn(peer: Peer, kubeconfig: &Path) -> Result<Child> {
    Ok(Command::new(std::env::current_exe()?)
        .args(["client", "--peer", &name(peer), "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

async fn next_report(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Report> {
    Ok(serde_json::from_str(&lines.next_line().await?.context("it ended early")?)?)
}
