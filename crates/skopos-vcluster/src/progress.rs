//! Progress of a long operation.

use std::fmt;

use serde::Serialize;
use skopos_fleet::vcluster::{Workload, WorkloadKind};

use crate::status::Status;

/// Receiver of an operation's steps, in order. It must not block.
pub trait Progress: Send + Sync {
    /// Reports a step that was completed or is being waited for.
    fn step(&self, step: Step);
}

/// A receiver that ignores all steps.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

/// A step that was completed or is being waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Step {
    /// The virtual cluster was found.
    Found {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its state.
        status: Status,
    },
    /// The host does not answer; the request is retried.
    HostTrouble {
        /// The reason.
        reason: String,
    },
    /// A workload was scaled to zero, and annotated with its replicas.
    ScaledDown {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// The replicas after a resume.
        replicas: u32,
    },
    /// A workload was scaled to zero and annotated already.
    DownAlready {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
    },
    /// Pods of a workload still exist.
    WaitingForPods {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// Their number.
        pods: u32,
    },
    /// Pods that ran for the virtual cluster were deleted.
    PodsDeleted {
        /// Their namespace.
        namespace: String,
        /// Their number.
        pods: usize,
    },
    /// A workload was scaled up.
    ScaledUp {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// The replicas.
        replicas: u32,
    },
    /// Nothing had to be done.
    Unchanged {
        /// Its state.
        status: Status,
    },
    /// A namespace was created.
    NamespaceCreated {
        /// Its name.
        namespace: String,
    },
    /// A namespace is still being deleted.
    WaitingForNamespace {
        /// Its name.
        namespace: String,
    },
    /// helm is running.
    Helm {
        /// Its arguments, without values.
        command: String,
    },
    /// helm has begun an operation on the release and not ended it: it is at work, or was killed.
    WaitingForHelm {
        /// The Secret with helm's record. It is deleted after that time; helm continues from there.
        secret: String,
        /// The maximum wait.
        seconds: u64,
    },
    /// An object was applied.
    Applied {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The virtual cluster is not up yet.
    WaitingForReady {
        /// Its state.
        status: Status,
    },
    /// The virtual cluster is up.
    Ready,
    /// Objects were removed.
    Removed {
        /// Their resource, or `release`.
        what: String,
        /// Their names.
        names: Vec<String>,
    },
}

impl<F: Fn(Step) + Send + Sync> Progress for F {
    fn step(&self, step: Step) {
        self(step);
    }
}

impl Progress for Silent {
    fn step(&self, _step: Step) {}
}

impl Step {
    pub(crate) fn waiting_for_pods(workload: &Workload) -> Self {
        Self::WaitingForPods { kind: workload.kind, name: workload.name.clone(), pods: workload.pods }
    }
}

/// A line for users.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { name, namespace, status } => write!(f, "{namespace}/{name} is {status}"),
            Self::HostTrouble { reason } => write!(f, "the host does not answer: {reason}"),
            Self::ScaledDown { kind, name, replicas } => {
                write!(f, "{kind} {name} scaled to zero, a resume brings back {replicas}")
            }
            Self::DownAlready { kind, name } => write!(f, "{kind} {name} was paused already"),
            Self::WaitingForPods { kind, name, pods } => {
                write!(f, "waiting for {pods} pods of {kind} {name} to go")
            }
            Self::PodsDeleted { namespace, pods } => {
                write!(f, "{pods} pods deleted in namespace {namespace}")
            }
            Self::ScaledUp { kind, name, replicas } => write!(f, "{kind} {name} scaled to {replicas}"),
            Self::Unchanged { status } => write!(f, "nothing to do: it is {status}"),
            Self::NamespaceCreated { namespace } => write!(f, "namespace {namespace} made"),
            Self::WaitingForNamespace { namespace } => write!(f, "waiting for namespace {namespace} to go"),
            Self::Helm { command } => write!(f, "helm {command}"),
            Self::WaitingForHelm { secret, seconds } => write!(
                f,
                "helm is at work on it or was killed at it: waiting for {seconds} s at most; where no helm runs, delete \
                 the Secret {secret} and it continues at once"
            ),
            Self::Applied { kind, name } => write!(f, "{kind} {name} applied"),
            Self::WaitingForReady { status } => write!(f, "waiting for it to be up: it is {status}"),
            Self::Ready => f.write_str("it is up"),
            Self::Removed { what, names } if names.is_empty() => write!(f, "no {what} to remove"),
            Self::Removed { what, names } => write!(f, "{what} removed: {}", names.join(", ")),
        }
    }
}
