use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::Span;

use crate::credentials::{BucketCredentials, Environment, FileCredentials};
use crate::http::Connector;
use crate::location::{BucketLocation, Endpoint};
use crate::{Bucket, BucketLimits};

/// An S3-compatible bucket. Nothing else may be below the prefix. Everyone with access to it can read the clusters' content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketConfig {
    /// Bucket and prefix: `s3://BUCKET/PREFIX`.
    pub url: String,
    /// The service, as `https://HOST[:PORT]`. The bucket is named in the path. Default: AWS in the region.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region. Default: `AWS_REGION` of the environment, then us-east-1.
    #[serde(default)]
    pub region: Option<String>,
    /// PEM file with the CAs of the endpoint. Default: the system's.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// Credentials of the requests. Default: those of the process environment (`AWS_ACCESS_KEY_ID` and the like), then the
    /// machine's own credentials service.
    #[serde(default)]
    pub credentials: Option<BucketCredentials>,
    /// Allow plain HTTP to an endpoint beyond this machine. Anyone on the network path can then read the clusters' content.
    #[serde(default)]
    pub allow_http: bool,
    /// Time in which the bucket must begin to answer; at most 10s. After a timeout the bucket is not used for a while.
    #[serde(default = "BucketConfig::answer")]
    pub answer: Span,
    /// Deadline for reading or writing one object.
    #[serde(default = "BucketConfig::deadline")]
    pub deadline: Span,
}

/// The maximum time until the bucket answers. What waits for it right after the start waits this long.
const MAX_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl BucketConfig {
    /// Returns what cannot be as configured: pairs of a field and its problem.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if let Err(problem) = BucketLocation::parse(&self.url) {
            problems.push(("url", problem));
        }
        if let Err(problem) = self.parsed_endpoint() {
            problems.push(("endpoint", problem));
        }
        if self.answer.0.is_zero() || self.answer.0 > MAX_ANSWER_TIMEOUT {
            let most = Span(MAX_ANSWER_TIMEOUT);
            problems.push(("answer", format!("must be more than nothing and at most {most}")));
        }
        if self.deadline.0 < self.answer.0 {
            problems.push(("deadline", "must be at least as long as answer".into()));
        }
        problems
    }

    /// Opens the bucket, with the environment of the process. Reads files; connects to nothing.
    ///
    /// # Errors
    /// If the bucket cannot be used as configured. The message contains no credentials.
    pub fn open(&self) -> Result<Bucket, String> {
        self.open_in(Environment::new(&|name| env::var(name).ok()))
    }

    /// Opens the bucket, with this environment.
    pub(crate) fn open_in(&self, environment: Environment<'_>) -> Result<Bucket, String> {
        let location = BucketLocation::parse(&self.url)?;
        let limits =
            BucketLimits { answer: self.answer.0, request: self.deadline.0, ..BucketLimits::default() };
        let endpoint = self.parsed_endpoint()?;
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
            .with_http_connector(Connector::new(self.ca.as_deref(), endpoint.as_ref(), &limits)?);
        builder = match &self.credentials {
            Some(files) => builder.with_credentials(Arc::new(FileCredentials::new(files))),
            None => environment.complete(builder),
        };
        if let Some(region) = self.region.clone().or_else(|| environment.region()) {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint.url());
        }
        let objects = builder.build().map_err(|error| error.to_string())?;
        Ok(Bucket::new(Arc::new(objects), location.prefix, limits))
    }

    /// Returns the files whose content is read when the bucket is opened.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.ca.as_deref().into_iter()
    }

    fn parsed_endpoint(&self) -> Result<Option<Endpoint>, String> {
        self.endpoint.as_deref().map(|url| Endpoint::parse(url, self.allow_http)).transpose()
    }

    fn answer() -> Span {
        Span::seconds(3)
    }

    fn deadline() -> Span {
        Span::seconds(60)
    }
}
