//! The project's own chores: `cargo xtask help` lists them.

mod book;
mod bugs;
mod deps;
mod dist;
mod files;
mod fuzz;
mod mutants;
mod sim;
mod threads;
mod words;

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Parser;

/// Chores of the Skopos repository.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
enum Chore {
    /// Measure Skopos and kube-rs side by side, or the gateway at scale (needs Linux, some minutes, and a quiet machine).
    Bench {
        /// What to measure and its options, see `cargo xtask bench -- --help`; nothing: `run`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Rewrite docs/evidence/detection.md from a test run.
    Tables,
    /// Fuzz what reads foreign bytes, and the list/watch machine (needs nightly Rust and cargo-fuzz).
    Fuzz(fuzz::Fuzz),
    /// Break the code in small ways, and list what the tests do not see (needs cargo-mutants; hours without `--shard`).
    Mutants(mutants::Mutants),
    /// Try many orders of steps where threads meet: the work queue, the store, handlers, the factory's registry.
    Threads(threads::Threads),
    /// Simulate hours of faults and judge them: a gate, or one seed again.
    Sim(sim::Sim),
    /// Plant bugs one at a time, and see that the simulation finds each.
    Bugs(bugs::Bugs),
    /// Look at what the program is made of: licences and origins of its crates, what is known against them, an SBOM.
    Deps(deps::Deps),
    /// Make the packages: archive, Debian package, image, checksums, list of crates.
    Dist(dist::Dist),
    /// Measure names, prose and circles of imports, and compare them with the bounds in xtask/words.toml.
    Words(words::Words),
    /// Check the docs for users (links, table of contents, pictures), and build the book.
    Book(book::Book),
    /// Everything that has to pass before a change lands.
    Ci,
}

fn main() -> Result<()> {
    match Chore::parse() {
        Chore::Bench { arguments } => bench(arguments),
        Chore::Tables => {
            run(cargo().args(["test", "-p", "skopos", "--test", "detection"]).env("SKOPOS_WRITE_TABLES", "1"))
        }
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Mutants(mutants) => mutants.run(),
        Chore::Threads(threads) => threads.run(),
        Chore::Sim(sim) => sim.run(),
        Chore::Bugs(bugs) => bugs.run(),
        Chore::Deps(deps) => deps.run(),
        Chore::Dist(dist) => dist.run(),
        Chore::Words(words) => words.run(),
        Chore::Book(book) => book.run(),
        Chore::Ci => run(&mut Command::new(".ci/run")),
    }
}

fn bench(arguments: Vec<String>) -> Result<()> {
    let arguments = if arguments.is_empty() { vec!["run".to_owned()] } else { arguments };
    run(cargo().args(["run", "--release", "--package", "skopos-bench", "--"]).args(arguments))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns Cargo with flags of its own, and without the linter that CI puts before the compiler: it lints once, with CI's flags.
fn cargo_with_flags(flags: &str) -> Command {
    let mut command = cargo();
    command.env("RUSTFLAGS", flags).env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
