//! A file that is reread when it changes, but never while it is being written.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use zeroize::Zeroizing;

/// Time for which a file must stay unchanged before it counts as complete.
pub(super) const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// Time after which an unfinished check of files is reported.
pub(super) const LATE_TIMEOUT: Duration = Duration::from_secs(10);

/// Message about files whose file system hangs.
pub(super) const HANGING_FILES: &str = "it cannot be read in time: its file system does not answer";

/// Waits for a check of files without a limit, and calls `late` if it takes longer than [`LATE_TIMEOUT`].
pub(super) async fn report_if_late<T>(checking: impl Future<Output = T>, late: impl FnOnce()) -> T {
    let mut checking = pin!(checking);
    match timeout(LATE_TIMEOUT, &mut checking).await {
        Ok(checked) => checked,
        Err(_) => {
            late();
            checking.await
        }
    }
}

/// A polled file. Intervals are [`SETTLE_DELAY`] or longer.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    seen: Option<Stamp>,
    taken: Option<Stamp>,
}

/// Modification time and size, which distinguish versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// Result of checking a file.
#[derive(Debug)]
pub(super) enum FileCheck {
    /// The version read last: nothing has changed.
    Same,
    /// A change a moment ago: check again after [`SETTLE_DELAY`].
    Settling,
    /// Changed content, at most one byte more than the limit.
    Content(Zeroizing<Vec<u8>>),
    /// The file does not exist; the text is for users.
    Missing(String),
    /// The file cannot be read, with the reason.
    Unreadable(String),
}

impl WatchedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, seen: None, taken: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the file. Blocks as long as the file system does.
    pub(super) fn check(&mut self, limit: usize) -> FileCheck {
        match self.try_check(limit) {
            Ok(check) => check,
            Err(error) => {
                (self.seen, self.taken) = (None, None);
                match error.kind() {
                    io::ErrorKind::NotFound => FileCheck::Missing(error.to_string()),
                    _ => FileCheck::Unreadable(error.to_string()),
                }
            }
        }
    }

    fn try_check(&mut self, limit: usize) -> io::Result<FileCheck> {
        let stamp = stamp(&self.path)?;
        if self.taken == Some(stamp) {
            return Ok(FileCheck::Same);
        }
        if self.seen.replace(stamp) != Some(stamp) {
            return Ok(FileCheck::Settling);
        }
        let mut content = Zeroizing::new(Vec::new());
        File::open(&self.path)?.take(limit as u64 + 1).read_to_end(&mut content)?;
        if self::stamp(&self.path)? != stamp {
            self.seen = None;
            return Ok(FileCheck::Settling);
        }
        self.taken = Some(stamp);
        Ok(FileCheck::Content(content))
    }
}

/// Follows links, because mounted ConfigMaps and Secrets are links.
fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata: Metadata = std::fs::metadata(path)?;
    match metadata.is_file() {
        true => Ok(Stamp { modified: metadata.modified().ok(), bytes: metadata.len() }),
        // Opening a pipe would wait for a writer.
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_settles_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let mut watched = WatchedFile::new(path.clone());
        assert!(matches!(watched.check(9), FileCheck::Missing(_)));
        std::fs::write(&path, "ha").unwrap();
        assert!(matches!(watched.check(9), FileCheck::Settling));
        std::fs::write(&path, "half").unwrap();
        assert!(matches!(watched.check(9), FileCheck::Settling), "it is still being written");
        assert!(matches!(watched.check(9), FileCheck::Content(content) if **content == *b"half"));
        assert!(matches!(watched.check(9), FileCheck::Same));
        std::fs::write(&path, "0123456789 and more").unwrap();
        assert!(matches!(watched.check(9), FileCheck::Settling));
        assert!(
            matches!(watched.check(9), FileCheck::Content(content) if content.len() == 10),
            "and no more"
        );
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(watched.check(9), FileCheck::Missing(_)));
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(watched.check(9), FileCheck::Unreadable(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_check_is_reported_and_awaited() {
        for (takes, told) in [(LATE_TIMEOUT / 2, false), (LATE_TIMEOUT * 3, true)] {
            let mut late = false;
            let began = tokio::time::Instant::now();
            report_if_late(tokio::time::sleep(takes), || late = true).await;
            assert_eq!((late, began.elapsed()), (told, takes));
        }
    }
}
