//! Broken code that the tests have to see. See docs/evidence/mutants.md.

use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;

use crate::cargo;

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
        let mut all_caught = true;
        for part in parts {
            std::fs::create_dir_all(part.output())?;
            all_caught &= self.catch_all(*part)?;
        }
        ensure!(all_caught, "some survive: `missed.txt` in target/mutants/*/mutants.out lists them");
        Ok(())
    }

    fn catch_all(&self, part: Part) -> Result<bool> {
        let mut mutants = self.command(part);
        if let Some(shard) = &self.shard {
            mutants.args(["--sharding", "round-robin", "--shard", shard]);
        }
        let quick = part.quick_tests();
        if !quick.is_empty() {
            mutants.args(["--", "--"]).args(quick);
        }
        let left = survivors(&mut mutants, part)?;
        if quick.is_empty() || left.is_empty() {
            return Ok(left.is_empty());
        }
        // Most are caught by a quick test: all others are for those that are left. Those go by their names: the shards of what is
        // left would be others.
        let names = left.lines().flat_map(|name| ["--re".to_owned(), format!("^{}$", literally(name))]);
        Ok(survivors(self.command(part).arg("--iterate").args(names), part)?.is_empty())
    }

    fn command(&self, part: Part) -> Command {
        let mut command = cargo();
        // Symbols and many cases cost time for each mutant, and tell nothing more; only what a mutant touches is rebuilt.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("PROPTEST_CASES", "32").env("CARGO_INCREMENTAL", "1");
        command.args(["mutants", "--package", part.package(), "--output"]).arg(part.output());
        command.args(part.more()).args(&self.options);
        command
    }
}

/// A regular expression for this text.
fn literally(text: &str) -> String {
    let one =
        |c: char| if c.is_ascii_alphanumeric() { c.into() } else { format!(r"\x{{{:x}}}", u32::from(c)) };
    text.chars().map(one).collect()
}

/// Tries them; a line for each that survives.
fn survivors(mutants: &mut Command, part: Part) -> Result<String> {
    // <https://mutants.rs/exit-codes.html>. Where some never end, some may survive all the same.
    const SOME_SURVIVE: i32 = 2;
    const SOME_NEVER_END: i32 = 3;
    let status = mutants.status()?;
    match status.code() {
        // There may have been none to try, and then there is no list.
        Some(0) => Ok(String::new()),
        Some(SOME_SURVIVE | SOME_NEVER_END) => {
            Ok(std::fs::read_to_string(format!("{}/mutants.out/missed.txt", part.output()))?)
        }
        _ => bail!("{mutants:?} ended with {status}"),
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
            Part::Wire => &["--cargo-arg=--tests"],
            Part::Machine | Part::Store => &[],
        }
    }

    /// How tests are chosen for the first round; nothing: there is one round, with all.
    fn quick_tests(self) -> &'static [&'static str] {
        match self {
            Part::Wire => &[],
            Part::Machine => &[
                "--skip=properties::",
                "--skip=rollback_begins_an_epoch_within",
                "--skip=lively_streams_cut_again",
            ],
            Part::Store => &[
                "store::",
                "--skip=readers_and_handlers_follow_log",
                "--skip=readers_see_whole_batches",
                "--skip=a_handler_that_stands_still",
            ],
        }
    }

    fn output(self) -> String {
        format!("target/mutants/{}", self.package())
    }
}
