//! From connections to responses.

pub(crate) mod respond;
pub(crate) mod router;
