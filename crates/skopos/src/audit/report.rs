//! The report of an audit.

use std::fmt;
use std::time::Duration;

use skopos_wire::ResourceVersion;
use tokio::time::Instant;

use super::compare::Difference;
use crate::error::AuditError;
use crate::informer::resource::ResourceId;
use crate::store::Digest;

/// The report of an audit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditReport {
    /// The resource.
    pub resource: ResourceId,
    /// The time at which the audit began.
    pub began: Instant,
    /// The duration of the audit.
    pub took: Duration,
    /// The revision of the server's list; of a set of namespaces, the lowest of those that were compared.
    pub resource_version: ResourceVersion,
    /// The number of objects in the list.
    pub listed: usize,
    /// The digest of the list.
    pub digest: Digest,
    /// The number of objects that differ. If there are any, the content is being listed again.
    pub differences: usize,
    /// Some of the differing objects.
    pub examples: Vec<Difference>,
    /// True if everything was compared, and the store reached the list's revision in time. If it did not, objects that the
    /// store should no longer have, or should have in a newer version, were not looked for.
    pub complete: bool,
    /// The namespaces of a set that were not compared: nothing is known about them.
    pub not_compared: Vec<NotCompared>,
}

/// A namespace of a set that was not compared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotCompared {
    /// The namespace; `None` if the informer covers all.
    pub namespace: Option<String>,
    /// The reason.
    pub error: AuditError,
}

impl NotCompared {
    pub(super) fn new(namespace: Option<String>, error: AuditError) -> Self {
        Self { namespace, error }
    }
}

impl AuditReport {
    /// Returns whether no compared object differs.
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
        if !self.complete {
            f.write_str(" (not completely compared)")?;
        }
        self.not_compared.iter().try_for_each(|part| write!(f, "; {part}"))
    }
}

impl fmt::Display for NotCompared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or("all namespaces");
        write!(f, "{namespace} not compared: {}", self.error)
    }
}
