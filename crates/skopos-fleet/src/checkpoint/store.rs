//! Storage of checkpoint files.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use skopos::checkpoint::Checkpoint;
use tokio::task::spawn_blocking;

/// Storage of files of a few bytes to a few hundred megabytes. A file is replaced as a whole: a reader finds all of the
/// old or all of the new, even after a crash at any moment. A change may continue after its future is dropped.
pub trait Store: Send + Sync + 'static {
    /// Returns a reader of the file; an error of kind [`NotFound`](io::ErrorKind::NotFound) if it does not exist. The
    /// reader is used in a blocking thread.
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>>;

    /// Replaces the content of a file; returns its number of bytes.
    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>>;

    /// Removes the file, if it exists.
    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>>;

    /// Renames the file, and replaces an existing file of the new name.
    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>>;

    /// Returns all files.
    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>>;
}

/// Name of a file: `FOLDER/FILE`, each of letters, digits, and `-_.=`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    folder: String,
    file: String,
}

/// Content of a file.
#[derive(Clone)]
pub enum Content {
    /// The content of a resource.
    Checkpoint(Checkpoint),
    /// A small content.
    Bytes(Bytes),
}

/// An existing file.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// Its name.
    pub name: FileName,
    /// Its size.
    pub bytes: u64,
    /// The time of the last write.
    pub modified: SystemTime,
}

/// Runs blocking work in a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl FileName {
    /// Checks a name; `None` if folder or file has characters that are not allowed.
    pub fn checked(folder: &str, file: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
        let good = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain);
        (good(folder) && good(file)).then(|| Self::new(folder, file))
    }

    pub(super) fn new(folder: impl Into<String>, file: impl Into<String>) -> Self {
        Self { folder: folder.into(), file: file.into() }
    }

    /// Returns the folder, which belongs to one cluster.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Returns the name within the folder.
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

impl Content {
    /// Writes the content; returns the number of bytes. Blocks as long as the writer does.
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
