//! The objects of one resource, from the cluster to the outbox of a receiver.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{Peekable, Stream, StreamExt as _};
use kube::core::{ApiResource, GroupVersion};
use skopos::{Digest, Event, Informer, InformerFactory, InformerOptions, Object, RawObject};
use skopos_reflect::{Clock, Time};

use super::sink_loop::AUDIT_TIMEOUT;
use super::watched::as_of;
use crate::event::{Departure, EventKey, EventSource, ObjectContent, Outbox, ResourceName};

/// Objects of one resource.
pub(super) struct EventFeed {
    source: EventSource,
    resource: Arc<str>,
    informer: Informer<RawObject>,
    events: Pin<Box<Peekable<Events>>>,
    /// Digest of the objects whose events were taken in. It equals that of a snapshot once all events up to it were taken in.
    told: Digest,
    /// The objects that exist, until everything was taken in once.
    present: Option<HashSet<EventKey>>,
    audit: Option<BoxFuture<'static, Option<Time>>>,
    audit_at: Time,
    /// Start time of a list that agreed with the store.
    audited: Option<Time>,
}

type Events = Pin<Box<dyn Stream<Item = Event<RawObject>> + Send>>;

/// State of a feed after it took in its events.
pub(super) struct FeedState {
    /// Time up to which the outbox knows the cluster; `None` if there is more to take in.
    pub(super) as_of: Option<Time>,
    /// Time up to which the store is proven; `None` before the first list.
    pub(super) view_as_of: Option<Time>,
    /// Reason for which the store is old.
    pub(super) problem: Option<String>,
    /// Number of objects.
    pub(super) objects: usize,
    /// True if there were more events than are taken in at once.
    pub(super) has_more: bool,
}

/// Maximum number of events taken in before commands and deliveries have their turn.
const MAX_EVENTS: usize = 2_000;
/// Time limit of the request for a resource's kind, and the pause before the next one.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

impl EventFeed {
    /// Starts a watch of the objects of a source.
    ///
    /// # Errors
    /// When the cluster does not serve the resource, or does not answer, with the reason for people.
    pub(super) async fn connect(
        factory: &InformerFactory,
        source: EventSource,
        clock: Clock,
    ) -> Result<Self, String> {
        let api = discover(factory, &source.resource).await?;
        let options = match source.namespaces.as_slice() {
            [] => InformerOptions::all(),
            namespaces => InformerOptions::namespaces(namespaces),
        };
        let informer = factory.raw(&api, options).map_err(|error| error.to_string())?;
        let events: Events = Box::pin(informer.events().map_err(|error| error.to_string())?);
        Ok(Self {
            resource: source.resource.to_string().into(),
            source,
            informer,
            events: Box::pin(events.peekable()),
            told: Digest::default(),
            present: Some(HashSet::new()),
            audit: None,
            audit_at: clock.now(),
            audited: None,
        })
    }

    pub(super) fn resource(&self) -> &Arc<str> {
        &self.resource
    }

    /// Takes in the new events.
    pub(super) fn take_in(&mut self, clock: Clock, outbox: &mut Outbox) -> FeedState {
        // The age is computed first, so that what is taken in after it is not older.
        let (snapshot, synced) = (self.informer.snapshot(), self.informer.has_synced());
        let freshness = snapshot.freshness();
        let now = clock.now();
        let view_as_of = as_of(&freshness, now);
        let mut has_more = true;
        for _ in 0..MAX_EVENTS {
            let Some(Some(event)) = self.events.next().now_or_never() else {
                has_more = false;
                break;
            };
            self.take(now, event, outbox);
        }
        let is_whole = synced && self.told == snapshot.digest();
        if is_whole {
            let version = snapshot.resource_version();
            outbox.saw_version(&self.resource, version);
            if let Some(present) = self.present.take() {
                outbox.synced(now, &self.resource, version, |key| present.contains(key));
            }
            if let Some(began) = self.audited.take() {
                outbox.listed(&self.resource, began);
            }
        }
        FeedState {
            as_of: view_as_of.filter(|_| is_whole),
            view_as_of,
            problem: freshness.reason().map(ToString::to_string),
            objects: snapshot.len(),
            has_more,
        }
    }

    /// Waits until there is something to take in. Cancel safe.
    pub(super) async fn changed(&mut self, clock: Clock) {
        let audit = async {
            match &mut self.audit {
                Some(audit) => audit.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.events.as_mut().peek() => if event.is_none() {
                // The factory was shut down, and the loop will be too.
                std::future::pending().await
            },
            began = audit => {
                self.audit = None;
                self.audit_at = clock.now() + AUDIT_TIMEOUT;
                self.audited = began;
            }
        }
    }

    /// Begins a list, if a deletion waits for one.
    pub(super) fn confirm(&mut self, clock: Clock, outbox: &Outbox) {
        let is_due = outbox.list_from(&self.resource).is_some_and(|at| at <= clock.now());
        if is_due && self.audit.is_none() && self.audited.is_none() && self.audit_at <= clock.now() {
            let informer = self.informer.clone();
            let audit = async move {
                let began = clock.now();
                let report = informer.audit(AUDIT_TIMEOUT).await.ok()?;
                let agrees = report.is_clean() && report.complete && report.not_compared.is_empty();
                agrees.then_some(began)
            };
            self.audit = Some(audit.boxed());
        }
    }

    /// Returns the time at which the next list is due.
    pub(super) fn list_at(&self, outbox: &Outbox) -> Option<Time> {
        let at = outbox.list_from(&self.resource)?;
        self.audit.is_none().then_some(at.max(self.audit_at))
    }

    fn take(&mut self, now: Time, event: Event<RawObject>, outbox: &mut Outbox) {
        let add = |told: &mut Digest, object: &Object<RawObject>| {
            told.add(object.key(), object.uid(), object.resource_version());
        };
        let remove = |told: &mut Digest, object: &Object<RawObject>| {
            told.remove(object.key(), object.uid(), object.resource_version());
        };
        match event {
            Event::Added { object, .. } => {
                add(&mut self.told, &object);
                self.present(now, &object, outbox);
            }
            Event::Updated { old, new, .. } => {
                remove(&mut self.told, &old);
                add(&mut self.told, &new);
                self.present(now, &new, outbox);
            }
            Event::Deleted { object, old, flags, .. } => {
                remove(&mut self.told, &old);
                let key = self.key(&object);
                if let Some(present) = &mut self.present {
                    present.remove(&key);
                }
                let how = if flags.gap { Departure::Missing } else { Departure::Deleted };
                outbox.gone(now, key, object.resource_version().clone(), how);
            }
        }
    }

    fn present(&mut self, now: Time, object: &Object<RawObject>, outbox: &mut Outbox) {
        let key = self.key(object);
        if let Some(present) = &mut self.present {
            present.insert(key.clone());
        }
        if self.source.selects(object.raw()) {
            let digest = ObjectContent::new(object.raw(), &self.source.fields).digest;
            outbox.present(now, key, object.raw().clone(), digest);
        } else {
            outbox.gone(now, key, object.resource_version().clone(), Departure::Deselected);
        }
    }

    fn key(&self, object: &Object<RawObject>) -> EventKey {
        EventKey { resource: self.resource.clone(), object: object.key().clone() }
    }
}

/// Returns the kinds of changes that are reported, by resource.
pub(super) fn told_changes(
    sources: &[EventSource],
) -> BTreeMap<Arc<str>, BTreeSet<crate::event::ChangeKind>> {
    let some = sources.iter().filter(|source| !source.changes.is_empty());
    some.map(|source| (source.resource.to_string().into(), source.changes.clone())).collect()
}

/// Asks the cluster for the kind of a resource.
async fn discover(factory: &InformerFactory, resource: &ResourceName) -> Result<ApiResource, String> {
    let client = factory.transport().client("default");
    let version = resource.api_version();
    let asked = async {
        match resource.group.as_str() {
            "" => client.list_core_api_resources(&version).await,
            _ => client.list_api_group_resources(&version).await,
        }
    };
    let answer = tokio::time::timeout(DISCOVERY_TIMEOUT, asked).await;
    let list = answer
        .map_err(|_| {
            format!("the cluster does not say within {DISCOVERY_TIMEOUT:?} whether it serves {resource}")
        })?
        .map_err(|error| format!("the cluster does not say whether it serves {resource}: {error}"))?;
    let found = list.resources.iter().find(|served| served.name == resource.plural).ok_or_else(|| {
        format!(
            "the cluster serves no {} in {version}: correct from.objects.kind, or install it",
            resource.plural
        )
    })?;
    let version = GroupVersion::gv(&resource.group, &resource.version);
    Ok(ApiResource::from_gvk_with_plural(&version.with_kind(&found.kind), &resource.plural))
}
