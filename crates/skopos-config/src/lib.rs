//! Configuration files: YAML, checked as a whole, every problem with its line.
//!
//! ```text
//!  file ─▶ tree with line numbers ─▶ schema: words, types, forms ─▶ model ─▶ what must go together
//!                                        └── every problem, with its line ◀──────────┘
//! ```
//!
//! ```
//! use skopos_config::{Configuration, ModelFault, Span};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Alarm {
//!     after: Span,
//! }
//!
//! impl Configuration for Alarm {
//!     const TITLE: &'static str = "Configuration of an alarm";
//! }
//!
//! let error = skopos_config::parse::<Alarm>("after: soon").err().map(|error| error.to_string());
//! assert_eq!(error.as_deref(), Some("line 1, column 8: after: \"soon\" is no span of time: write it as 500ms, 30s, 1m30s or 2h"));
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod schema;
mod tree;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};

pub use schema::json_schema;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
pub use values::{ByteSize, Span};

/// The model of a configuration file.
pub trait Configuration: DeserializeOwned + JsonSchema {
    /// The title of its schema.
    const TITLE: &'static str;

    /// Finds faults that the schema cannot express: fields that must go together, values that exclude each other.
    fn faults(&self) -> Vec<ModelFault> {
        Vec::new()
    }
}

/// All problems for which a configuration is refused, not just the first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// The file can be read, but its content is wrong.
    #[error("{}", Listed(.0))]
    Invalid(Vec<Problem>),
}

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// The field, for example `listen.tls.key`; empty for the whole file.
    pub field: String,
    /// The problem and its correction.
    pub problem: String,
}

/// A fault of a model, without its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFault {
    /// The field, as `clusters.folders[0].path`.
    pub field: String,
    /// The problem and its correction.
    pub problem: String,
}

/// The maximum size of a file. A thousand clusters by name stay far below.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads and checks a file.
///
/// # Errors
/// When it cannot be read or anything in it is wrong.
pub fn read<T: Configuration>(path: &Path) -> Result<T, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_BYTES {
        let text = format!("{size} bytes are more than the {MAX_BYTES} that a configuration may have");
        return Err(unreadable(std::io::Error::other(text)));
    }
    parse(&std::fs::read_to_string(path).map_err(unreadable)?)
}

/// Checks a text.
///
/// # Errors
/// When anything in it is wrong: the error lists all of it.
pub fn parse<T: Configuration>(text: &str) -> Result<T, ConfigError> {
    let tree = tree::parse(text).map_err(|problem| ConfigError::Invalid(vec![problem]))?;
    let mut problems = schema::check(&json_schema::<T>(), &tree);
    if problems.is_empty() {
        match serde_saphyr::from_str::<T>(text) {
            Ok(config) => {
                let located =
                    |fault: ModelFault| tree.nearest(&fault.field).problem(&fault.field, fault.problem);
                problems = config.faults().into_iter().map(located).collect();
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
