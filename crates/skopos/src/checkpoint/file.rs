use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use super::{Checkpoint, CheckpointError, CheckpointLimits, Written};

impl Checkpoint {
    /// Writes it to this file, as [`replace_file`] does.
    ///
    /// # Errors
    /// Those of the disk. The file that was there is still there.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<Written> {
        replace_file(path, |file| self.write_to(file))
    }

    /// Reads it from a file; as [`read_from`](Checkpoint::read_from).
    ///
    /// # Errors
    /// As [`read_from`](Checkpoint::read_from). That there is no file is a [`CheckpointError::Io`] of the kind `NotFound`.
    pub fn load(path: impl AsRef<Path>, limits: &CheckpointLimits) -> Result<Self, CheckpointError> {
        Self::read_from(BufReader::with_capacity(BUFFER, File::open(path)?), limits)
    }
}

/// Puts what `write` writes in the place of a file, which only its owner may read. Whoever looks, also after a crash at
/// whatever moment, finds what was there before or all of the new: it is written beside it (with `.new` behind the name), and
/// takes its place when it is on the disk. Blocks as long as the disk does.
///
/// One writer at a time: of several, one wins, or the file is a mixture.
///
/// # Errors
/// Those of `write` and of the disk. The file that was there is still there.
pub fn replace_file<T>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let path = path.as_ref();
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut beside = OsString::from(name);
    beside.push(".new");
    let beside = path.with_file_name(beside);
    let replaced = write_whole(&beside, write).and_then(|written| {
        fs::rename(&beside, path)?;
        sync_directory(path)?;
        Ok(written)
    });
    if replaced.is_err() {
        // It may not be there, or not go away; it is no harm, and the next one overwrites it.
        let _ = fs::remove_file(&beside);
    }
    replaced
}

const BUFFER: usize = 256 << 10;

fn write_whole<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut writer = BufWriter::with_capacity(BUFFER, options.open(path)?);
    let written = write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(written)
}

/// Makes sure that a renamed file bears its new name after a crash.
fn sync_directory(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
