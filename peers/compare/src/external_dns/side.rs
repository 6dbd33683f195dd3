//! The two notifiers as processes, started again after a crash as a kubelet does it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::dns::{Bind, SECRET, ZONE};
use crate::programs;

/// The pause of a kubelet before it starts a container again for the first time.
const KUBELET: Duration = Duration::from_secs(10);
pub(super) const ANNOTATION: &str = "external-dns.kubernetes.io/hostname";
pub(super) const TTL_ANNOTATION: &str = "external-dns.kubernetes.io/ttl";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Side {
    Skopos,
    ExternalDns,
}

/// A notifier of a cluster and a zone, with its files.
pub(super) struct Notifier {
    side: Side,
    folder: PathBuf,
    secret: String,
    kubeconfig: PathBuf,
    port: u16,
    running: Option<Running>,
    ends: Arc<Mutex<Vec<String>>>,
}

struct Running {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Skopos => "Skopos",
            Self::ExternalDns => "external-dns",
        }
    }
}

impl Notifier {
    pub(super) fn new(side: Side, bind: &Bind, kubeconfig: &str) -> Result<Self> {
        let folder = bind.folder().join("notifier");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("kubeconfig");
        std::fs::write(&file, kubeconfig)?;
        let notifier = Self {
            side,
            kubeconfig: file,
            folder,
            secret: SECRET.to_owned(),
            port: bind.address.port(),
            running: None,
            ends: Arc::default(),
        };
        notifier.configure(30)?;
        Ok(notifier)
    }

    /// Writes the files of ours. external-dns has flags, and takes the TTL from an annotation.
    pub(super) fn configure(&self, ttl: u32) -> Result<()> {
        let (folder, kubeconfig, port) = (self.folder.display(), self.kubeconfig.display(), self.port);
        std::fs::write(self.folder.join("secret"), &self.secret)?;
        let text = format!(
            "cluster: {{kubeconfig: '{kubeconfig}'}}\nstate: {{folder: '{folder}/state'}}\nsinks:\n- name: zone\n  dns:\n    \
             zone: {ZONE}\n    server: 127.0.0.1:{port}\n    ttl: {ttl}s\n    key: {{name: skopos, secret: '{folder}/secret'}}\n  \
             from: [{{services: {{annotation: {ANNOTATION}, types: [LoadBalancer]}}}}]\n"
        );
        std::fs::create_dir_all(self.folder.join("state"))?;
        Ok(std::fs::write(self.config(), text)?)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("notify.yaml")
    }

    /// Gives it another secret. Ours reads it from a file that changes, and external-dns with the next start.
    pub(super) fn set_secret(&mut self, secret: &str) -> Result<()> {
        secret.clone_into(&mut self.secret);
        Ok(std::fs::write(self.folder.join("secret"), secret)?)
    }

    fn command(&self) -> Command {
        if self.side == Side::Skopos {
            let mut command = Command::new(programs::skopos());
            command.args(["notify", "--config"]).arg(self.config());
            return command;
        }
        let mut command = Command::new(programs::external_dns());
        command.args([
            "--source=service",
            "--service-type-filter=LoadBalancer",
            "--provider=rfc2136",
            "--registry=txt",
        ]);
        command.args([
            "--txt-owner-id=compare",
            "--policy=sync",
            "--events",
            "--interval=10s",
            "--rfc2136-axfr",
        ]);
        command.args([
            "--rfc2136-host=127.0.0.1",
            "--rfc2136-tsig-keyname=skopos",
            "--rfc2136-tsig-secret-alg=hmac-sha256",
        ]);
        command.args([
            format!("--rfc2136-port={}", self.port),
            format!("--rfc2136-tsig-secret={}", self.secret),
        ]);
        command.args([format!("--rfc2136-zone={ZONE}"), format!("--domain-filter={ZONE}")]);
        command.args(["--rfc2136-min-ttl=30s", "--metrics-address=127.0.0.1:0"]);
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        command
    }

    /// Starts it, and starts it again whenever it ends.
    pub(super) fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.command();
        command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("{} is not built: --build", self.side.name()))?;
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (stopped, ends) = (stop.clone(), self.ends.clone());
        tasks.spawn(async move {
            let kept = keep(child, command, &ends);
            stopped.run_until_cancelled_owned(kept).await;
        });
        self.running = Some(Running { stop, tasks });
        Ok(())
    }

    /// Kills it.
    pub(super) async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.stop.cancel();
            while running.tasks.join_next().await.is_some() {}
        }
    }

    /// Counts how often it ended by itself.
    pub(super) fn ends(&self) -> usize {
        self.ends.lock().len()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns the last line of its log that has one of these words.
    pub(super) fn last_line(&self, words: &[&str]) -> Option<String> {
        let log = self.log();
        let line = log.lines().rev().find(|line| words.iter().any(|word| line.contains(word)))?;
        Some(line.to_owned())
    }

    /// Asks ours for what it holds: the IDs, and the number of removals.
    pub(super) async fn held(&self) -> Result<(Vec<String>, usize)> {
        if self.side == Side::ExternalDns {
            return Ok((Vec::new(), 0));
        }
        let output = self.tell(&["held", "--output", "json"]).await?;
        let held: Vec<Held> = serde_json::from_slice(&output).context("what is held")?;
        let count = held.iter().map(|held| held.count).sum();
        Ok((held.into_iter().map(|held| held.id).collect(), count))
    }

    pub(super) async fn approve(&self, id: &str) -> Result<()> {
        self.tell(&["approve", id]).await.map(drop)
    }

    async fn tell(&self, words: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new(programs::skopos());
        command.arg("notify").args(words).arg("--config").arg(self.config());
        Ok(command.output().await?.stdout)
    }

    /// Copies its log to a folder.
    pub(super) fn keep_log(&self, folder: &Path, case: &str) -> Result<()> {
        let name = format!("{case}-{}.log", self.side.name());
        std::fs::copy(self.folder.join("log"), folder.join(name)).map(drop).context("its log")
    }
}

#[derive(Deserialize)]
struct Held {
    id: String,
    count: usize,
}

async fn keep(mut child: Child, mut command: Command, ends: &Mutex<Vec<String>>) {
    loop {
        let status = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        ends.lock().push(status);
        sleep(KUBELET).await;
        match command.spawn() {
            Ok(again) => child = again,
            Err(_) => return,
        }
    }
}
