//! Log of the clusters that each caller saw, so that a watch does not resume after the caller's permissions have
//! changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;

use super::merged_version::MergedVersion;

/// Key of a query: a digest of the caller and the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueryKey([u8; 32]);

/// The clusters that each query saw, and since when.
///
/// Only the latest queries are kept, and none over a restart. A forgotten caller is assumed to have seen what it sees
/// now. At worst, until its next list, a client lacks old objects of a cluster for which it got the permission
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct VisibilityLog {
    queries: Mutex<HashMap<QueryKey, QueryVisibility>>,
}

#[derive(Debug)]
struct QueryVisibility {
    visible: BTreeSet<ClusterId>,
    /// The merged version at which an already filled cluster last became visible, or any became invisible.
    changed: Option<MergedVersion>,
    /// The clusters that are suspended for open watches, with the earliest start of the suspension.
    suspended: BTreeMap<ClusterId, MergedVersion>,
    last_used: MergedVersion,
}

/// Maximum number of queries that are kept.
const MAX_QUERIES: usize = 4096;

/// Maximum number of suspended clusters per query. Most of a larger set have probably left for good; the next query
/// then counts as changed.
const MAX_SUSPENDED: usize = 1024;

impl QueryKey {
    /// Makes the key of these parts.
    pub(crate) fn from_parts(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

impl VisibilityLog {
    /// Records that the query saw these clusters at `now`. `is_new` returns whether a cluster that became visible had
    /// no content before.
    pub(crate) fn record(
        &self,
        query_key: QueryKey,
        visible: &BTreeSet<ClusterId>,
        now: MergedVersion,
        is_new: impl Fn(&ClusterId) -> bool,
    ) {
        let mut all = self.queries.lock();
        let Some(entry) = all.get_mut(&query_key) else {
            if all.len() >= MAX_QUERIES {
                let oldest =
                    all.iter().min_by_key(|(_, entry)| entry.last_used).map(|(query_key, _)| *query_key);
                oldest.and_then(|query_key| all.remove(&query_key));
            }
            let entry = QueryVisibility {
                visible: visible.clone(),
                changed: None,
                suspended: BTreeMap::new(),
                last_used: now,
            };
            all.insert(query_key, entry);
            return;
        };
        let mut changed = !entry.visible.is_subset(visible);
        for cluster in visible.difference(&entry.visible) {
            changed |= entry.suspended.remove(cluster).is_some() || !is_new(cluster);
        }
        if entry.suspended.len() > MAX_SUSPENDED {
            entry.suspended.clear();
            changed = true;
        }
        if changed {
            entry.changed = entry.changed.max(Some(now));
        }
        entry.visible.clone_from(visible);
        entry.last_used = now;
    }

    /// Records that a cluster became visible to an open watch, which misses nothing of it.
    pub(crate) fn join(&self, query_key: QueryKey, cluster: &ClusterId) {
        if let Some(entry) = self.queries.lock().get_mut(&query_key) {
            entry.visible.insert(cluster.clone());
        }
    }

    /// Records that an open watch gets nothing of a cluster after `at`. A watch that resumes from a later merged
    /// version would miss it.
    pub(crate) fn suspend(&self, query_key: QueryKey, cluster: &ClusterId, at: MergedVersion) {
        if let Some(entry) = self.queries.lock().get_mut(&query_key) {
            entry.visible.remove(cluster);
            entry.suspended.entry(cluster.clone()).and_modify(|since| *since = at.min(*since)).or_insert(at);
        }
    }

    /// Records that an open watch gets events of a cluster again. `changed` is the merged version of the cluster's last
    /// change.
    pub(crate) fn resume(&self, query_key: QueryKey, cluster: &ClusterId, changed: MergedVersion) {
        if let Some(entry) = self.queries.lock().get_mut(&query_key)
            && entry.suspended.get(cluster).is_some_and(|since| changed <= *since)
        {
            entry.suspended.remove(cluster);
            entry.visible.insert(cluster.clone());
        }
    }

    /// Returns whether the query sees the same clusters as at `merged_version`, apart from later changes of their
    /// content.
    pub(crate) fn is_unchanged_since(&self, query_key: QueryKey, merged_version: MergedVersion) -> bool {
        let all = self.queries.lock();
        all.get(&query_key).is_none_or(|entry| entry.changed.is_none_or(|when| when <= merged_version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<ClusterId> {
        names.iter().map(|name| ClusterId::new(name).unwrap()).collect()
    }

    #[test]
    fn changed_permission_expires_earlier_versions() {
        let log = VisibilityLog::default();
        let query_key = QueryKey::from_parts(&[b"jane", b"list pods"]);
        let record =
            |names: &[&str], now| log.record(query_key, &set(names), MergedVersion::new(now), |_| false);
        record(&["a"], 10);
        assert!(log.is_unchanged_since(query_key, MergedVersion::new(5)));
        record(&["a", "b"], 20);
        assert!(
            !log.is_unchanged_since(query_key, MergedVersion::new(19))
                && log.is_unchanged_since(query_key, MergedVersion::new(20))
        );
        record(&["b"], 30);
        assert!(
            !log.is_unchanged_since(query_key, MergedVersion::new(29))
                && log.is_unchanged_since(query_key, MergedVersion::new(30))
        );
        assert!(
            log.is_unchanged_since(QueryKey::from_parts(&[b"joe", b"list pods"]), MergedVersion::new(1)),
            "others are not concerned"
        );
    }

    #[test]
    fn new_cluster_keeps_earlier_versions_valid() {
        let log = VisibilityLog::default();
        let query_key = QueryKey::from_parts(&[b"jane"]);
        log.record(query_key, &set(&["a"]), MergedVersion::new(10), |_| false);
        log.join(query_key, set(&["b"]).first().unwrap());
        log.record(query_key, &set(&["a", "b"]), MergedVersion::new(20), |_| false);
        log.record(query_key, &set(&["a", "b", "c"]), MergedVersion::new(30), |_| true);
        assert!(log.is_unchanged_since(query_key, MergedVersion::new(10)));
    }

    #[test]
    fn suspended_cluster_forces_relist_if_changed() {
        let query_key = QueryKey::from_parts(&[b"jane"]);
        let (all, b) = (set(&["a", "b"]), ClusterId::new("b").unwrap());
        for (changed, goes_on) in [(30, true), (35, false)] {
            let log = VisibilityLog::default();
            log.record(query_key, &all, MergedVersion::new(10), |_| true);
            log.suspend(query_key, &b, MergedVersion::new(30));
            log.suspend(query_key, &b, MergedVersion::new(40));
            log.resume(query_key, &b, MergedVersion::new(changed));
            log.record(query_key, &all, MergedVersion::new(60), |_| true);
            assert_eq!(log.is_unchanged_since(query_key, MergedVersion::new(50)), goes_on, "{changed}");
        }
        let log = VisibilityLog::default();
        log.record(query_key, &all, MergedVersion::new(10), |_| true);
        log.suspend(query_key, &b, MergedVersion::new(30));
        log.record(query_key, &all, MergedVersion::new(60), |_| true);
        assert!(
            !log.is_unchanged_since(query_key, MergedVersion::new(50)),
            "no check has shown whether it changed"
        );
    }

    #[test]
    fn caps_recorded_queries() {
        let log = VisibilityLog::default();
        for n in 0..MAX_QUERIES as u64 + 10 {
            log.record(QueryKey::from_parts(&[&n.to_be_bytes()]), &set(&[]), MergedVersion::new(n), |_| {
                false
            });
        }
        assert_eq!(log.queries.lock().len(), MAX_QUERIES);
    }

    #[test]
    fn cluster_churn_keeps_suspended_set_bounded() {
        let log = VisibilityLog::default();
        let query_key = QueryKey::from_parts(&[b"jane"]);
        for n in 0..10 * MAX_SUSPENDED as u64 {
            let cluster = set(&[&format!("c{n}")]);
            log.record(query_key, &cluster, MergedVersion::new(n), |_| true);
            log.suspend(query_key, cluster.first().unwrap(), MergedVersion::new(n));
            let before = MergedVersion::new(n.saturating_sub(1));
            let goes_on = log.is_unchanged_since(query_key, before);
            assert!(goes_on || n % (MAX_SUSPENDED as u64 + 1) == 0, "{n}");
        }
        assert!(log.queries.lock()[&query_key].suspended.len() <= MAX_SUSPENDED + 1);
    }
}
