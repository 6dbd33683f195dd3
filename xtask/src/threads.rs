//! The tests of what happens where threads meet; see crates/skopos/src/threads.

use anyhow::Result;

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
        let mut command = cargo();
        // With the features of all tests: what they need is built already.
        command.args(["test", "--workspace", "--all-features", "--test", "threads", "--"]);
        command.arg(format!("threads::{}", self.filter.unwrap_or_default()));
        command.env("SKOPOS_SCHEDULES", self.schedules.to_string());
        command.env("SKOPOS_SEED", self.seed.to_string());
        run(&mut command)
    }
}
