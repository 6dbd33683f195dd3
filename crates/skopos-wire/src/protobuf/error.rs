//! Bytes that are not the protobuf of a Kubernetes object.

use super::reader::BadEncoding;

/// Bytes that are not the protobuf of the message they should be. The sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid protobuf of {message}: {problem}")]
pub struct InvalidProtobuf {
    /// The message, such as `core/v1.PodSpec`.
    pub message: &'static str,
    /// The defect.
    pub problem: &'static str,
}

impl InvalidProtobuf {
    /// Creates a function that adds the message to a defect.
    pub(crate) fn in_message(message: &'static str) -> impl Fn(BadEncoding) -> Self {
        move |problem| Self { message, problem }
    }
}
