//! Settings of the memory cache.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::{ByteSize, Span};

/// The cache in memory.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cache {
    /// Maximum age of memory for reads of the newest state. They are answered from memory if its age is proven to be at most
    /// this.
    pub max_age: Span,
    /// Time that such a read waits for the cluster if memory is older. After that it gets the content of memory with a
    /// warning.
    pub member_deadline: Span,
    /// Recency of the answers to reads without a `resourceVersion`. A request can ask for consistent answers by the header
    /// `Cache-Control: no-cache`.
    pub reads: Reads,
    /// The same for single clusters, by their names.
    pub reads_of: BTreeMap<String, Reads>,
    /// Time that the first read of a resource waits until the resource is in memory, before it goes to the cluster.
    pub first_use_deadline: Span,
    /// Resources kept from the start.
    pub kinds: Vec<Kind>,
    /// Resources that are never kept, in any version. Every read of them goes to the cluster.
    pub never: Vec<Kind>,
    /// Keep Secrets in memory.
    pub secrets: bool,
    /// Managed fields in memory. They are often half of an object.
    pub managed_fields: ManagedFields,
    /// Time without reads after which a resource is dropped from memory.
    pub idle_stop: Span,
    /// Objects in memory per cluster, as they are held. Beyond that the coldest resources are dropped first.
    pub bytes_per_cluster: ByteSize,
    /// Size of one resource's objects in one cluster above which further objects are held compressed. They take a third of the
    /// memory or less, and each read of one takes some microseconds more. Secrets are never compressed.
    pub compact_above: ByteSize,
    /// Encoding of built-in resources that clusters are asked for, and that is kept in memory. Clients get the one that they ask
    /// for in either case. Clusters without protobuf are asked for JSON.
    pub encoding: MemberEncoding,
    /// Memory for parts of lists of all clusters together: objects compressed for lists with gzip, and JSON made from protobuf. It
    /// counts with the objects themselves, which are in memory anyway while they are current.
    pub compressed_bytes: ByteSize,
}

/// Recency of the answers to reads without a `resourceVersion`. In both modes such a read contains all earlier writes through
/// the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Reads {
    /// At most `cache.maxAge` old.
    #[default]
    Bounded,
    /// As the answers of an API server: they contain everything committed before the request. A probe of the cluster proves
    /// that, one for all waiting reads, so each read takes a round trip to the cluster. While the cluster does not answer,
    /// such reads fail.
    Consistent,
}

/// Encoding of built-in resources in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MemberEncoding {
    /// Half the bytes, and a third of the cluster's CPU. Right for clients such as controllers, which ask for protobuf.
    #[default]
    Protobuf,
    /// Right if nearly all clients ask for JSON, and not for gzip.
    Json,
}

/// Handling of managed fields (`metadata.managedFields`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ManagedFields {
    /// Kept where writes go through the gateway (`outbound.impersonate`, or `loopback: Trusted`).
    #[default]
    KeepForWriters,
    /// Never kept: lists and watches have none. Where writes go through, single objects are read from the cluster.
    Drop,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// The API group. Default: the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("format" = "maybe-empty"))]
    pub group: String,
    /// The version.
    #[serde(default = "Kind::v1")]
    pub version: String,
    /// The plural name of the resource: `pods`.
    pub resource: String,
}

impl Cache {
    /// Returns whether objects of a resource may be kept in memory and on disk.
    pub fn keeps(&self, group: &str, resource: &str) -> bool {
        let secret = group.is_empty() && resource == "secrets";
        let named = |kind: &Kind| kind.group == group && kind.resource == resource;
        (!secret || self.secrets) && !self.never.iter().any(named)
    }

    /// Returns the required recency of the answers of a cluster.
    pub fn reads_of(&self, cluster: &str) -> Reads {
        self.reads_of.get(cluster).copied().unwrap_or(self.reads)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            max_age: Span::seconds(60),
            member_deadline: Span::seconds(3),
            reads: Reads::Bounded,
            reads_of: BTreeMap::new(),
            first_use_deadline: Span::seconds(10),
            kinds: Vec::new(),
            never: Vec::new(),
            secrets: false,
            managed_fields: ManagedFields::KeepForWriters,
            idle_stop: Span::seconds(600),
            bytes_per_cluster: ByteSize::mebibytes(256),
            compact_above: ByteSize::mebibytes(64),
            encoding: MemberEncoding::Protobuf,
            compressed_bytes: ByteSize::mebibytes(256),
        }
    }
}

impl Kind {
    fn v1() -> String {
        "v1".into()
    }
}
