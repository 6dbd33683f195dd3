//! The tests of what happens where threads meet; see crates/skopos/src/threads.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{cargo, run};

/// How many orders of steps are tried, and which.
#[derive(clap::Args)]
pub(crate) struct Threads {
    /// How many orders each test is run in.
    #[arg(long, default_value_t = 300)]
    schedules: u64,
    /// From which the orders are drawn: the same number, the same orders.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A part of the name of the tests to run; nothing: all.
    filter: Option<String>,
}

impl Threads {
    pub(crate) fn run(self) -> Result<()> {
        let tests = build()?;
        let filter = format!("threads::{}", self.filter.unwrap_or_default());
        let mut command = Command::new(tests);
        command.arg(filter);
        command.env("SKOPOS_SCHEDULES", self.schedules.to_string());
        command.env("SKOPOS_SEED", self.seed.to_string());
        run(&mut command)
    }
}

/// Builds the unit tests of the library on the model. `cargo rustc` sets the flag for this one crate, so that nothing below it
/// is built again.
fn build() -> Result<String> {
    let mut command = cargo();
    command.args(["rustc", "--package", "skopos", "--lib", "--profile", "test"]);
    command.args(["--message-format", "json-render-diagnostics", "--", "--cfg", "shuttle"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let messages = String::from_utf8(output.stdout)?;
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.find_map(|message| message["executable"].as_str().map(ToOwned::to_owned));
    built.context("cargo rustc built no test program")
}
