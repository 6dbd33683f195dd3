//! The cluster that a sink belongs to, remembered on disk.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_fleet::checkpoint::private_folder;

use super::SinkOptions;

/// Prefix of the name of the file with a sink's cluster.
pub(super) const PREFIX: &str = "cluster-of-";

impl SinkOptions {
    /// Returns the cluster that the sink belongs to, if it is remembered.
    pub(super) fn cluster(&self) -> Option<Arc<str>> {
        let path = self.file()?;
        match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim()).filter(|text| !text.is_empty()).map(Arc::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(sink = self.name, path = %path.display(), %error, "the cluster that the sink belongs to cannot be read");
                None
            }
        }
    }

    /// Remembers the cluster that the sink belongs to.
    pub(super) fn remember(&self, cluster: &str) {
        let Some(path) = self.file() else { return };
        if let Err(error) = save(&path, cluster) {
            tracing::warn!(sink = self.name, path = %path.display(), %error, "the cluster that the sink belongs to cannot be remembered");
        }
    }

    /// Forgets the cluster of a sink without entries.
    pub(super) fn forget(&self) {
        if let Some(path) = self.file() {
            // The file may not exist.
            let _ = std::fs::remove_file(path);
        }
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.state.as_ref()?.join(format!("{PREFIX}{}", crate::file_name(&self.name))))
    }
}

/// Writes the whole file, or leaves it as it was.
fn save(path: &Path, cluster: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), private_folder)?;
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{cluster}")?;
    file.sync_all()?;
    std::fs::rename(new, path)
}
