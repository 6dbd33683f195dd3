//! The built binary, run as people and scripts run it.
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Time limit of each wait, on a machine that is busy with other tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the command, in an environment without kubeconfig.
pub(crate) fn skopos() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skopos"));
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "SKOPOS_LOG"] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    skopos().args(args).output().expect("the binary runs")
}

/// Runs it to its end, which must be a failure, and returns its one line on standard error.
pub(crate) fn failure(args: &[&str]) -> String {
    let output = run(args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].starts_with("error: "), "{stderr}");
    lines[0].to_owned()
}

/// Returns a pipe whose reader is closed.
pub(crate) fn left() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `skopos`, whose output is read line by line. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    /// Kept open, so that a reader of standard input sees no end
    _stdin: Option<ChildStdin>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let out = lines(child.stdout.take().expect("piped"));
        let err = lines(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take();
        Self { child, out, err, _stdin: stdin }
    }

    /// Returns the next line of standard output that satisfies the predicate; earlier lines are skipped.
    pub(crate) fn line(&self, wanted: impl Fn(&str) -> bool) -> String {
        next(&self.out, &self.err, wanted, "standard output")
    }

    /// Returns the next line of standard error that satisfies the predicate.
    pub(crate) fn error_line(&self, wanted: impl Fn(&str) -> bool) -> String {
        next(&self.err, &self.out, wanted, "standard error")
    }

    /// Returns the next line of standard error, if there is one before it ends.
    pub(crate) fn next_error_line(&self) -> Option<String> {
        self.err.recv_timeout(TIMEOUT).ok()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(tokio::time::Instant::now() < deadline, "still running after {limit:?}");
            // The output ends when the process does; a lost line does not matter here.
            let _ = self.out.recv_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `skopos testserver` with a kubeconfig in its own directory.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let kubeconfig = dir.path().join("kubeconfig");
        let mut command = skopos();
        command.arg("testserver").args(args).arg("--kubeconfig-out").arg(&kubeconfig);
        let process = Running::start(&mut command);
        process.line(|line| line.starts_with("kubeconfig: "));
        Self { process, kubeconfig, _dir: dir }
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        utf8(&self.kubeconfig)
    }

    /// Starts `skopos watch` on it.
    pub(crate) fn watch(&self, args: &[&str]) -> Running {
        Running::start(skopos().arg("watch").args(args).args(["--kubeconfig", self.kubeconfig()]))
    }

    /// Returns the port that it listens on.
    pub(crate) fn port(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let (_, rest) = text.split_once("127.0.0.1:").expect("an address");
        rest.chars().take_while(char::is_ascii_digit).collect()
    }
}

pub(crate) fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    // Far more than any test reads. A test that stops reading on purpose does not use this.
    let (sender, receiver) = sync_channel(100_000);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the next wanted line of a stream. If the process ends before, the panic shows also what the other stream had.
fn next(
    lines: &Receiver<String>,
    other: &Receiver<String>,
    wanted: impl Fn(&str) -> bool,
    name: &str,
) -> String {
    let mut seen = Vec::new();
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(tokio::time::Instant::now())) {
            Ok(line) if wanted(&line) => return line,
            Ok(line) => seen.push(line),
            Err(RecvTimeoutError::Timeout) => panic!("not on {name} in time; it had:\n{}", seen.join("\n")),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{name} ended; it had:\n{}\nthe other had:\n{}", seen.join("\n"), rest(other))
            }
        }
    }
}

fn rest(lines: &Receiver<String>) -> String {
    let rest: Vec<_> = std::iter::from_fn(|| lines.recv_timeout(Duration::from_secs(1)).ok()).collect();
    rest.join("\n")
}
