//! Processes of their own for whatever is measured: started, told what to do line by line, and looked at from outside.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::usage;

/// A process that says `ready` and more on its first line, and answers each line that it is given with a line. It ends when
/// it is told nothing more.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pid: i32,
    /// What it said behind `ready`.
    pub(crate) ready: String,
}

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(600);

impl Process {
    /// Another process of this program. `cores` are those it may run on, as `taskset` reads them.
    pub(crate) async fn of_self<I, S>(cores: Option<&str>, arguments: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Self::start(&std::env::current_exe()?, cores, arguments).await
    }

    pub(crate) async fn start<I, S>(program: &Path, cores: Option<&str>, arguments: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = match cores {
            None => Command::new(program),
            Some(cores) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", cores]).arg(program);
                command
            }
        };
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let pid = child.id().context("it has ended already")?.cast_signed();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut process = Self { name, child, stdin, lines, pid, ready: String::new() };
        let said = process.line().await?;
        let ready = said.strip_prefix("ready").with_context(|| format!("{} said {said:?}", process.name))?;
        process.ready = ready.trim().to_owned();
        Ok(process)
    }

    /// Gives it a command, and waits for the line that it answers.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<String> {
        let stdin = self.stdin.as_mut().context("it is not listening")?;
        stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.line().await.with_context(|| format!("after {command:?}"))
    }

    /// The same, where the answer is JSON.
    pub(crate) async fn ask_for<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        let line = self.ask(command).await?;
        serde_json::from_str(&line).with_context(|| format!("{line:?} after {command:?}"))
    }

    async fn line(&mut self) -> Result<String> {
        let line = tokio::time::timeout(TIMEOUT, self.lines.next_line());
        let line = line.await.map_err(|_| anyhow!("{} said nothing", self.name))??;
        line.with_context(|| format!("{} has ended", self.name))
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The name before may have anything in it.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let ticks = ticks(11).zip(ticks(12)).context("no times in /proc/PID/stat")?;
        let hertz = sysconf(SysconfVar::CLK_TCK)?.context("no clock ticks")?;
        Ok(Duration::from_secs_f64((ticks.0 + ticks.1) as f64 / hertz as f64))
    }

    /// Resident memory now, in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        usage::resident_kib(&self.pid.to_string())
    }

    /// How many sockets it has open.
    pub(crate) fn sockets(&self) -> Result<usize> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid))?;
        let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        Ok(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count())
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.stdin.take());
        let ended = tokio::time::timeout(Duration::from_secs(20), self.child.wait()).await;
        let Ok(status) = ended else {
            self.child.kill().await?;
            return Err(anyhow!("{} had to be killed", self.name));
        };
        let status = status?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    /// Ends a program that does not listen to its standard input.
    pub(crate) async fn terminate(self) -> Result<()> {
        kill(Pid::from_raw(self.pid), Signal::SIGTERM)?;
        self.stop().await
    }
}
