//! Label and field selectors, with the API server's grammar and its error texts.

mod field;
mod label;
mod label_parser;
mod validation;

pub use field::{FieldRequirement, FieldSelector, FieldSource};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, LabelSource};
pub use validation::label_problems;

/// A selector that cannot be read. The caller is at fault; a server answers 400 with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    message: Box<str>,
}

impl ParseError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into() }
    }

    /// The API server's text.
    pub fn message(&self) -> &str {
        &self.message
    }
}
