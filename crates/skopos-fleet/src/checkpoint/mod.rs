//! Checkpoints of a fleet: after a restart every cluster can be read at once, those that are down included, with their true age,
//! and watches go on without a list.
//!
//! ```text
//!   DIRECTORY/CLUSTER/index                          whose files these are: the cluster's name and identity, and its kinds
//!                    /GROUP.VERSION.PLURAL.skopos    one kind (a skopos::checkpoint::Checkpoint)
//!                    /documents                      discovery, OpenAPI, version
//! ```
//!
//! | module | its one idea |
//! |---|---|
//! | `keeper`, `options` | what is kept of which cluster, and when: [`CheckpointKeeper`], [`KeeperOptions`] |
//! | `folder` | the files of one cluster |
//! | `changes` | files are changed in the order in which that was begun |
//! | `index`, `documents`, `envelope` | the two small files; each vouches for itself |
//! | `names` | names of files for whatever a cluster is called |
//! | `private` | folders and files that no other user has a hand in |
//! | `store`, `directory`, `object` | where the files are: [`Store`], [`Directory`], and (feature `object-store`) `Bucket` |
//! | `refusal` | files that are not used, and why |
//!
//! # What is kept, and when
//!
//! Every [`KeeperOptions::every`], and when the fleet is shut down: what has changed. A kind of which only the resource version
//! has moved (by bookmarks) is written every five minutes. Killed at whatever moment, the old file or the new one is there,
//! whole. A kind that is not kept in memory any more is not kept on disk either; a cluster that left the fleet is kept as long
//! as the fleet retains it; the files of clusters that nobody has named since are removed after [`KeeperOptions::orphans`].
//!
//! # What is refused
//!
//! A file that is torn, damaged, of another cluster, of another selection or of another version is never served. It is told of
//! in the log, by [`CheckpointKeeper::refusals`] and in [`KeptStats`](crate::KeptStats); a damaged one is moved aside
//! (`.refused` behind its name, where the next one replaces it), one that is of something else is removed. One that cannot be read
//! stays until a newer one takes its place; where it is the index, its whole folder stays as it is until it can be read.
//!
//! # Whose content it is
//!
//! Each file names the identity of its cluster (the uid of its namespace kube-system). See [`Keeper`](crate::Keeper) for how a
//! server is asked for it before anything is gone on with.

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

pub use crate::cluster::Admits;
pub use directory::Directory;
pub use keeper::CheckpointKeeper;
#[cfg(feature = "object-store")]
pub use object::{Bucket, BucketLimits};
pub use options::KeeperOptions;
pub use private::folder as private_folder;
pub use refusal::{Refusal, RefusalReason};
pub use store::{Content, FileName, Store, StoredFile};
