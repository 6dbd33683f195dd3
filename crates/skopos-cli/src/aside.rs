//! What is said beside the output: lines on standard error.
use std::fmt;
use std::io::{Write, stderr};

/// Writes a line. That nobody reads it any more is no reason to break off what it tells of.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(stderr(), "{line}");
}
