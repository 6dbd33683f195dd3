//! What a long operation is doing.

use std::fmt;

use serde::Serialize;

use super::status::Status;
use super::workload::{Workload, WorkloadKind};

/// Is told of each step of an operation, in order. It must not block.
pub trait Progress: Send + Sync {
    /// This was done, or is being waited for.
    fn step(&self, step: Step);
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

/// Something that was done, or is being waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Step {
    /// The virtual cluster is there.
    Found {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its state.
        status: Status,
    },
    /// The host does not answer; it is asked again.
    HostTrouble {
        /// Why.
        reason: String,
    },
    /// A workload was scaled to zero, and annotated with what it had.
    ScaledDown {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// What a resume brings back.
        replicas: u32,
    },
    /// A workload was at zero and annotated already.
    DownAlready {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
    },
    /// Pods of a workload are still there.
    WaitingForPods {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// How many.
        pods: u32,
    },
    /// Pods that ran for the virtual cluster were deleted.
    PodsDeleted {
        /// Where.
        namespace: String,
        /// How many.
        pods: usize,
    },
    /// A workload has its replicas back.
    ScaledUp {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// How many.
        replicas: u32,
    },
    /// There was nothing to do.
    Unchanged {
        /// Its state.
        status: Status,
    },
    /// A namespace was made.
    NamespaceCreated {
        /// Its name.
        namespace: String,
    },
    /// A namespace is still on its way out.
    WaitingForNamespace {
        /// Its name.
        namespace: String,
    },
    /// helm runs.
    Helm {
        /// What it does: its arguments without values.
        command: String,
    },
    /// helm has begun something with the release and not ended it: it is at work, or was killed.
    WaitingForHelm {
        /// Where it wrote that down. It is taken away after that time; helm goes on from what is there.
        secret: String,
        /// How long it is waited for at most.
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
    /// It is up.
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

// === impl Step ===

impl Step {
    pub(super) fn waiting_for_pods(workload: &Workload) -> Self {
        Self::WaitingForPods { kind: workload.kind, name: workload.name.clone(), pods: workload.pods }
    }
}

/// A line for people.
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
                 the Secret {secret} and it goes on at once"
            ),
            Self::Applied { kind, name } => write!(f, "{kind} {name} applied"),
            Self::WaitingForReady { status } => write!(f, "waiting for it to be up: it is {status}"),
            Self::Ready => f.write_str("it is up"),
            Self::Removed { what, names } if names.is_empty() => write!(f, "no {what} to remove"),
            Self::Removed { what, names } => write!(f, "{what} removed: {}", names.join(", ")),
        }
    }
}
