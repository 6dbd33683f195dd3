//! Kubernetes version that the server reports.

use serde_json::{Value, json};

/// Kubernetes minor version of the server's API.
pub(crate) const MINOR: &str = "36";

/// Returns the document at `/version`.
pub(crate) fn document() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("v1.{MINOR}.0+skopos"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "skopos/testserver",
    })
}
