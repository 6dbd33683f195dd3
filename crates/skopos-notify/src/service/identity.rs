//! The cluster that a sink belongs to, remembered on disk.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

/// Reads which cluster the sink belongs to, where that is known.
pub(super) fn load(folder: &Path, sink: &str) -> io::Result<Option<Arc<str>>> {
    match std::fs::read_to_string(path(folder, sink)) {
        Ok(text) => Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Arc::from)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Remembers it: the whole, or what was there before.
pub(super) fn save(folder: &Path, sink: &str, cluster: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (path, new) = (path(folder, sink), folder.join(format!(".{}.new", file_name(sink))));
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{cluster}")?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

fn path(folder: &Path, sink: &str) -> std::path::PathBuf {
    folder.join(file_name(sink))
}

fn file_name(sink: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("cluster-of-{}", sink.chars().map(plain).collect::<String>())
}
