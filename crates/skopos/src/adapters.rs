//! For those who come from kube-runtime: an informer in place of its `watcher`.
//!
//! ```text
//!  Informer ── kube_watcher ──▶ kube_runtime::reflector ──▶ Store, stream ──▶ Controller
//! ```
//!
//! Everything behind the stream stays as it is, and gets what kube-runtime's own watcher does not give: one list/watch for
//! all controllers of the process, deletions that happened in a gap, no list after a lost connection.

use std::collections::VecDeque;
use std::hash::Hash;
use std::ops::Deref;

use futures::{Stream, StreamExt, stream};
use kube_runtime::reflector::{self, Lookup};
use kube_runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::handler::{Event, HandlerOptions};
use crate::informer::{EVENTS_AHEAD, Informer, RemoveOnDrop};
use crate::object::Object;
use crate::store::Closed;

/// A kube-runtime store that is kept in step with an informer.
///
/// Dropping it ends that; copies of the store stay as they are then.
pub struct KubeStore<K: Lookup + Clone + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    store: reflector::Store<K>,
    _stop: DropGuard,
}

impl<K> Informer<K>
where
    K: DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// The informer's content and changes in the form of kube-runtime's
    /// [`watcher`](kube_runtime::watcher()): `Init`, an `InitApply` for each object, `InitDone`, then `Apply` and `Delete`.
    ///
    /// Give it to [`kube_runtime::reflector()`] and on to a `Controller` (`Controller::for_stream`, behind kube-runtime's feature
    /// `unstable-runtime-stream-control`) or to [`kube_runtime::controller::applier`], which is stable; see the examples.
    /// Objects that do not fit `K` come as an error each; the stream goes on. It ends when the factory is shut down.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn kube_watcher(
        &self,
    ) -> Result<impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>, Closed> {
        let (sender, events) = mpsc::channel(EVENTS_AHEAD);
        let handler = move |event: Event<K>| {
            let sender = sender.clone();
            async move {
                // Nobody listens any more: the handler is on its way out.
                let _ = sender.send(event).await;
            }
        };
        let handler = self.add_handler(handler, HandlerOptions::named("kube-watcher"))?;
        let watch = Watch {
            events,
            handler: RemoveOnDrop(handler),
            phase: Phase::Begin,
            ready: VecDeque::new(),
            deleted: Vec::new(),
        };
        Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
    }

    /// A kube-runtime store of a type that is known when compiling.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn kube_store(&self) -> Result<KubeStore<K>, Closed>
    where
        K: Lookup,
        K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
    {
        self.kube_store_with(K::DynamicType::default())
    }

    /// A kube-runtime store of a dynamic type.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn kube_store_with(&self, dynamic: K::DynamicType) -> Result<KubeStore<K>, Closed>
    where
        K: Lookup,
        K::DynamicType: Eq + Hash + Clone + Send + Sync,
    {
        let mut writer = reflector::store::Writer::new(dynamic);
        let store = writer.as_reader();
        let mut events = Box::pin(self.kube_watcher()?);
        let factory = &self.shared.factory;
        let stop = factory.stop.child_token();
        let until = stop.clone();
        factory.tasks.spawn(async move {
            while let Some(Some(event)) = until.run_until_cancelled(events.next()).await {
                match event {
                    Ok(event) => writer.apply_watcher_event(&event),
                    Err(error) => tracing::warn!(%error, "an object is missing in a kube-runtime store"),
                }
            }
        });
        Ok(KubeStore { store, _stop: stop.drop_guard() })
    }
}

impl<K: Lookup + Clone + 'static> Deref for KubeStore<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    type Target = reflector::Store<K>;

    fn deref(&self) -> &reflector::Store<K> {
        &self.store
    }
}

/// The stream under way.
struct Watch<K> {
    events: mpsc::Receiver<Event<K>>,
    handler: RemoveOnDrop,
    phase: Phase,
    ready: VecDeque<watcher::Result<watcher::Event<K>>>,
    /// What was deleted before the first list was through: kube-runtime has no word for it.
    deleted: Vec<Object<K>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Listing,
    Watching,
}

impl<K: DeserializeOwned + 'static> Watch<K> {
    async fn next(&mut self) -> Option<watcher::Result<watcher::Event<K>>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Listing;
                    return Some(Ok(watcher::Event::Init));
                }
                Phase::Listing => tokio::select! {
                    biased;
                    event = self.events.recv() => self.listed(event?),
                    // All that was there is in the channel before the handler is synced, and was taken out of it above.
                    synced = self.handler.0.synced() => {
                        synced.ok()?;
                        self.phase = Phase::Watching;
                        self.ready.push_back(Ok(watcher::Event::InitDone));
                        let deleted = std::mem::take(&mut self.deleted);
                        self.ready.extend(deleted.iter().map(|object| decoded(object, watcher::Event::Delete)));
                    }
                },
                Phase::Watching => {
                    let event = self.events.recv().await?;
                    return Some(match &event {
                        Event::Deleted { object, .. } => decoded(object, watcher::Event::Delete),
                        other => decoded(other.object(), watcher::Event::Apply),
                    });
                }
            }
        }
    }

    fn listed(&mut self, event: Event<K>) {
        match event {
            Event::Deleted { object, .. } => self.deleted.push(object),
            other => {
                let object = other.object();
                self.deleted.retain(|deleted| deleted.key() != object.key());
                self.ready.push_back(decoded(object, watcher::Event::InitApply));
            }
        }
    }
}

fn decoded<K: DeserializeOwned>(
    object: &Object<K>,
    event: fn(K) -> watcher::Event<K>,
) -> watcher::Result<watcher::Event<K>> {
    let decoded = object.decode().map(event);
    decoded.map_err(|error| watcher::Error::WatchFailed(kube::Error::Service(Box::new(error))))
}
