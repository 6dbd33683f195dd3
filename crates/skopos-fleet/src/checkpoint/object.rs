//! Checkpoint store in a bucket of S3 or a similar service.

use std::io::{self, Cursor, Read};

use futures::future::BoxFuture;
use skopos_bucket::Bucket;

use super::store::{Content, FileName, Store, StoredFile, blocking};

/// Files below the prefix of the bucket. No other process may use them; nothing enforces that.
impl Store for Bucket {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        Box::pin(async move {
            let (bytes, _) = self.get_object(&file.to_string()).await?;
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
            self.put_object(&file.to_string(), packed.into()).await?;
            Ok(bytes)
        })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.delete_object(&file.to_string()).await })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.rename_object(&from.to_string(), &to.to_string()).await })
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        Box::pin(async move {
            let files = self.list_objects().await?.into_iter().filter_map(|object| {
                // Objects at other depths are of something else.
                let (folder, file) = object.name.split_once('/').filter(|(_, file)| !file.contains('/'))?;
                let (bytes, modified) = (object.bytes, object.modified);
                Some(StoredFile { name: FileName::new(folder, file), bytes, modified })
            });
            Ok(files.collect())
        })
    }
}
