//! The desired state: from objects to claims, and from claims to entries. Pure.
//!
//! ```text
//!  snapshots ─▶ groups that changed ─▶ claims of each ─▶ names that changed ─▶ entries
//! ```
//!
//! A group is a Service with its slices, or a pod. Groups that have not changed since the last call are not evaluated again.

mod claims;
mod cluster;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use skopos::{Event, Object, ObjectKey};

pub(crate) use self::claims::Attachment;
use self::claims::Claims;
pub use self::claims::Rejected;
pub use self::cluster::{ClusterChange, ClusterContent};
pub use self::source::{
    ClaimSource, EndpointSource, PodSource, PodSourceError, PodTemplates, ServiceSource, VirtualServiceSource,
};
use crate::entry::{DesiredEntry, EntryName, EntryOwner};
use crate::inserts::Inserts;
use crate::packed::Packed;
use crate::plan::{DesiredEntries, Removal};
use crate::sink::Sink;
pub use crate::template::{Template, TemplateError};

/// The desired state of one sink.
///
/// It keeps only the packed entries of each name. To find what an object asked for before, it evaluates the last content again.
pub struct Desired {
    sources: Vec<ClaimSource>,
    sink: Arc<dyn Sink>,
    /// The content of the last call.
    content: ClusterContent,
    /// Each Service with each of its slices.
    slices: BTreeSet<(ObjectKey, ObjectKey)>,
    new_slices: Inserts,
    rejected: BTreeMap<Group, BTreeSet<Rejected>>,
    attachments: BTreeMap<Group, Vec<Attachment>>,
    entries: Arc<DesiredEntries>,
    new_entries: Inserts,
}

/// Objects that ask for names together. Their entries have the Service, or the pod, as owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    /// A Service and its slices.
    Service(ObjectKey),
    /// A pod.
    Pod(ObjectKey),
}

impl Desired {
    /// Makes the desired state of a sink, fed by some sources.
    pub fn new(sink: Arc<dyn Sink>, sources: Vec<ClaimSource>) -> Self {
        Self {
            sources,
            sink,
            content: ClusterContent::default(),
            slices: BTreeSet::new(),
            new_slices: Inserts::default(),
            rejected: BTreeMap::new(),
            attachments: BTreeMap::new(),
            entries: Arc::default(),
            new_entries: Inserts::default(),
        }
    }

    /// Takes the content of the cluster, and returns the desired entries.
    pub fn look(&mut self, content: ClusterContent) -> Arc<DesiredEntries> {
        let slices = cluster::changed(&self.content.slices, &content.slices);
        let groups = self.changed(&content, &slices);
        let mut names: BTreeMap<EntryName, BTreeMap<Group, Vec<DesiredEntry>>> = BTreeMap::new();
        for group in &groups {
            for name in self.claims(group).into_names() {
                names.entry(name).or_default().insert(group.clone(), Vec::new());
            }
        }
        self.take_in(content, slices);
        for group in groups {
            let claims = self.claims(&group);
            for (name, entries) in self.note(&group, claims) {
                names.entry(name).or_default().insert(group.clone(), entries);
            }
        }
        if !names.is_empty() {
            self.merge(names);
        }
        self.entries.clone()
    }

    /// Returns the rejected objects.
    pub fn rejected(&self) -> impl Iterator<Item = &Rejected> {
        self.rejected.values().flatten()
    }

    /// Returns the pods that wait until their names are outside.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments.values().flatten()
    }

    /// Returns the removals that a change is evidence for. It must be called before the content that shows the change is taken in.
    pub fn removed(&self, change: &ClusterChange) -> BTreeSet<Removal> {
        let sink = &*self.sink;
        match change {
            ClusterChange::Service(event) => removed(
                event,
                self.sources.iter().map(|source| |service: &Service| source.service_claims(service, sink)),
            ),
            ClusterChange::Pod(event) => {
                removed(event, self.sources.iter().map(|source| |pod: &Pod| source.pod_claims(pod, sink)))
            }
            ClusterChange::Slice(event) => {
                let service = cluster::service_of(event.object()).and_then(|key| self.content.service(&key));
                let service = service.as_ref();
                removed(
                    event,
                    self.sources
                        .iter()
                        .map(|source| move |slice: &EndpointSlice| source.slice_claims(slice, service, sink)),
                )
            }
        }
    }

    /// Returns the groups that have changed since the last call.
    fn changed(&self, content: &ClusterContent, slices: &[ObjectKey]) -> BTreeSet<Group> {
        let services = cluster::changed(&self.content.services, &content.services);
        let mut groups: BTreeSet<_> = services.into_iter().map(Group::Service).collect();
        groups.extend(cluster::changed(&self.content.pods, &content.pods).into_iter().map(Group::Pod));
        for key in slices {
            let services = [self.content.service_of(key), content.service_of(key)];
            groups.extend(services.into_iter().flatten().map(Group::Service));
        }
        groups
    }

    /// Takes the content, with these changed slices.
    fn take_in(&mut self, content: ClusterContent, slices: Vec<ObjectKey>) {
        for key in slices {
            if let Some(service) = self.content.service_of(&key) {
                self.slices.remove(&(service, key.clone()));
            }
            if let Some(service) = content.service_of(&key) {
                self.slices.insert((service, key));
                self.new_slices.add();
            }
        }
        self.new_slices.pack(self.slices.len(), &mut self.slices);
        self.content.take_in(content);
    }

    /// Returns the claims of a group.
    fn claims(&self, group: &Group) -> Claims {
        match group {
            Group::Service(key) => self.claims_of_service(key),
            Group::Pod(key) => self.claims_of_pod(key),
        }
    }

    fn claims_of_service(&self, key: &ObjectKey) -> Claims {
        let (sink, mut claims) = (&*self.sink, Claims::default());
        let service = self.content.services.as_ref().and_then(|services| services.get(key));
        let service = service.and_then(|service| read("service", &service, &mut claims));
        if let Some(service) = &service {
            let parts = self.sources.iter().filter_map(|source| source.service_claims(service, sink));
            parts.for_each(|part| claims.extend(part));
        }
        let slices = self.slices.range((key.clone(), ObjectKey::cluster(""))..);
        for (_, key) in slices.take_while(|(service, _)| service == key) {
            let slice = self.content.slices.as_ref().and_then(|slices| slices.get(key));
            let Some(slice) = slice.and_then(|slice| read("endpointslice", &slice, &mut claims)) else {
                continue;
            };
            let parts =
                self.sources.iter().filter_map(|source| source.slice_claims(&slice, service.as_ref(), sink));
            parts.for_each(|part| claims.extend(part));
        }
        claims
    }

    fn claims_of_pod(&self, key: &ObjectKey) -> Claims {
        let mut claims = Claims::default();
        let pod = self.content.pods.as_ref().and_then(|pods| pods.get(key));
        if let Some(pod) = pod.and_then(|pod| read("pod", &pod, &mut claims)) {
            let parts = self.sources.iter().filter_map(|source| source.pod_claims(&pod, &*self.sink));
            parts.for_each(|part| claims.extend(part));
        }
        claims
    }

    /// Notes what a group asks for beside entries, and returns its entries.
    fn note(&mut self, group: &Group, mut claims: Claims) -> BTreeMap<EntryName, Vec<DesiredEntry>> {
        let attachments = std::mem::take(&mut claims.attachments);
        match attachments.is_empty() {
            true => self.attachments.remove(group),
            false => self.attachments.insert(group.clone(), attachments),
        };
        let (entries, rejected) = claims.into_entries(&*self.sink);
        match rejected.is_empty() {
            true => self.rejected.remove(group),
            false => self.rejected.insert(group.clone(), rejected),
        };
        entries
    }

    /// Replaces the entries of these groups for each name.
    fn merge(&mut self, names: BTreeMap<EntryName, BTreeMap<Group, Vec<DesiredEntry>>>) {
        let all = Arc::make_mut(&mut self.entries);
        for (name, changed) in names {
            let mut entries = all.get(&name).map(Packed::unpack).unwrap_or_default();
            entries.retain(|entry| !changed.contains_key(&Group::from_owner(&entry.owner)));
            entries.extend(changed.into_values().flatten());
            if entries.is_empty() {
                all.remove(&name);
                continue;
            }
            entries.sort_by(|a, b| a.owner.cmp(&b.owner));
            let entries = Packed::new(&entries);
            if all.get(&name) != Some(&entries) {
                all.insert(name, entries);
                self.new_entries.add();
            }
        }
        self.new_entries.pack(all.len(), all);
    }
}

impl Group {
    /// Returns the group whose entries have this owner.
    fn from_owner(owner: &EntryOwner) -> Self {
        let key = ObjectKey::namespaced(&owner.namespace, &owner.name);
        if &*owner.resource == "pod" { Self::Pod(key) } else { Self::Service(key) }
    }
}

/// Decodes an object. An undecodable object is rejected.
///
/// The decoded object is not kept: it takes more memory than all that is made from it, and is not needed before the next change.
fn read<K: DeserializeOwned>(resource: &str, object: &Object<K>, claims: &mut Claims) -> Option<K> {
    let owner = || EntryOwner {
        resource: resource.into(),
        namespace: object.namespace().unwrap_or_default().into(),
        name: object.name().into(),
        uid: object.uid().into(),
    };
    let decoded = object.decode();
    decoded.map_err(|error| claims.reject(&owner(), format!("it cannot be read: {error}"))).ok()
}

/// Returns the removals that an event is evidence for: of changes that the watch showed, in sources that still select the object.
fn removed<K, S>(event: &Event<K>, sources: impl Iterator<Item = S>) -> BTreeSet<Removal>
where
    K: DeserializeOwned,
    S: Fn(&K) -> Option<Claims>,
{
    let (old, new) = match event {
        Event::Updated { old, new, flags } if !flags.gap => (old, Some(new)),
        Event::Deleted { old, flags, .. } if !flags.gap => (old, None),
        _ => return BTreeSet::new(),
    };
    let (Ok(old), new) = (old.decode(), new.map(Object::decode)) else { return BTreeSet::new() };
    let mut removals = BTreeSet::new();
    for source in sources {
        let Some(before) = source(&old) else { continue };
        let after = match &new {
            None => BTreeSet::new(),
            Some(Ok(new)) => match source(new) {
                Some(after) => after.removals(),
                // It exists and is no longer selected: that is no deletion.
                None => continue,
            },
            Some(Err(_)) => continue,
        };
        removals.extend(before.removals().difference(&after).cloned());
    }
    removals
}
