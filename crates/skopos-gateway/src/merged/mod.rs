//! `/fleet/...`: one view of a kind over many clusters.
//!
//! ```text
//!  journal of member a ──┐                                        ┌─▶ History ─▶ lists, pages (source)
//!  journal of member b ──┼─▶ Feed ─▶ Merger (pure): one history,  │             watches (window, watch_authz)
//!  journal of member c ──┘           one version per change ──────┘
//! ```
//!
//! | module | its one idea |
//! |---|---|
//! | `merger`, `contents`, `merged_version` | the merge of all members' changes into one history; no I/O, no clock |
//! | `missed` | the changes of a member since an earlier process recorded its position |
//! | `resume_state`, `resume_store` | the state that lets watches continue after a restart; its storage |
//! | `feed` | one task per member, from its journal into the history |
//! | `history` | the history, shared between feed and readers |
//! | `item`, `render`, `source` | the lists and watches that `skopos-serve` makes of the history |
//! | `union` | the union of the custom resources that the clusters serve; pure |
//! | `union_cache` | a cache of these unions |
//! | `openapi` | the union of the clusters' OpenAPI documents |
//! | `fresh` | catch-up of members for read-your-writes and consistent reads |
//! | `route`, `request`, `scope` | the way of a request: parsed once, authorized by each cluster, served, rendered |
//! | `describe` | discovery and OpenAPI of all clusters; custom resources |
//! | `read` | get, list and watch |
//! | `answer_status` | answers: their missing, stale and denied clusters |
//! | `watch_authz`, `visibility_log`, `token_signer` | early ends of watches, changed permissions, signed tokens |
//! | `continue_keys` | the keys of these tokens, which equal replicas may share |
//!
//! Clusters: all, `?clusters=a,b`, `?clusterSelector=env=prod` (the clusters' own labels), or, for clients that cannot
//! add parameters, `labelSelector=skopos.dev/cluster=a`. Lists are sorted by cluster, namespace and name. A list waits up
//! to `cache.memberDeadline` for a cluster without content. Then a `Warning` header and the annotation
//! `skopos.dev/missing` of the list's metadata name the cluster as missing. The annotations `skopos.dev/stale` and
//! `skopos.dev/denied` name the stale and the denied ones.
//!
//! # Resources
//!
//! The built-in resources are fixed. All others come from the discovery documents of the clusters that the caller may
//! read. Where clusters differ in kind or scope, the majority decides, and the others are named as missing. A cluster is
//! also missing if it has the resource only in other versions, or if its documents cannot be read. A cluster without the
//! resource has nothing to show and is not missing. When it gets the resource, its objects are added to open watches,
//! like those of any new cluster, within [`document_age`](skopos_fleet::ClusterOptions::document_age) and some seconds.
//! Table columns are those of the definition in the first cluster, by name, that has one in memory.
//!
//! # The merged resourceVersion
//!
//! Clients compare resourceVersions as decimal integers, so a merged one is a decimal integer, too: a
//! [`MergedVersion`]. It is the wall clock in microseconds, or one more than the previous merged version if the clock
//! has not advanced. Its lowest bits identify the gateway instance: of two gateways behind one address, neither resumes
//! the other's watches. Merged versions grow over restarts. They reveal nothing about the activity of clusters that a
//! caller may not read: a list's merged version is the time of the list. A merged version represents a vector: for each
//! cluster its identity, epoch and resourceVersion, and over a restart the digest of its content. The vector stays in
//! the gateway. If another cluster takes a name while the process runs, the difference is sent as deletions and
//! additions. Over a restart, no watch resumes from a merged version whose cluster was another, or whose identity is
//! unknown.
//!
//! A merged version is neither a secret nor a permission: an invented one yields what the caller may read anyway, or
//! 410. So it is not signed; a decimal integer could not be.
//!
//! # Lists over several replicas
//!
//! Replicas with the same keys ([`ContinueKeys`]) continue each other's lists. The state of the first page is at the replica
//! that made it. Another one shows its own state, under the version of the first page. It does so only if both have content of
//! the same clusters, and if each of these proves that no change from before the request is missing. So the state is at
//! least as new as that of the version: a watch from there misses nothing. Otherwise the answer is 410.
//!
//! # The cluster of an object
//!
//! Objects keep their namespace and name. They get the annotation `skopos.dev/cluster`, the label of the same name (if
//! the cluster's name is a valid label value), and the annotation `skopos.dev/resource-version` with the member's own
//! version. `metadata.resourceVersion` is the merged version of the object's last change, because reflectors resume
//! from it. The consequence: two clusters may have an object of the same namespace and name, and a cache that
//! identifies objects by these alone (client-go's default key function, kube-rs' `ObjectRef`) shows one of the two.
//! Give such a cache a key function with the label, or one informer per cluster:
//! `labelSelector=skopos.dev/cluster=NAME`.
//!
//! # Clusters that join, fail, leave
//!
//! A cluster that is paused, slow, unreachable or removed keeps its objects; lists name it with its age. Watches get no
//! event, because no change is known. When the cluster is back, watches get the difference, for this cluster alone. The
//! objects of a removed cluster stay as long as the fleet retains them (`clusters.retainRemoved`), in case it comes back.
//! Then they vanish *without* `DELETED`, which is for deletions: a watch that would have to show that gets 410, and the
//! client lists again. The same applies to a resource that is evicted because the cluster's memory budget is used up. These
//! are the cases in which a cluster ends a watch: the alternatives are false deletions or ghost objects.

mod answer_status;
mod contents;
mod continue_keys;
mod describe;
mod feed;
mod followed_stores;
mod fresh;
mod history;
mod item;
mod kinds;
mod merged_version;
mod merger;
mod missed;
#[cfg(test)]
mod noninterference_tests;
mod openapi;
mod read;
mod render;
mod request;
mod resume_state;
mod resume_store;
mod route;
mod scope;
mod source;
#[cfg(test)]
mod tests;
mod token_signer;
mod union;
mod union_cache;
mod visibility_log;
mod watch_authz;

pub use continue_keys::{ContinueKeys, ContinueKeysError};
pub use kinds::KindsOptions;
pub(crate) use resume_store::ResumeStorage;
pub use route::Merged;
