//! What the program is made of: where its crates come from, under which licences, what is known against them, and a list of
//! them for others. See docs/evidence/security.md, and `deny.toml` for what is allowed.

mod advisories;
mod program;
mod sbom;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use self::program::Program;
use crate::{cargo, run};

/// How much is looked at, and where the list goes.
#[derive(clap::Args)]
pub(crate) struct Deps {
    /// Leave out what needs cargo-deny: duplicates, bans, and (but with `--db`) what is known against crates.
    #[arg(long, conflicts_with = "offline")]
    quick: bool,
    /// Leave out what is known against crates: that list comes from github.com.
    #[arg(long, conflicts_with = "db")]
    offline: bool,
    /// A copy of the RustSec advisory database (a folder), to look up there what is known against crates, without a network.
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
    /// Where the list of what the program is made of is written (an SBOM: CycloneDX 1.5, JSON).
    #[arg(long, default_value = "target/skopos.cdx.json")]
    sbom: PathBuf,
}

impl Deps {
    pub(crate) fn run(self) -> Result<()> {
        let program = Program::read(&root())?;
        let problems = program.problems(&program::allowed_licences(&root())?);
        ensure!(problems.is_empty(), "not allowed in the program:\n{}", problems.join("\n"));
        println!(
            "skopos is made of {} crates of its own and {} of crates.io, all under allowed licences",
            program.own(),
            program.len() - program.own()
        );
        let list = text(&program)?;
        if let Some(folder) = self.sbom.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&self.sbom, list).with_context(|| format!("{}", self.sbom.display()))?;
        println!("the list of them: {}", self.sbom.display());
        if let Some(database) = &self.db {
            check_advisories(database)?;
        }
        if self.quick {
            return Ok(());
        }
        let deny = match Tool::DENY.find() {
            // A machine without a network may not have it.
            Err(missing) if self.db.is_some() => {
                eprintln!("warning: bans, duplicates and yanked versions are not checked: {missing}");
                return Ok(());
            }
            found => found?,
        };
        run(deny.cargo().args(["check", "bans", "licenses", "sources"]))?;
        if !self.offline && self.db.is_none() {
            run(deny.cargo().args(["check", "advisories"])).context(
                "advisories: either something is known against a crate, or their database could not be fetched \
                 (see above; --offline leaves it out)",
            )?;
        }
        Ok(())
    }
}

/// Returns the list of what the program is made of.
pub(crate) fn sbom(root: &Path) -> Result<String> {
    text(&Program::read(root)?)
}

fn text(program: &Program) -> Result<String> {
    Ok(serde_json::to_string_pretty(&sbom::of(program)?)? + "\n")
}

/// Fails if something in the database applies to a crate of `Cargo.lock`.
fn check_advisories(database: &Path) -> Result<()> {
    let report = advisories::check(&root(), database)?;
    for ignored in &report.ignored {
        println!("ignored by deny.toml: {ignored}");
    }
    ensure!(
        report.problems.is_empty(),
        "known against crates of Cargo.lock:\n{}",
        report.problems.join("\n")
    );
    println!(
        "none of the {} advisories of {} applies; the newest of them is of {}",
        report.advisories,
        database.display(),
        report.newest
    );
    Ok(())
}

/// A tool that is not ours.
struct Tool {
    /// It is called as `cargo NAME`.
    name: &'static str,
    installed_by: &'static str,
}

impl Tool {
    const DENY: Self = Self { name: "deny", installed_by: "cargo install --locked cargo-deny" };

    /// Itself, if it can be called.
    fn find(self) -> Result<Self> {
        let asked = self.cargo().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !asked.is_ok_and(|status| status.success()) {
            bail!("cargo-{} is not installed: {}", self.name, self.installed_by);
        }
        Ok(self)
    }

    fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(root()).arg(self.name);
        command
    }
}

/// Returns the path of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tool_error_names_install_command() {
        let missing = Tool { name: "no-such-tool", installed_by: "cargo install no-such-tool" };
        let error = missing.find().err().map(|error| error.to_string());
        let wanted = "cargo-no-such-tool is not installed: cargo install no-such-tool";
        assert_eq!(error.as_deref(), Some(wanted));
    }
}
