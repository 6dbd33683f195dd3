//! Files in a bucket of S3 or the like.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use tokio::time::timeout;

use super::store::{Content, FileName, Store, StoredFile, blocking};

/// Objects below a prefix, of which this process is the only user: nothing keeps others away.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    limits: BucketLimits,
}

/// What a [`Bucket`] may take.
#[derive(Clone, Copy, Debug)]
pub struct BucketLimits {
    /// How long one object may take to be read or written, its retries included (60 s).
    pub request: Duration,
    /// The most bytes of an object: each is in memory as a whole while it is read or written (512 MiB).
    pub bytes: u64,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self { request: Duration::from_secs(60), bytes: 512 << 20 }
    }
}

// === impl Bucket ===

impl Bucket {
    /// Below `prefix` in a store that is configured already: with its credentials, its retries and its timeouts.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: &str, limits: BucketLimits) -> Self {
        Self { objects, prefix: Path::from(prefix), limits }
    }

    fn path(&self, file: &FileName) -> Path {
        self.prefix.clone().join(file.folder()).join(file.file())
    }

    /// The name of an object, if it is two levels below the prefix.
    fn name(&self, path: &Path) -> Option<FileName> {
        let mut parts = path.prefix_match(&self.prefix)?;
        let (folder, file) = (parts.next()?, parts.next()?);
        parts.next().is_none().then(|| FileName::new(folder.as_ref(), file.as_ref()))
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T, Error>>) -> io::Result<T> {
        match timeout(self.limits.request, call).await {
            Ok(result) => result.map_err(in_io),
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the object store does not answer in time"))
            }
        }
    }

    fn too_large(&self) -> io::Error {
        io::Error::other(format!("it has more than the {} bytes that one object may have", self.limits.bytes))
    }
}

impl Store for Bucket {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        Box::pin(async move {
            let path = self.path(file);
            let bytes: Option<Bytes> = self
                .bounded(async {
                    let found = self.objects.get(&path).await?;
                    match found.meta.size <= self.limits.bytes {
                        true => found.bytes().await.map(Some),
                        false => Ok(None),
                    }
                })
                .await?;
            Ok(Box::new(Cursor::new(bytes.ok_or_else(|| self.too_large())?)) as Box<dyn Read + Send>)
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
            // The store puts the object in its place as a whole.
            self.bounded(self.objects.put(&self.path(file), packed.into())).await?;
            Ok(bytes)
        })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            match self.bounded(self.objects.delete(&self.path(file))).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.bounded(self.objects.rename(&self.path(from), &self.path(to))).await })
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        Box::pin(async move {
            let found = self.bounded(self.objects.list(Some(&self.prefix)).try_collect::<Vec<_>>()).await?;
            let stored = found.into_iter().filter_map(|object| {
                let name = self.name(&object.location)?;
                Some(StoredFile { name, bytes: object.size, modified: object.last_modified.into() })
            });
            Ok(stored.collect())
        })
    }
}

fn in_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({} in {})", self.prefix, self.objects)
    }
}
