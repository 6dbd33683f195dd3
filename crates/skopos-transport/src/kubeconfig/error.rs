//! Why a kubeconfig cannot be used.

use std::{io, path::PathBuf, sync::Arc};

use super::KubeconfigFeature;

/// The reason why a kubeconfig gives no cluster. It shows no value of the kubeconfig beyond the names of contexts, clusters
/// and users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// Larger than any kubeconfig should be.
    #[error("the kubeconfig has {bytes} bytes, more than the {limit} that are admitted")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not YAML, or YAML of another shape.
    #[error("not a kubeconfig: {reason}{}", at(*.line, *.column))]
    Malformed {
        /// What is wrong.
        reason: &'static str,
        /// The line, from 1; 0 if it is not known.
        line: u64,
        /// The column, from 1; 0 if it is not known.
        column: u64,
    },
    /// Two entries of one list have the same name.
    #[error("two {what} are called {}: rename or remove one", quoted(.name))]
    Duplicate {
        /// `contexts`, `clusters` or `users`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// There is no list of contexts, not even an empty one.
    #[error("it lists no contexts: it is empty, or cut off")]
    NoContexts,
    /// It uses a feature that is not admitted.
    #[error("{field} is not admitted here: {reason}; {}", advice(*.switch))]
    Refused {
        /// The field.
        field: &'static str,
        /// Why that is dangerous.
        reason: &'static str,
        /// The switch of the caller's policy that admits it; `None`: nothing does.
        switch: Option<&'static str>,
    },
    /// There is neither a CA nor the permission to trust the system's.
    #[error("the cluster has no certificate-authority-data: put the CA inline")]
    NoCertificateAuthority,
    /// A context, cluster or user that is referred to does not exist.
    #[error("there is no {what} {}", named(.name))]
    Missing {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// Its name; empty where none was given.
        name: String,
    },
    /// The server's URL cannot be used. It is not shown: there may be a password in it.
    #[error("the cluster's server {reason}")]
    Server {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A field's value cannot be used.
    #[error("{field} {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The reason why the kubeconfigs of a list cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigReadError {
    /// A file cannot be read.
    #[error("kubeconfig {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: Arc<io::Error>,
    },
    /// A file can be read and is wrong.
    #[error("kubeconfig {}: {error}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: KubeconfigError,
    },
    /// None of the files exists.
    #[error("no kubeconfig is there: {paths} does not exist")]
    Missing {
        /// The files, separated as in `$KUBECONFIG`.
        paths: String,
    },
    /// The kubeconfigs can be read, and give no cluster.
    #[error("kubeconfig {paths}: {error}")]
    Unusable {
        /// The files, separated as in `$KUBECONFIG`.
        paths: String,
        /// Why not.
        error: KubeconfigError,
    },
    /// There is no kubeconfig, and the service account of the pod cannot be used.
    #[error("the pod's service account cannot be used: {0}")]
    ServiceAccount(Arc<kube::config::InClusterError>),
}

// === impl KubeconfigError ===

impl KubeconfigError {
    /// Returns the refusal of a feature that the named switch of a policy would admit.
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

/// Makes a name from outside fit for a line of a log.
fn quoted(name: &str) -> String {
    format!("{:?}", name.chars().take(100).collect::<String>())
}

fn named(name: &str) -> String {
    match name {
        "" => "that is meant (name one, or set current-context)".to_owned(),
        name => quoted(name),
    }
}
