//! Command line of the gate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::{Volume, pass};
use crate::plan::Plan;

/// Runs every fault alone and mixed hours, judges all, and writes a report.
#[derive(Clone, Debug, Args)]
pub struct GateArgs {
    /// Amount of runs; the other options change parts of it.
    #[arg(value_enum, default_value_t = Gate::Pr)]
    gate: Gate,
    /// Seeds of each fault alone.
    #[arg(long)]
    per_fault: Option<u64>,
    /// Only this fault of the catalogue, instead of each alone.
    #[arg(long)]
    fault: Option<u8>,
    /// Seeds of mixed hours.
    #[arg(long)]
    mixed: Option<u64>,
    /// The first seed.
    #[arg(long)]
    first: Option<u64>,
    /// Number of seeds that are run a second time in another process.
    #[arg(long)]
    twice: Option<u64>,
    /// Number of parallel runs.
    #[arg(long)]
    jobs: Option<usize>,
    /// Begin no further run after this many real minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Stop at the first failure.
    #[arg(long)]
    until_red: bool,
    /// At most this many runs.
    #[arg(long)]
    runs: Option<usize>,
    /// Folder for the report and the failures.
    #[arg(long, default_value = "target/sim-report")]
    to: PathBuf,
    /// Also writes the Markdown report to this file.
    #[arg(long)]
    write: Option<PathBuf>,
}

/// Predefined amount of runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gate {
    /// Required before a change lands.
    Pr,
    /// Required each night.
    Nightly,
    /// Required before a release.
    Release,
}

impl GateArgs {
    fn volume(&self) -> Volume {
        let volume = match self.gate {
            Gate::Pr => Volume::pull_request(),
            Gate::Nightly => Volume::nightly(),
            Gate::Release => Volume::release(),
        };
        Volume {
            per_fault: self.per_fault.unwrap_or(volume.per_fault),
            fault: self.fault,
            mixed: self.mixed.unwrap_or(volume.mixed),
            first: self.first.unwrap_or(volume.first),
            twice: self.twice.unwrap_or(volume.twice),
            jobs: self.jobs.unwrap_or(volume.jobs),
            at_most: self.minutes.map(|minutes| Duration::from_secs(minutes * 60)),
            until_red: self.until_red,
            runs: self.runs,
            ..volume
        }
    }

    /// Runs the gate; the exit code says whether it passed.
    ///
    /// # Errors
    /// If files or processes cannot be made.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let report = pass(&self.volume(), &self.to)?;
        let markdown = report.markdown()?;
        let files = [(self.to.join("report.md"), &markdown), (self.to.join("report.html"), &report.html()?)];
        for (file, text) in files {
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        self.write.as_deref().map_or(Ok(()), |file| write_keeping(file, &markdown))?;
        println!(
            "{} runs of {} simulated hours in {} s: {} failed, {} with a part of an RV, {} of {} differ in another process, {} cells without a reason; {}",
            report.runs,
            report.hours,
            report.seconds,
            report.failed,
            report.parted,
            report.differing.len(),
            report.twice,
            report.unexplained.len(),
            self.to.join("report.html").display()
        );
        // A gate that stopped at the first failure has not filled its table.
        let green =
            report.is_green() || (self.until_red && report.failed == 0 && report.differing.is_empty());
        if !green {
            report
                .unexplained
                .iter()
                .for_each(|cell| eprintln!("never exercised, and no reason why: {cell}"));
        }
        Ok(if green { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// From this line on a report is written by hand.
const BY_HAND: &str = "<!-- Written by hand from here on: `--write` keeps it. -->";

/// Writes the report again, and keeps the manual text below it.
fn write_keeping(file: &Path, report: &str) -> anyhow::Result<()> {
    let old = match std::fs::read_to_string(file) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let kept = match old.find(BY_HAND) {
        Some(at) => &old[at..],
        None if old.is_empty() => BY_HAND,
        None => bail!("{} has no line `{BY_HAND}`, and could lose what was written by hand", file.display()),
    };
    let text = format!("{}\n\n{}\n", report.trim_end(), kept.trim_end());
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Prints the digests of mixed runs, for a gate that compares them with its own.
#[derive(Clone, Debug, Args)]
pub struct DigestsArgs {
    /// The first seed.
    #[arg(long)]
    seed: u64,
    /// Number of seeds.
    #[arg(long)]
    seeds: u64,
}

impl DigestsArgs {
    /// Runs the seeds and prints the digests.
    pub fn run(&self) -> ExitCode {
        crate::quiet_planned_panics();
        for seed in self.seed..self.seed + self.seeds {
            println!("{seed} {:016x}", crate::run::run_haltingly(&Plan::mixed(seed)).digest());
        }
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_keeps_handwritten_notes() {
        let folder = std::env::temp_dir().join(format!("skopos-sim-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("simulation.md");
        let read = || std::fs::read_to_string(&file).expect("a report");
        write_keeping(&file, "first\n").expect("a new file");
        assert_eq!(read(), format!("first\n\n{BY_HAND}\n"));
        std::fs::write(&file, format!("{}\n## Notes\n", read())).expect("written by hand");
        write_keeping(&file, "second\n").expect("the same file");
        assert_eq!(read(), format!("second\n\n{BY_HAND}\n\n## Notes\n"));
        std::fs::write(&file, "no such line\n").expect("written by hand");
        write_keeping(&file, "third\n").expect_err("it could lose something");
        assert_eq!(read(), "no such line\n");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
