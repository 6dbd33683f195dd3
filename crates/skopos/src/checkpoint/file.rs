use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use super::{Checkpoint, CheckpointError, CheckpointLimits, Written};

impl Checkpoint {
    /// Writes the checkpoint to this file, like [`replace_file`].
    ///
    /// # Errors
    /// Those of the disk. The previous file is still there then.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<Written> {
        replace_file(path, |file| self.write_to(file))
    }

    /// Reads a checkpoint from a file, like [`read_from`](Checkpoint::read_from).
    ///
    /// # Errors
    /// As [`read_from`](Checkpoint::read_from). A missing file is a [`CheckpointError::Io`] of the kind `NotFound`.
    pub fn load(path: impl AsRef<Path>, limits: &CheckpointLimits) -> Result<Self, CheckpointError> {
        Self::read_from(BufReader::with_capacity(BUFFER_SIZE, File::open(path)?), limits)
    }
}

/// Replaces a file with what `write` writes; only its owner may read it. Readers find the old content or all of the new,
/// even after a crash at any moment: the new file is written next to it (with the suffix `.new`), and is renamed once it is
/// on the disk. Links are replaced and never followed. Blocks as long as the disk does.
///
/// Only one writer at a time: of several, one wins, or the file is a mixture.
///
/// # Errors
/// Those of `write` and of the disk. The file that was there is still there.
pub fn replace_file<T>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    replace(path.as_ref(), true, write)
}

/// Replaces a file like [`replace_file`], without forcing the content to the disk: a crash of the machine may leave the old
/// file, the new one or a torn one.
///
/// # Errors
/// As [`replace_file`].
pub fn replace_file_unsynced<T>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    replace(path.as_ref(), false, write)
}

const BUFFER_SIZE: usize = 256 << 10;

fn replace<T>(
    path: &Path,
    is_synced: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut beside = OsString::from(name);
    beside.push(".new");
    let beside = path.with_file_name(beside);
    let replaced = write_whole(&beside, is_synced, write).and_then(|written| {
        fs::rename(&beside, path)?;
        if is_synced {
            sync_directory(path)?;
        }
        Ok(written)
    });
    if replaced.is_err() {
        // The file may not exist, or not be removable; that is harmless, and the next write overwrites it.
        let _ = fs::remove_file(&beside);
    }
    replaced
}

fn write_whole<T>(
    path: &Path,
    is_synced: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let mut writer = BufWriter::with_capacity(BUFFER_SIZE, create_private(path)?);
    let written = write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    if is_synced {
        file.sync_all()?;
    }
    Ok(written)
}

/// Creates a file that only its owner may read and write. An existing file or link of this name is removed first: it would
/// keep its owner and its mode, and a link points to another file.
fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // Follows no link, and fails if another process created the file meanwhile.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes sure that a renamed file keeps its new name after a crash.
fn sync_directory(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
