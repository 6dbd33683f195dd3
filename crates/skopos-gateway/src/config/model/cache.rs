//! What is kept in memory.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use skopos_config::{ByteSize, Span};

/// What is kept in memory.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cache {
    /// A read that asks for the newest state is answered from memory if that is proven to be at most so old.
    pub max_age: Span,
    /// How long such a read waits for the cluster where memory is older, before it gets what there is with a warning.
    pub member_deadline: Span,
    /// How new the answers to reads without a `resourceVersion` are. A request can ask for consistent answers by the header
    /// `Cache-Control: no-cache`.
    pub reads: Reads,
    /// The same for single clusters, by their names.
    pub reads_of: BTreeMap<String, Reads>,
    /// How long the first read of a kind waits until it is in memory, before it goes to the cluster.
    pub first_use_deadline: Span,
    /// Kinds that are kept from the start.
    pub kinds: Vec<Kind>,
    /// Kinds that are never kept, in any version: every read of them goes to the cluster.
    pub never: Vec<Kind>,
    /// Whether Secrets are kept.
    pub secrets: bool,
    /// Whether managed fields are kept, which are often half of an object.
    pub managed_fields: ManagedFields,
    /// A kind that nobody has read for so long is dropped.
    pub idle_stop: Span,
    /// JSON in memory per cluster; the coldest kinds go first.
    pub bytes_per_cluster: ByteSize,
    /// What is kept of compressed objects, for lists with gzip, of all clusters together; counted with the objects
    /// themselves, which are in memory anyway as long as they are current.
    pub compressed_bytes: ByteSize,
}

/// How new the answers to reads without a `resourceVersion` are. Whatever it is, such a read holds what was written through the
/// gateway before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Reads {
    /// At most `cache.maxAge` old.
    #[default]
    Bounded,
    /// As an API server's: they hold all that was committed before the request. A probe of the cluster proves that, one for all
    /// who wait, so each read takes a round trip to the cluster. While the cluster does not answer, such reads fail.
    Consistent,
}

/// Whether managed fields (`metadata.managedFields`) are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ManagedFields {
    /// Kept where writes go through the gateway (`outbound.impersonate`, or `loopback: Trusted`).
    #[default]
    KeepForWriters,
    /// Never kept: lists and watches have none. Where writes go through, single objects are read from the cluster.
    Drop,
}

/// A kind, by its resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// The API group; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("format" = "maybe-empty"))]
    pub group: String,
    /// The version.
    #[serde(default = "Kind::v1")]
    pub version: String,
    /// The resource, in the plural: `pods`.
    pub resource: String,
}

// === impl Cache ===

impl Cache {
    /// Whether objects of a kind may be in memory, and on disk.
    #[must_use]
    pub fn keeps(&self, group: &str, resource: &str) -> bool {
        let secret = group.is_empty() && resource == "secrets";
        let named = |kind: &Kind| kind.group == group && kind.resource == resource;
        (!secret || self.secrets) && !self.never.iter().any(named)
    }

    /// Returns how new the answers of a cluster are.
    #[must_use]
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
            compressed_bytes: ByteSize::mebibytes(256),
        }
    }
}

// === impl Kind ===

impl Kind {
    fn v1() -> String {
        "v1".into()
    }
}
