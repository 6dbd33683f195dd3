//! helm, run as a program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use skopos_fleet::kubeconfig::KubeconfigPaths;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Error;
use crate::progress::Step;
use crate::session::Session;

/// Invocation of helm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helm {
    /// The program. Default: `helm`, searched on `PATH`.
    pub program: PathBuf,
    /// The kubeconfig of the host; `None`: the default of helm, as with kubectl.
    pub kubeconfig: Option<KubeconfigPaths>,
    /// The host's context in it; `None`: the current one.
    pub context: Option<String>,
}

/// A chart and its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    /// A local chart, as a folder or a packed file. Default: none, so the chart comes from the repository.
    pub path: Option<PathBuf>,
    /// The repository. Default: that of the vcluster project.
    pub repository: Option<String>,
    /// The chart's version. Default: the newest.
    pub version: Option<String>,
    /// Files with values; the last one wins.
    pub values: Vec<PathBuf>,
    /// Values as an object, which override those of the files. helm reads them from its standard input, so that they
    /// are invisible to other users.
    pub inline: Option<serde_json::Value>,
    /// Single values, as `key=value`.
    pub set: Vec<String>,
}

/// Availability of helm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Usable,
    Missing,
}

/// The default repository of charts.
const REPOSITORY: &str = "https://charts.loft.sh";

/// The chart's name in the repository.
const CHART: &str = "vcluster";

/// The oldest version of helm that the chart supports.
const OLDEST: (u32, u32) = (3, 10);

impl Helm {
    /// Returns whether helm is available. A version that is too old is an error.
    pub(crate) async fn presence(&self, session: &Session<'_>) -> Result<Presence, Error> {
        let mut command = self.command();
        command.args(["version", "--template", "{{.Version}}"]);
        let ended = match run(command, String::new(), session.until()).await {
            Ok(Some(ended)) => ended,
            Ok(None) => return Err(session.late("asking helm for its version")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Presence::Missing),
            Err(error) => return Err(Error::HelmVersion { found: error.to_string() }),
        };
        let found = ended.output.trim().to_owned();
        match version(&found) {
            Some(version) if ended.status.success() && version >= OLDEST => Ok(Presence::Usable),
            _ => Err(Error::HelmVersion { found }),
        }
    }

    /// Installs or upgrades a release.
    pub(crate) async fn upgrade(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: &str,
        chart: &Chart,
    ) -> Result<(), Error> {
        let inline = chart.inline.as_ref().map(ToString::to_string).unwrap_or_default();
        self.run(session, "upgrade", self.upgrade_arguments(name, namespace, chart), inline).await
    }

    /// Deletes a release.
    pub(crate) async fn delete(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: &str,
    ) -> Result<(), Error> {
        let mut arguments: Vec<OsString> = ["delete", name, "--namespace", namespace].map(Into::into).into();
        arguments.extend(self.host());
        match self.run(session, "delete", arguments, String::new()).await {
            // An earlier attempt, or a concurrent one, has deleted it.
            Err(Error::Helm { output, .. }) if output.contains("release: not found") => Ok(()),
            other => other,
        }
    }

    fn upgrade_arguments(&self, name: &str, namespace: &str, chart: &Chart) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["upgrade".into(), name.into()];
        match &chart.path {
            // An absolute path is taken neither for an option nor for a chart of a repository.
            Some(path) => arguments.push(std::path::absolute(path).unwrap_or_else(|_| path.clone()).into()),
            None => {
                arguments.push(CHART.into());
                arguments.push("--repo".into());
                arguments.push(chart.repository.as_deref().unwrap_or(REPOSITORY).into());
                arguments.extend(option("--version", chart.version.as_deref()));
            }
        }
        arguments.extend(["--install", "--namespace", namespace].map(Into::into));
        arguments.extend(self.host());
        arguments.extend(chart.values.iter().flat_map(|file| ["--values".into(), file.clone().into()]));
        if chart.inline.is_some() {
            arguments.extend(["--values", "-"].map(Into::into));
        }
        arguments.extend(chart.set.iter().flat_map(|value| ["--set".into(), value.into()]));
        arguments
    }

    /// Returns the arguments for the host, and for ignoring the user's repositories: the chart's repository is given
    /// explicitly.
    fn host(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--repository-config=''".into()];
        if let Some([only]) = self.kubeconfig.as_ref().map(KubeconfigPaths::files) {
            arguments.extend(option("--kubeconfig", Some(only)));
        }
        arguments.extend(option("--kube-context", self.context.as_deref()));
        arguments
    }

    /// Creates a command for the configured host, whatever host the environment names.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HELM_KUBE") {
                command.env_remove(name);
            }
        }
        // helm takes a single file as a flag, and a list from the environment.
        if let Some(files @ [_, _, ..]) = self.kubeconfig.as_ref().map(KubeconfigPaths::files)
            && let Ok(list) = std::env::join_paths(files)
        {
            command.env("KUBECONFIG", list);
        }
        command
    }

    async fn run(
        &self,
        session: &Session<'_>,
        name: &'static str,
        arguments: Vec<OsString>,
        input: String,
    ) -> Result<(), Error> {
        session.report(Step::Helm { command: shown(&arguments) });
        let mut command = self.command();
        command.args(&arguments);
        let missing = |_| Error::NoHelm { program: self.program.clone() };
        match run(command, input, session.until()).await.map_err(missing)? {
            None => Err(session.late(format!("running helm {name}"))),
            Some(ended) if ended.status.success() => Ok(()),
            Some(ended) => {
                Err(Error::Helm { command: name, code: ended.status.code(), output: ended.output })
            }
        }
    }
}

impl Chart {
    /// Checks that a local chart exists.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        path.metadata().map(drop).map_err(|reason| Error::Chart { path: path.clone(), reason })
    }
}

impl Default for Helm {
    fn default() -> Self {
        Self { program: "helm".into(), kubeconfig: None, context: None }
    }
}

fn option(name: &str, value: Option<impl AsRef<OsStr>>) -> impl Iterator<Item = OsString> {
    let pair = value.map(|value| [name.into(), value.as_ref().to_owned()]);
    pair.into_iter().flatten()
}

/// Returns the command for display, without the user's values, which may be secret.
fn shown(arguments: &[OsString]) -> String {
    let mut words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("?")).collect();
    for at in 1..words.len() {
        if words[at - 1] == "--set" {
            words[at] = words[at].split('=').next().unwrap_or_default();
        }
    }
    words.join(" ")
}

/// Parses a version: `v3.14.2` is 3 and 14.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Result of a program.
struct Ended {
    status: ExitStatus,
    /// The end of its output, of both streams.
    output: String,
}

/// Runs a program; returns `None` if it did not end in time. When the caller stops waiting, the program is asked to
/// end. helm then ends in order: it prints that and records the failure of the release. The output goes to files,
/// because writing to a closed pipe would kill helm before that.
async fn run(mut command: Command, input: String, until: Instant) -> io::Result<Option<Ended>> {
    let (stdout, stderr) = (nameless_file()?, nameless_file()?);
    command.stdin(Stdio::piped()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut running = Running { child: command.spawn()? };
    let stdin = running.child.stdin.take();
    let give = async move {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input reports that by its exit status.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    match timeout_at(until, async { tokio::join!(running.child.wait(), give).0 }).await {
        Ok(status) => {
            let output = [last_of(stdout)?, last_of(stderr)?].join("\n").trim().to_owned();
            Ok(Some(Ended { status: status?, output }))
        }
        Err(_) => {
            running.ask_to_end();
            if timeout(TERMINATION_GRACE, running.child.wait()).await.is_err() {
                running.child.kill().await?;
            }
            Ok(None)
        }
    }
}

/// Time for helm to record that it was terminated.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

/// Bytes of a program's output that are kept.
const MAX_OUTPUT_BYTES: u64 = 4096;

/// Creates a file for a program's output, which is deleted when its last handle is closed. It is in memory, because
/// there may be no writable disk.
#[cfg(target_os = "linux")]
fn nameless_file() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create("helm", MFdFlags::MFD_CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// Returns the end of a file's content.
fn last_of(mut file: File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_OUTPUT_BYTES)))?;
    let mut kept = Vec::new();
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut kept)?;
    Ok(String::from_utf8_lossy(&kept).trim().to_owned())
}

struct Running {
    child: Child,
}

impl Running {
    #[cfg(unix)]
    fn ask_to_end(&mut self) {
        use nix::sys::signal::{Signal, kill};
        // Without an id the program has ended and was reaped.
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            // An error means that it has just ended, as intended.
            let _ = kill(nix::unistd::Pid::from_raw(id), Signal::SIGTERM);
        }
    }

    #[cfg(not(unix))]
    fn ask_to_end(&mut self) {
        let _ = self.child.start_kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(helm: &Helm, chart: &Chart) -> String {
        let arguments = helm.upgrade_arguments("shop", "team", chart);
        arguments.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn helm_arguments_match_vcluster_cli() {
        let chart =
            Chart { version: Some("0.30.0".into()), values: vec!["a.yaml".into()], ..Chart::default() };
        assert_eq!(
            arguments(&Helm::default(), &chart),
            "upgrade shop vcluster --repo https://charts.loft.sh --version 0.30.0 --install --namespace team \
             --repository-config='' --values a.yaml"
        );
        let helm = Helm {
            kubeconfig: Some(KubeconfigPaths::file("/k")),
            context: Some("here".into()),
            ..Helm::default()
        };
        let chart =
            Chart { path: Some("/charts/vcluster".into()), set: vec!["a=b".into()], ..Chart::default() };
        assert_eq!(
            arguments(&helm, &chart),
            "upgrade shop /charts/vcluster --install --namespace team --repository-config='' --kubeconfig /k \
             --kube-context here --set a=b"
        );
    }

    #[test]
    fn user_values_are_not_shown() {
        let words = ["upgrade", "shop", "--set", "password=secret,x=y"].map(OsString::from);
        assert_eq!(shown(&words), "upgrade shop --set password");
    }

    #[test]
    fn versions() {
        assert_eq!(version("v3.14.2"), Some((3, 14)));
        assert_eq!(version("v4.0.0-rc.1+g1"), Some((4, 0)));
        assert!(version("v3.9.4").unwrap() < OLDEST);
        assert_eq!(version("what"), None);
    }
}
