//! The compared programs: where they are, and how they are built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::client::Who;

/// The folder `peers`.
pub(crate) fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    peers().parent().map(Path::to_owned).unwrap_or_default()
}

/// A client's program.
pub(crate) fn of(who: Who) -> Result<PathBuf> {
    let program = match who {
        Who::ClientGo => peers().join("bin/client-go"),
        Who::KubeRs => peers().join("target/release/peer-kube-rs"),
        Who::Skopos => peers().join("target/release/peer-skopos"),
    };
    ensure!(program.exists(), "{} is not built: run with --build", program.display());
    Ok(program)
}

/// The program of the real server.
pub(crate) fn apiserver() -> PathBuf {
    peers().join("bin/apiserver")
}

/// Builds the clients and the real server.
pub(crate) fn build() -> Result<()> {
    for (folder, program) in [("client-go", "bin/client-go"), ("apiserver", "bin/apiserver")] {
        let mut go = Command::new("go");
        go.args(["build", "-p=2", "-o"])
            .arg(peers().join(program))
            .arg(".")
            .current_dir(peers().join(folder));
        ensure!(go.status()?.success(), "go build of {folder} failed");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "-p", "peer-kube-rs", "-p", "peer-skopos"]).current_dir(peers());
    ensure!(cargo.status()?.success(), "cargo build of the clients failed");
    Ok(())
}
