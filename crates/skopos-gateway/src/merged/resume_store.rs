//! Storage of each kind's [`ResumeState`] for the next process.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use skopos::checkpoint::replace_file_unsynced;
use skopos_fleet::checkpoint::{Bucket, Content, FileName, Store as _, private_folder};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::resume_state::ResumeState;

/// The location of resume files.
#[derive(Clone, Debug, Default)]
pub enum ResumeStorage {
    /// No files: watches from before a restart get 410.
    #[default]
    Nowhere,
    /// A folder. A changed file is written once a second.
    Folder(PathBuf),
    /// A bucket. All files are read at the start of the process, within the bucket's limit for an answer; after that, no
    /// reader waits for it.
    Bucket {
        /// The bucket, with no other files below its prefix.
        bucket: Bucket,
        /// The interval of writing changed files.
        every: Duration,
    },
}

/// Provider of each kind's resume file.
#[derive(Clone)]
pub(crate) enum ResumeStore {
    Folder(PathBuf),
    Bucket(Arc<BucketFiles>),
}

/// Resume files in a bucket.
pub(crate) struct BucketFiles {
    bucket: Bucket,
    every: Duration,
    /// The states by kind: first as loaded, then as written.
    resume_states: Mutex<HashMap<String, ResumeState>>,
    /// Cancelled when loading has ended.
    loaded: CancellationToken,
}

/// The resume file of one kind, which has its [`ResumeState`].
pub(crate) struct ResumeFile {
    kind: String,
    location: Location,
}

enum Location {
    Path(PathBuf),
    Object(Arc<BucketFiles>, FileName),
}

/// Interval of writing changed files in a folder.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of writing an object. It has a few dozen bytes per cluster.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of reading a file for the first reader of a kind.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The folder of the objects.
const OBJECT_FOLDER: &str = "merged";

/// The number of objects that are read concurrently.
const MAX_CONCURRENT_READS: usize = 16;

/// The maximum size of a resume file: ten thousand clusters need far less.
const MAX_FILE_BYTES: u64 = 16 << 20;

impl ResumeStore {
    pub(crate) fn from_storage(storage: &ResumeStorage) -> Option<Self> {
        match storage {
            ResumeStorage::Nowhere => None,
            ResumeStorage::Folder(folder) => Some(Self::Folder(folder.clone())),
            ResumeStorage::Bucket { bucket, every } => {
                let (bucket, every) = (bucket.clone(), *every);
                let (resume_states, loaded) = (Mutex::default(), CancellationToken::new());
                Some(Self::Bucket(Arc::new(BucketFiles { bucket, every, resume_states, loaded })))
            }
        }
    }

    /// Returns the task that loads the files; only a bucket needs it.
    pub(crate) fn load(&self) -> Option<BoxFuture<'static, ()>> {
        let Self::Bucket(objects) = self else { return None };
        let objects = objects.clone();
        Some(Box::pin(async move { objects.load().await }))
    }

    /// Returns the file of a kind, whose name must be safe in a file name.
    pub(crate) fn file(&self, kind: String) -> Option<ResumeFile> {
        let location = match self {
            Self::Folder(folder) => Location::Path(folder.join(format!("{kind}.merged"))),
            Self::Bucket(objects) => {
                Location::Object(objects.clone(), FileName::checked(OBJECT_FOLDER, &kind)?)
            }
        };
        Some(ResumeFile { kind, location })
    }
}

impl BucketFiles {
    async fn load(&self) {
        let _loaded = self.loaded.clone().drop_guard();
        match timeout(self.bucket.limits().answer, self.read_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the resume files: watches over all clusters start from a list");
            }
            Err(_) => {
                tracing::warn!(
                    "the resume files do not come in time: watches over all clusters start from a list"
                );
            }
        }
    }

    async fn read_all(&self) -> io::Result<()> {
        let files = self.bucket.list().await?;
        let reads = files.into_iter().filter(|file| file.bytes <= MAX_FILE_BYTES).map(|file| async move {
            let mut bytes = Vec::new();
            // The file is in memory already.
            self.bucket.read(&file.name).await?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
            let kind = file.name.file().to_owned();
            if let Some(resume_state) = decode(&bytes, &kind, &file.name) {
                self.resume_states.lock().insert(kind, resume_state);
            }
            Ok(())
        });
        stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS).try_collect().await
    }
}

impl ResumeFile {
    /// Reads the state that an earlier process saved, if possible.
    pub(crate) async fn read(&self) -> Option<ResumeState> {
        match &self.location {
            Location::Path(path) => match timeout(READ_TIMEOUT, tokio::fs::read(path))
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(bytes) => decode(&bytes, &self.kind, path.display()),
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        tracing::warn!(path = %path.display(), %error, "cannot read a resume file: watches start from a list");
                    }
                    None
                }
            },
            Location::Object(objects, _) => {
                objects.loaded.cancelled().await;
                objects.resume_states.lock().get(&self.kind).cloned()
            }
        }
    }

    /// Writes the state that must be saved before the first reader gets an answer; the reader waits for it.
    pub(crate) async fn claim(&self, claim: &ResumeState) {
        let written = timeout(WRITE_TIMEOUT, self.write(claim)).await;
        if let Err(error) = written.unwrap_or(Err(io::ErrorKind::TimedOut.into())) {
            tracing::warn!(kind = self.kind, %error, "cannot write a resume file");
        }
    }

    /// Writes the state at intervals if it has changed, and at the end.
    pub(crate) async fn save_periodically(&self, history: &History, stop: &CancellationToken) {
        let every = match &self.location {
            Location::Path(_) => WRITE_INTERVAL,
            Location::Object(objects, _) => objects.every,
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written: Option<ResumeState> = None;
        loop {
            let over = stop.run_until_cancelled(ticks.tick()).await.is_none();
            let resume_state = history.resume_state();
            if history.is_open() && written.as_ref() != Some(&resume_state) {
                match self.write(&resume_state).await {
                    Ok(()) => written = Some(resume_state),
                    Err(error) => tracing::warn!(kind = self.kind, %error, "cannot write a resume file"),
                }
            }
            if over {
                return;
            }
        }
    }

    /// Writes the state atomically for the next process. Unlike a checkpoint, the file is not synced: it is written each
    /// second. The checksum rejects a file torn by a crash of the machine, which costs watchers a 410.
    async fn write(&self, resume_state: &ResumeState) -> io::Result<()> {
        let bytes = resume_state.encode(&self.kind);
        match &self.location {
            Location::Path(path) => {
                let path = path.clone();
                let written = spawn_blocking(move || {
                    path.parent().map_or(Ok(()), private_folder)?;
                    replace_file_unsynced(&path, |file| file.write_all(&bytes))
                });
                written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
            Location::Object(objects, name) => {
                // For a kind that is stopped and started again.
                objects.resume_states.lock().insert(self.kind.clone(), resume_state.clone());
                let writing = objects.bucket.write(name, Content::Bytes(bytes.into()));
                timeout(WRITE_TIMEOUT, writing).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())).map(drop)
            }
        }
    }
}

fn decode(bytes: &[u8], kind: &str, file: impl std::fmt::Display) -> Option<ResumeState> {
    let decoded = ResumeState::decode(bytes, kind).inspect_err(|error| {
        tracing::warn!(%file, %error, "a resume file is refused: watches start from a list");
    });
    decoded.ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_system_that_hangs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.merged");
        // Opening a FIFO for reading blocks until another process opens it for writing.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let file = ResumeFile { kind: "pods".to_owned(), location: Location::Path(path.clone()) };
        let read = timeout(Duration::from_secs(60), file.read()).await;
        std::fs::File::options().write(true).open(&path).unwrap();
        assert!(read.expect("a bound").is_none());
    }
}
