//! What the cluster's objects ask the outside for. Pure: from objects to claims, and from claims to entries.

mod source;
mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use skopos::{DecodeError, Event, Object, Snapshot};

pub use self::source::{EndpointSource, ServiceSource, Source};
pub use self::template::{Template, TemplateError};
use crate::entry::{Entry, Name, Owner, Readiness, Value};
use crate::plan::Removal;
use crate::sink::Sink;

/// What the objects of a cluster ask one sink for.
pub struct Desired {
    sources: Vec<Source>,
    sink: Arc<dyn Sink>,
    services: Cache,
    slices: Cache,
    entries: Arc<BTreeMap<Name, Vec<Entry>>>,
    rejected: Vec<Rejected>,
}

/// Something that an object asks for, and a source of which this sink is fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// Who asks.
    pub owner: Owner,
    /// What is to be behind it.
    pub members: BTreeMap<Value, Readiness>,
}

/// Something that was asked for, and cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The object, as `service/ns/name`.
    pub object: String,
    /// Why, for people.
    pub reason: String,
}

/// What one object asks for. `None` for a source that does not mean the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) claims: Vec<Claim>,
    pub(crate) rejected: Vec<Rejected>,
}

/// The claims of each object, by key, and the version they are of.
type Cache = HashMap<String, (String, Arc<Claims>)>;

impl Desired {
    /// Makes the desired state of a sink, fed by some sources.
    pub fn new(sink: Arc<dyn Sink>, sources: Vec<Source>) -> Self {
        Self {
            sources,
            sink,
            services: Cache::new(),
            slices: Cache::new(),
            entries: Arc::default(),
            rejected: Vec::new(),
        }
    }

    /// Takes in what the cluster has now, and returns what it asks for.
    pub fn look(
        &mut self,
        services: &Snapshot<Service>,
        slices: &Snapshot<EndpointSlice>,
    ) -> Arc<BTreeMap<Name, Vec<Entry>>> {
        let (sources, sink) = (&self.sources, &*self.sink);
        let changed = refresh(&mut self.services, services, |service| of_service(sources, sink, service))
            | refresh(&mut self.slices, slices, |slice| of_slice(sources, sink, slice));
        if changed {
            self.merge();
        }
        self.entries.clone()
    }

    /// What was asked for and cannot be had.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// What a change of a Service, that was seen, takes away.
    pub fn removed_by_service(&self, event: &Event<Service>) -> BTreeSet<Removal> {
        removed(
            event,
            self.sources.iter().map(|source| |service: &Service| source.of_service(service, &*self.sink)),
        )
    }

    /// What a change of an EndpointSlice, that was seen, takes away.
    pub fn removed_by_slice(&self, event: &Event<EndpointSlice>) -> BTreeSet<Removal> {
        removed(
            event,
            self.sources.iter().map(|source| |slice: &EndpointSlice| source.of_slice(slice, &*self.sink)),
        )
    }

    fn merge(&mut self) {
        let mut entries: BTreeMap<Name, BTreeMap<Owner, BTreeMap<Value, Readiness>>> = BTreeMap::new();
        let mut rejected = BTreeMap::new();
        let known: HashMap<String, Arc<str>> = self
            .services
            .values()
            .flat_map(|(_, claims)| &claims.claims)
            .map(|claim| (claim.owner.to_string(), claim.owner.uid.clone()))
            .collect();
        for claims in self.services.values().chain(self.slices.values()).map(|(_, claims)| claims) {
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
            Entry { owner, members }
        };
        let entries =
            entries.into_iter().map(|(name, owners)| (name, owners.into_iter().map(entry).collect()));
        self.entries = Arc::new(entries.collect());
        self.rejected = rejected.into_values().collect();
    }
}

fn of_service(sources: &[Source], sink: &dyn Sink, service: &Service) -> Claims {
    Claims::join(sources.iter().filter_map(|source| source.of_service(service, sink)))
}

fn of_slice(sources: &[Source], sink: &dyn Sink, slice: &EndpointSlice) -> Claims {
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

    /// Everything that is asked for: names, and values behind them.
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

/// Reads the objects again that have changed.
fn refresh<K>(cache: &mut Cache, snapshot: &Snapshot<K>, claims: impl Fn(&K) -> Claims) -> bool
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    let before = cache.len();
    let mut changed = false;
    let mut kept = Cache::with_capacity(snapshot.len());
    for object in snapshot.iter() {
        let (key, version) =
            (object.key().to_string(), format!("{}/{}", object.uid(), object.resource_version()));
        let known = cache.remove(&key).filter(|(known, _)| *known == version);
        let claims = known.unwrap_or_else(|| {
            changed = true;
            let read = object.typed().map(|typed| claims(&typed));
            let reason = |error: DecodeError| Claims {
                rejected: vec![Rejected {
                    object: key.clone(),
                    reason: format!("it cannot be read: {error}"),
                }],
                claims: Vec::new(),
            };
            (version, Arc::new(read.unwrap_or_else(reason)))
        });
        kept.insert(key, claims);
    }
    let changed = changed || before != kept.len();
    *cache = kept;
    changed
}

/// What one event takes away: only what was seen, and only where the sources still mean the object, or it is gone.
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
