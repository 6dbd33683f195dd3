//! The fuzz targets, one after the other. See docs/fuzzing.md.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::run;

/// Which, and for how long.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// How long each target runs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
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
        for target in &targets {
            println!("=== {target}, {} min", self.minutes);
            fuzz(target, self.minutes)?;
        }
        Ok(())
    }
}

/// The project's own code has no unsafe code for a sanitizer to look at, and without one it runs twice as fast.
const FAST: [&str; 2] = ["--sanitizer", "none"];

fn fuzz(target: &str, minutes: u64) -> Result<()> {
    let corpus = PathBuf::from("fuzz/corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    let seeds = PathBuf::from("fuzz/seeds").join(target);
    let mut command = cargo_fuzz("run");
    command.args(FAST).arg(target).arg(corpus).args(seeds.exists().then_some(seeds));
    command.arg("--").arg(format!("-max_total_time={}", 60 * minutes));
    // Nothing that a peer says may cost more memory than this or keep the client busy for longer.
    command.args(["-rss_limit_mb=1500", "-timeout=20", "-print_final_stats=1"]);
    command.args(dictionary(target).map(|name| format!("-dict=fuzz/dictionaries/{name}.dict")));
    run(&mut command)
}

fn dictionary(target: &str) -> Option<&'static str> {
    match target {
        "object" | "list" | "frames" | "event" | "transform" | "token" => Some("json"),
        "label_selector" | "field_selector" => Some("selector"),
        "kubeconfig" => Some("kubeconfig"),
        _ => None,
    }
}

fn all() -> Result<Vec<String>> {
    let output = cargo_fuzz("list").output()?;
    ensure!(output.status.success(), "cargo fuzz list ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(Into::into).collect())
}

/// `cargo fuzz` of the nightly toolchain, which it needs.
fn cargo_fuzz(command: &str) -> Command {
    let mut cargo = Command::new("rustup");
    cargo
        .args(["run", "nightly", "cargo", "fuzz", command])
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    cargo
}
