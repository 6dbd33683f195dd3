use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The program that talks to the kernel.
#[derive(Clone, Debug)]
pub(super) struct Ipvsadm {
    pub(super) command: PathBuf,
    pub(super) time_limit: Duration,
}

/// Result of a completed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The exit code.
    pub(super) code: i32,
    /// Everything that was written to stdout.
    pub(super) output: String,
    /// The beginning of stderr.
    pub(super) complaint: String,
}

/// Error of a run without a usable answer.
#[derive(Debug)]
pub(super) enum RunError {
    /// Nothing was done.
    NotStarted(String),
    /// It may have been done or not.
    NoEnd(String),
    /// It completed, but its answer is too long or not text.
    Cut(String),
}

/// Maximum length of an answer: about a million servers.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
/// Maximum length of stderr that is read: more than a line for each of ten thousand servers.
const MAX_COMPLAINT: u64 = 1024 * 1024;

impl Ipvsadm {
    /// Runs the program with some input. It does not outlive the call.
    pub(super) async fn run(&self, arguments: &[&str], input: &str) -> Result<Answer, RunError> {
        let program = self.command.display();
        let mut command = Command::new(&self.command);
        // This keeps its messages untranslated.
        command.args(arguments).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            let advice =
                if error.kind() == ErrorKind::NotFound { " (install the package ipvsadm)" } else { "" };
            RunError::NotStarted(format!("{program}: {error}{advice}"))
        })?;
        match timeout(self.time_limit, exchange(child, input)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(RunError::Cut(problem))) => Err(RunError::Cut(format!("{program}: {problem}"))),
            Ok(Err(RunError::NotStarted(problem) | RunError::NoEnd(problem))) => {
                Err(RunError::NoEnd(format!("{program}: {problem}")))
            }
            Err(_) => Err(RunError::NoEnd(format!("{program}: no end in {:?}", self.time_limit))),
        }
    }
}

impl Answer {
    /// Returns the first line of stderr, or the exit code, for people.
    pub(super) fn summary(&self) -> String {
        let line = self.complaints().next();
        line.map_or_else(|| format!("exit code {}", self.code), str::to_owned)
    }

    /// Returns the lines of stderr, without those of the modprobe that ipvsadm runs.
    pub(super) fn complaints(&self) -> impl Iterator<Item = &str> {
        let lines = self.complaint.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with("modprobe:"))
    }
}

/// Writes the input and reads the output, until the program ends.
async fn exchange(mut child: Child, input: &str) -> Result<Answer, RunError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // The exit code shows why a program ended early.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
    };
    let ((), output, complaint) =
        tokio::join!(write, bounded(stdout, MAX_OUTPUT), bounded(stderr, MAX_COMPLAINT));
    let failed = |error: std::io::Error| RunError::NoEnd(error.to_string());
    let ((output, is_cut), (complaint, _)) = (output.map_err(failed)?, complaint.map_err(failed)?);
    let status = child.wait().await.map_err(failed)?;
    let code = status.code().ok_or_else(|| RunError::NoEnd(status.to_string()))?;
    if is_cut {
        return Err(RunError::Cut(format!("an answer of more than {MAX_OUTPUT} bytes")));
    }
    let output = String::from_utf8(output).map_err(|_| RunError::Cut("an answer that is no text".into()))?;
    Ok(Answer { code, output, complaint: String::from_utf8_lossy(&complaint).into_owned() })
}

/// Reads the beginning of a stream, and returns whether there was more; the program never waits for its reader.
async fn bounded(stream: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let (Some(mut stream), mut begin) = (stream, Vec::new()) else {
        return Ok((Vec::new(), false));
    };
    (&mut stream).take(most).read_to_end(&mut begin).await?;
    let more = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok((begin, more > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Ipvsadm {
        Ipvsadm { command: "/bin/sh".into(), time_limit: Duration::from_secs(20) }
    }

    #[tokio::test]
    async fn input_output_and_complaints_pass() {
        let answer = shell().run(&["-c", "cat; echo bad >&2; exit 3"], "line\n").await.unwrap();
        let expected = Answer { code: 3, output: "line\n".into(), complaint: "bad\n".into() };
        assert_eq!(answer, expected);
        assert_eq!(answer.summary(), "bad");
        // The input is more than a pipe holds, and the program reads nothing.
        let answer = shell().run(&["-c", "exit 2"], &"x".repeat(1 << 20)).await.unwrap();
        assert_eq!((answer.code, answer.summary()), (2, "exit code 2".to_owned()));
    }

    #[tokio::test]
    async fn a_program_without_an_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let mut shell = shell();
        shell.time_limit = Duration::from_secs(1);
        let script = format!("echo $$ > {}; exec sleep 600", pid.display());
        let Err(RunError::NoEnd(problem)) = shell.run(&["-c", &script], "").await else {
            panic!("it has no end")
        };
        assert_eq!(problem, "/bin/sh: no end in 1s");
        let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let is_gone = async {
            while nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), is_gone).await.unwrap();
        let killed = shell.run(&["-c", "kill -9 $$"], "").await;
        assert!(matches!(killed, Err(RunError::NoEnd(_))), "{killed:?}");
    }
}
