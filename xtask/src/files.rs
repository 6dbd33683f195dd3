//! The files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the files below `path` whose names end with `.extension`, in order. Build folders are left out.
pub(crate) fn with_extension(path: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(path, extension, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(path: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        files.extend((path.extension().is_some_and(|own| own == extension)).then(|| path.to_path_buf()));
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry?;
        if entry.file_name() != "target" {
            collect(&entry.path(), extension, files)?;
        }
    }
    Ok(())
}
