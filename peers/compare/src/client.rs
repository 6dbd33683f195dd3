//! A client's process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::Stream;
use futures::stream::unfold;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peer_protocol::Line;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};

use crate::programs;

/// Whose client.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Who {
    ClientGo,
    /// A manager of controller-runtime, whose cache is made of client-go's informers.
    ControllerRuntime,
    KubeRs,
    Skopos,
}

impl Who {
    /// The clients that are compared through all faults.
    pub(crate) const ALL: [Who; 3] = [Who::ClientGo, Who::KubeRs, Who::Skopos];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::ClientGo => "client-go",
            Who::ControllerRuntime => "controller-runtime",
            Who::KubeRs => "kube-rs",
            Who::Skopos => "Skopos",
        }
    }

    /// A part of what it calls itself to servers.
    pub(crate) fn user_agent(self) -> &'static str {
        match self {
            Who::ClientGo => "peer-client-go",
            Who::ControllerRuntime => "peer-controller-runtime",
            Who::KubeRs => "peer-kube-rs",
            Who::Skopos => "peer-skopos",
        }
    }
}

/// A running client. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Client {
    /// Starts a client, and gives what it writes.
    pub(crate) fn start(
        who: Who,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<(Self, impl Stream<Item = Line> + Send + Unpin + use<>)> {
        let own: &[&str] = if who == Who::ControllerRuntime { &["--informer"] } else { &[] };
        Self::start_program(&programs::of(who)?, kubeconfig, &[own, flags].concat())
    }

    /// Starts a program that speaks the protocol, and gives what it writes.
    pub(crate) fn start_program(
        program: &Path,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<(Self, impl Stream<Item = Line> + Send + Unpin + use<>)> {
        let mut child = Command::new(program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no standard output")?;
        let lines = unfold(BufReader::new(stdout).lines(), |mut lines| async move {
            loop {
                let text = lines.next_line().await.ok()??;
                match serde_json::from_str(&text) {
                    Ok(line) => return Some((line, lines)),
                    Err(error) => eprintln!("a line that is no line of the protocol ({error}): {text}"),
                }
            }
        });
        Ok((Self { child, stdin }, Box::pin(lines)))
    }

    /// Gives a command. One that has ended does not get it.
    pub(crate) async fn ask(&mut self, command: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{command}\n").as_bytes()).await;
        }
    }

    /// Stops the process where it is, as a suspended machine does, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        if let Some(pid) = self.child.id() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Asks it to end, and says how long that took; `None` if it had to be killed.
    pub(crate) async fn quit(&mut self) -> Option<Duration> {
        let began = Instant::now();
        self.ask("quit").await;
        self.stdin = None;
        if timeout(LONGEST_END, self.child.wait()).await.is_ok() {
            return Some(began.elapsed());
        }
        let _ = self.child.kill().await;
        None
    }
}

const LONGEST_END: Duration = Duration::from_secs(20);
