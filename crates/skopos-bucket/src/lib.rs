//! Objects in a bucket of S3 or a similar service. No call waits without a bound, and a bucket that hangs is not used for a
//! while.
//!
//! | module | contents |
//! |---|---|
//! | `bucket` | reads, writes, conditional writes and lists: [`Bucket`] |
//! | `health` | when a bucket is not used for a while; pure |
//! | `config` | a bucket as a configuration file names it: `BucketConfig` (feature `config`) |
//! | `location` | parsing of the URLs in the configuration; pure |
//! | `http` | the requests of `object_store`, over the project's own connections |
//! | `credentials` | credentials of the requests: from files, or from the environment of the process |
//! | `testing` | an S3 server that fails on demand (feature `testing`) |
//!
//! Opening a bucket sends no request. Errors of the bucket show when it is used.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use object_store::memory::InMemory;
//! use skopos_bucket::{Bucket, BucketLimits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let bucket = Bucket::new(Arc::new(InMemory::new()), "some/prefix", BucketLimits::default());
//! let version = bucket.put_object_if("counter", "1".into(), None).await?.expect("there was none");
//! // Another process read "1" too, and writes first.
//! bucket.put_object("counter", "2".into()).await?;
//! assert_eq!(bucket.put_object_if("counter", "2".into(), Some(&version)).await?, None);
//! # Ok(())
//! # }
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod bucket;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "config")]
mod credentials;
mod health;
#[cfg(feature = "config")]
mod http;
#[cfg(feature = "config")]
mod location;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;

pub use self::bucket::{Bucket, BucketLimits, BucketObject, ObjectVersion};
#[cfg(feature = "config")]
pub use self::config::BucketConfig;
#[cfg(feature = "config")]
pub use self::credentials::BucketCredentials;
