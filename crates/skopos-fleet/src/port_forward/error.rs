use std::sync::Arc;

use http::StatusCode;

use crate::error::FleetError;
use crate::id::ClusterId;

/// Reason why there is no port-forward.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortForwardError {
    /// The host does not answer, or is paused or gone.
    #[error(transparent)]
    Host(FleetError),
    /// The host refuses. It needs list of pods, and get and create of `pods/portforward`.
    #[error("{host} refuses to {what}: {message}{}", advice(*.status))]
    Refused {
        /// The host.
        host: ClusterId,
        /// The refused request, in words.
        what: String,
        /// The status of its answer.
        status: StatusCode,
        /// Its message.
        message: String,
    },
    /// There is no pod: what runs in it is paused, or was deleted.
    #[error("there is no pod with {selector} in namespace {namespace}")]
    NoPod {
        /// The namespace.
        namespace: Arc<str>,
        /// The labels.
        selector: Arc<str>,
    },
    /// There are pods, and none of them is ready.
    #[error("no pod with {selector} in namespace {namespace} is ready")]
    NotReady {
        /// The namespace.
        namespace: Arc<str>,
        /// The labels.
        selector: Arc<str>,
    },
    /// The host's answer is none of an API server.
    #[error("{0}")]
    Protocol(String),
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => "; it needs list of pods, and get and create of pods/portforward",
        _ => "",
    }
}
