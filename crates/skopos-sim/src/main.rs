//! `skopos-sim`: simulated hours of faults from the command line.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use skopos_sim::oracle::{Invariant, Verdict, judge};
use skopos_sim::plan::Plan;
use skopos_sim::timeline::{self, Frame};

#[derive(Parser)]
#[command(about = "Simulated hours of faults against the real client")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one plan and judges it.
    Run(RunArgs),
    /// Runs every fault alone and mixed hours, judges all, and writes a report.
    Gate(skopos_sim::gate::GateArgs),
    /// Prints the digests of mixed runs, for a gate that compares them with its own.
    #[command(hide = true)]
    Digests(skopos_sim::gate::DigestsArgs),
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
    /// Looks for a smaller plan that breaks the same invariant, in at most this many runs, and writes it to this file.
    #[arg(long, num_args = 2, value_names = ["RUNS", "FILE"])]
    shrink: Option<Vec<String>>,
    /// Also prints how often each invariant was evaluated.
    #[arg(long)]
    verbose: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().command {
        Command::Run(args) => run(&args),
        Command::Gate(args) => args.run(),
        Command::Digests(args) => Ok(args.run()),
    }
}

fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    skopos_sim::quiet_planned_panics();
    let mut code = ExitCode::SUCCESS;
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
        let verdict = judge(&history);
        if let (Some(shrink), Some(first)) = (&args.shrink, verdict.violations.first()) {
            make_smaller(&plan, first.invariant, shrink)?;
        }
        println!(
            "seed {seed}: {:016x}, {} facts, until {}: {}",
            history.digest(),
            history.entries.len(),
            history.end(),
            if verdict.is_clean() { "clean" } else { "broken" }
        );
        if args.verbose {
            tell(&verdict);
        }
        let mut told = BTreeSet::new();
        for violation in verdict.violations.iter().filter(|violation| told.insert(violation.invariant)) {
            code = ExitCode::FAILURE;
            println!("\n{violation}\n\n{}", timeline::around(&history, violation, Frame::default()));
        }
    }
    Ok(code)
}

fn make_smaller(plan: &Plan, invariant: Invariant, shrink: &[String]) -> anyhow::Result<()> {
    let [runs, file] = shrink else { anyhow::bail!("--shrink takes a number of runs and a file") };
    let breaks = |plan: &Plan| {
        judge(&skopos_sim::run(plan)).violations.iter().any(|violation| violation.invariant == invariant)
    };
    let smaller = skopos_sim::plan::shrink(plan, runs.parse()?, breaks);
    std::fs::write(file, smaller.to_json()?)?;
    println!("a smaller plan that breaks {invariant} is in {file}: run --plan {file}");
    Ok(())
}

/// Prints how often each predicate was evaluated, and how often it could have been broken.
fn tell(verdict: &Verdict) {
    for invariant in Invariant::ALL {
        let counts = verdict.counts(invariant);
        println!("{:>8} checked {:>8} exercised  {invariant}", counts.checked, counts.exercised);
    }
}
