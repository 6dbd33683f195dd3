//! Access to an S3-compatible bucket, as named in the configuration.
//!
//! | module | its one idea |
//! |---|---|
//! | `location` | parsing of the URLs in the configuration; pure |
//! | `http` | the requests of `object_store`, over the project's own connections |
//! | `credentials` | credentials of the requests: from files, or from the environment of the process |
//!
//! No request is sent here. Errors of the bucket show when it is used.

mod credentials;
mod http;
mod location;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::env;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use skopos_fleet::checkpoint::{Bucket, BucketLimits};

use self::credentials::{Environment, FileCredentials};
use self::http::Connector;
pub(crate) use self::location::{BucketLocation, Endpoint};
use crate::config::BucketSource;

/// Opens the bucket that `source` names. Reads files; connects to nothing.
///
/// # Errors
/// If the bucket cannot be used as configured. The message contains no credentials.
pub(crate) fn open(source: &BucketSource, environment: Environment<'_>) -> Result<Bucket, String> {
    let location = BucketLocation::parse(&source.url)?;
    let limits =
        BucketLimits { answer: source.answer.0, request: source.deadline.0, ..BucketLimits::default() };
    let endpoint =
        source.endpoint.as_deref().map(|url| Endpoint::parse(url, source.allow_http)).transpose()?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: limits.answer / 20,
            max_backoff: limits.answer / 4,
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: limits.request,
    };
    // By default only TLS is allowed.
    let clear = endpoint.as_ref().is_some_and(Endpoint::is_clear);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(location.bucket)
        .with_retry(retry)
        // Not every service supports bulk deletion.
        .with_disable_bulk_delete(true)
        .with_client_options(ClientOptions::new().with_allow_http(clear))
        .with_http_connector(Connector::new(source, endpoint.as_ref(), &limits)?);
    builder = match &source.credentials {
        Some(files) => builder.with_credentials(Arc::new(FileCredentials::new(files))),
        None => environment.complete(builder),
    };
    if let Some(region) = source.region.clone().or_else(|| environment.region()) {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.url());
    }
    let objects = builder.build().map_err(|error| error.to_string())?;
    Ok(Bucket::new(Arc::new(objects), location.prefix, limits))
}

/// Returns the environment of the process.
pub(crate) fn environment() -> Environment<'static> {
    Environment::new(&|name| env::var(name).ok())
}
