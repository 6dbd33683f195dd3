//! A checkpoint: content and its header, written to a file and read from one.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use skopos_wire::{Limits, ObjectKey, RawObject, ResourceVersion};

use super::clock::{RestartClock, WallTime};
use super::error::CheckpointError;
use super::frames::{FrameReader, FrameWriter};
use super::header::{ContentIdentity, Header};
use crate::informer::resource::{ResourceId, Scope};
use crate::store::object::StoredObject;
use crate::store::tree::{Tree, TreeItem};
use crate::store::{Digest, RestoredPart, StoreContent};

/// The content of an informer at one moment, with everything needed to start from it again. Cheap to clone; it holds what a
/// [`Snapshot`](crate::Snapshot) holds.
#[derive(Clone)]
pub struct Checkpoint {
    pub(super) header: Arc<Header>,
    pub(super) content: Arc<StoreContent>,
}

/// A fingerprint of a [`Checkpoint`]'s content: its identity, its RVs, and the versions of its objects. Two equal marks
/// mean equal content, except for a chance of about 2⁻⁶⁴. Valid within one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentMark {
    identity: ContentIdentity,
    parts: Vec<(ResourceVersion, u64)>,
    digest: Digest,
    /// The changes that the digest does not show.
    rewritten: u64,
}

impl ContentMark {
    /// Returns whether both have the same versions of the same objects, at any RVs.
    pub fn has_same_objects(&self, other: &ContentMark) -> bool {
        (&self.identity, self.digest, self.rewritten) == (&other.identity, other.digest, other.rewritten)
    }
}

/// Limits on the content of a file. The defaults suit a resource of 1,000,000 objects.
#[derive(Clone, Debug)]
pub struct CheckpointLimits {
    /// The maximum number of objects (1,000,000).
    pub objects: u64,
    /// The maximum number of bytes of JSON (4 GiB).
    pub bytes: u64,
    /// The maximum number of bytes of JSON of one object ([`Limits::default`]).
    pub object_bytes: usize,
}

impl Default for CheckpointLimits {
    fn default() -> Self {
        Self { objects: 1_000_000, bytes: 4 << 30, object_bytes: Limits::default().max_object_bytes }
    }
}

/// The size of a written checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// The number of objects in the file.
    pub objects: u64,
}

impl Checkpoint {
    /// Writes the checkpoint. Blocks as long as the writer does; takes about a second of CPU time for 500 MB of JSON.
    ///
    /// # Errors
    /// Those of the writer. What was written until then is not a valid checkpoint, and will be refused.
    pub fn write_to(&self, writer: impl Write) -> io::Result<Written> {
        let mut frames = FrameWriter::begin(writer, &self.header.to_json())?;
        for entry in self.content.objects.iter() {
            frames.object(&entry.raw().to_stored())?;
        }
        let bytes = frames.end()?;
        Ok(Written { bytes, objects: self.objects() })
    }

    /// Reads a checkpoint and verifies all of it, to the last bit.
    ///
    /// # Errors
    /// If it cannot be read, is not a checkpoint, or is damaged, cut off or too large.
    pub fn read_from(reader: impl Read, limits: &CheckpointLimits) -> Result<Self, CheckpointError> {
        let (mut frames, header) = FrameReader::begin(reader, limits)?;
        let header = Header::from_json(&header)?;
        let scan = Limits { max_object_bytes: limits.object_bytes, ..Limits::default() };
        let mut entries: Vec<StoredObject> = Vec::new();
        while let Some(json) = frames.object()? {
            let object = RawObject::copy_from(json, &scan)
                .map_err(|error| CheckpointError::Malformed { what: error.to_string() })?;
            header.admits(object.key())?;
            let entry = StoredObject::new(object);
            if entries.last().is_some_and(|last| last.key() >= entry.key()) {
                let what = format!("{} is not in its place", entry.key());
                return Err(CheckpointError::Malformed { what });
            }
            entries.push(entry);
        }
        let parts = header.parts.iter().map(|part| RestoredPart {
            namespace: part.namespace.as_deref().map(Into::into),
            rv: part.resource_version.clone(),
            epoch: part.epoch,
        });
        let content = StoreContent::restored(parts.collect(), Tree::from_sorted(entries));
        Ok(Self { header: Arc::new(header), content: Arc::new(content) })
    }

    /// Returns the resource.
    pub fn resource(&self) -> &ResourceId {
        &self.header.identity.resource
    }

    /// Returns the namespaces that the checkpoint covers.
    pub fn scope(&self) -> &Scope {
        &self.header.identity.scope
    }

    /// Returns the cluster's name, from [`FactoryOptions::cluster`](crate::FactoryOptions::cluster).
    pub fn cluster(&self) -> Option<&str> {
        self.header.identity.cluster.as_deref()
    }

    /// Returns the RV of the content; of a set of namespaces, the lowest.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.content.rv
    }

    /// Returns the epoch of the RV: the stretch of unbroken history that it belongs to.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> u64 {
        self.content.objects.len() as u64
    }

    /// Returns the size of all objects as JSON, in bytes.
    pub fn json_bytes(&self) -> u64 {
        self.content.json_bytes
    }

    /// Returns when the checkpoint was taken, by the clock of that machine.
    pub fn written_at(&self) -> SystemTime {
        self.header.written.wall()
    }

    /// Returns an upper bound on the current age of the content; `None` if it cannot be computed.
    pub fn age(&self, clock: &RestartClock) -> Option<Duration> {
        let now = clock.now();
        let ages = (0..self.header.parts.len()).map(|part| self.age_of(part, &now));
        ages.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Returns whether both have the same versions of the same objects at the same RVs, so that one need not be written
    /// after the other.
    pub fn is_same_content(&self, other: &Checkpoint) -> bool {
        self.mark() == other.mark()
    }

    /// Returns a fingerprint of the content that is small enough to be stored for long.
    pub fn mark(&self) -> ContentMark {
        let parts = self.header.parts.iter().map(|part| (part.resource_version.clone(), part.epoch));
        ContentMark {
            identity: self.header.identity.clone(),
            parts: parts.collect(),
            digest: self.content.digest,
            rewritten: self.content.rewritten,
        }
    }

    pub(crate) fn identity(&self) -> &ContentIdentity {
        &self.header.identity
    }

    pub(crate) fn content(&self) -> &StoreContent {
        &self.content
    }

    /// Returns an upper bound on the age of one part of the content at `now`.
    pub(crate) fn age_of(&self, part: usize, now: &WallTime) -> Option<Duration> {
        let proven = self.header.parts.get(part)?.proven.as_ref()?;
        // If this clock is behind the one that wrote the checkpoint, one of the two is wrong.
        now.since(&self.header.written)?;
        now.since(proven)
    }
}

impl Header {
    /// Refuses objects outside of the content's scope.
    fn admits(&self, key: &ObjectKey) -> Result<(), CheckpointError> {
        match &self.identity.scope {
            Scope::Namespaces(namespaces)
                if !key.namespace().is_some_and(|own| namespaces.iter().any(|name| name == own)) =>
            {
                Err(CheckpointError::Malformed { what: format!("{key} is of none of its namespaces") })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objects, rv) = (self.objects(), self.resource_version());
        write!(f, "Checkpoint({}, {objects} objects at rv={rv} epoch={})", self.resource(), self.epoch())
    }
}
