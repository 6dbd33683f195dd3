//! Plays the calibration scripts on `skopos-testserver` and on a server made of Kubernetes' own libraries, records what a
//! client sees on the real one, and compares. `docs/evidence/calibration.md` tells more.

#[path = "../../../crates/skopos-testserver/tests/calibration/kit/mod.rs"]
mod kit;
mod real;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use futures::{StreamExt as _, stream};
use kit::golden::Histories;
use kit::script::Script;
use kit::target::Target;
use kit::{compare, contract, golden, play, script};
use skopos_testserver::TestServer;
use tokio::time::Instant;

use crate::real::RealServer;

/// Compares the test server with a server made of Kubernetes' own libraries.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays the scripts on both servers; fails where they differ without a reason, or the recorded histories are not
    /// what the real one does now.
    Check(Play),
    /// Plays the scripts on the real server and writes the histories and docs/evidence/calibration.md.
    Record(Play),
    /// Plays the scripts on the test server alone and prints the histories.
    Show {
        /// Only scripts whose names begin so.
        #[arg(default_value = "")]
        only: String,
    },
    /// Writes docs/evidence/calibration.md.
    Page,
}

#[derive(Debug, clap::Args)]
struct Play {
    /// The program that `go build` made of peers/apiserver.
    #[arg(long)]
    apiserver: PathBuf,
    /// Only scripts whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// How many scripts at once are played on the real server.
    #[arg(long, default_value_t = 16)]
    jobs: usize,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Check(play) => check(&play),
        Command::Record(play) => record(&play),
        Command::Show { only } => {
            for (name, history) in play_on_ours(&chosen(&only))? {
                println!("{name}");
                history.iter().for_each(|entry| println!("  {entry}"));
            }
            Ok(())
        }
        Command::Page => write_page(),
    }
}

fn check(play: &Play) -> anyhow::Result<()> {
    let scripts = chosen(&play.only);
    let real = play_on_real(play, &scripts)?;
    let ours = play_on_ours(&scripts)?;
    let known = compare::known().into_iter().filter(|known| scripts.iter().any(|s| known.names(&s.name)));
    let mut complaints = compare::complaints(&real, &ours, &known.collect::<Vec<_>>());
    let recorded = golden::read(&folder().join("golden")).context("the recorded histories cannot be read")?;
    let moved = real.iter().filter(|(name, history)| recorded.get(*name) != Some(history));
    complaints.extend(
        moved.map(|(name, _)| format!("{name}: the real server does something else than was recorded")),
    );
    if complaints.is_empty() {
        println!("{} scripts agree", scripts.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("{complaint}\n");
    }
    bail!("{} complaints", complaints.len())
}

fn record(play: &Play) -> anyhow::Result<()> {
    let scripts = chosen(&play.only);
    let mut histories = play_on_real(play, &scripts)?;
    let failed = |history: &Vec<serde_json::Value>| history.iter().any(|entry| !entry["failed"].is_null());
    if let Some((name, history)) = histories.iter().find(|(_, history)| failed(history)) {
        bail!("{name} cannot be played: {}", history.last().unwrap_or(&serde_json::Value::Null));
    }
    let folder = folder().join("golden");
    if !play.only.is_empty() {
        let kept = golden::read(&folder).context("the recorded histories cannot be read")?;
        histories.extend(kept.into_iter().filter(|(name, _)| !name.starts_with(&play.only)));
    }
    golden::write(&folder, &histories).context("the histories cannot be written")?;
    write_page()?;
    println!("{} scripts recorded", scripts.len());
    Ok(())
}

fn write_page() -> anyhow::Result<()> {
    let uncovered = contract::uncovered(&script::all());
    if !uncovered.is_empty() {
        bail!("{}", uncovered.join("\n"));
    }
    let page = contract::page(&script::all(), &compare::known());
    std::fs::write(folder().join("../../../../docs/evidence/calibration.md"), page)
        .context("the page cannot be written")
}

/// Plays scripts on the real server: first those that may run side by side, then the others.
fn play_on_real(play: &Play, scripts: &[Script]) -> anyhow::Result<Histories> {
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let histories = runtime.block_on(async {
        let server = RealServer::start(&play.apiserver, &[]).await?;
        let (alone, together): (Vec<_>, Vec<_>) =
            scripts.iter().enumerate().partition(|(_, script)| script.alone);
        let one = |(number, script)| play_one(&server, number, script);
        let mut histories: Histories =
            stream::iter(together).map(one).buffer_unordered(play.jobs.max(1)).collect().await;
        for (number, script) in alone {
            histories.extend([play_one(&server, number, script).await]);
        }
        server.stop().await?;
        anyhow::Ok(histories)
    })?;
    eprintln!("{} scripts on the real server: {:.1} s", scripts.len(), begin.elapsed().as_secs_f64());
    Ok(histories)
}

async fn play_one<T: Target>(target: &T, number: usize, script: &Script) -> (String, Vec<serde_json::Value>) {
    let history = play::play(target, script, &format!("calibration-{number}x")).await;
    (script.name.clone(), history)
}

/// Plays scripts on the test server, each on one of its own and in virtual time.
fn play_on_ours(scripts: &[Script]) -> anyhow::Result<Histories> {
    let play = |script: &Script| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(async {
            let server = TestServer::builder().clock_seed(1).start().await?;
            let history = play_one(&server, 1, script).await;
            server.stop().await;
            anyhow::Ok(history)
        })
    };
    scripts.iter().map(play).collect()
}

fn chosen(only: &str) -> Vec<Script> {
    script::all().into_iter().filter(|script| script.name.starts_with(only)).collect()
}

/// Where scripts and histories are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/skopos-testserver/tests/calibration")
}
