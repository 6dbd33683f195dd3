/// Why a kubeconfig gives no cluster. Nothing of its values is shown, beyond the names of contexts, clusters and users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// Larger than any kubeconfig should be.
    #[error(
        "the kubeconfig has {bytes} bytes, more than the {limit} that are admitted (KubeconfigPolicy::max_bytes)"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not YAML, or YAML of another shape.
    #[error("not a kubeconfig: {reason} at line {line}, column {column}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
        /// The line, from 1; 0 if it is not known.
        line: u64,
        /// The column, from 1; 0 if it is not known.
        column: u64,
    },
    /// There is no list of contexts, not even an empty one.
    #[error("it names no contexts at all: it is empty, or cut off")]
    NoContexts,
    /// It asks for something that the policy does not admit.
    #[error("{field} is not admitted here: {reason}; {}", advice(*.switch))]
    Refused {
        /// The field.
        field: &'static str,
        /// Why that is dangerous.
        reason: &'static str,
        /// The switch of [`KubeconfigPolicy`](super::KubeconfigPolicy) that admits it; `None`: nothing does.
        switch: Option<&'static str>,
    },
    /// There is neither a CA nor the permission to trust the system's.
    #[error(
        "the cluster has no certificate-authority-data; put the CA inline, or admit the system's roots \
         (KubeconfigPolicy::allow_system_roots)"
    )]
    NoCertificateAuthority,
    /// A context, cluster or user that is referred to is not there.
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

fn advice(switch: Option<&'static str>) -> String {
    match switch {
        Some(switch) => format!("admit it with KubeconfigPolicy::{switch} if you trust who wrote it"),
        None => "remove it".to_owned(),
    }
}

/// A name that somebody else chose, fit for a line of a log.
fn named(name: &str) -> String {
    match name {
        "" => "that is meant (name one, or set current-context)".to_owned(),
        name => format!("{:?}", name.chars().take(100).collect::<String>()),
    }
}
