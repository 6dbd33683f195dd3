//! The compared programs: where they are, and how they are built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::client::Who;
use crate::results::Library;

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
        Who::ControllerRuntime => peers().join("bin/controller-runtime"),
        Who::KubeRs => peers().join("target/release/peer-kube-rs"),
        Who::Skopos => peers().join("target/release/peer-skopos"),
    };
    ensure!(program.exists(), "{} is not built: run with --build", program.display());
    Ok(program)
}

/// A controller's program.
pub(crate) fn controller(runtime: Library) -> Result<PathBuf> {
    let program = match runtime {
        Library::ControllerRuntime | Library::ControllerRuntimeOwnWrites => {
            peers().join("bin/controller-runtime")
        }
        Library::KubeRs => peers().join("target/release/peer-kube-rs-controller"),
        Library::Skopos => peers().join("target/release/peer-skopos-controller"),
    };
    ensure!(program.exists(), "{} is not built: run with --build", program.display());
    Ok(program)
}

/// The program of the real server.
pub(crate) fn apiserver() -> PathBuf {
    peers().join("bin/apiserver")
}

/// external-dns' program.
pub(crate) fn external_dns() -> PathBuf {
    peers().join("bin/external-dns")
}

/// The program `skopos`, where cargo puts it.
pub(crate) fn skopos() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    target.join("debug/skopos")
}

/// Builds the clients and the real server.
pub(crate) fn build() -> Result<()> {
    build_client_go()?;
    build_controller_runtime()?;
    build_apiserver()?;
    run(cargo().args(["build", "--release", "-p", "peer-kube-rs", "-p", "peer-skopos"]).current_dir(peers()))
}

/// Builds the controllers and the real server.
pub(crate) fn build_controllers() -> Result<()> {
    build_controller_runtime()?;
    build_apiserver()?;
    run(cargo().args(["build", "--release", "-p", "peer-kube-rs", "-p", "peer-skopos"]).current_dir(peers()))
}

/// Builds client-go's client alone.
pub(crate) fn build_client_go() -> Result<()> {
    build_go("client-go")
}

/// Builds controller-runtime's controller, which is a client as well.
pub(crate) fn build_controller_runtime() -> Result<()> {
    build_go("controller-runtime")
}

/// Builds the real server alone.
pub(crate) fn build_apiserver() -> Result<()> {
    build_go("apiserver")
}

/// Builds external-dns.
pub(crate) fn build_external_dns() -> Result<()> {
    build_go("external-dns")
}

/// Builds the program `skopos`.
pub(crate) fn build_skopos() -> Result<()> {
    run(cargo().args(["build", "--bin", "skopos"]).current_dir(repository()))
}

/// Builds the Go program of a folder.
fn build_go(folder: &str) -> Result<()> {
    let mut go = Command::new("go");
    go.args(["build", "-p=2", "-o"]).arg(peers().join("bin").join(folder));
    run(go.arg(".").current_dir(peers().join(folder)))
}

fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
