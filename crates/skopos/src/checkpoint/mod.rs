//! Checkpoints: the content of a store in a file, so that a restart resumes the watch instead of listing again, and a
//! cluster that is down can still be read.
//!
//! ```text
//!   Informer::checkpoint ──▶ Checkpoint ──write_to──▶ file ──read_from──▶ Checkpoint ──▶ InformerOptions::restored
//!      a snapshot: free        header: whose, of which RV, when proven        checked to the last bit
//! ```
//!
//! # What a restored informer says
//!
//! * Its content can be read at once. [`Freshness`](crate::Freshness) is `Stale` for the reason
//!   [`StaleReason::Restored`](crate::StaleReason) (or for what is wrong with the link), with the true age: from when the
//!   content was last proven before it was written, by clocks that can be trusted ([`WallClock`]); none if they cannot.
//! * The watch goes on at the checkpoint's RV, without a list. If the server no longer has the history from there (410),
//!   it is listed, and handlers and the journal are told of the differences, marked as a gap.
//! * [`Informer::has_synced`](crate::Informer::has_synced) and `wait_synced` stay false until the server has confirmed the
//!   content: as soon as the watch stands, an audit compares it with a list of metadata (a tenth of a list), two informers
//!   of a factory at a time. An RV alone would confirm nothing: if the server's data were restored from a backup
//!   meanwhile, it has passed the checkpoint's RV again with other content. If the audit finds that, everything is
//!   listed, and the differences are told as a gap. Who waits for that wants to act on what the server has, and a
//!   checkpoint may be of any age; who wants to read, need not wait.
//!   [`Snapshot::is_synced`](crate::Snapshot::is_synced) tells that there is whole content.
//!
//! # The file
//!
//! A magic number and a version; a header; blocks of about 1 MiB of objects in the order of their keys, each compressed with zstd; an
//! end. Each frame carries the SHA-256 of itself and of all before it, so that no bit can be changed and nothing be taken
//! out, put in or cut off without being noticed. A reader allocates no more than its limits say, whatever the file claims.

mod clock;
mod error;
mod file;
mod frames;
mod header;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use skopos_reflect::Form;
use skopos_wire::{Limits, ObjectKey, RawObject, ResourceVersion};

use crate::informer::{Informer, Running, Shared};
use crate::object::Entry;
use crate::options::{InformerOptions, ResourceId, Scope};
use crate::store::{Content, Digest, RestoredPart};
use crate::tree::{Item, Tree};

pub use clock::{WallClock, WallTime};
pub use error::{CheckpointError, Foreign, NoCheckpoint};
pub use file::replace_file;

pub(crate) use header::Identity;

use frames::{FrameReader, FrameWriter};
use header::{Header, Part};

/// The content of an informer at one moment, with all that is needed to begin with it again. Cheap to clone; it holds what a
/// [`Snapshot`](crate::Snapshot) holds.
#[derive(Clone)]
pub struct Checkpoint {
    header: Arc<Header>,
    content: Arc<Content>,
}

/// What tells the content of one [`Checkpoint`] from that of another: of what it is, at which RVs, and which states of which
/// objects it has. Two that are equal hold the same, but for a chance of about 2⁻⁶⁴. Good within one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentMark {
    identity: Identity,
    parts: Vec<(ResourceVersion, u64)>,
    digest: Digest,
}

impl ContentMark {
    /// Whether both are of the same states of the same objects, at whatever RVs.
    pub fn has_same_objects(&self, other: &ContentMark) -> bool {
        self.identity == other.identity && self.digest == other.digest
    }
}

/// What is accepted of a file. The defaults suit a kind of 1,000,000 objects.
#[derive(Clone, Debug)]
pub struct CheckpointLimits {
    /// The most objects (1,000,000).
    pub objects: u64,
    /// The most bytes of JSON (4 GiB).
    pub bytes: u64,
    /// The most bytes of JSON of one object ([`Limits::default`]).
    pub object_bytes: usize,
}

impl Default for CheckpointLimits {
    fn default() -> Self {
        Self { objects: 1_000_000, bytes: 4 << 30, object_bytes: Limits::default().max_object_bytes }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// How many objects it has.
    pub objects: u64,
}

impl<K> Informer<K> {
    /// The content as it is now, to be written. Costs next to nothing, and holds nobody up.
    ///
    /// # Errors
    /// If there is no whole content: it was never listed, or is known to differ from the server's.
    pub fn checkpoint(&self) -> Result<Checkpoint, NoCheckpoint> {
        Checkpoint::of(&self.shared)
    }

    /// Takes checkpoints of this informer, without keeping it running.
    pub fn checkpointer(&self) -> Checkpointer {
        Checkpointer(Arc::downgrade(&self.shared))
    }
}

/// Takes checkpoints of an informer as long as it runs, and is no reason for it to run.
#[derive(Clone)]
pub struct Checkpointer(Weak<Running>);

impl Checkpointer {
    /// As [`Informer::checkpoint`]; `None` if the informer runs no more.
    ///
    /// # Errors
    /// As [`Informer::checkpoint`].
    pub fn checkpoint(&self) -> Option<Result<Checkpoint, NoCheckpoint>> {
        Some(Checkpoint::of(&*self.0.upgrade()?))
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("runs", &(self.0.strong_count() > 0)).finish()
    }
}

impl Checkpoint {
    /// Writes it. Blocks as long as the writer does; takes about a second of computing for 500 MB of JSON.
    ///
    /// # Errors
    /// Those of the writer. What was written until then is no checkpoint, and will be refused.
    pub fn write_to(&self, writer: impl Write) -> io::Result<Written> {
        let mut frames = FrameWriter::begin(writer, &self.header.to_json())?;
        for entry in self.content.objects.iter() {
            frames.object(entry.raw().bytes())?;
        }
        let bytes = frames.end()?;
        Ok(Written { bytes, objects: self.objects() })
    }

    /// Reads one, checks all of it, and accepts nothing that was not written so to the last bit.
    ///
    /// # Errors
    /// If it cannot be read, is none, or is damaged, cut off or too large.
    pub fn read_from(reader: impl Read, limits: &CheckpointLimits) -> Result<Self, CheckpointError> {
        let (mut frames, header) = FrameReader::begin(reader, limits)?;
        let header = Header::from_json(&header)?;
        let scan = Limits { max_object_bytes: limits.object_bytes, ..Limits::default() };
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(json) = frames.object()? {
            let object = RawObject::copy_from(json, &scan)
                .map_err(|error| CheckpointError::Malformed { what: error.to_string() })?;
            header.admits(object.key())?;
            let entry = Entry::new(object);
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
        let content = Content::restored(parts.collect(), Tree::from_sorted(entries));
        Ok(Self { header: Arc::new(header), content: Arc::new(content) })
    }

    /// The kind of object.
    pub fn resource(&self) -> &ResourceId {
        &self.header.identity.resource
    }

    /// The namespaces that it covers.
    pub fn scope(&self) -> &Scope {
        &self.header.identity.scope
    }

    /// The cluster that it is of, as [`FactoryOptions::cluster`](crate::FactoryOptions::cluster) said.
    pub fn cluster(&self) -> Option<&str> {
        self.header.identity.cluster.as_deref()
    }

    /// The RV of the content; of a set of namespaces, the lowest.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.content.rv
    }

    /// The stretch of unbroken history that the RV belongs to.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// How many objects it has.
    pub fn objects(&self) -> u64 {
        self.content.objects.len() as u64
    }

    /// The size of all objects as JSON, in bytes.
    pub fn json_bytes(&self) -> u64 {
        self.content.json_bytes
    }

    /// Whether an informer of this kind with these options can begin with it, the cluster aside.
    ///
    /// # Errors
    /// If it is of something else, with what differs.
    pub fn fits(&self, resource: &ResourceId, form: Form, options: &InformerOptions) -> Result<(), Foreign> {
        Identity::of(self.cluster(), resource, form, options).expect(&self.header.identity)
    }

    /// When it was taken, by the clock of that machine.
    pub fn written_at(&self) -> SystemTime {
        self.header.written.wall()
    }

    /// Upper bound on the age of the content at this moment; `None` if that cannot be told.
    pub fn age(&self, clock: &WallClock) -> Option<Duration> {
        let now = clock.now();
        let ages = (0..self.header.parts.len()).map(|part| self.age_of(part, &now));
        ages.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Whether both hold the same states of the same objects at the same RVs, so that one need not be written after the
    /// other.
    pub fn is_same_content(&self, other: &Checkpoint) -> bool {
        self.mark() == other.mark()
    }

    /// What tells its content from that of others, and is small enough to be remembered for long.
    pub fn mark(&self) -> ContentMark {
        let parts = self.header.parts.iter().map(|part| (part.resource_version.clone(), part.epoch));
        ContentMark {
            identity: self.header.identity.clone(),
            parts: parts.collect(),
            digest: self.content.digest,
        }
    }

    fn of(shared: &Shared) -> Result<Self, NoCheckpoint> {
        // In this order: the content only gets newer. What it lacks is told before it, and that it lacks nothing after it.
        let basis = shared.freshness().basis();
        let content = shared.store.current();
        let now = shared.ground.options.wall_clock.now();
        if !content.synced {
            return Err(NoCheckpoint::NotSynced);
        }
        if !basis.is_whole() || !shared.freshness().basis().is_whole() {
            return Err(NoCheckpoint::NotWhole);
        }
        let parts = shared.links.iter().zip(basis.ages()).enumerate().map(|(part, (link, age))| Part {
            namespace: link.target.namespace.clone(),
            resource_version: content.rv_of(part).clone(),
            epoch: content.epoch_of(part),
            proven: age.and_then(|age| now.before(age)),
        });
        let header = Header { identity: shared.identity(), written: now.clone(), parts: parts.collect() };
        Ok(Self { header: Arc::new(header), content })
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.header.identity
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Upper bound on the age of one part of the content at `now`.
    pub(crate) fn age_of(&self, part: usize, now: &WallTime) -> Option<Duration> {
        let proven = self.header.parts.get(part)?.proven.as_ref()?;
        // A clock that is behind the one that wrote this is wrong, or that one was.
        now.since(&self.header.written)?;
        now.since(proven)
    }
}

impl Header {
    /// Refuses objects that cannot be in content of this scope.
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
