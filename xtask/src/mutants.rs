//! Broken code that the tests have to see. See docs/mutants.md.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{cargo, run};

/// Which part, and how much of it.
#[derive(clap::Args)]
pub(crate) struct Mutants {
    /// One n-th of them, spread over all files: `k/n`.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Which parts; nothing: all.
    parts: Vec<Part>,
    /// Further options of `cargo mutants`: `-- --re Position`, `-- --iterate`.
    #[arg(last = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// skopos-wire
    Wire,
    /// The list/watch machine.
    Machine,
    /// The store.
    Store,
}

impl Mutants {
    pub(crate) fn run(self) -> Result<()> {
        let parts = if self.parts.is_empty() { Part::value_variants() } else { &self.parts };
        for part in parts {
            // Most are caught by a quick test: the slow ones are for those that are left.
            let slow = part.slow_tests();
            if !slow.is_empty() {
                let mut command = self.command(*part);
                command.args(["--", "--"]).args(slow.iter().flat_map(|name| ["--skip", name]));
                let status = command.status()?;
                ensure!(
                    matches!(status.code(), Some(0 | SOME_SURVIVE | SOME_NEVER_END)),
                    "{command:?} ended with {status}"
                );
            }
            let mut command = self.command(*part);
            command.args((!slow.is_empty()).then_some("--iterate"));
            run(&mut command)?;
        }
        Ok(())
    }

    fn command(&self, part: Part) -> Command {
        let mut command = cargo();
        // Symbols and many cases cost time for each mutant, and tell nothing more; only what a mutant touches is built anew.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("PROPTEST_CASES", "32").env("CARGO_INCREMENTAL", "1");
        command.args(["mutants", "--package", part.package(), "--output"]).arg(part.output());
        command.args(part.more()).args(&self.options);
        if let Some(shard) = &self.shard {
            command.args(["--sharding", "round-robin", "--shard", shard]);
        }
        command
    }
}

/// How `cargo mutants` ends when it has worked and found something: <https://mutants.rs/exit-codes.html>.
const SOME_SURVIVE: i32 = 2;
const SOME_NEVER_END: i32 = 3;

impl Part {
    fn package(self) -> &'static str {
        match self {
            Part::Wire => "skopos-wire",
            Part::Machine => "skopos-reflect",
            Part::Store => "skopos",
        }
    }

    /// The wire crate's properties are no unit tests.
    fn more(self) -> &'static [&'static str] {
        match self {
            Part::Wire => &["--cargo-arg=--tests"],
            Part::Machine | Part::Store => &[],
        }
    }

    /// Those that take longer than all others together.
    fn slow_tests(self) -> &'static [&'static str] {
        match self {
            Part::Machine => &["properties::", "rollback_begins_an_epoch_within", "lively_streams_cut_again"],
            Part::Wire | Part::Store => &[],
        }
    }

    fn output(self) -> String {
        format!("target/mutants/{}", self.package())
    }
}
