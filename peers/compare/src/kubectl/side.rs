//! One of the two ways to the cluster: kubectl with a kubeconfig, a namespace and a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;
use tokio::time::timeout;

use super::commands::Step;
use super::normalize::Normalizer;

/// The direct way, or that through the gateway.
pub(super) struct Side {
    name: &'static str,
    namespace: String,
    /// The path of the server, without a slash at its end.
    root: String,
    folder: PathBuf,
    normalizer: Normalizer,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// None if a signal ended it, or it did not end in time.
    pub(super) code: Option<i32>,
    /// Normalized.
    pub(super) stdout: String,
    /// Normalized.
    pub(super) stderr: String,
}

/// The longest that one command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

impl Side {
    /// Makes the folder of a side, with the manifests and a kubeconfig. `member` is the cluster's own kubeconfig,
    /// `run` what the namespaces of this run end with.
    pub(super) fn new(
        name: &'static str,
        run: &str,
        data: &Path,
        work: &Path,
        kubeconfig: &str,
        member: &str,
    ) -> Result<Self> {
        // Names of one length, so that the columns of tables are equally wide.
        let namespace = format!("compare-{}{run}", &name[..1]);
        let folder = work.join(&namespace);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("kubeconfig"), kubeconfig)?;
        let manifests = data.join("manifests");
        for entry in
            std::fs::read_dir(&manifests).with_context(|| format!("reading {}", manifests.display()))?
        {
            let entry = entry?;
            let text = std::fs::read_to_string(entry.path())?;
            std::fs::write(folder.join(entry.file_name()), text.replace("$NS", &namespace))?;
        }
        let server = server_of(kubeconfig)?;
        let root = server.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap_or_default();
        let normalizer = Normalizer::new(&folder, server, server_of(member)?)?;
        Ok(Self { name, namespace, root, folder, normalizer })
    }

    /// Returns whether the cluster has the kinds, defaults and rules of a full kube-apiserver.
    pub(super) async fn is_kube_apiserver(&self) -> Result<bool> {
        let output = self.shell("kubectl get --raw /apis/admissionregistration.k8s.io").output().await?;
        Ok(output.status.success())
    }

    /// Runs a command to its end.
    pub(super) async fn run(&self, step: &Step) -> Result<Outcome> {
        let output = timeout(COMMAND_TIMEOUT, self.shell(&step.command).output()).await;
        let Ok(output) = output else {
            let stderr = format!("{}: no end within {COMMAND_TIMEOUT:?}", self.name);
            return Ok(Outcome { code: None, stdout: String::new(), stderr });
        };
        let output = output.with_context(|| format!("{}: sh does not start", step.place))?;
        let text = |bytes: &[u8]| self.normalizer.normalize(&String::from_utf8_lossy(bytes));
        Ok(Outcome { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(&self.folder)
            // kubectl keeps discovery below HOME.
            .env("HOME", &self.folder)
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .env("NS", &self.namespace)
            .env("ROOT", &self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        shell
    }
}

/// Returns the URL of the server in a kubeconfig that has one cluster.
fn server_of(kubeconfig: &str) -> Result<&str> {
    let server = kubeconfig.lines().find_map(|line| line.split_once("server: ").map(|(_, url)| url));
    let server = server.context("the kubeconfig names no server")?;
    Ok(server.split(['}', ',']).next().unwrap_or(server).trim().trim_matches(['\'', '"']))
}
