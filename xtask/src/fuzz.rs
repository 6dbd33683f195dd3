//! The fuzz targets. See docs/fuzzing.md.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::run;

/// Which, and for how long.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// How long each target runs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How many run at the same time; more than there are cores get less than a core each.
    #[arg(long, default_value_t = NonZeroUsize::MIN)]
    at_once: NonZeroUsize,
    /// Which targets; nothing: all.
    targets: Vec<String>,
}

impl Fuzz {
    pub(crate) fn run(self) -> Result<()> {
        let targets = if self.targets.is_empty() { all()? } else { self.targets };
        // Each before the first runs, so that one that does not compile is not found out after hours.
        for target in &targets {
            run(cargo_fuzz("build").args(FAST).arg(target))?;
        }
        println!("| target | executions | minutes | coverage counters |\n|---|---:|---:|---:|");
        let failed = in_turn(&targets, self.at_once.get(), |target| fuzz(target, self.minutes));
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    }
}

/// Does it with all targets, so many at a time; what went wrong.
fn in_turn(targets: &[String], at_once: usize, each: impl Fn(&str) -> Result<()> + Sync) -> Vec<String> {
    let begun = AtomicUsize::new(0);
    let worker = || {
        std::iter::from_fn(|| targets.get(begun.fetch_add(1, Ordering::Relaxed)))
            .filter_map(|target| each(target).err().map(|error| format!("{target}: {error:#}")))
            .collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.min(targets.len())).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The project's own code has no unsafe code for a sanitizer to look at, and without one it runs twice as fast.
const FAST: [&str; 2] = ["--sanitizer", "none"];

/// Runs one, and prints its line of the table.
fn fuzz(target: &str, minutes: u64) -> Result<()> {
    let folder = Path::new("fuzz/target/logs");
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{target}.log"));
    let log = File::create(&path)?;
    let mut command = fuzzing(target, minutes)?;
    let status = command.stdout(log.try_clone()?).stderr(log).status()?;
    let told = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    ensure!(status.success(), "ended with {status}; see {}:\n{}", path.display(), end_of(&told));
    let Said { executions, coverage } = Said::read(&told).with_context(|| format!("{}", path.display()))?;
    println!("| `{target}` | {executions} | {minutes} | {coverage} |");
    Ok(())
}

fn fuzzing(target: &str, minutes: u64) -> Result<Command> {
    let corpus = PathBuf::from("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let seeds = PathBuf::from("fuzz/seeds").join(target);
    let mut command = cargo_fuzz("run");
    command.args(FAST).arg(target).arg(corpus).args(seeds.exists().then_some(seeds));
    command.arg("--").arg(format!("-max_total_time={}", 60 * minutes));
    // Nothing that a peer says may cost more memory than this or keep the client busy for longer.
    command.args(["-rss_limit_mb=1500", "-timeout=20", "-print_final_stats=1"]);
    command.args(dictionary(target).map(|name| format!("-dict=fuzz/dictionaries/{name}.dict")));
    Ok(command)
}

fn dictionary(target: &str) -> Option<&'static str> {
    match target {
        "object" | "list" | "frames" | "event" | "transform" | "token" => Some("json"),
        "label_selector" | "field_selector" => Some("selector"),
        "kubeconfig" => Some("kubeconfig"),
        _ => None,
    }
}

/// What libFuzzer says of a run that has ended.
struct Said<'a> {
    executions: &'a str,
    coverage: &'a str,
}

impl<'a> Said<'a> {
    fn read(log: &'a str) -> Result<Self> {
        let last = |word: &str| log.rsplit_once(word).and_then(|(_, rest)| rest.split_whitespace().next());
        let executions = last("stat::number_of_executed_units:").context("no number of executions")?;
        let coverage = last(" cov: ").context("no coverage")?;
        Ok(Self { executions, coverage })
    }
}

/// The lines that say what was wrong, and how to run it again.
fn end_of(log: &str) -> String {
    const LINES: usize = 25;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

fn all() -> Result<Vec<String>> {
    let output = cargo_fuzz("list").output()?;
    ensure!(output.status.success(), "cargo fuzz list ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(Into::into).collect())
}

/// `cargo fuzz` of the nightly toolchain, which it needs. What cargo says of this program is not for it: crates are built anew
/// when that changes, and by hand it is not there.
fn cargo_fuzz(command: &str) -> Command {
    let of_this_program = |name: &str| {
        ["CARGO", "RUSTUP_TOOLCHAIN"].contains(&name)
            || name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
    };
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "fuzz", command]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_program)) {
        cargo.env_remove(name);
    }
    cargo
}
