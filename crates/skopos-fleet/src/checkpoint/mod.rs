//! Checkpoints of a fleet. After a restart every cluster can be read at once, even if it is down, with its true age,
//! and watches resume without a list.
//!
//! ```text
//!   DIRECTORY/CLUSTER/index                          the cluster's name and identity, and its stored resources
//!                    /GROUP.VERSION.PLURAL.skopos    one resource (a skopos::checkpoint::Checkpoint)
//!                    /documents                      discovery, OpenAPI, version
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `keeper`, `options` | writing, restoring and cleaning up: [`CheckpointKeeper`], [`KeeperOptions`] |
//! | `folder` | the files of one cluster |
//! | `changes` | changes of files, serialized in each folder |
//! | `index`, `documents`, `envelope` | the two small files, each with a checksum |
//! | `names` | file names for clusters and resources of any name |
//! | `private` | folders and files that only this user may access |
//! | `store`, `directory`, `object` | storage of the files: [`Store`], [`Directory`], and (feature `object-store`) `Bucket` |
//! | `refusal` | refused files, with reasons |
//!
//! # Contents and times
//!
//! Changes are written every [`KeeperOptions::every`] and when the fleet is shut down. A resource whose version alone
//! has advanced (by bookmarks) is written every five minutes. A kill at any moment leaves either the old file or the
//! new one, complete. A resource that is no longer cached is removed from the disk, too. A cluster that left the fleet
//! stays on the disk while the fleet retains it. Files of clusters that were not listed since are removed after
//! [`KeeperOptions::orphans`].
//!
//! # Refused files
//!
//! A file that is torn, damaged, or of another cluster, selection or version is never served. It is reported in the
//! log, by [`CheckpointKeeper::refusals`] and in [`CheckpointStats`](crate::CheckpointStats). A damaged file is moved aside (with
//! `.refused` appended, where the next one replaces it); a file of something else is removed. An unreadable file stays
//! until a newer one replaces it. If it is the index, its whole folder stays until it can be read.
//!
//! # Identity
//!
//! Each file names the identity of its cluster (the uid of its namespace kube-system). See
//! [`Persistence`](crate::Persistence) for the identity check of a server before anything resumes.

mod changes;
mod directory;
mod documents;
mod envelope;
mod folder;
mod index;
mod keeper;
mod names;
#[cfg(feature = "object-store")]
mod object;
mod options;
mod private;
mod refusal;
mod store;

pub use directory::Directory;
pub use keeper::CheckpointKeeper;
pub use options::KeeperOptions;
pub use private::folder as private_folder;
pub use refusal::{Refusal, RefusalReason};
#[cfg(feature = "object-store")]
pub use skopos_bucket::{Bucket, BucketLimits};
pub use store::{Content, FileName, Store, StoredFile};

pub use crate::cluster::KindFilter;
