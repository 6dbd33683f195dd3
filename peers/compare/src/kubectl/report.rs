//! What is printed about the commands.

use anyhow::{Result, bail};

use super::commands::Step;
use super::differences::Verdict;
use super::side::Outcome;

/// Counts of the commands; their differences are printed as they come.
#[derive(Default)]
pub(super) struct Report {
    same: usize,
    documented: usize,
    wrong: usize,
}

/// Lines of one output that are printed.
const MAX_LINES: usize = 60;

impl Report {
    pub(super) fn add(
        &mut self,
        step: &Step,
        verdict: Verdict,
        direct: &Outcome,
        gateway: &Outcome,
        show: bool,
    ) {
        let headline = match verdict {
            Verdict::Same => {
                self.same += 1;
                "same"
            }
            Verdict::Documented => {
                self.documented += 1;
                "different, as documented"
            }
            Verdict::Different => {
                self.wrong += 1;
                "DIFFERENT"
            }
            Verdict::Unexpected => {
                self.wrong += 1;
                if step.fails { "DOES NOT FAIL on the cluster itself" } else { "FAILS on the cluster itself" }
            }
        };
        if show || matches!(verdict, Verdict::Different | Verdict::Unexpected) {
            println!("\n{headline}: {} ({})", step.command, step.place);
            print("the cluster", direct);
            if direct != gateway {
                print("the gateway", gateway);
            }
        }
    }

    /// Prints the counts. An error if anything is wrong.
    pub(super) fn finish(self, unused: &[String]) -> Result<()> {
        for entry in unused {
            println!("\nNOT SEEN: {entry}");
        }
        let Self { same, documented, wrong } = self;
        let total = same + documented + wrong;
        println!("\n{total} commands: {same} the same, {documented} different as documented, {wrong} wrong.");
        let failed = wrong + unused.len();
        println!("{} passed, {failed} failed", same + documented);
        if failed > 0 {
            bail!("{wrong} commands and {} entries of differences.yaml are wrong: see above", unused.len());
        }
        Ok(())
    }
}

fn print(whose: &str, outcome: &Outcome) {
    let code = outcome.code.map_or("none".to_owned(), |code| code.to_string());
    println!("--- {whose}: exit code {code}");
    for (name, text) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        for line in text.lines().take(MAX_LINES) {
            println!("    {name}: {line}");
        }
        let more = text.lines().count().saturating_sub(MAX_LINES);
        if more > 0 {
            println!("    {name}: ... {more} more lines");
        }
    }
}
