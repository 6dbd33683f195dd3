use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::health::{Health, MAX_FAILURES};

/// Objects below a prefix. A name has parts of any text, with a `/` between.
///
/// A bucket that hangs or fails repeatedly is not used for a while ([`BucketLimits::pause`]). Until then every call
/// fails at once, so that a run over many objects does not wait for each of them. Clones share this state.
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

/// A listed object.
#[derive(Clone, Debug)]
pub struct BucketObject {
    /// Its name below the prefix.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The time of the last write.
    pub modified: SystemTime,
}

/// The version of an object: its `ETag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion(UpdateVersion);

impl ObjectVersion {
    /// Returns a version that no object has. A write on its condition shows whether the service refuses it.
    pub fn absent() -> Self {
        Self(UpdateVersion { e_tag: Some("\"of-no-object\"".into()), version: None })
    }
}

/// Failure of a call.
enum Failure {
    Late,
    TooLarge,
    TooMany,
    Refused(Error),
}

/// Limit on listed objects: checkpoints of a thousand clusters of a hundred resources, with room to spare.
const MAX_OBJECTS: usize = 1_000_000;

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
    /// Uses the objects below `prefix` of a configured object store: with its credentials, retries and timeouts.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: &str, limits: BucketLimits) -> Self {
        Self { objects, prefix: Path::from(prefix), limits, health: Arc::default() }
    }

    /// Returns the same bucket with a longer prefix.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        Self { prefix: self.prefix.clone().join(folder), ..self.clone() }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &BucketLimits {
        &self.limits
    }

    /// Reads an object.
    ///
    /// # Errors
    /// If there is none (of the kind `NotFound`), or it cannot be read within the limits.
    pub async fn get_object(&self, name: &str) -> io::Result<(Vec<u8>, ObjectVersion)> {
        self.ask(self.limits.request, self.get(&self.path(name))).await
    }

    /// Writes an object, in place of one that exists. A reader finds all of the old or all of the new.
    ///
    /// # Errors
    /// If it is not known to be written. It may be written nevertheless, also later.
    pub async fn put_object(&self, name: &str, content: Bytes) -> io::Result<()> {
        self.check_size(&content)?;
        let path = self.path(name);
        let putting = async { Ok(self.objects.put(&path, content.into()).await?) };
        self.ask(self.limits.request, putting).await.map(drop)
    }

    /// Writes an object if it still has this version, or, with `None`, if it does not exist. Returns its new version, or
    /// `None` if it has another one and is unchanged.
    ///
    /// `None` is also returned if the answer to an earlier attempt of this very call was lost. The content tells.
    ///
    /// # Errors
    /// If it is not known to be written. It may be written nevertheless, also later.
    pub async fn put_object_if(
        &self,
        name: &str,
        content: Bytes,
        version: Option<&ObjectVersion>,
    ) -> io::Result<Option<ObjectVersion>> {
        self.check_size(&content)?;
        let path = self.path(name);
        let mode = version.map_or(PutMode::Create, |version| PutMode::Update(version.0.clone()));
        let options = PutOptions { mode, ..PutOptions::default() };
        let putting = async {
            match self.objects.put_opts(&path, content.into(), options).await {
                Ok(put) => Ok(Some(ObjectVersion(put.into()))),
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotModified { .. }) => {
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            }
        };
        self.ask(self.limits.request, putting).await
    }

    /// Deletes an object, if it exists.
    ///
    /// # Errors
    /// If it is not known to be deleted.
    pub async fn delete_object(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let deleting = async { Ok(self.objects.delete(&path).await?) };
        match self.ask(self.limits.answer, deleting).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Renames an object, and replaces an existing one of the new name.
    ///
    /// # Errors
    /// If it is not known to be renamed.
    pub async fn rename_object(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        let renaming = async { Ok(self.objects.rename(&from, &to).await?) };
        self.ask(self.limits.request, renaming).await
    }

    /// Returns all objects below the prefix.
    ///
    /// # Errors
    /// If they cannot be listed within the limits, or are more than a million.
    pub async fn list_objects(&self) -> io::Result<Vec<BucketObject>> {
        self.ask(self.limits.request, self.all()).await
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Returns the name of an object below the prefix.
    fn name(&self, path: &Path) -> Option<String> {
        let parts: Vec<_> = path.prefix_match(&self.prefix)?.collect();
        Some(parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/"))
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
        let result = result.map_err(|failure| self.io_error(failure));
        let reason = result.as_ref().err().map(ToString::to_string);
        self.health.lock().note(grave, reason, self.limits.pause);
        result
    }

    fn check_size(&self, content: &Bytes) -> io::Result<()> {
        match content.len() as u64 > self.limits.bytes {
            true => Err(self.io_error(Failure::TooLarge)),
            false => Ok(()),
        }
    }

    fn io_error(&self, failure: Failure) -> io::Error {
        match failure {
            Failure::Late => {
                io::Error::new(io::ErrorKind::TimedOut, "the object store does not answer in time")
            }
            Failure::TooLarge => io::Error::other(format!(
                "it has more than the {} bytes that one object may have",
                self.limits.bytes
            )),
            Failure::TooMany => io::Error::other(format!("there are more than {MAX_OBJECTS} objects")),
            Failure::Refused(error) => {
                let kind = match &error {
                    Error::NotFound { .. } => io::ErrorKind::NotFound,
                    Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                        io::ErrorKind::PermissionDenied
                    }
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, without_attempts(&error))
            }
        }
    }

    async fn get(&self, path: &Path) -> Result<(Vec<u8>, ObjectVersion), Failure> {
        let within = self.limits.answer;
        let found = timeout(within, self.objects.get(path)).await.map_err(|_| Failure::Late)??;
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        if found.meta.size > self.limits.bytes {
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
        Ok((bytes, ObjectVersion(version)))
    }

    async fn all(&self) -> Result<Vec<BucketObject>, Failure> {
        let mut objects = self.objects.list(Some(&self.prefix));
        let mut listed = Vec::new();
        while let Some(object) = next(&mut objects, self.limits.answer).await? {
            if listed.len() == MAX_OBJECTS {
                return Err(Failure::TooMany);
            }
            if let Some(name) = self.name(&object.location) {
                listed.push(BucketObject { name, bytes: object.size, modified: object.last_modified.into() });
            }
        }
        Ok(listed)
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({} in {})", self.prefix, self.objects)
    }
}

/// Returns the text of an error without the times and counts of its attempts: the same problem has the same text each time.
fn without_attempts(mut error: &(dyn std::error::Error + 'static)) -> String {
    while let Some(source) = error.source()
        && error.to_string().contains("Error performing")
    {
        error = source;
    }
    error.to_string()
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
