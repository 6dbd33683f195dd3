//! Label and field selectors, with the API server's grammar and its error messages.

mod field;
mod label;
mod label_parser;
mod validation;

pub use field::{FieldRequirement, FieldSelector, FieldSource};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, LabelSource};
pub use validation::label_problems;

/// A selector that cannot be parsed. The caller is at fault; a server responds with 400 and this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    message: Box<str>,
}

impl ParseError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into() }
    }

    /// Returns the API server's message.
    pub fn message(&self) -> &str {
        &self.message
    }
}
