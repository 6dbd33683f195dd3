//! Checkpoint store in a bucket of S3 or a similar service.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::store::{Content, FileName, Store, StoredFile, blocking};

/// Objects below a prefix. No other process may use them; nothing enforces that.
///
/// A bucket that hangs or fails repeatedly is not used for a while ([`BucketLimits::pause`]). Until then every call
/// fails at once, so that a run over many files does not wait for each of them. Clones share this state.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    limits: BucketLimits,
    health: Arc<Mutex<Health>>,
}

/// Limits of a [`Bucket`].
#[derive(Clone, Copy, Debug)]
pub struct BucketLimits {
    /// Timeout until the response begins, and between its parts, including retries (3 s).
    pub answer: Duration,
    /// Timeout of reading or writing one whole object, including retries (60 s).
    pub request: Duration,
    /// Time without requests after a timeout, or after three failures in a row (15 s).
    pub pause: Duration,
    /// Limit on the bytes of an object, which is in memory as a whole while it is read or written (512 MiB).
    pub bytes: u64,
}

/// Recent results of the bucket.
#[derive(Default)]
struct Health {
    failures: u32,
    /// The end of the time without requests.
    paused_until: Option<Instant>,
    reason: Option<Arc<str>>,
}

/// Failure of a call.
enum Failure {
    Late,
    TooLarge,
    TooMany,
    Refused(Error),
}

/// Consecutive failures that pause the bucket.
const MAX_FAILURES: u32 = 3;

/// Limit on listed files: a thousand clusters of a hundred resources, with room to spare.
const MAX_FILES: usize = 1_000_000;

impl Default for BucketLimits {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(3),
            request: Duration::from_secs(60),
            pause: Duration::from_secs(15),
            bytes: 512 << 20,
        }
    }
}

impl Bucket {
    /// Creates a store below `prefix` in a configured object store: with its credentials, retries and timeouts.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: &str, limits: BucketLimits) -> Self {
        Self { objects, prefix: Path::from(prefix), limits, health: Arc::default() }
    }

    /// Returns the same store with a longer prefix.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        Self { prefix: self.prefix.clone().join(folder), ..self.clone() }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &BucketLimits {
        &self.limits
    }

    fn path(&self, file: &FileName) -> Path {
        self.prefix.clone().join(file.folder()).join(file.file())
    }

    /// Returns the name of an object, if it is two levels below the prefix.
    fn name(&self, path: &Path) -> Option<FileName> {
        let mut parts = path.prefix_match(&self.prefix)?;
        let (folder, file) = (parts.next()?, parts.next()?);
        parts.next().is_none().then(|| FileName::new(folder.as_ref(), file.as_ref()))
    }

    /// Calls the bucket, for at most `limit` in all, unless it is paused.
    async fn ask<T>(&self, limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> io::Result<T> {
        if let Some(reason) = self.health.lock().pause() {
            let problem = format!("it is not asked for a while: {reason}");
            return Err(io::Error::new(io::ErrorKind::NotConnected, problem));
        }
        let result = timeout(limit, call).await.unwrap_or(Err(Failure::Late));
        let grave = match &result {
            Ok(_) | Err(Failure::TooLarge | Failure::TooMany | Failure::Refused(Error::NotFound { .. })) => 0,
            Err(Failure::Refused(_)) => 1,
            // Another attempt would take as long.
            Err(Failure::Late) => MAX_FAILURES,
        };
        let result = result.map_err(|failure| self.in_io(failure));
        let reason = result.as_ref().err().map(ToString::to_string);
        self.health.lock().note(grave, reason, self.limits.pause);
        result
    }

    fn too_large(&self) -> io::Error {
        io::Error::other(format!("it has more than the {} bytes that one object may have", self.limits.bytes))
    }

    fn in_io(&self, failure: Failure) -> io::Error {
        match failure {
            Failure::Late => {
                io::Error::new(io::ErrorKind::TimedOut, "the object store does not answer in time")
            }
            Failure::TooLarge => self.too_large(),
            Failure::TooMany => io::Error::other(format!("there are more than {MAX_FILES} objects")),
            Failure::Refused(error) => {
                let kind = match &error {
                    Error::NotFound { .. } => io::ErrorKind::NotFound,
                    Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                        io::ErrorKind::PermissionDenied
                    }
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, error)
            }
        }
    }

    async fn get(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        let within = self.limits.answer;
        let found = timeout(within, self.objects.get(path)).await.map_err(|_| Failure::Late)??;
        let size = found.meta.size;
        if size > self.limits.bytes {
            return Err(Failure::TooLarge);
        }
        let mut bytes = Vec::new();
        let mut parts = found.into_stream();
        while let Some(part) = next(&mut parts, within).await? {
            if (bytes.len() + part.len()) as u64 > self.limits.bytes {
                return Err(Failure::TooLarge);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }

    async fn all(&self) -> Result<Vec<StoredFile>, Failure> {
        let mut objects = self.objects.list(Some(&self.prefix));
        let mut files = Vec::new();
        while let Some(object) = next(&mut objects, self.limits.answer).await? {
            if files.len() == MAX_FILES {
                return Err(Failure::TooMany);
            }
            if let Some(name) = self.name(&object.location) {
                let (bytes, modified) = (object.size, object.last_modified.into());
                files.push(StoredFile { name, bytes, modified });
            }
        }
        Ok(files)
    }
}

impl Store for Bucket {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        Box::pin(async move {
            let bytes = self.ask(self.limits.request, self.get(&self.path(file))).await?;
            Ok(Box::new(Cursor::new(bytes)) as Box<dyn Read + Send>)
        })
    }

    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let packed = blocking(move || {
                let mut packed = Vec::new();
                content.write_to(&mut packed)?;
                Ok(packed)
            });
            let packed = packed.await?;
            let bytes = packed.len() as u64;
            if bytes > self.limits.bytes {
                return Err(self.too_large());
            }
            // The store replaces the object atomically.
            let path = self.path(file);
            let putting = async { Ok(self.objects.put(&path, packed.into()).await?) };
            self.ask(self.limits.request, putting).await?;
            Ok(bytes)
        })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.path(file);
            let removing = async { Ok(self.objects.delete(&path).await?) };
            match self.ask(self.limits.answer, removing).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (from, to) = (self.path(from), self.path(to));
            let renaming = async { Ok(self.objects.rename(&from, &to).await?) };
            self.ask(self.limits.request, renaming).await
        })
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        Box::pin(self.ask(self.limits.request, self.all()))
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({} in {})", self.prefix, self.objects)
    }
}

/// Returns the next part of a response, if it arrives in time.
async fn next<T>(
    parts: &mut (impl Stream<Item = Result<T, Error>> + Unpin),
    within: Duration,
) -> Result<Option<T>, Failure> {
    let part = timeout(within, parts.next()).await.map_err(|_| Failure::Late)?;
    part.transpose().map_err(Failure::Refused)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Health {
    /// Returns the reason if the bucket is paused now.
    fn pause(&mut self) -> Option<Arc<str>> {
        let until = self.paused_until?;
        if Instant::now() < until {
            return self.reason.clone();
        }
        self.paused_until = None;
        None
    }

    /// Records the end of a call that counts as this number of failures.
    fn note(&mut self, failures: u32, reason: Option<String>, pause: Duration) {
        if failures == 0 {
            *self = Self::default();
            return;
        }
        self.failures += failures;
        // After a pause one failure is enough.
        if self.failures >= MAX_FAILURES {
            self.failures = MAX_FAILURES - 1;
            self.paused_until = Some(Instant::now() + pause);
            self.reason = reason.map(Into::into);
        }
    }
}
