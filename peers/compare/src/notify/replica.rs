//! A process of `skopos notify`, one of two with the same Lease.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::{ANNOTATION, OFTEN, PLENTY};
use crate::dns::{SECRET, ZONE};
use crate::programs;

pub(super) struct Replica {
    folder: TempDir,
    child: Option<Child>,
}

/// The answer to `skopos notify status`.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    /// `starting`, `standby` or `working`.
    pub(super) phase: String,
    sinks: Vec<Sink>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sink {
    outside_age_seconds: Option<f64>,
}

impl Status {
    /// Returns the age of the first sink, which is the zone.
    pub(super) fn age(&self) -> Option<Duration> {
        let age = self.sinks.first()?.outside_age_seconds?;
        Duration::try_from_secs_f64(age).ok()
    }
}

impl Replica {
    /// Writes its files.
    pub(super) fn new(kubeconfig: &Path, dns: SocketAddr, receiver: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display();
        let text = format!(
            "cluster: {{kubeconfig: '{}'}}\nelection: {{lease: default/notify}}\nstate: {{folder: '{path}/state'}}\nsinks:\n\
             - name: zone\n  dns: {{zone: {ZONE}, server: '{dns}', key: {{name: skopos, secret: '{path}/secret'}}}}\n  \
             from: [{{services: {{annotation: {ANNOTATION}}}}}]\n\
             - name: audit\n  webhook: {{url: 'http://{receiver}/hook', allow: [127.0.0.0/8]}}\n  from: [{{objects: {{kind: v1/services}}}}]\n",
            kubeconfig.display()
        );
        std::fs::create_dir(folder.path().join("state"))?;
        std::fs::write(folder.path().join("secret"), SECRET)?;
        std::fs::write(folder.path().join("notify.yaml"), text)?;
        Ok(Self { folder, child: None })
    }

    pub(super) fn run(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = self.command(&[]);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.child = Some(child.context("`skopos` is not built: --build")?);
        Ok(())
    }

    /// Asks how it stands.
    pub(super) async fn status(&self) -> Result<Status> {
        ensure!(self.child.is_some(), "it does not run");
        let output = self.command(&["status", "--output", "json"]).output().await?;
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!("no status: {}\n{}", String::from_utf8_lossy(&output.stderr), self.log())
        })
    }

    /// Waits for a phase.
    pub(super) async fn until(&self, phase: &str) -> Result<()> {
        let begun = Instant::now();
        while !self.status().await.is_ok_and(|status| status.phase == phase) {
            ensure!(begun.elapsed() < PLENTY, "it is never in the phase {phase}:\n{}", self.log());
            sleep(OFTEN).await;
        }
        Ok(())
    }

    /// Tells it to end.
    pub(super) fn end(&self) -> Result<()> {
        let pid = self.child.as_ref().and_then(Child::id).context("it does not run")?;
        Ok(kill(Pid::from_raw(pid.try_into()?), Signal::SIGTERM)?)
    }

    pub(super) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.as_mut().context("it does not run")?.kill().await?)
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        timeout(PLENTY, child.wait()).await.context("it does not end")??;
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(programs::skopos());
        command.arg("notify").args(words).arg("--config").arg(self.folder.path().join("notify.yaml"));
        command.kill_on_drop(true);
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
