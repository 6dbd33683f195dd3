//! Index of the checkpoint files of a cluster.

use std::io::Read;

use serde::{Deserialize, Serialize};
use skopos::ResourceId;

use super::envelope;
use super::refusal::RefusalReason;
use crate::id::ClusterId;

/// Index of a cluster's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The identity to which all content belongs.
    pub(super) identity: String,
    pub(super) kinds: Vec<ResourceId>,
}

const HEAD: &str = "skopos checkpoints 1";

/// Limit on the size of an index: a thousand resources stay far below it.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    cluster: String,
    identity: String,
    kinds: Vec<[String; 4]>,
}

impl Index {
    pub(super) fn encode(&self, cluster: &ClusterId) -> Vec<u8> {
        let kinds = self.kinds.iter().cloned();
        let wire = Wire {
            cluster: cluster.to_string(),
            identity: self.identity.clone(),
            kinds: kinds.map(|kind| [kind.group, kind.version, kind.plural, kind.kind]).collect(),
        };
        // Serializing texts does not fail.
        envelope::wrap(HEAD, &serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Decodes an index. Blocks as long as the reader does.
    pub(super) fn decode(reader: impl Read, cluster: &ClusterId) -> Result<Self, RefusalReason> {
        let body = envelope::unwrap(HEAD, reader, MAX_BYTES)?;
        let wire: Wire =
            serde_json::from_slice(&body).map_err(|error| RefusalReason::Damaged(error.to_string()))?;
        if wire.cluster != cluster.as_str() {
            return Err(RefusalReason::Foreign(format!("of the cluster {}", wire.cluster)));
        }
        let kind = |[group, version, plural, kind]: [String; 4]| ResourceId { group, version, plural, kind };
        Ok(Self { identity: wire.identity, kinds: wire.kinds.into_iter().map(kind).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_decodes_for_same_cluster_only() {
        let id = |name: &str| ClusterId::new(name).unwrap();
        let pods = ResourceId {
            group: String::new(),
            version: "v1".into(),
            plural: "pods".into(),
            kind: "Pod".into(),
        };
        let index = Index { identity: "uid 1".into(), kinds: vec![pods] };
        let bytes = index.encode(&id("a"));
        assert_eq!(Index::decode(&bytes[..], &id("a")).unwrap(), index);
        assert!(matches!(Index::decode(&bytes[..], &id("b")), Err(RefusalReason::Foreign(_))));
    }
}
