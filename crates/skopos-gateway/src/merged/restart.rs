//! State that a process saves so that watchers can resume from the next process: each member's position at a mark.
//!
//! A few dozen bytes per member, written as a whole. The objects are in the members' checkpoints, not here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;
use skopos_wire::ResourceVersion;

use super::contents::Contents;
use super::mark::{Maker, Mark};
use super::merger::Position;

/// The position of a merged history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The mark up to which `members` covers everything.
    pub(crate) mark: Mark,
    /// The makers of the marks: the process that wrote this, and those before it, newest first.
    pub(crate) makers: Vec<Maker>,
    /// The upper bound of all marks given out.
    pub(crate) ceiling: Mark,
    /// The members that had content.
    pub(crate) members: BTreeMap<ClusterId, Stand>,
    /// Members whose objects vanished without being deleted, and when.
    pub(crate) vanished: BTreeMap<ClusterId, Mark>,
}

/// The position of one member: its content was unchanged since the mark `changed`, and at all its versions between `from`
/// and `to`. Versions are meaningful only in the cluster with this identity; without a known identity, no watcher can
/// resume. A version does not determine the content where several changes share it (etcd deletes all keys of an expired
/// lease at once): the member may have sent only some of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) changed: Mark,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) epoch: u64,
    pub(crate) from: ResourceVersion,
    pub(crate) to: ResourceVersion,
    /// The digest of the content, as text.
    pub(crate) content: String,
}

/// The reason for not using a restart file. Watchers from before get 410, and nothing else is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RestartError {
    /// The file does not begin with the expected header.
    #[error("no restart file, or one of another version")]
    Foreign,
    /// The file is incomplete, or was changed after it was written.
    #[error("the checksum is wrong: the file is torn or damaged")]
    Damaged,
    /// The text is not in the gateway's format.
    #[error("the content is none that a gateway writes")]
    Malformed,
}

// === impl Stand ===

impl Stand {
    /// Returns whether the member's history continues unbroken from this position to `position`, in the same cluster.
    pub(crate) fn leads_to(&self, position: &Position) -> bool {
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
    pub(crate) fn has(&self, contents: &Contents) -> bool {
        self.content == contents.digest().to_string()
    }
}

// === impl Standing ===

impl Standing {
    /// Returns whether `members` determines the content at this mark.
    pub(crate) fn covers(&self, mark: Mark) -> bool {
        mark <= self.mark && self.makers.contains(&mark.maker())
    }

    /// Encodes the state: a header line, the checksum of the rest, the rest as JSON.
    pub(crate) fn encode(&self, kind: &str) -> Vec<u8> {
        let members = self.members.iter().map(|(id, stand)| WireStand {
            cluster: id.to_string(),
            changed: stand.changed.number(),
            identity: stand.identity.as_deref().map(str::to_owned),
            epoch: stand.epoch,
            from: stand.from.to_string(),
            to: stand.to.to_string(),
            content: stand.content.clone(),
        });
        let wire = Wire {
            kind: kind.to_owned(),
            mark: self.mark.number(),
            makers: self.makers.iter().map(|maker| maker.number()).collect(),
            ceiling: self.ceiling.number(),
            members: members.collect(),
            vanished: self.vanished.iter().map(|(id, mark)| (id.to_string(), mark.number())).collect(),
        };
        // Strings and numbers always serialize.
        let body = serde_json::to_vec(&wire).unwrap_or_default();
        [HEAD, &Sha256::digest(&body)[..], &body].concat()
    }

    /// Decodes the output of [`encode`](Self::encode) for the same kind.
    pub(crate) fn decode(bytes: &[u8], kind: &str) -> Result<Self, RestartError> {
        let rest = bytes.strip_prefix(HEAD).ok_or(RestartError::Foreign)?;
        let (checksum, body) = rest.split_at_checked(CHECKSUM).ok_or(RestartError::Damaged)?;
        if Sha256::digest(body)[..] != *checksum {
            return Err(RestartError::Damaged);
        }
        let wire: Wire = serde_json::from_slice(body).map_err(|_| RestartError::Malformed)?;
        if wire.kind != kind {
            return Err(RestartError::Foreign);
        }
        let member = |stand: WireStand| {
            let id = ClusterId::new(&stand.cluster).ok()?;
            let (from, to) = (stand.from.parse().ok()?, stand.to.parse().ok()?);
            let (changed, identity) = (Mark::new(stand.changed), stand.identity.map(Into::into));
            let WireStand { epoch, content, .. } = stand;
            Some((id, Stand { changed, identity, epoch, from, to, content }))
        };
        let members = wire.members.into_iter().map(member).collect::<Option<_>>();
        let gone = |(id, mark): (String, u64)| Some((ClusterId::new(id).ok()?, Mark::new(mark)));
        let vanished = wire.vanished.into_iter().map(gone).collect::<Option<_>>();
        Ok(Self {
            mark: Mark::new(wire.mark),
            makers: wire.makers.into_iter().map(|maker| Maker::new(maker.into())).collect(),
            ceiling: Mark::new(wire.ceiling.max(wire.mark)),
            members: members.ok_or(RestartError::Malformed)?,
            vanished: vanished.ok_or(RestartError::Malformed)?,
        })
    }
}

const HEAD: &[u8] = b"skopos merged 3\n";

/// Length of a SHA-256 digest in bytes.
const CHECKSUM: usize = 32;

#[derive(Serialize, Deserialize)]
struct Wire {
    kind: String,
    mark: u64,
    makers: Vec<u16>,
    ceiling: u64,
    members: Vec<WireStand>,
    vanished: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct WireStand {
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

    fn standing() -> Standing {
        let stand = Stand {
            changed: Mark::new(7),
            identity: Some("uid 1".into()),
            epoch: 2,
            from: 40.into(),
            to: "18446744073709551616".parse().unwrap(),
            content: Contents::default().digest().to_string(),
        };
        Standing {
            mark: Mark::new(9),
            makers: vec![Maker::new(3), Maker::new(1)],
            ceiling: Mark::new(90),
            members: [(ClusterId::new("a").unwrap(), stand)].into(),
            vanished: [(ClusterId::new("b").unwrap(), Mark::new(8))].into(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = standing().encode("v1 pods");
        assert_eq!(Standing::decode(&bytes, "v1 pods"), Ok(standing()));
        assert_eq!(Standing::decode(&bytes, "v1 nodes"), Err(RestartError::Foreign));
    }

    #[test]
    fn a_torn_changed_or_foreign_file_is_refused() {
        let bytes = standing().encode("v1 pods");
        for cut in 0..bytes.len() {
            assert!(Standing::decode(&bytes[..cut], "v1 pods").is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Standing::decode(&changed, "v1 pods").is_err(), "{at}");
        }
        assert_eq!(Standing::decode(b"hello", "v1 pods"), Err(RestartError::Foreign));
    }

    #[test]
    fn content_is_the_same_between_two_versions_of_one_epoch() {
        let stand = standing().members.into_values().next().unwrap();
        let of = |identity: Option<&str>, epoch, version: u64| Position {
            identity: identity.map(Into::into),
            epoch,
            version: version.into(),
        };
        let at = |epoch, version| of(Some("uid 1"), epoch, version);
        assert!(stand.is_at(&at(2, 40)) && stand.is_at(&at(2, 41)));
        assert!(!stand.is_at(&at(2, 39)) && !stand.is_at(&at(1, 40)));
        assert!(!stand.is_at(&of(Some("uid 2"), 2, 40)), "another cluster of its name");
        assert!(!stand.is_at(&of(None, 2, 40)), "nobody knows which");
        let unknown = Stand { identity: None, ..stand };
        assert!(!unknown.is_at(&of(None, 2, 40)), "nor knew it then");
    }
}
