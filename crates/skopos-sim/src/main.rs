//! `skopos-sim`: simulated hours of faults from the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use skopos_sim::plan::Plan;

#[derive(Parser)]
#[command(about = "Simulated hours of faults against the real client")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one plan, and prints the digest of what happened.
    Run(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// The seed; the plan follows from it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only this fault of the catalogue, instead of a mixture.
    #[arg(long)]
    fault: Option<u8>,
    /// A plan from a file instead.
    #[arg(long, conflicts_with_all = ["seed", "fault"])]
    plan: Option<PathBuf>,
    /// Runs this many seeds, from the given one on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Prints the plan, and does not run it.
    #[arg(long)]
    print: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().command {
        Command::Run(args) => run(&args),
    }
}

fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    skopos_sim::quiet_planned_panics();
    for seed in args.seed..args.seed + args.seeds {
        let plan = match (&args.plan, args.fault) {
            (Some(file), _) => Plan::from_json(&std::fs::read_to_string(file)?)?,
            (None, Some(fault)) => {
                Plan::single(fault, seed).ok_or_else(|| anyhow::anyhow!("fault {fault} is not simulated"))?
            }
            (None, None) => Plan::mixed(seed),
        };
        if args.print {
            println!("{}", plan.to_json()?);
            continue;
        }
        let history = skopos_sim::run(&plan);
        println!(
            "seed {seed}: {:016x}, {} facts, until {}",
            history.digest(),
            history.entries.len(),
            history.end()
        );
    }
    Ok(ExitCode::SUCCESS)
}
