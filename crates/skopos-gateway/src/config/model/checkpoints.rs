//! Checkpoints: the content of memory, written for the next process.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_bucket::BucketConfig;
use skopos_config::{ByteSize, Span};

/// Storage of checkpoints: a folder or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoints {
    /// The folder. It must be used by this gateway alone and readable by no other user, because it has the clusters' content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub folder: Option<PathBuf>,
    /// An S3-compatible bucket in place of a folder. The prefix must be used by this gateway alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketConfig>,
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
