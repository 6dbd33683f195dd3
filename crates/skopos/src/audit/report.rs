//! What an audit found.

use std::fmt;
use std::time::Duration;

use skopos_wire::ResourceVersion;
use tokio::time::Instant;

use super::compare::Difference;
use crate::resource::ResourceId;
use crate::store::Digest;

/// What an audit found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditReport {
    /// The kind of object.
    pub resource: ResourceId,
    /// When it was begun.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// The revision of the server's list; of a set of namespaces, the lowest.
    pub resource_version: ResourceVersion,
    /// Objects in the list.
    pub listed: usize,
    /// The digest of the list.
    pub digest: Digest,
    /// Objects that differ. If there are any, the content is being listed again.
    pub differences: usize,
    /// Some of them.
    pub examples: Vec<Difference>,
    /// Whether the store reached the revision of the list in time. If not, objects that it should no longer have, or have
    /// in a newer version, were not looked for.
    pub complete: bool,
}

impl AuditReport {
    /// Whether nothing differed.
    pub fn is_clean(&self) -> bool {
        self.differences == 0
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, listed, resource_version, .. } = self;
        write!(f, "{resource}: {listed} objects at resource version {resource_version}, ")?;
        match self.differences {
            0 => f.write_str("no difference")?,
            differences => write!(f, "{differences} differ, listing again")?,
        }
        if self.complete { Ok(()) } else { f.write_str(" (not completely compared)") }
    }
}
