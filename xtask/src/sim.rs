//! Simulated hours, and bugs planted to see that they are found.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use super::{cargo_with_flags, run};

/// Options of `cargo xtask sim`.
#[derive(Args)]
pub(crate) struct Sim {
    /// Pass a gate: `pr` (minutes), `nightly` (an hour or so), `release` (a day or so).
    #[arg(long, conflicts_with_all = ["seed", "plan"])]
    gate: Option<String>,
    /// Run one seed again, judge it, and show what happened around what it broke.
    #[arg(long)]
    seed: Option<u64>,
    /// With this fault of the catalogue alone, instead of a mixed hour.
    #[arg(long, requires = "seed")]
    fault: Option<u8>,
    /// Run a plan from a file, such as one that was made smaller.
    #[arg(long)]
    plan: Option<String>,
    /// Rewrite docs/evidence/simulation.md from the gate's report.
    #[arg(long, requires = "gate")]
    write: bool,
    /// Everything else, for `skopos-sim` itself: `-- --mixed 100 --jobs 4`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Sim {
    pub(crate) fn run(&self) -> Result<()> {
        let mut command = simulation();
        match (&self.gate, &self.plan) {
            (Some(gate), _) => {
                command.args(["gate", gate]);
                if self.write {
                    command.args(["--write", "docs/evidence/simulation.md"]);
                }
            }
            (None, Some(plan)) => {
                command.args(["run", "--verbose", "--plan", plan]);
            }
            (None, None) => {
                command.args(["run", "--verbose", "--seed", &self.seed.unwrap_or(0).to_string()]);
                command.args(self.fault.iter().flat_map(|fault| ["--fault".to_owned(), fault.to_string()]));
            }
        }
        run(command.args(&self.arguments))
    }
}

/// Lets tokio's own random choices be seeded.
pub(crate) const SEEDED: &str = "--cfg tokio_unstable";

/// `skopos-sim`, built in its profile.
fn simulation() -> Command {
    let mut command = cargo_with_flags(SEEDED);
    command.args(["run", "--quiet", "--profile", "sim", "--package", "skopos-sim", "--"]);
    command
}
