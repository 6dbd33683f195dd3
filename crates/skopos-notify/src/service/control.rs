//! Commands to a running notifier, over a Unix socket that only its user can open. A command is one line, its answer one line of
//! JSON.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos_fleet::checkpoint::private_folder;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::handle::NotifierHandle;
use super::report::SinkReport;

/// Phase of a notifier.
#[derive(Clone, Default)]
pub enum NotifierPhase {
    /// It has not begun.
    #[default]
    Starting,
    /// Another process has the Lease.
    Standby,
    /// It works.
    Working(NotifierHandle),
}

/// A command to a running notifier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ControlRequest {
    /// Asks for the reports.
    Status,
    /// Reads everything back, and asks for the reports.
    Verify,
    /// Approves held removals.
    Approve {
        /// The ID of the held removals.
        id: String,
    },
    /// Retries failed work at once.
    Retry,
    /// Retries dead letters.
    RetryDead {
        /// The ID of one dead letter. Default: all.
        id: Option<String>,
    },
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlAnswer {
    /// `starting`, `standby` or `working`.
    pub phase: String,
    /// The report of each sink.
    pub sinks: Vec<SinkReport>,
    /// True if held removals were approved.
    pub approved: Option<bool>,
    /// Number of dead letters that are tried again.
    #[serde(default)]
    pub retried: Option<usize>,
}

/// Maximum length of a command, and of an answer.
const MAX_REQUEST: u64 = 64 * 1024;
const MAX_ANSWER: u64 = 64 * 1024 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of simultaneous connections. Further ones wait.
const MAX_CONNECTIONS: usize = 8;

impl NotifierPhase {
    /// Returns the phase as one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Working(_) => "working",
        }
    }

    /// Returns the report of each sink.
    pub fn reports(&self) -> Vec<SinkReport> {
        match self {
            Self::Working(handle) => handle.reports(),
            Self::Starting | Self::Standby => Vec::new(),
        }
    }
}

/// Replaces a notifier on this socket, which only this user can open.
///
/// # Errors
/// When the socket cannot be made, or another notifier answers on it.
pub async fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another notifier runs with this folder"));
    }
    path.parent().map_or(Ok(()), private_folder)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until it is dropped.
pub async fn serve(listener: UnixListener, phase: watch::Receiver<NotifierPhase>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    // File descriptors are exhausted, so another attempt at once would fail too.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                // A client that disconnects is no error of the notifier.
                let phase = phase.borrow().clone();
                connections.spawn(async move { drop(timeout(TIME_LIMIT, answer(stream, phase)).await) });
            }
        }
    }
}

/// Asks the notifier on this socket.
///
/// # Errors
/// When none answers.
pub async fn ask(path: &Path, request: &ControlRequest) -> io::Result<ControlAnswer> {
    let asking = async {
        let mut stream = UnixStream::connect(path).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        Ok(serde_json::from_slice(&answer)?)
    };
    timeout(TIME_LIMIT, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn answer(stream: UnixStream, phase: NotifierPhase) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_REQUEST)).read_line(&mut line).await?;
    let request: ControlRequest = serde_json::from_str(&line)?;
    let (mut approved, mut retried) = (None, None);
    let sinks = match (&phase, request) {
        (NotifierPhase::Working(handle), ControlRequest::Verify) => handle.verify().await,
        (NotifierPhase::Working(handle), ControlRequest::Approve { id }) => {
            approved = Some(handle.approve(&id).await);
            handle.reports()
        }
        (NotifierPhase::Working(handle), ControlRequest::RetryDead { id }) => {
            retried = Some(handle.retry_dead(id.as_deref()).await);
            handle.reports()
        }
        (NotifierPhase::Working(handle), ControlRequest::Retry) => {
            handle.retry().await;
            handle.reports()
        }
        (phase, _) => phase.reports(),
    };
    let answer = ControlAnswer { phase: phase.as_str().to_owned(), sinks, approved, retried };
    writer.write_all(&serde_json::to_vec(&answer)?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn control_socket_is_private_and_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/notify.sock");
        let listener = bind(&path).await.unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let (phase, seen) = watch::channel(NotifierPhase::Starting);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, seen));
        assert!(bind(&path).await.unwrap_err().to_string().contains("another notifier"));
        assert_eq!(ask(&path, &ControlRequest::Status).await.unwrap().phase, "starting");
        phase.send_replace(NotifierPhase::Standby);
        let approve = ControlRequest::Approve { id: "x".into() };
        assert_eq!(
            ask(&path, &approve).await.unwrap(),
            ControlAnswer { phase: "standby".into(), sinks: Vec::new(), approved: None, retried: None }
        );
        tasks.shutdown().await;
        // The socket of a killed process is no obstacle.
        bind(&path).await.unwrap();
    }
}
