//! Files in a directory of this machine.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use skopos::checkpoint::replace_file;

use super::store::{Content, FileName, Store, StoredFile, blocking};

/// A directory, of which this process is the only user, and which nobody else can read: it holds what the clusters hold.
#[derive(Clone)]
pub struct Directory {
    root: PathBuf,
    /// Held as long as this is in use, and as long as something is being changed.
    lock: Arc<File>,
}

/// The file by which processes see that the directory is in use.
const LOCK: &str = "lock";

const BUFFER: usize = 256 << 10;

// === impl Directory ===

impl Directory {
    /// Takes a directory into use; it is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or written to, or another process uses it.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        make_private(&root)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(root.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root, lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => {
                let problem = format!("{} is in use by another process", root.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn path(&self, file: &FileName) -> PathBuf {
        self.root.join(file.folder()).join(file.file())
    }

    /// Changes something. Once begun that goes on, whoever waits for it, and nobody else may use the directory before.
    fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let lock = self.lock.clone();
        Box::pin(blocking(move || {
            let changed = change();
            drop(lock);
            changed
        }))
    }
}

impl Store for Directory {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        let path = self.path(file);
        Box::pin(blocking(move || {
            let reader = BufReader::with_capacity(BUFFER, File::open(path)?);
            Ok(Box::new(reader) as Box<dyn Read + Send>)
        }))
    }

    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>> {
        let path = self.path(file);
        self.change(move || {
            path.parent().map_or(Ok(()), make_private)?;
            replace_file(&path, |file| content.write_to(file))
        })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        let path = self.path(file);
        self.change(move || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // The last one takes the folder with it.
            let _ = path.parent().map(fs::remove_dir);
            Ok(())
        })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        let (from, to) = (self.path(from), self.path(to));
        self.change(move || fs::rename(from, to))
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        let root = self.root.clone();
        Box::pin(blocking(move || {
            let mut found = Vec::new();
            for folder in fs::read_dir(&root)? {
                let folder = folder?;
                if !folder.file_type()?.is_dir() {
                    continue;
                }
                for file in fs::read_dir(folder.path())? {
                    let file = file?;
                    let names = (folder.file_name().into_string(), file.file_name().into_string());
                    // It may go away meanwhile.
                    if let ((Ok(folder), Ok(name)), Ok(meta)) = (names, file.metadata()) {
                        let modified = meta.modified()?;
                        let name = FileName::new(folder, name);
                        found.push(StoredFile { name, bytes: meta.len(), modified });
                    }
                }
            }
            Ok(found)
        }))
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Directory").field(&self.root).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Content {
        Content::Bytes(text.as_bytes().into())
    }

    #[tokio::test]
    async fn files_are_replaced_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path().join("x")).unwrap();
        let (one, other) = (FileName::new("a", "one"), FileName::new("a", "other"));
        assert_eq!(directory.read(&one).await.err().unwrap().kind(), io::ErrorKind::NotFound);
        directory.remove(&one).await.unwrap();
        assert_eq!(directory.write(&one, bytes("first")).await.unwrap(), 5);
        assert_eq!(directory.write(&one, bytes("2nd")).await.unwrap(), 3);
        let mut text = String::new();
        directory.read(&one).await.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "2nd");
        directory.rename(&one, &other).await.unwrap();
        let listed = directory.list().await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].name.to_string().as_str(), listed[0].bytes), ("a/other", 3));
        directory.remove(&other).await.unwrap();
        assert!(directory.list().await.unwrap().is_empty());
        assert!(!folder.path().join("x/a").exists(), "the folder goes with its last file");
    }

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let error = Directory::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(directory);
        Directory::open(folder.path()).unwrap();
    }
}
