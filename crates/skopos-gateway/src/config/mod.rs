//! The configuration: one YAML file, checked as a whole, followed while it changes.
//!
//! ```text
//!  file ─▶ tree with line numbers ─▶ schema: words, types, forms ─▶ Config ─▶ what must go together
//!                                        └── every problem, with its line ◀──────────┘
//! ```

mod check;
mod follow;
mod kubeconfig;
mod model;
mod schema;
mod tree;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};

pub use follow::{ConfigFollower, ConfigState, Refused};
pub use kubeconfig::QuickStart;
pub use model::{
    Authentication, Authorization, AuthorizationMode, BucketCredentials, BucketSource, Cache, Checkpoints,
    CidrList, ClientCertificates, Clusters, Config, ConnectPolicy, FolderSource, HostCluster, Kind,
    KubeconfigSource, KubeconfigSwitches, Limits, Listen, LoopbackTrust, ManagedFields, MemberDown, Metrics,
    Observers, Oidc, Outbound, PolicyRule, Reads, SecretFlavour, SecretSource, StreamLimits, Tls,
    TokenReview, VclusterSource,
};
pub use schema::json_schema;
pub use values::{ByteSize, Span};

/// Why a configuration is refused: everything that is wrong with it, not just the first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file can be read and is wrong.
    #[error("{}", Listed(.0))]
    Invalid(Vec<Problem>),
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// Which field, for example `listen.tls.key`; empty for the whole file.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// The largest file that is read. A thousand clusters by name stay far below.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

// === impl Config ===

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read or anything in it is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_BYTES {
            let text = format!("{size} bytes are more than the {MAX_BYTES} that a configuration may have");
            return Err(unreadable(std::io::Error::other(text)));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// Checks a text.
    ///
    /// # Errors
    /// When anything in it is wrong: all of it is told.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let tree = tree::parse(text).map_err(|problem| ConfigError::Invalid(vec![problem]))?;
        let mut problems = schema::check(&tree);
        if problems.is_empty() {
            match serde_saphyr::from_str::<Config>(text) {
                Ok(config) => {
                    problems = check::check(&config).into_iter().map(|fault| fault.located(&tree)).collect();
                    if problems.is_empty() {
                        return Ok(config);
                    }
                }
                Err(error) => problems.push(tree::problem_of(&error)),
            }
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(ConfigError::Invalid(problems))
    }
}

/// `line 3, column 5: listen.adress: ...`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

struct Listed<'a>(&'a [Problem]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
