//! Errors of kubeconfigs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::KubeconfigFeature;

/// The reason why a kubeconfig gives no cluster. It shows no value of the kubeconfig except the names of contexts, clusters
/// and users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// A kubeconfig that is too large.
    #[error("the kubeconfig has {bytes} bytes, more than the {limit} that are admitted")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A text that is not YAML, or not in the format of a kubeconfig.
    #[error("not a kubeconfig: {reason}{}", at(*.line, *.column))]
    Malformed {
        /// The problem.
        reason: &'static str,
        /// The line, from 1; 0 if unknown.
        line: u64,
        /// The column, from 1; 0 if unknown.
        column: u64,
    },
    /// Two entries of one list with the same name.
    #[error("two {what} are called {}: rename or remove one", quoted(.name))]
    Duplicate {
        /// `contexts`, `clusters` or `users`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A kubeconfig without a list of contexts, not even an empty one.
    #[error("it lists no contexts: it is empty, or cut off")]
    NoContexts,
    /// A feature that is not admitted.
    #[error("{field} is not admitted here: {reason}; {}", advice(*.switch))]
    Refused {
        /// The field.
        field: &'static str,
        /// The reason why it is dangerous.
        reason: &'static str,
        /// The switch of the caller's policy that admits it; `None` if nothing does.
        switch: Option<&'static str>,
    },
    /// A cluster without a CA, while the system's CAs are not admitted.
    #[error("the cluster has no certificate-authority-data: put the CA inline")]
    NoCertificateAuthority,
    /// A reference to a context, cluster or user that does not exist.
    #[error("there is no {what} {}", named(.name))]
    Missing {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// The name; empty if none was given.
        name: String,
    },
    /// A server URL that cannot be used. It is not shown, because it may contain a password.
    #[error("the cluster's server {reason}")]
    Server {
        /// The problem.
        reason: &'static str,
    },
    /// A field whose value cannot be used.
    #[error("{field} {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The problem.
        reason: &'static str,
    },
}

/// The reason why a list of kubeconfigs cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigReadError {
    /// A file that cannot be read.
    #[error("kubeconfig {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// A file that is readable but invalid.
    #[error("kubeconfig {}: {error}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: KubeconfigError,
    },
    /// A list without any existing file.
    #[error("no kubeconfig is there: {paths} does not exist")]
    Missing {
        /// The files, separated as in `$KUBECONFIG`.
        paths: String,
    },
    /// Readable kubeconfigs that give no cluster.
    #[error("kubeconfig {paths}: {error}")]
    Unusable {
        /// The files, separated as in `$KUBECONFIG`.
        paths: String,
        /// The reason.
        error: KubeconfigError,
    },
    /// A missing kubeconfig, and a service account of the pod that cannot be used.
    #[error("the pod's service account cannot be used: {0}")]
    ServiceAccount(Arc<kube::config::InClusterError>),
}

impl KubeconfigError {
    /// Returns the error for a feature that the named switch of a policy would admit.
    pub fn refused(feature: KubeconfigFeature, switch: Option<&'static str>) -> Self {
        Self::Refused { field: feature.field(), reason: feature.danger(), switch }
    }
}

fn advice(switch: Option<&'static str>) -> String {
    match switch {
        Some(switch) => format!("admit it with KubeconfigPolicy::{switch} if you trust who wrote it"),
        None => "remove it".to_owned(),
    }
}

fn at(line: u64, column: u64) -> String {
    match line {
        0 => String::new(),
        line => format!(" at line {line}, column {column}"),
    }
}

/// Makes an untrusted name fit for one line of a log.
fn quoted(name: &str) -> String {
    format!("{:?}", name.chars().take(100).collect::<String>())
}

fn named(name: &str) -> String {
    match name {
        "" => "that is meant (name one, or set current-context)".to_owned(),
        name => quoted(name),
    }
}
