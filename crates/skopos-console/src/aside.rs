//! Messages beside the output: lines on standard error.
use std::fmt;
use std::io::{Write, stderr};

/// Writes a line. A closed standard error is ignored, so that the command continues.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(stderr(), "{line}");
}
