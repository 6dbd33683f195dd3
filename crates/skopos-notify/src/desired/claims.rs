use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::Endpoint;

use crate::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue, Readiness};
use crate::plan::Removal;
use crate::sink::Sink;

/// An object with a request that the sink cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rejected {
    /// The object.
    pub object: EntryOwner,
    /// The reason, for people.
    pub reason: String,
}

/// Names that an object, or a Service with its slices, asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    names: BTreeMap<EntryName, BTreeMap<EntryOwner, BTreeMap<EntryValue, Readiness>>>,
    pub(super) rejected: BTreeSet<Rejected>,
    pub(super) attachments: Vec<Attachment>,
}

/// A pod that waits until its name is outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// The name.
    pub(crate) name: EntryName,
    /// The value.
    pub(crate) value: EntryValue,
    /// The pod.
    pub(crate) pod: EntryOwner,
    /// The condition that the pod waits for.
    pub(crate) gate: String,
}

impl Claims {
    /// Adds a request for a name with some values; returns the name as the sink spells it. A request that the sink cannot serve
    /// is rejected.
    pub(super) fn claim(
        &mut self,
        sink: &dyn Sink,
        owner: &EntryOwner,
        name: &str,
        values: impl IntoIterator<Item = (String, Readiness)>,
    ) -> Option<EntryName> {
        let name = match sink.name(name) {
            Ok(name) => name,
            Err(reason) => {
                self.reject(owner, reason);
                return None;
            }
        };
        let mut members = BTreeMap::new();
        for (value, readiness) in values {
            match sink.value(&value) {
                Ok(value) => drop(members.insert(value, readiness)),
                Err(reason) => self.reject(owner, reason),
            }
        }
        self.add(name.clone(), owner.clone(), members);
        Some(name)
    }

    /// Notes a pod that waits until its name is outside.
    pub(super) fn await_attachment(&mut self, attachment: Attachment) {
        self.attachments.push(attachment);
    }

    /// Rejects an object's request.
    pub(super) fn reject(&mut self, object: &EntryOwner, reason: String) {
        self.rejected.insert(Rejected { object: object.clone(), reason });
    }

    /// Adds other claims. A value in both, as that of an endpoint that moves from slice to slice, has the better readiness.
    pub(super) fn extend(&mut self, other: Self) {
        for (name, owners) in other.names {
            owners.into_iter().for_each(|(owner, members)| self.add(name.clone(), owner, members));
        }
        self.rejected.extend(other.rejected);
        self.attachments.extend(other.attachments);
    }

    fn add(&mut self, name: EntryName, owner: EntryOwner, members: BTreeMap<EntryValue, Readiness>) {
        let known = self.names.entry(name).or_default().entry(owner).or_default();
        for (value, readiness) in members {
            known.entry(value).and_modify(|known| *known = (*known).min(readiness)).or_insert(readiness);
        }
    }

    /// Returns the names.
    pub(super) fn into_names(self) -> impl Iterator<Item = EntryName> {
        self.names.into_keys()
    }

    /// Returns the entries of each name, and the rejected objects.
    pub(super) fn into_entries(
        self,
        sink: &dyn Sink,
    ) -> (BTreeMap<EntryName, Vec<DesiredEntry>>, BTreeSet<Rejected>) {
        let entry = |(owner, mut members)| {
            sink.select(&mut members);
            DesiredEntry { owner: Arc::new(owner), members }
        };
        let entries =
            self.names.into_iter().map(|(name, owners)| (name, owners.into_iter().map(entry).collect()));
        (entries.collect(), self.rejected)
    }

    /// Returns the names and values as removals.
    pub(super) fn removals(&self) -> BTreeSet<Removal> {
        let mut removals = BTreeSet::new();
        for (name, owners) in &self.names {
            removals.insert(Removal { name: name.clone(), value: None });
            let values = owners.values().flat_map(BTreeMap::keys);
            removals.extend(values.map(|value| Removal { name: name.clone(), value: Some(value.clone()) }));
        }
        removals
    }
}

/// Returns the addresses of endpoints, each as `text` makes a value of it.
pub(super) fn values<'a>(
    endpoints: &'a [Endpoint],
    text: impl Fn(&str) -> String + 'a,
) -> impl Iterator<Item = (String, Readiness)> + 'a {
    let of = move |endpoint: &'a Endpoint| {
        let readiness = readiness(endpoint);
        endpoint.addresses.iter().map(|address| (text(address), readiness)).collect::<Vec<_>>()
    };
    endpoints.iter().flat_map(of)
}

/// Reads the conditions as discovery/v1 defines them: a missing `ready` means true.
fn readiness(endpoint: &Endpoint) -> Readiness {
    let conditions = endpoint.conditions.as_ref();
    let is = |condition: Option<bool>, otherwise: bool| condition.unwrap_or(otherwise);
    if is(conditions.and_then(|conditions| conditions.terminating), false) {
        Readiness::Terminating
    } else if is(conditions.and_then(|conditions| conditions.ready), true) {
        Readiness::Ready
    } else {
        Readiness::NotReady
    }
}
