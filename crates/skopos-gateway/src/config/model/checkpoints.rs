//! Checkpoints: the content of memory, written for the next process.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::{ByteSize, Span};

/// Storage of checkpoints: a folder or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoints {
    /// The folder. It must be used by this gateway alone and readable by no other user, because it has the clusters' content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub folder: Option<PathBuf>,
    /// An S3-compatible bucket in place of a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketSource>,
    /// Interval at which changes are written.
    #[serde(default = "Checkpoints::every")]
    pub every: Span,
    /// Maximum JSON of one resource of one cluster. Larger ones are not written.
    #[serde(default = "Checkpoints::kind_bytes")]
    pub kind_bytes: ByteSize,
    /// Maximum size of all files together. Beyond it no further resources are written.
    #[serde(default = "Checkpoints::total_bytes")]
    pub total_bytes: ByteSize,
    /// Time that the files of a cluster stay after no source lists it any more.
    #[serde(default = "Checkpoints::retain")]
    pub retain: Span,
}

/// An S3-compatible bucket. The prefix must be used by this gateway alone. Everyone with access to it can read the clusters'
/// content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketSource {
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
    /// Time in which the bucket must begin to answer; at most 10s. After a timeout the bucket is not used for a while, and the
    /// clusters are read again.
    #[serde(default = "BucketSource::answer")]
    pub answer: Span,
    /// Deadline for reading or writing one object.
    #[serde(default = "BucketSource::deadline")]
    pub deadline: Span,
}

/// Files with the keys of a bucket, each with one word; read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketCredentials {
    /// File with the access key's ID.
    #[schemars(with = "String")]
    pub access_key: PathBuf,
    /// File with the secret access key.
    #[schemars(with = "String")]
    pub secret_key: PathBuf,
    /// File with the session token, for temporary keys.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_token: Option<PathBuf>,
}

impl Checkpoints {
    fn every() -> Span {
        Span::seconds(30)
    }

    fn kind_bytes() -> ByteSize {
        ByteSize::mebibytes(1024)
    }

    fn total_bytes() -> ByteSize {
        ByteSize::mebibytes(16 * 1024)
    }

    fn retain() -> Span {
        Span::seconds(24 * 3600)
    }
}

impl BucketSource {
    fn answer() -> Span {
        Span::seconds(3)
    }

    fn deadline() -> Span {
        Span::seconds(60)
    }
}
