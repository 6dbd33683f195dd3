//! Bugs that are planted one at a time, to see that the simulation finds each.
//!
//! Each is a patch in `crates/skopos-sim/bugs`, with a header that says what it breaks and which invariant should notice. They are
//! applied to a copy of the tree, which has a target folder of its own. What a crate simulates by itself, as the notifier does its sinks and
//! the lease its candidates, is shown by the tests of its library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use super::cargo_with_flags;
use super::sim::SEEDED;

/// Options of `cargo xtask bugs`.
#[derive(Args)]
pub(crate) struct Bugs {
    /// Only those whose file has this in its name; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// At most so many runs of the gate for each.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Do not first see that the tree is green as it is.
    #[arg(long)]
    skip_green: bool,
    /// Only see that each patch applies.
    #[arg(long)]
    check: bool,
}

const PATCHES: &str = "crates/skopos-sim/bugs";

impl Bugs {
    pub(crate) fn run(&self) -> Result<()> {
        let copy = Copy::of_the_tree()?;
        let bugs = self.bugs(&copy.root)?;
        for bug in &bugs {
            copy.patch(bug, &["--check"])
                .with_context(|| format!("{} does not apply any more: mend it", bug.name))?;
        }
        if self.check {
            println!("{} bugs, and all of them can be planted", bugs.len());
            return Ok(());
        }
        if !self.skip_green {
            let whole: BTreeSet<_> = bugs.iter().map(|bug| bug.tests.as_deref()).collect();
            for tests in whole {
                if let Outcome::Red(what) = copy.run(self.seeds, None, tests)? {
                    bail!("the tree is red before anything was planted: {what}");
                }
            }
        }
        let mut survived = Vec::new();
        println!("| bug | breaks | expected | caught by |\n|---|---|---|---|");
        for bug in &bugs {
            copy.patch(bug, &[])?;
            let outcome = copy.run(self.seeds, bug.fault, bug.tests.as_deref());
            copy.patch(bug, &["--reverse"])?;
            let outcome = match outcome? {
                Outcome::Red(what) => what,
                Outcome::Green => {
                    survived.push(bug.name.clone());
                    "**survived**".to_owned()
                }
            };
            println!("| {} | {} | {} | {outcome} |", bug.name, bug.breaks, bug.noticed_by);
        }
        ensure!(
            survived.is_empty(),
            "{} of {} bugs survived: {}",
            survived.len(),
            bugs.len(),
            survived.join(", ")
        );
        println!("\nall {} bugs were caught", bugs.len());
        Ok(())
    }

    fn bugs(&self, root: &Path) -> Result<Vec<Bug>> {
        let mut bugs = Vec::new();
        for entry in fs::read_dir(root.join(PATCHES)).context("no bugs to plant")? {
            let file = entry?.path();
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let wanted = self.only.is_empty() || self.only.iter().any(|only| name.contains(only));
            if wanted && file.extension().is_some_and(|extension| extension == "patch") {
                bugs.push(Bug::read(name, file)?);
            }
        }
        ensure!(!bugs.is_empty(), "no bug has such a name");
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bugs)
    }
}

/// A bug that can be planted.
struct Bug {
    name: String,
    file: PathBuf,
    breaks: String,
    noticed_by: String,
    /// The only fault of the catalogue that shows it: all seeds are of this one.
    fault: Option<u8>,
    /// The crate whose tests show it, in place of the gate; with `--test NAME`, a test file of it in place of its library.
    tests: Option<String>,
}

impl Bug {
    fn read(name: String, file: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&file)?;
        let line = |field: &str| text.lines().find_map(|line| line.strip_prefix(field)).map(str::trim);
        let header = |field: &str| {
            line(field).map(str::to_owned).with_context(|| format!("{name} has no line `{field}`"))
        };
        let (breaks, noticed_by) = (header("Breaks:")?, header("Noticed by:")?);
        let fault = line("Shown by fault:").map(str::parse).transpose();
        let fault = fault.with_context(|| format!("{name}: a fault is a number"))?;
        let tests = line("Shown by tests of:").map(str::to_owned);
        Ok(Self { file, breaks, noticed_by, fault, tests, name })
    }
}

/// How a gate ended.
enum Outcome {
    Green,
    Red(String),
}

/// The tree once more, below `target`.
struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// What is tracked or new in the working tree, as it is there. Files that have not changed stay as they are, so that
    /// only what has changed is built again.
    fn of_the_tree() -> Result<Self> {
        let here = std::env::current_dir()?;
        let (root, target) = (here.join("target/bugs/tree"), here.join("target/bugs/target"));
        let listed =
            Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).output()?;
        ensure!(listed.status.success(), "git cannot list the files");
        let files: BTreeSet<PathBuf> = String::from_utf8(listed.stdout)?.lines().map(PathBuf::from).collect();
        for file in &files {
            let (from, to) = (here.join(file), root.join(file));
            // Deleted, and not yet committed so.
            let Ok(content) = fs::read(&from) else { continue };
            if fs::read(&to).ok().as_ref() != Some(&content) {
                fs::create_dir_all(to.parent().unwrap_or(&root))?;
                fs::write(&to, content)?;
            }
        }
        forget_others(&root, &root, &files)?;
        Ok(Self { root, target })
    }

    fn patch(&self, bug: &Bug, how: &[&str]) -> Result<()> {
        let mut git = Command::new("git");
        // The copy lies inside of the repository, which must not be found.
        git.current_dir(&self.root).env("GIT_CEILING_DIRECTORIES", self.root.parent().unwrap_or(&self.root));
        let status = git.arg("apply").args(how).arg(&bug.file).status()?;
        ensure!(status.success(), "git apply {} {}: {status}", how.join(" "), bug.file.display());
        Ok(())
    }

    fn run(&self, seeds: u64, fault: Option<u8>, tests: Option<&str>) -> Result<Outcome> {
        match tests {
            Some(package) => self.tests(package),
            None => self.gate(seeds, fault),
        }
    }

    /// Runs the tests of a library, or of a test file. Those that fail have noticed it.
    fn tests(&self, of: &str) -> Result<Outcome> {
        let (package, file) = of.split_once(' ').unwrap_or((of, "--lib"));
        let run = |how: &str| {
            let mut tests = cargo_with_flags("-A warnings");
            tests.args(["test", "--package", package]).args(file.split(' ')).arg(how);
            tests
                .current_dir(&self.root)
                .env("CARGO_TARGET_DIR", &self.target)
                .env("CARGO_INCREMENTAL", "1")
                .output()
        };
        let built = run("--no-run")?;
        ensure!(
            built.status.success(),
            "{package} does not build: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        let output = run("--no-fail-fast")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
        match (output.status.success(), failed.first()) {
            (true, _) => Ok(Outcome::Green),
            (false, Some(first)) if failed.len() == 1 => Ok(Outcome::Red(first.to_string())),
            (false, Some(first)) => Ok(Outcome::Red(format!("{first} and {} more", failed.len() - 1))),
            (false, None) => bail!("the tests of {package} ended with {} and named none", output.status),
        }
    }

    /// Runs the gate until something breaks.
    fn gate(&self, seeds: u64, fault: Option<u8>) -> Result<Outcome> {
        let mut build = cargo_with_flags(&format!("{SEEDED} -A warnings"));
        build.args(["build", "--quiet", "--profile", "sim", "--package", "skopos-sim"]);
        build
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            // One tree that is changed a little some ninety times, and no debugger ever looks at it.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_SIM_DEBUG", "none");
        ensure!(build.status()?.success(), "it does not build");
        let mut gate = Command::new(self.target.join("sim/skopos-sim"));
        let seeds = seeds.to_string();
        gate.args(["gate", "pr", "--until-red", "--twice", "0", "--runs", &seeds]);
        if let Some(fault) = fault {
            gate.args(["--fault", &fault.to_string(), "--per-fault", &seeds, "--mixed", "0"]);
        }
        gate.arg("--to");
        let output = gate.arg(self.target.join("report")).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let red = text.lines().find_map(|line| line.strip_prefix("red: ")).map(str::to_owned);
        match (output.status.success(), red) {
            (true, None) => Ok(Outcome::Green),
            (_, Some(red)) => Ok(Outcome::Red(red)),
            (false, None) => bail!("the gate ended with {} and said nothing", output.status),
        }
    }
}

/// Removes files of the copy that are no longer in the tree.
fn forget_others(root: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_others(root, &path, files)?;
        } else if !files.contains(path.strip_prefix(root)?) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
