//! A file that is read again when it changes, and never while it is being written.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use zeroize::Zeroizing;

/// How long a file has to stay as it is before it is taken for complete.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// When it is told that a look at files does not come to its end.
pub(super) const LATE: Duration = Duration::from_secs(10);

/// What is said of files that a file system does not give.
pub(super) const HANGS: &str = "it cannot be read in time: its file system does not answer";

/// Waits for a look at files however long it takes, and says if that is long.
pub(super) async fn patiently<T>(looking: impl Future<Output = T>, late: impl FnOnce()) -> T {
    let mut looking = pin!(looking);
    match timeout(LATE, &mut looking).await {
        Ok(looked) => looked,
        Err(_) => {
            late();
            looking.await
        }
    }
}

/// A file that is looked at from time to time, at intervals of [`SETTLE`] or longer.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    seen: Option<Stamp>,
    taken: Option<Stamp>,
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// What a look found.
#[derive(Debug)]
pub(super) enum Look {
    /// What was taken last, or cannot be read as before.
    Same,
    /// It changed a moment ago: look again after [`SETTLE`].
    Settling,
    /// Something else, of which at most one byte more than the limit.
    Content(Zeroizing<Vec<u8>>),
    /// It does not exist; for people.
    Missing(String),
    /// It cannot be read, and why.
    Unreadable(String),
}

impl WatchedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, seen: None, taken: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file. Blocks as long as the file system does.
    pub(super) fn look(&mut self, limit: usize) -> Look {
        match self.try_look(limit) {
            Ok(look) => look,
            Err(error) => {
                (self.seen, self.taken) = (None, None);
                match error.kind() {
                    io::ErrorKind::NotFound => Look::Missing(error.to_string()),
                    _ => Look::Unreadable(error.to_string()),
                }
            }
        }
    }

    fn try_look(&mut self, limit: usize) -> io::Result<Look> {
        let stamp = stamp(&self.path)?;
        if self.taken == Some(stamp) {
            return Ok(Look::Same);
        }
        if self.seen.replace(stamp) != Some(stamp) {
            return Ok(Look::Settling);
        }
        let mut content = Zeroizing::new(Vec::new());
        File::open(&self.path)?.take(limit as u64 + 1).read_to_end(&mut content)?;
        if self::stamp(&self.path)? != stamp {
            self.seen = None;
            return Ok(Look::Settling);
        }
        self.taken = Some(stamp);
        Ok(Look::Content(content))
    }
}

/// Follows links, as those of mounted ConfigMaps and Secrets.
fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata: Metadata = std::fs::metadata(path)?;
    match metadata.is_file() {
        true => Ok(Stamp { modified: metadata.modified().ok(), bytes: metadata.len() }),
        // Opening a pipe would wait for somebody who writes.
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_when_it_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let mut watched = WatchedFile::new(path.clone());
        assert!(matches!(watched.look(9), Look::Missing(_)));
        std::fs::write(&path, "ha").unwrap();
        assert!(matches!(watched.look(9), Look::Settling));
        std::fs::write(&path, "half").unwrap();
        assert!(matches!(watched.look(9), Look::Settling), "it is still being written");
        assert!(matches!(watched.look(9), Look::Content(content) if **content == *b"half"));
        assert!(matches!(watched.look(9), Look::Same));
        std::fs::write(&path, "0123456789 and more").unwrap();
        assert!(matches!(watched.look(9), Look::Settling));
        assert!(matches!(watched.look(9), Look::Content(content) if content.len() == 10), "and no more");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(watched.look(9), Look::Missing(_)));
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(watched.look(9), Look::Unreadable(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_is_told_of_and_waited_for() {
        for (takes, told) in [(LATE / 2, false), (LATE * 3, true)] {
            let mut late = false;
            let began = tokio::time::Instant::now();
            patiently(tokio::time::sleep(takes), || late = true).await;
            assert_eq!((late, began.elapsed()), (told, takes));
        }
    }
}
