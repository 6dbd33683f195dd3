//! Errors of operations on virtual clusters.

use std::path::PathBuf;
use std::time::Duration;

use skopos::Status;
use skopos_fleet::kubeconfig::KubeconfigError;
use skopos_fleet::vcluster::SecretError;

use crate::removal::Refusal;

/// Error of an operation on a virtual cluster. Completed steps stay; repeating the operation continues from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no virtual cluster of this name.
    #[error("there is no virtual cluster {name}{}", in_namespace(.namespace.as_deref()))]
    NotFound {
        /// The name.
        name: String,
        /// The namespace searched; `None`: all.
        namespace: Option<String>,
    },
    /// There are several virtual clusters of this name.
    #[error("there are several virtual clusters {name}, in the namespaces {}: say which", .namespaces.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their namespaces.
        namespaces: Vec<String>,
    },
    /// The name is invalid.
    #[error("{value:?} cannot be the name of a {what}: use at most {most} of a-z, 0-9 and -")]
    InvalidName {
        /// The kind of thing it should name.
        what: &'static str,
        /// The name, cut after 64 characters.
        value: String,
        /// The maximum number of characters.
        most: usize,
    },
    /// Neither the number of replicas nor the intention to resume it is recorded.
    #[error("virtual cluster {name} in namespace {namespace} is scaled down but not paused: pause it first")]
    ScaledDown {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The platform has put it to sleep, and would do so again.
    #[error(
        "virtual cluster {name} in namespace {namespace} was put to sleep by the platform, which has to wake it"
    )]
    Sleeping {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// Another client scaled it up while it was being paused.
    #[error(
        "virtual cluster {name} in namespace {namespace} was resumed by another client meanwhile: its workloads stay"
    )]
    Resumed {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// Its data is being restored.
    #[error(
        "virtual cluster {name} in namespace {namespace} is being restored from a backup: wait until that is done"
    )]
    Restoring {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// It is protected against deletion.
    #[error(transparent)]
    Protected(#[from] Refusal),
    /// It exists already.
    #[error("virtual cluster {name} is in namespace {namespace} already")]
    Exists {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// An upgrade would start it, but leave it marked as paused.
    #[error("virtual cluster {name} in namespace {namespace} is paused: resume it before upgrading it")]
    Paused {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// Another virtual cluster is in the namespace, which may hold one at most.
    #[error("virtual cluster {other} is in namespace {namespace}, which has room for one")]
    Occupied {
        /// The namespace.
        namespace: String,
        /// The other one's name.
        other: String,
    },
    /// The namespace may be about to be deleted with everything in it.
    #[error(
        "virtual cluster {name} is being deleted in namespace {namespace}: let that end, or delete it once more"
    )]
    Deleting {
        /// The namespace.
        namespace: String,
        /// The virtual cluster that is being deleted.
        name: String,
    },
    /// The vcluster platform is installed in the namespace.
    #[error("the vcluster platform is installed in namespace {namespace}: choose another")]
    Platform {
        /// The namespace.
        namespace: String,
    },
    /// helm is missing, so a chart cannot be rendered.
    #[error("{} was not found{}: install helm, or give rendered manifests", .program.display(), in_path(.program))]
    NoHelm {
        /// The program searched.
        program: PathBuf,
    },
    /// helm is too old, or the program is not helm.
    #[error("helm {found:?} cannot be used: at least 3.10 is needed")]
    HelmVersion {
        /// The version it reports.
        found: String,
    },
    /// helm failed.
    #[error("helm {command} failed{}: {output}", exited(*.code))]
    Helm {
        /// `upgrade` or `delete`.
        command: &'static str,
        /// The exit code, if it was not killed.
        code: Option<i32>,
        /// The last lines of its output.
        output: String,
    },
    /// The chart is neither a file nor a folder.
    #[error("there is no chart at {}: {reason}", .path.display())]
    Chart {
        /// The path searched.
        path: PathBuf,
        /// The reason.
        reason: std::io::Error,
    },
    /// The given manifests are not those of this virtual cluster.
    #[error("the manifests cannot be used: {0}")]
    Manifests(String),
    /// It has no kubeconfig, because it has never started.
    #[error("virtual cluster {name} in namespace {namespace} has no kubeconfig yet: it has to start first")]
    NoKubeconfig {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The Secret with its kubeconfig is unusable.
    #[error("the Secret with the virtual cluster's kubeconfig cannot be used: {0}")]
    Secret(#[from] SecretError),
    /// Its kubeconfig is unusable.
    #[error("the virtual cluster's kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The host refused a request.
    #[error("{doing}: the host answers {}: {status}", .status.code)]
    Refused {
        /// The attempted request.
        doing: String,
        /// The response.
        status: Box<Status>,
    },
    /// The host does not answer as an API server does.
    #[error("{doing}: the host's answer cannot be understood: {reason}")]
    Malformed {
        /// The attempted request.
        doing: String,
        /// The problem of the response.
        reason: String,
    },
    /// The host cannot be reached, and retries would not help.
    #[error("the host cannot be talked to: {reason}")]
    Connection {
        /// The reason.
        reason: String,
    },
    /// The host did not answer for too long.
    #[error("{doing}: the host does not answer after {after:?}: {reason}")]
    HostUnreachable {
        /// The attempted request.
        doing: String,
        /// The time waited.
        after: Duration,
        /// The last failure.
        reason: String,
    },
    /// The caller's timeout expired.
    #[error("not done within {within:?}: still {doing}")]
    Deadline {
        /// The timeout.
        within: Duration,
        /// The unfinished step.
        doing: String,
    },
}

/// The party that can resolve an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is invalid: change the request.
    Caller,
    /// The request does not fit the current state: change the state first.
    State,
    /// The host or helm failed: retry, or check them.
    Host,
}

impl Error {
    /// Returns the party that can resolve it.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotFound { .. }
            | Self::Ambiguous { .. }
            | Self::InvalidName { .. }
            | Self::NoHelm { .. }
            | Self::HelmVersion { .. }
            | Self::Chart { .. }
            | Self::Manifests(_) => Fault::Caller,
            Self::ScaledDown { .. }
            | Self::Sleeping { .. }
            | Self::Restoring { .. }
            | Self::Resumed { .. }
            | Self::Protected(_)
            | Self::Exists { .. }
            | Self::Paused { .. }
            | Self::Occupied { .. }
            | Self::Deleting { .. }
            | Self::Platform { .. }
            | Self::NoKubeconfig { .. } => Fault::State,
            Self::Refused { status, .. } if (400..500).contains(&status.code) => Fault::Caller,
            _ => Fault::Host,
        }
    }
}

/// Returns where a program without a folder was searched.
fn in_path(program: &std::path::Path) -> &'static str {
    if program.components().count() == 1 { " in PATH" } else { "" }
}

fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"))
}

fn exited(code: Option<i32>) -> String {
    code.map_or_else(|| " (killed)".to_owned(), |code| format!(" (exit code {code})"))
}
