//! Where each kind's [`Standing`] is kept for the next process.

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
use super::restart::Standing;

/// Where restart files are.
#[derive(Clone, Debug, Default)]
pub enum Restarts {
    /// There are none: watches do not outlive the process, they get 410.
    #[default]
    Nowhere,
    /// In a folder. Written once a second, if there is something new.
    Folder(PathBuf),
    /// In a bucket. All are read when the process begins, for as long as the bucket may take for an answer: no reader waits
    /// for it later.
    Bucket {
        /// With nothing else below its prefix.
        bucket: Bucket,
        /// How often what is new is written.
        every: Duration,
    },
}

/// Gives each kind its file.
#[derive(Clone)]
pub(crate) enum Shelf {
    Folder(PathBuf),
    Bucket(Arc<Objects>),
}

/// Restart files in a bucket.
pub(crate) struct Objects {
    bucket: Bucket,
    every: Duration,
    /// As the process found them, and then as it left them; by kind.
    standings: Mutex<HashMap<String, Standing>>,
    /// Cancelled when what was there is known.
    loaded: CancellationToken,
}

/// Where a kind's [`Standing`] is written.
pub(crate) struct RestartFile {
    kind: String,
    place: Place,
}

enum Place {
    Path(PathBuf),
    Object(Arc<Objects>, FileName),
}

/// How often files in a folder are written, if there is something new.
const WRITE: Duration = Duration::from_secs(1);

/// How long an object may take to be written. It has a few dozen bytes per cluster.
const WRITING: Duration = Duration::from_secs(2);

/// How long the first reader of a kind waits for its file.
const READING: Duration = Duration::from_secs(2);

/// The folder of the objects.
const OBJECTS: &str = "merged";

/// So many objects are read at a time.
const AT_ONCE: usize = 16;

/// What no restart file has: ten thousand clusters stay far below.
const MOST_BYTES: u64 = 16 << 20;

// === impl Shelf ===

impl Shelf {
    pub(crate) fn of(restarts: &Restarts) -> Option<Self> {
        match restarts {
            Restarts::Nowhere => None,
            Restarts::Folder(folder) => Some(Self::Folder(folder.clone())),
            Restarts::Bucket { bucket, every } => {
                let (bucket, every) = (bucket.clone(), *every);
                let (standings, loaded) = (Mutex::default(), CancellationToken::new());
                Some(Self::Bucket(Arc::new(Objects { bucket, every, standings, loaded })))
            }
        }
    }

    /// What has to be done once before anything can be read.
    pub(crate) fn load(&self) -> Option<BoxFuture<'static, ()>> {
        let Self::Bucket(objects) = self else { return None };
        let objects = objects.clone();
        Some(Box::pin(async move { objects.load().await }))
    }

    /// The file of a kind, whose name is safe in a file's.
    pub(crate) fn file(&self, kind: String) -> Option<RestartFile> {
        let place = match self {
            Self::Folder(folder) => Place::Path(folder.join(format!("{kind}.merged"))),
            Self::Bucket(objects) => Place::Object(objects.clone(), FileName::checked(OBJECTS, &kind)?),
        };
        Some(RestartFile { kind, place })
    }
}

// === impl Objects ===

impl Objects {
    async fn load(&self) {
        let _loaded = self.loaded.clone().drop_guard();
        match timeout(self.bucket.limits().answer, self.read_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the restart files: watches over all clusters begin anew");
            }
            Err(_) => {
                tracing::warn!("the restart files do not come in time: watches over all clusters begin anew");
            }
        }
    }

    async fn read_all(&self) -> io::Result<()> {
        let files = self.bucket.list().await?;
        let reads = files.into_iter().filter(|file| file.bytes <= MOST_BYTES).map(|file| async move {
            let mut bytes = Vec::new();
            // It is in memory already.
            self.bucket.read(&file.name).await?.take(MOST_BYTES).read_to_end(&mut bytes)?;
            let kind = file.name.file().to_owned();
            if let Some(standing) = decode(&bytes, &kind, &file.name) {
                self.standings.lock().insert(kind, standing);
            }
            Ok(())
        });
        stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await
    }
}

// === impl RestartFile ===

impl RestartFile {
    /// What an earlier process left, if it can be read.
    pub(crate) async fn read(&self) -> Option<Standing> {
        match &self.place {
            Place::Path(path) => match timeout(READING, tokio::fs::read(path))
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(bytes) => decode(&bytes, &self.kind, path.display()),
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        tracing::warn!(path = %path.display(), %error, "cannot read a restart file: watches begin anew");
                    }
                    None
                }
            },
            Place::Object(objects, _) => {
                objects.loaded.cancelled().await;
                objects.standings.lock().get(&self.kind).cloned()
            }
        }
    }

    /// Writes what has to be there before the first reader is answered, who waits for it.
    pub(crate) async fn claim(&self, claim: &Standing) {
        let written = timeout(WRITING, self.write(claim)).await;
        if let Err(error) = written.unwrap_or(Err(io::ErrorKind::TimedOut.into())) {
            tracing::warn!(kind = self.kind, %error, "cannot write a restart file");
        }
    }

    /// Writes it whenever there is something new, and at the end.
    pub(crate) async fn keep(&self, history: &History, stop: &CancellationToken) {
        let every = match &self.place {
            Place::Path(_) => WRITE,
            Place::Object(objects, _) => objects.every,
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written: Option<Standing> = None;
        loop {
            let over = stop.run_until_cancelled(ticks.tick()).await.is_none();
            let standing = history.standing();
            if history.is_open() && written.as_ref() != Some(&standing) {
                match self.write(&standing).await {
                    Ok(()) => written = Some(standing),
                    Err(error) => tracing::warn!(kind = self.kind, %error, "cannot write a restart file"),
                }
            }
            if over {
                return;
            }
        }
    }

    /// As a whole or not at all, for whoever comes after this process. A file is not forced to the disk, as checkpoints are:
    /// this is done each second, and what a crash of the machine tears is refused by its checksum, which costs watchers a 410.
    async fn write(&self, standing: &Standing) -> io::Result<()> {
        let bytes = standing.encode(&self.kind);
        match &self.place {
            Place::Path(path) => {
                let path = path.clone();
                let written = spawn_blocking(move || {
                    path.parent().map_or(Ok(()), private_folder)?;
                    replace_file_unsynced(&path, |file| file.write_all(&bytes))
                });
                written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
            Place::Object(objects, name) => {
                // Should the kind be let go of and asked for again.
                objects.standings.lock().insert(self.kind.clone(), standing.clone());
                let writing = objects.bucket.write(name, Content::Bytes(bytes.into()));
                timeout(WRITING, writing).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())).map(drop)
            }
        }
    }
}

fn decode(bytes: &[u8], kind: &str, file: impl std::fmt::Display) -> Option<Standing> {
    let decoded = Standing::decode(bytes, kind).inspect_err(|error| {
        tracing::warn!(%file, %error, "a restart file is refused: watches begin anew");
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
        // To open one for reading hangs until somebody writes.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let file = RestartFile { kind: "pods".to_owned(), place: Place::Path(path.clone()) };
        let read = timeout(Duration::from_secs(60), file.read()).await;
        std::fs::File::options().write(true).open(&path).unwrap();
        assert!(read.expect("a bound").is_none());
    }
}
