//! State that a process saves so that watchers can resume from the next process: each member's position at a merged
//! version.
//!
//! A few dozen bytes per member, written as a whole. The objects are in the members' checkpoints, not here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;
use skopos_wire::ResourceVersion;

use super::contents::Contents;
use super::merged_version::{InstanceTag, MergedVersion};
use super::merger::Position;

/// The position of a merged history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResumeState {
    /// The merged version up to which `members` covers everything.
    pub(crate) merged_version: MergedVersion,
    /// The gateway instances of the merged versions: the process that wrote this, and those before it, newest first.
    pub(crate) instances: Vec<InstanceTag>,
    /// The upper bound of all merged versions given out.
    pub(crate) ceiling: MergedVersion,
    /// The members that had content.
    pub(crate) members: BTreeMap<ClusterId, MemberState>,
    /// Members whose objects vanished without being deleted, and when.
    pub(crate) vanished: BTreeMap<ClusterId, MergedVersion>,
}

/// The position of one member: its content was unchanged since the merged version `changed`, and at all its versions
/// between `from` and `to`. Versions are meaningful only in the cluster with this identity; without a known identity,
/// no watcher can resume. A version does not determine the content where several changes share it (etcd deletes all
/// keys of an expired lease at once): the member may have sent only some of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub(crate) changed: MergedVersion,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) epoch: u64,
    pub(crate) from: ResourceVersion,
    pub(crate) to: ResourceVersion,
    /// The digest of the content, as text.
    pub(crate) content: String,
}

/// The reason for not using a resume file. Watchers from before get 410, and nothing else is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResumeStateError {
    /// The file does not begin with the expected header.
    #[error("no resume file, or one of another version")]
    Foreign,
    /// The file is incomplete, or was changed after it was written.
    #[error("the checksum is wrong: the file is torn or damaged")]
    Damaged,
    /// The text is not in the gateway's format.
    #[error("the content is none that a gateway writes")]
    Malformed,
}

impl MemberState {
    /// Returns whether the member's history continues unbroken from this position to `position`, in the same cluster.
    pub(crate) fn precedes(&self, position: &Position) -> bool {
        let is_same_cluster = self.identity.is_some() && self.identity == position.identity;
        is_same_cluster && self.epoch == position.epoch && self.to < position.version
    }

    /// Returns whether the member's content at `position` is the recorded one, unless other changes share its version.
    pub(crate) fn is_at(&self, position: &Position) -> bool {
        let is_same_cluster = self.identity.is_some() && self.identity == position.identity;
        is_same_cluster
            && self.epoch == position.epoch
            && (&self.from..=&self.to).contains(&&position.version)
    }

    /// Returns whether the member had these objects.
    pub(crate) fn has_content(&self, contents: &Contents) -> bool {
        self.content == contents.digest().to_string()
    }
}

impl ResumeState {
    /// Returns whether `members` determines the content at this merged version.
    pub(crate) fn covers(&self, merged_version: MergedVersion) -> bool {
        merged_version <= self.merged_version && self.instances.contains(&merged_version.instance())
    }

    /// Encodes the state: a header line, the checksum of the rest, the rest as JSON.
    pub(crate) fn encode(&self, kind: &str) -> Vec<u8> {
        let members = self.members.iter().map(|(id, member)| WireMember {
            cluster: id.to_string(),
            changed: member.changed.number(),
            identity: member.identity.as_deref().map(str::to_owned),
            epoch: member.epoch,
            from: member.from.to_string(),
            to: member.to.to_string(),
            content: member.content.clone(),
        });
        let wire = Wire {
            kind: kind.to_owned(),
            mark: self.merged_version.number(),
            makers: self.instances.iter().map(|instance| instance.number()).collect(),
            ceiling: self.ceiling.number(),
            members: members.collect(),
            vanished: self.vanished.iter().map(|(id, version)| (id.to_string(), version.number())).collect(),
        };
        // Strings and numbers always serialize.
        let body = serde_json::to_vec(&wire).unwrap_or_default();
        [HEADER, &Sha256::digest(&body)[..], &body].concat()
    }

    /// Decodes the output of [`encode`](Self::encode) for the same kind.
    pub(crate) fn decode(bytes: &[u8], kind: &str) -> Result<Self, ResumeStateError> {
        let rest = bytes.strip_prefix(HEADER).ok_or(ResumeStateError::Foreign)?;
        let (checksum, body) = rest.split_at_checked(CHECKSUM_LEN).ok_or(ResumeStateError::Damaged)?;
        if Sha256::digest(body)[..] != *checksum {
            return Err(ResumeStateError::Damaged);
        }
        let wire: Wire = serde_json::from_slice(body).map_err(|_| ResumeStateError::Malformed)?;
        if wire.kind != kind {
            return Err(ResumeStateError::Foreign);
        }
        let member = |member: WireMember| {
            let id = ClusterId::new(&member.cluster).ok()?;
            let (from, to) = (member.from.parse().ok()?, member.to.parse().ok()?);
            let (changed, identity) = (MergedVersion::new(member.changed), member.identity.map(Into::into));
            let WireMember { epoch, content, .. } = member;
            Some((id, MemberState { changed, identity, epoch, from, to, content }))
        };
        let members = wire.members.into_iter().map(member).collect::<Option<_>>();
        let gone =
            |(id, version): (String, u64)| Some((ClusterId::new(id).ok()?, MergedVersion::new(version)));
        let vanished = wire.vanished.into_iter().map(gone).collect::<Option<_>>();
        Ok(Self {
            merged_version: MergedVersion::new(wire.mark),
            instances: wire.makers.into_iter().map(|instance| InstanceTag::new(instance.into())).collect(),
            ceiling: MergedVersion::new(wire.ceiling.max(wire.mark)),
            members: members.ok_or(ResumeStateError::Malformed)?,
            vanished: vanished.ok_or(ResumeStateError::Malformed)?,
        })
    }
}

const HEADER: &[u8] = b"skopos merged 3\n";

/// Length of a SHA-256 digest in bytes.
const CHECKSUM_LEN: usize = 32;

#[derive(Serialize, Deserialize)]
struct Wire {
    kind: String,
    mark: u64,
    makers: Vec<u16>,
    ceiling: u64,
    members: Vec<WireMember>,
    vanished: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct WireMember {
    cluster: String,
    changed: u64,
    identity: Option<String>,
    epoch: u64,
    from: String,
    to: String,
    content: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resume_state() -> ResumeState {
        let member = MemberState {
            changed: MergedVersion::new(7),
            identity: Some("uid 1".into()),
            epoch: 2,
            from: 40.into(),
            to: "18446744073709551616".parse().unwrap(),
            content: Contents::default().digest().to_string(),
        };
        ResumeState {
            merged_version: MergedVersion::new(9),
            instances: vec![InstanceTag::new(3), InstanceTag::new(1)],
            ceiling: MergedVersion::new(90),
            members: [(ClusterId::new("a").unwrap(), member)].into(),
            vanished: [(ClusterId::new("b").unwrap(), MergedVersion::new(8))].into(),
        }
    }

    #[test]
    fn encoded_state_round_trips() {
        let bytes = resume_state().encode("v1 pods");
        assert_eq!(ResumeState::decode(&bytes, "v1 pods"), Ok(resume_state()));
        assert_eq!(ResumeState::decode(&bytes, "v1 nodes"), Err(ResumeStateError::Foreign));
    }

    #[test]
    fn a_torn_changed_or_foreign_file_is_refused() {
        let bytes = resume_state().encode("v1 pods");
        for cut in 0..bytes.len() {
            assert!(ResumeState::decode(&bytes[..cut], "v1 pods").is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(ResumeState::decode(&changed, "v1 pods").is_err(), "{at}");
        }
        assert_eq!(ResumeState::decode(b"hello", "v1 pods"), Err(ResumeStateError::Foreign));
    }

    #[test]
    fn content_matches_between_versions_of_one_epoch() {
        let member = resume_state().members.into_values().next().unwrap();
        let of = |identity: Option<&str>, epoch, version: u64| Position {
            identity: identity.map(Into::into),
            epoch,
            version: version.into(),
        };
        let at = |epoch, version| of(Some("uid 1"), epoch, version);
        assert!(member.is_at(&at(2, 40)) && member.is_at(&at(2, 41)));
        assert!(!member.is_at(&at(2, 39)) && !member.is_at(&at(1, 40)));
        assert!(!member.is_at(&of(Some("uid 2"), 2, 40)), "another cluster of its name");
        assert!(!member.is_at(&of(None, 2, 40)), "it is not known which");
        let unknown = MemberState { identity: None, ..member };
        assert!(!unknown.is_at(&of(None, 2, 40)), "nor knew it then");
    }
}
