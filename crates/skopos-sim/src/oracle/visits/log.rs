//! The clusters' logs, by stamps and keys.

use std::collections::HashMap;

use crate::history::{At, Change, ClusterId, Entry, Fact, History, KeyId, UidId};

/// The writes of all clusters.
#[derive(Default)]
pub(super) struct Log {
    stamps: HashMap<u32, Vec<(ClusterId, Written)>>,
    deletions: HashMap<(ClusterId, KeyId), Vec<Deletion>>,
    /// The version at which each object was deleted.
    gone: HashMap<(ClusterId, UidId), u64>,
}

/// A version of an object.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) rv: u64,
    pub(super) uid: UidId,
}

struct Deletion {
    at: At,
    rv: u64,
}

impl Log {
    pub(super) fn of(history: &History) -> Self {
        let mut log = Self::default();
        for Entry { at, fact } in &history.entries {
            let Fact::Committed { cluster, object, change, .. } = fact else { continue };
            let (rv, uid) = (object.rv, object.uid);
            match change {
                Change::Created | Change::Updated => {
                    log.stamps.entry(object.stamp).or_default().push((*cluster, Written { rv, uid }));
                }
                Change::Deleted => {
                    let deletion = Deletion { at: *at, rv };
                    log.gone.insert((*cluster, uid), rv);
                    log.deletions.entry((*cluster, object.key)).or_default().push(deletion);
                }
            }
        }
        log
    }

    /// Returns the clusters in which a write was made.
    pub(super) fn clusters_of(&self, stamp: u32) -> Vec<ClusterId> {
        self.stamps.get(&stamp).into_iter().flatten().map(|(cluster, _)| *cluster).collect()
    }

    /// Returns the result of a write in a cluster.
    pub(super) fn written(&self, cluster: ClusterId, stamp: u32) -> Option<Written> {
        let made = self.stamps.get(&stamp)?.iter();
        made.rev().find(|(there, _)| *there == cluster).map(|(_, written)| *written)
    }

    /// Returns the version that a write made in a cluster.
    pub(super) fn version(&self, cluster: ClusterId, stamp: u32) -> Option<u64> {
        self.written(cluster, stamp).map(|written| written.rv)
    }

    /// Returns the version at which a key was deleted between two moments.
    pub(super) fn deletion_between(&self, cluster: ClusterId, key: KeyId, from: At, to: At) -> Option<u64> {
        let deletions = self.deletions.get(&(cluster, key))?.iter();
        deletions.rev().find(|deletion| deletion.at >= from && deletion.at <= to).map(|deletion| deletion.rv)
    }

    /// Returns whether a key was deleted at this version or a later one, up to a moment.
    pub(super) fn is_deleted_since(&self, cluster: ClusterId, key: KeyId, rv: u64, to: At) -> bool {
        let deletions = self.deletions.get(&(cluster, key));
        deletions.into_iter().flatten().any(|deletion| deletion.rv >= rv && deletion.at <= to)
    }

    /// Returns the version at which an object was deleted.
    pub(super) fn deletion_of(&self, cluster: ClusterId, uid: UidId) -> Option<u64> {
        self.gone.get(&(cluster, uid)).copied()
    }
}
