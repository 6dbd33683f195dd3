//! Files with secrets.

use std::path::Path;

/// Maximum size of a file with a secret.
const MAX_SECRET: u64 = 64 * 1024;

/// Reads a secret.
pub(super) fn read_secret(file: &Path) -> Result<String, String> {
    let unreadable =
        |error: std::io::Error| format!("the secret in {} cannot be read: {error}", file.display());
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_SECRET {
        return Err(format!("{} is too large for a secret", file.display()));
    }
    std::fs::read_to_string(file).map_err(unreadable)
}
