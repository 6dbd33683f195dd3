//! The desired state: from objects to claims, and from claims to entries. Pure.

mod source;
mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use skopos::{Digest, Event, Object, ObjectKey, Snapshot};

pub use self::source::{ClaimSource, EndpointSource, ServiceSource};
pub use self::template::{Template, TemplateError};
use crate::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue, Readiness};
use crate::plan::Removal;
use crate::sink::Sink;

/// The desired state of one sink.
pub struct Desired {
    sources: Vec<ClaimSource>,
    sink: Arc<dyn Sink>,
    services: Cache<Service>,
    slices: Cache<EndpointSlice>,
    entries: Arc<BTreeMap<EntryName, Vec<DesiredEntry>>>,
    rejected: Vec<Rejected>,
}

/// A name that an object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name.
    pub name: EntryName,
    /// The object.
    pub owner: EntryOwner,
    /// The values.
    pub members: BTreeMap<EntryValue, Readiness>,
}

/// A claim that the sink cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The object, as `service/ns/name`.
    pub object: String,
    /// The reason, for people.
    pub reason: String,
}

/// The claims of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) claims: Vec<Claim>,
    pub(crate) rejected: Vec<Rejected>,
}

/// The claims of each object, and the version that they are of.
struct Cache<K> {
    digest: Option<Digest>,
    objects: HashMap<ObjectKey, (Object<K>, Arc<Claims>)>,
}

impl Desired {
    /// Makes the desired state of a sink, fed by some sources.
    pub fn new(sink: Arc<dyn Sink>, sources: Vec<ClaimSource>) -> Self {
        Self {
            sources,
            sink,
            services: Cache::default(),
            slices: Cache::default(),
            entries: Arc::default(),
            rejected: Vec::new(),
        }
    }

    /// Takes in the content of the cluster, and returns the desired entries.
    pub fn look(
        &mut self,
        services: &Snapshot<Service>,
        slices: &Snapshot<EndpointSlice>,
    ) -> Arc<BTreeMap<EntryName, Vec<DesiredEntry>>> {
        let (sources, sink) = (&self.sources, &*self.sink);
        let changed = self.services.refresh(services, |service| of_service(sources, sink, service))
            | self.slices.refresh(slices, |slice| of_slice(sources, sink, slice));
        if changed {
            self.merge();
        }
        self.entries.clone()
    }

    /// Returns the claims that the sink cannot have.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Returns the removals that a change of a Service is evidence for.
    pub fn removed_by_service(&self, event: &Event<Service>) -> BTreeSet<Removal> {
        removed(
            event,
            self.sources.iter().map(|source| |service: &Service| source.of_service(service, &*self.sink)),
        )
    }

    /// Returns the removals that a change of an EndpointSlice is evidence for.
    pub fn removed_by_slice(&self, event: &Event<EndpointSlice>) -> BTreeSet<Removal> {
        removed(
            event,
            self.sources.iter().map(|source| |slice: &EndpointSlice| source.of_slice(slice, &*self.sink)),
        )
    }

    fn merge(&mut self) {
        let mut entries: BTreeMap<EntryName, BTreeMap<EntryOwner, BTreeMap<EntryValue, Readiness>>> =
            BTreeMap::new();
        let mut rejected = BTreeMap::new();
        let known: HashMap<String, Arc<str>> = self
            .services
            .claims()
            .flat_map(|claims| &claims.claims)
            .map(|claim| (claim.owner.to_string(), claim.owner.uid.clone()))
            .collect();
        for claims in self.services.claims().chain(self.slices.claims()) {
            for claim in &claims.claims {
                let mut owner = claim.owner.clone();
                if owner.uid.is_empty()
                    && let Some(uid) = known.get(&owner.to_string())
                {
                    owner.uid = uid.clone();
                }
                let members = entries.entry(claim.name.clone()).or_default().entry(owner).or_default();
                for (value, readiness) in &claim.members {
                    // In two slices at once, for a moment: the better one counts.
                    members
                        .entry(value.clone())
                        .and_modify(|known| *known = (*known).min(*readiness))
                        .or_insert(*readiness);
                }
            }
            rejected.extend(
                claims
                    .rejected
                    .iter()
                    .map(|rejected| ((rejected.object.clone(), rejected.reason.clone()), rejected.clone())),
            );
        }
        let entry = |(owner, mut members)| {
            self.sink.select(&mut members);
            DesiredEntry { owner, members }
        };
        let entries =
            entries.into_iter().map(|(name, owners)| (name, owners.into_iter().map(entry).collect()));
        self.entries = Arc::new(entries.collect());
        self.rejected = rejected.into_values().collect();
    }
}

fn of_service(sources: &[ClaimSource], sink: &dyn Sink, service: &Service) -> Claims {
    Claims::join(sources.iter().filter_map(|source| source.of_service(service, sink)))
}

fn of_slice(sources: &[ClaimSource], sink: &dyn Sink, slice: &EndpointSlice) -> Claims {
    Claims::join(sources.iter().filter_map(|source| source.of_slice(slice, sink)))
}

impl Claims {
    fn join(parts: impl Iterator<Item = Claims>) -> Self {
        parts.fold(Self::default(), |mut all, part| {
            all.claims.extend(part.claims);
            all.rejected.extend(part.rejected);
            all
        })
    }

    /// Returns the names and values as removals.
    fn removals(&self) -> BTreeSet<Removal> {
        let of = |claim: &Claim| {
            let name = Removal { name: claim.name.clone(), value: None };
            let values: Vec<_> = claim
                .members
                .keys()
                .map(|value| Removal { name: claim.name.clone(), value: Some(value.clone()) })
                .collect();
            std::iter::once(name).chain(values)
        };
        self.claims.iter().flat_map(of).collect()
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { digest: None, objects: HashMap::new() }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Cache<K> {
    /// Reads the objects again that have changed; `false` if none has.
    fn refresh(&mut self, snapshot: &Snapshot<K>, claims: impl Fn(&K) -> Claims) -> bool {
        if self.digest == Some(snapshot.digest()) {
            return false;
        }
        self.digest = Some(snapshot.digest());
        let mut kept = HashMap::with_capacity(snapshot.len());
        for object in snapshot.iter() {
            let known = self.objects.remove(object.key());
            let known = known.filter(|(known, _)| known.same_version(&object)).map(|(_, claims)| claims);
            let claims = known.unwrap_or_else(|| Arc::new(read(&object, &claims)));
            kept.insert(object.key().clone(), (object, claims));
        }
        self.objects = kept;
        true
    }

    fn claims(&self) -> impl Iterator<Item = &Claims> {
        self.objects.values().map(|(_, claims)| &**claims)
    }
}

/// Returns the claims of an object. An object that cannot be read is reported as rejected.
fn read<K: DeserializeOwned + Send + Sync + 'static>(
    object: &Object<K>,
    claims: impl Fn(&K) -> Claims,
) -> Claims {
    match object.typed() {
        Ok(typed) => claims(&typed),
        Err(error) => {
            let rejected =
                Rejected { object: object.key().to_string(), reason: format!("it cannot be read: {error}") };
            Claims { rejected: vec![rejected], claims: Vec::new() }
        }
    }
}

/// Returns the removals that an event is evidence for: of changes that the watch showed, in sources that still select the object.
fn removed<K, S>(event: &Event<K>, sources: impl Iterator<Item = S>) -> BTreeSet<Removal>
where
    K: DeserializeOwned + Send + Sync + 'static,
    S: Fn(&K) -> Option<Claims>,
{
    let (old, new) = match event {
        Event::Updated { old, new, flags } if !flags.gap => (old, Some(new)),
        Event::Deleted { old, flags, .. } if !flags.gap => (old, None),
        _ => return BTreeSet::new(),
    };
    let (Ok(old), new) = (old.typed(), new.map(Object::typed)) else { return BTreeSet::new() };
    let mut removals = BTreeSet::new();
    for source in sources {
        let Some(before) = source(&old) else { continue };
        let after = match &new {
            None => BTreeSet::new(),
            Some(Ok(new)) => match source(new) {
                Some(after) => after.removals(),
                // It is there and no longer meant: that is no deletion.
                None => continue,
            },
            Some(Err(_)) => continue,
        };
        removals.extend(before.removals().difference(&after).cloned());
    }
    removals
}
