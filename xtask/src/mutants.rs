//! Broken code that the tests have to see. See docs/mutants.md.

use anyhow::Result;
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
            let mut command = cargo();
            // Symbols and many cases cost time for each mutant, and tell nothing more.
            command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("PROPTEST_CASES", "32");
            command.args(["mutants", "--package", part.package(), "--output"]).arg(part.output());
            command.args(part.more()).args(&self.options);
            if let Some(shard) = &self.shard {
                command.args(["--sharding", "round-robin", "--shard", shard]);
            }
            run(&mut command)?;
        }
        Ok(())
    }
}

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
            Part::Wire => &["--cargo-test-arg=--tests"],
            Part::Machine | Part::Store => &[],
        }
    }

    fn output(self) -> String {
        format!("target/mutants/{}", self.package())
    }
}
