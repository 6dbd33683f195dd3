//! Helpers shared by this crate's tests.

use std::sync::Arc;

use serde_json::json;
use skopos_reflect::{Change, Commit, ReflectorState, ReplaceCause, Sink, Time};
use skopos_wire::{Limits, RawObject};

use crate::freshness::FreshnessCell;
use crate::store::{ReflectorObserver, Snapshot, Store, StoreContent, StoreCore, StoreWriter};

/// Returns the number of cases of a property test: `few`, or the value of `PROPTEST_CASES`.
pub(crate) fn cases(few: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

/// Makes a small object. Its label `app` is the first letter of its name, and `spec.rv` changes with each version.
pub(crate) fn object(namespace: &str, name: &str, uid: &str, rv: u64) -> RawObject {
    let json = json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "resourceVersion": rv.to_string(),
            "labels": {"app": &name[..1], "parity": (rv % 2).to_string()},
        },
        "spec": {"rv": rv},
    });
    RawObject::from_value(&json, &Limits::default()).unwrap()
}

pub(crate) fn put(name: &str, uid: &str, rv: u64) -> Change {
    Change::Put(object("ns", name, uid, rv))
}

pub(crate) fn deleted(name: &str, uid: &str, rv: u64) -> Change {
    Change::Deleted(object("ns", name, uid, rv))
}

/// Makes a deletion without a last state.
pub(crate) fn gone(key: &str, rv: u64) -> Change {
    Change::Gone { key: key.parse().unwrap(), resource_version: rv.into() }
}

pub(crate) fn commit(rv: u64, epoch: u64, gap: bool) -> Commit {
    let (cause, asked_at) = (ReplaceCause::Initial, Time::ORIGIN);
    Commit { resource_version: rv.into(), epoch, gap, cause, asked_at, nameless: 0 }
}

/// Makes a store and its writer.
pub(crate) fn store() -> (Arc<StoreCore>, StoreWriter) {
    let core = StoreCore::new(StoreContent::unsynced(), FreshnessCell::standalone());
    (core.clone(), StoreWriter::new(core, 0, Unobserved))
}

pub(crate) fn snapshot(core: &Arc<StoreCore>) -> Snapshot {
    Store::from(core.clone()).snapshot()
}

/// Lists these objects into the store.
pub(crate) fn list(writer: &mut StoreWriter, objects: impl IntoIterator<Item = RawObject>, commit: Commit) {
    writer.begin_replace();
    objects.into_iter().for_each(|object| writer.stage(object));
    writer.commit_replace(commit);
}

/// Applies one batch whose last change has this RV.
pub(crate) fn apply(writer: &mut StoreWriter, changes: impl IntoIterator<Item = Change>, rv: u64) {
    writer.apply(&mut changes.into_iter().collect(), &rv.into());
}

pub(crate) struct Unobserved;

impl ReflectorObserver for Unobserved {
    fn fresh_as_of(&mut self, _at: Time) {}

    fn fresh_only_as_of(&mut self, _at: Option<Time>) {}
    fn state(&mut self, _state: &ReflectorState) {}
}
