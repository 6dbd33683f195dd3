use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skopos::ObjectKey;

use super::row::Row;
use super::{History, LedgerChange, LedgerContent};
use crate::event::delivery::{DeadLetter, EventKey, Recorded};

/// Changes of a ledger: the latest of each key. Together with all before them they are its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub(in crate::event) struct LedgerChanges {
    pub(in crate::event) recorded: BTreeMap<EventKey, Option<Recorded>>,
    dead: BTreeMap<EventKey, Option<DeadLetter>>,
    meta: Option<Meta>,
}

/// Everything beside objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Meta {
    disabled: Option<String>,
    cluster: Option<Arc<str>>,
    history: History,
}

/// The form of changes in JSON: resource, namespace, name, value.
#[derive(Serialize, Deserialize)]
struct Stored {
    recorded: Vec<(Arc<str>, String, String, Option<Row>)>,
    dead: Vec<(Arc<str>, String, String, Option<DeadLetter>)>,
    meta: Option<Meta>,
}

impl LedgerChanges {
    /// Adds a later change.
    pub(super) fn apply(&mut self, change: &LedgerChange) {
        match change {
            LedgerChange::Recorded(key, recorded) => {
                drop(self.recorded.insert(key.clone(), recorded.clone()));
            }
            LedgerChange::Dead(key, letter) => drop(self.dead.insert(key.clone(), letter.clone())),
            LedgerChange::Meta { disabled, cluster, history } => {
                let (disabled, cluster, history) = (disabled.clone(), cluster.clone(), history.clone());
                self.meta = Some(Meta { disabled, cluster, history });
            }
        }
    }

    /// Adds later changes.
    pub(super) fn extend(&mut self, later: Self) {
        self.recorded.extend(later.recorded);
        self.dead.extend(later.dead);
        self.meta = later.meta.or(self.meta.take());
    }

    /// Applies a change to everything: a removal leaves nothing.
    pub(in crate::event) fn apply_to_all(&mut self, change: &LedgerChange) {
        match change {
            LedgerChange::Recorded(key, None) => drop(self.recorded.remove(key)),
            LedgerChange::Dead(key, None) => drop(self.dead.remove(key)),
            change => self.apply(change),
        }
    }

    /// Drops removals, because there is nothing before these changes.
    pub(super) fn drop_removals(&mut self) {
        self.recorded.retain(|_, recorded| recorded.is_some());
        self.dead.retain(|_, letter| letter.is_some());
    }

    /// Returns the content of a ledger with these changes and none before them.
    pub(in crate::event) fn content(self, is_new: bool) -> LedgerContent {
        let Meta { disabled, cluster, history } = self.meta.unwrap_or_default();
        let recorded = self.recorded.into_iter().filter_map(|(key, recorded)| Some((key, recorded?)));
        let dead = self.dead.into_iter().filter_map(|(key, letter)| Some((key, letter?)));
        LedgerContent {
            is_new,
            cluster,
            history,
            recorded: recorded.collect(),
            dead: dead.collect(),
            disabled,
        }
    }
}

impl From<LedgerChanges> for Stored {
    fn from(changes: LedgerChanges) -> Self {
        let LedgerChanges { recorded, dead, meta } = changes;
        let row = |recorded: Option<Recorded>| recorded.as_ref().map(Row::from);
        Self { recorded: rows(recorded, row), dead: rows(dead, |letter| letter), meta }
    }
}

impl TryFrom<Stored> for LedgerChanges {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        let Stored { recorded, dead, meta } = stored;
        let key = |resource, namespace: &str, name: &str| EventKey {
            resource,
            object: ObjectKey::namespaced(namespace, name),
        };
        let recorded = recorded.into_iter().map(|(resource, namespace, name, row)| {
            Ok((key(resource, &namespace, &name), row.map(Recorded::try_from).transpose()?))
        });
        let recorded = recorded.collect::<Result<_, String>>()?;
        let dead = dead
            .into_iter()
            .map(|(resource, namespace, name, letter)| (key(resource, &namespace, &name), letter));
        Ok(Self { recorded, dead: dead.collect(), meta })
    }
}

fn rows<T, R>(
    of: BTreeMap<EventKey, Option<T>>,
    row: impl Fn(Option<T>) -> Option<R>,
) -> Vec<(Arc<str>, String, String, Option<R>)> {
    let rows = of.into_iter().map(|(EventKey { resource, object }, value)| {
        (resource, object.namespace().unwrap_or_default().to_owned(), object.name().to_owned(), row(value))
    });
    rows.collect()
}
