//! Where files are kept.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use skopos::checkpoint::Checkpoint;
use tokio::task::spawn_blocking;

/// Keeps files of a few bytes to a few hundred megabytes. A file is replaced as a whole: whoever reads it, also after a crash at
/// whatever moment, finds all of the old or all of the new. What a future has begun may go on when it is dropped.
pub trait Store: Send + Sync + 'static {
    /// The file; an error of the kind [`NotFound`](io::ErrorKind::NotFound) if there is none. What is read of it is read in a
    /// thread that may block.
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>>;

    /// Puts content in the place of what there is; returns how many bytes it has.
    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>>;

    /// Removes the file, if it is there.
    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>>;

    /// Gives the file another name, and takes the place of what had it.
    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>>;

    /// All files.
    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>>;
}

/// Which file: `FOLDER/FILE`, each of letters, digits, and `-_.=`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    folder: String,
    file: String,
}

/// What is in a file.
#[derive(Clone)]
pub enum Content {
    /// A kind's content.
    Checkpoint(Checkpoint),
    /// Something small.
    Bytes(Bytes),
}

/// A file that is there.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// Its name.
    pub name: FileName,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// Does what may block in a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

// === impl FileName ===

impl FileName {
    /// `None` where anything but what may be in a name is in one of both.
    pub fn checked(folder: &str, file: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
        let good = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain);
        (good(folder) && good(file)).then(|| Self::new(folder, file))
    }

    pub(super) fn new(folder: impl Into<String>, file: impl Into<String>) -> Self {
        Self { folder: folder.into(), file: file.into() }
    }

    /// The folder: that of one cluster.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Its name there.
    pub fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn with(&self, ending: &str) -> Self {
        Self::new(self.folder.clone(), format!("{}{ending}", self.file))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.folder, self.file)
    }
}

// === impl Content ===

impl Content {
    /// Writes it; returns how many bytes that were. Blocks as long as the writer does.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, mut writer: impl Write) -> io::Result<u64> {
        match self {
            Self::Checkpoint(checkpoint) => Ok(checkpoint.write_to(writer)?.bytes),
            Self::Bytes(bytes) => {
                writer.write_all(bytes)?;
                writer.flush()?;
                Ok(bytes.len() as u64)
            }
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.fmt(f),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}
