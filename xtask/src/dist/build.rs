//! The build of the binary: static, stripped, and without the names of the folders that it was built in.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, run};

/// The systems that packages are made for, in the words of Rust, Debian and OCI.
const TARGETS: [(&str, &str); 4] = [
    ("x86_64-unknown-linux-musl", "amd64"),
    ("x86_64-unknown-linux-gnu", "amd64"),
    ("aarch64-unknown-linux-musl", "arm64"),
    ("aarch64-unknown-linux-gnu", "arm64"),
];

/// System that the packages are for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    name: &'static str,
    architecture: &'static str,
}

impl Target {
    /// Returns the target of this name, or the default.
    pub(super) fn choose(name: Option<String>) -> Result<Self> {
        let name = name.unwrap_or_else(|| {
            let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
            match has_standard_library(&musl) {
                true => musl,
                false => format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
            }
        });
        let known = TARGETS.into_iter().find(|(known, _)| *known == name);
        let Some((name, architecture)) = known else {
            let names = TARGETS.map(|(name, _)| name).join(", ");
            bail!("there are no packages for {name}: choose one of {names}");
        };
        Ok(Self { name, architecture })
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// Returns Debian's name of the architecture.
    pub(super) fn debian(self) -> &'static str {
        self.architecture
    }

    /// Returns OCI's name of the architecture, which is Go's.
    pub(super) fn oci(self) -> &'static str {
        self.architecture
    }
}

fn has_standard_library(target: &str) -> bool {
    let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    folder.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

/// Builds the binary, and returns its path.
pub(super) fn build(root: &Path, target: &Target) -> Result<PathBuf> {
    ensure!(
        has_standard_library(target.name),
        "Rust's standard library for {0} is not installed: rustup target add {0}",
        target.name
    );
    let home = cargo_home()?;
    let folders = [(root, "/skopos"), (home.as_path(), "/cargo")];
    let mapped =
        |option: &str| folders.map(|(from, to)| format!("{option}{}={to}", from.display())).join(" ");
    // glibc's resolver and NSS of files and DNS are in the static library since 2.34.
    let flags = format!("{} -Ctarget-feature=+crt-static", mapped("--remap-path-prefix="));
    let variable = target.name.replace('-', "_");
    run(cargo()
        .current_dir(root)
        .args(["build", "--locked", "--profile", "dist", "--package", "skopos-cli", "--target", target.name])
        .env("RUSTFLAGS", flags)
        .env(format!("CFLAGS_{variable}"), mapped("-ffile-prefix-map="))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTC_WORKSPACE_WRAPPER"))
    .context("is a C compiler for the target there? Debian has it in the package musl-tools")?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(folder.join(target.name).join("dist/skopos"))
}

fn cargo_home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => Ok(home.into()),
        None => Ok(PathBuf::from(std::env::var_os("HOME").context("neither HOME nor CARGO_HOME is set")?)
            .join(".cargo")),
    }
}

/// Returns the time that files have in packages, in seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit.
/// See <https://reproducible-builds.org/specs/source-date-epoch>.
pub(super) fn time(root: &Path) -> Result<u64> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time.parse().with_context(|| format!("SOURCE_DATE_EPOCH is no number of seconds: {time:?}"));
    }
    let commit = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output()?;
    let time = String::from_utf8_lossy(&commit.stdout).trim().to_owned();
    time.parse().context("this is no git repository with a commit: set SOURCE_DATE_EPOCH")
}
