//! Why something with a virtual cluster failed.

use std::path::PathBuf;
use std::time::Duration;

use skopos::Status;

use super::removal::Refusal;
use super::secret::SecretError;
use crate::kubeconfig::KubeconfigError;

/// Why it failed. What was done before stays done; the same again goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none of this name.
    #[error("there is no virtual cluster {name}{}", in_namespace(.namespace.as_deref()))]
    NotFound {
        /// The name.
        name: String,
        /// Where it was looked for; `None`: everywhere.
        namespace: Option<String>,
    },
    /// There are several of this name.
    #[error("there are several virtual clusters {name}, in the namespaces {}: say which", .namespaces.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Where they are.
        namespaces: Vec<String>,
    },
    /// A name that nothing can have.
    #[error("{value:?} cannot be the name of a {what}: use at most {most} of a-z, 0-9 and -")]
    InvalidName {
        /// What it was to be the name of.
        what: &'static str,
        /// The name, cut after 64 characters.
        value: String,
        /// The most characters.
        most: usize,
    },
    /// Nothing says how many replicas it had, or that it is to be resumed at all.
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
    /// Somebody brought it up while it was being paused.
    #[error(
        "virtual cluster {name} in namespace {namespace} was resumed by somebody meanwhile: what runs for it stays"
    )]
    Resumed {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// Its data is being replaced.
    #[error(
        "virtual cluster {name} in namespace {namespace} is being restored from a backup: wait until that is done"
    )]
    Restoring {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// It must not be deleted.
    #[error(transparent)]
    Protected(#[from] Refusal),
    /// It is there already.
    #[error("virtual cluster {name} is in namespace {namespace} already")]
    Exists {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// An upgrade would start it, and leave it marked as paused.
    #[error("virtual cluster {name} in namespace {namespace} is paused: resume it before upgrading it")]
    Paused {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// A namespace holds one virtual cluster at most.
    #[error("virtual cluster {other} is in namespace {namespace}, which has room for one")]
    Occupied {
        /// The namespace.
        namespace: String,
        /// Which one is there.
        other: String,
    },
    /// It may be about to go with all that is in it.
    #[error(
        "virtual cluster {name} is being deleted in namespace {namespace}: let that end, or delete it once more"
    )]
    Deleting {
        /// The namespace.
        namespace: String,
        /// Which one is being deleted.
        name: String,
    },
    /// The vcluster platform is installed there.
    #[error("the vcluster platform is installed in namespace {namespace}: choose another")]
    Platform {
        /// The namespace.
        namespace: String,
    },
    /// A chart cannot be rendered.
    #[error("{} was not found{}: install helm, or give rendered manifests", .program.display(), in_path(.program))]
    NoHelm {
        /// What was looked for.
        program: PathBuf,
    },
    /// helm is too old, or is no helm.
    #[error("helm {found:?} cannot be used: at least 3.10 is needed")]
    HelmVersion {
        /// What it says of its version.
        found: String,
    },
    /// helm failed.
    #[error("helm {command} failed{}: {output}", exited(*.code))]
    Helm {
        /// `upgrade` or `delete`.
        command: &'static str,
        /// Its exit code, if it was not killed.
        code: Option<i32>,
        /// The last lines of what it said.
        output: String,
    },
    /// The chart is no file and no folder.
    #[error("there is no chart at {}: {reason}", .path.display())]
    Chart {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it cannot be used.
        reason: std::io::Error,
    },
    /// The given manifests are not those of such a virtual cluster.
    #[error("the manifests cannot be used: {0}")]
    Manifests(String),
    /// It has never started, so nobody knows how to talk to it.
    #[error("virtual cluster {name} in namespace {namespace} has no kubeconfig yet: it has to start first")]
    NoKubeconfig {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The Secret with its kubeconfig cannot be used.
    #[error("the Secret with the virtual cluster's kubeconfig cannot be used: {0}")]
    Secret(#[from] SecretError),
    /// Its kubeconfig cannot be used.
    #[error("the virtual cluster's kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The host said no.
    #[error("{doing}: the host answers {}: {status}", .status.code)]
    Refused {
        /// What was tried.
        doing: String,
        /// The answer.
        status: Box<Status>,
    },
    /// The host does not answer as an API server does.
    #[error("{doing}: the host's answer cannot be understood: {reason}")]
    Malformed {
        /// What was tried.
        doing: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The host cannot be talked to at all, and waiting would not help.
    #[error("the host cannot be talked to: {reason}")]
    Connection {
        /// Why.
        reason: String,
    },
    /// The host did not answer for so long.
    #[error("{doing}: the host does not answer after {after:?}: {reason}")]
    HostUnreachable {
        /// What was tried.
        doing: String,
        /// For how long.
        after: Duration,
        /// What happened last.
        reason: String,
    },
    /// The time that the caller gave is over.
    #[error("not done within {within:?}: still {doing}")]
    Deadline {
        /// The time.
        within: Duration,
        /// What was being done.
        doing: String,
    },
}

/// Who has to do something about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// What was asked for cannot be done: ask for something else.
    Caller,
    /// What was asked for does not fit the state of things: change that first.
    State,
    /// The host or helm failed: try again, or look there.
    Host,
}

// === impl Error ===

impl Error {
    /// Who has to do something about it.
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

/// Says where a program without a folder was looked for.
fn in_path(program: &std::path::Path) -> &'static str {
    if program.components().count() == 1 { " in PATH" } else { "" }
}

fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"))
}

fn exited(code: Option<i32>) -> String {
    code.map_or_else(|| " (killed)".to_owned(), |code| format!(" (exit code {code})"))
}
