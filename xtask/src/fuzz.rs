//! The fuzz targets. See docs/evidence/fuzzing.md.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use wait4::Wait4;

use crate::run;

/// Which, and for how long.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// How long each target runs, in minutes of a core: it takes longer where there is more to do than there are cores.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How many run at the same time.
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
        println!("| target | executions | minutes of a core | coverage counters |\n|---|---:|---:|---:|");
        let long = Duration::from_secs(60 * self.minutes);
        let failed = in_turn(&targets, self.at_once.get(), |target| fuzz(target, long));
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

/// Runs one until it has had so much of a core, and prints its line of the table.
fn fuzz(target: &str, long: Duration) -> Result<()> {
    let mut had = Run::default();
    // libFuzzer knows only how much time has passed. What it was kept from using of that is made up for by another run, which
    // goes on with the corpus of the one before.
    while let Some(missing) = long.checked_sub(had.of_a_core).filter(|missing| *missing >= SHORTEST) {
        let run = Run::of(target, missing)?;
        had = Run {
            of_a_core: had.of_a_core + run.of_a_core,
            executions: had.executions + run.executions,
            coverage: had.coverage.max(run.coverage),
        };
    }
    let Run { of_a_core, executions, coverage } = had;
    println!("| `{target}` | {executions} | {} | {coverage} |", (of_a_core.as_secs() + 30) / 60);
    Ok(())
}

/// Less than this is not worth reading the corpus again.
const SHORTEST: Duration = Duration::from_secs(20);

/// What one run of libFuzzer came to.
#[derive(Default)]
struct Run {
    of_a_core: Duration,
    executions: u64,
    coverage: u64,
}

impl Run {
    fn of(target: &str, long: Duration) -> Result<Self> {
        let folder = Path::new("fuzz/target/logs");
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{target}.log"));
        let log = File::create(&path)?;
        let mut fuzzer = fuzzing(target, long)?.stdout(log.try_clone()?).stderr(log).spawn()?;
        let ended = fuzzer.wait4()?;
        let told = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let status = ended.status;
        ensure!(status.success(), "ended with {status}; see {}:\n{}", path.display(), end_of(&told));
        let (executions, coverage) = told_by(&told).with_context(|| format!("{}", path.display()))?;
        Ok(Self { of_a_core: ended.rusage.utime + ended.rusage.stime, executions, coverage })
    }
}

fn fuzzing(target: &str, long: Duration) -> Result<Command> {
    let corpus = PathBuf::from("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let seeds = PathBuf::from("fuzz/seeds").join(target);
    let mut command = cargo_fuzz("run");
    command.args(FAST).arg(target).arg(corpus).args(seeds.exists().then_some(seeds));
    command.arg("--").arg(format!("-max_total_time={}", long.as_secs()));
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

/// What libFuzzer says of a run that has ended: executions, and how many of its counters were reached.
fn told_by(log: &str) -> Result<(u64, u64)> {
    let last =
        |word: &str| log.rsplit_once(word).and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    let executions = last("stat::number_of_executed_units:").context("no number of executions")?;
    let coverage = last(" cov: ").context("no coverage")?;
    Ok((executions, coverage))
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

/// `cargo fuzz` of the nightly toolchain, which it needs. What cargo says of this program is not for it: crates are rebuilt
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
