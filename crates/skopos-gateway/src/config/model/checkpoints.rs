//! Where what is in memory is kept for the next process.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use skopos_config::{ByteSize, Span};

/// Where stores are written to: a folder or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoints {
    /// The folder: of this gateway alone, and readable by nobody else, for it holds what the clusters hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub folder: Option<PathBuf>,
    /// A bucket of S3 or the like in place of a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketSource>,
    /// How often what has changed is written.
    #[serde(default = "Checkpoints::every")]
    pub every: Span,
    /// Most JSON of one kind of one cluster: what has more is not written.
    #[serde(default = "Checkpoints::kind_bytes")]
    pub kind_bytes: ByteSize,
    /// Most bytes of all files together: above it no further kinds are written.
    #[serde(default = "Checkpoints::total_bytes")]
    pub total_bytes: ByteSize,
    /// How long files stay of clusters that no source has named since.
    #[serde(default = "Checkpoints::retain")]
    pub retain: Span,
}

/// A bucket of S3 or the like. What is below the prefix is of this gateway alone, and whoever can read it reads what the
/// clusters hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketSource {
    /// Which, and below which prefix: `s3://BUCKET/PREFIX`.
    pub url: String,
    /// The service, by `https://HOST[:PORT]`; that of AWS in the region if absent. The bucket is asked for in the path.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region; that of the environment (`AWS_REGION`) if absent, and us-east-1 where there is none either.
    #[serde(default)]
    pub region: Option<String>,
    /// PEM file with the CAs of the endpoint; the system's if absent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// Whose the requests are; if absent, what the environment of the process says (`AWS_ACCESS_KEY_ID` and the like), and
    /// otherwise the machine's own service for credentials.
    #[serde(default)]
    pub credentials: Option<BucketCredentials>,
    /// Whether an endpoint beyond this machine may go without TLS, so that whoever is on the way reads what the clusters
    /// hold.
    #[serde(default)]
    pub allow_http: bool,
    /// How long the bucket may take to begin to answer; at most 10s. If it takes longer, it is left alone for a while, and the
    /// clusters are read anew.
    #[serde(default = "BucketSource::answer")]
    pub answer: Span,
    /// How long one object may take to be read or written.
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
    /// File with the session token, where the keys are temporary ones.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_token: Option<PathBuf>,
}

// === impl Checkpoints ===

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

// === impl BucketSource ===

impl BucketSource {
    fn answer() -> Span {
        Span::seconds(3)
    }

    fn deadline() -> Span {
        Span::seconds(60)
    }
}
