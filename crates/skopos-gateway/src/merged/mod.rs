//! `/fleet/...`: one view of a kind over many clusters.
//!
//! ```text
//!  journal of member a ──┐                                        ┌─▶ History ─▶ lists, pages (source)
//!  journal of member b ──┼─▶ Feed ─▶ Merger: one history,         │             watches (window, guard)
//!  journal of member c ──┘           one mark per change (pure) ──┘
//! ```
//!
//! | module | its one idea |
//! |---|---|
//! | `merger`, `contents`, `mark` | what the members tell, made one history; no I/O, no clock |
//! | `missed` | what a member has gone through since an earlier process left it |
//! | `restart`, `shelf` | what the next process needs so that watches go on; where that is kept |
//! | `feed` | one task per member, from its journal into the history |
//! | `history` | the history, shared between feed and readers |
//! | `item`, `render`, `source` | what lists and watches of `skopos-serve` see of it |
//! | `union` | what the clusters serve beside the built-in kinds, as one; pure |
//! | `united` | keeps that for those who ask next |
//! | `openapi` | the same for the documents of OpenAPI |
//! | `fresh` | members whose content has to be newer than that: own writes, consistent reads |
//! | `describe` | discovery and OpenAPI of all clusters, and the kinds that are not built in |
//! | `route`, `standing` | who asks for what of which clusters; who is missing, old, not shown |
//! | `guard`, `sights`, `seal` | watches that have to end, rights that changed, tokens that nobody else can have written |
//!
//! Which clusters: all, `?clusters=a,b`, `?clusterSelector=env=prod` (the clusters' own labels), or, for clients that cannot
//! add parameters, `labelSelector=skopos.dev/cluster=a`. A list is sorted by cluster, namespace and name. A cluster that has
//! nothing to show yet is waited for as long as `cache.memberDeadline`; then the list says that it is missing, in a `Warning`
//! header and in the annotation `skopos.dev/missing` of its metadata. `skopos.dev/stale` and `skopos.dev/denied` say the rest.
//!
//! # Which kinds
//!
//! The built-in ones, of which nobody says what they are, and whatever else the clusters that a caller may read say in their
//! discovery documents that they serve. Where they differ in kind or scope, most of them decide; the others are named as
//! missing, and so is a cluster that has a resource in other versions only, and one whose documents cannot be had. A cluster
//! that has no such resource has nothing to show, and is not missing. When it gets one, its objects come into open watches as
//! those of any cluster that comes, within [`document_age`](skopos_fleet::ClusterOptions::document_age) and some seconds.
//! Columns of tables are those of the definition in the first cluster, by name, that has one in memory.
//!
//! # The merged resourceVersion
//!
//! Clients compare resourceVersions as decimal integers, so a merged one is a decimal integer, too: a [`Mark`], which is the
//! wall clock in microseconds, or one more than the mark before where the clock has not moved on, and in the lowest bits whose
//! it is: of two gateways behind one address neither goes on from the other's. It grows over restarts,
//! and says nothing of how much happens in clusters that a caller may not read: a list's mark is the time of the list. What
//! stands behind a mark is a vector: for each cluster which one it is, its own epoch and resourceVersion, and over a restart the
//! digest of its content. The vector stays here. Where another cluster takes a name while the process runs, what differs is told, deletions and additions; over a
//! restart nobody goes on from a mark whose cluster was another, or whose identity is not known.
//!
//! A mark is no secret and no permission: whoever makes one up gets what he may read anyway, or 410. So it is not signed,
//! which a decimal integer could not be.
//!
//! # Whose object it is
//!
//! Objects keep their namespace and name, and get the annotation `skopos.dev/cluster`, the label of the same name (where the
//! cluster's name can be a label's value), and the annotation `skopos.dev/resource-version` with the member's own version.
//! `metadata.resourceVersion` is the mark of the object's last change, for reflectors take from there what to go on from.
//! The consequence: two clusters may have an object of the same namespace and name, and a cache that knows objects by these
//! alone (client-go's default key function, kube-rs' `ObjectRef`) shows one of the two. Give such a cache a key function with
//! the label, or one informer per cluster: `labelSelector=skopos.dev/cluster=NAME`.
//!
//! # Clusters that come, fail, go
//!
//! A cluster that is paused, slow, unreachable, or that left, keeps its objects; lists name it with its age. Nothing is said
//! to watches, for nothing is known to have changed. What did change is told when it is back: as the difference, for this
//! cluster alone. A cluster that left the fleet keeps its objects as long as the fleet retains them
//! (`clusters.retainRemoved`), in case it comes back; then they vanish *without* `DELETED`, which is for deletions: a watch
//! that would have to show that gets 410 and lists anew. So it is with a kind that has to go because the cluster's memory
//! budget is used up. These are the cases of a watch that ends because of a cluster, chosen because the alternatives are to
//! lie about a deletion or to keep ghosts.

mod contents;
mod describe;
mod feed;
mod follows;
mod fresh;
mod guard;
mod history;
mod item;
mod kinds;
mod mark;
mod merger;
mod missed;
#[cfg(test)]
mod noninterference_tests;
mod openapi;
mod render;
mod restart;
mod route;
mod seal;
mod shelf;
mod sights;
mod source;
mod standing;
#[cfg(test)]
mod tests;
mod union;
mod united;

pub use kinds::KindsOptions;
pub use mark::Mark;
pub use route::Merged;
pub use shelf::Restarts;
