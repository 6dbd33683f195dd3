//! An informer as the source of a kube-runtime controller, in place of its `watcher`.
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
use skopos_wire::ObjectKey;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use super::{EVENTS_CAPACITY, Informer, RemoveOnDrop};
use crate::handler::{Event, HandlerOptions};
use crate::store::Closed;
use crate::store::object::Object;

/// A kube-runtime store that is kept in step with an informer.
///
/// Dropping it stops the updates; copies of the store then keep their last content.
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
    /// Returns a stream of the informer's content and changes in the form of kube-runtime's
    /// [`watcher`](kube_runtime::watcher()): `Init`, an `InitApply` for each object, `InitDone`, then `Apply` and `Delete`.
    ///
    /// Give it to [`kube_runtime::reflector()`] and on to a `Controller` (`Controller::for_stream`, behind kube-runtime's feature
    /// `unstable-runtime-stream-control`) or to [`kube_runtime::controller::applier`], which is stable; see the examples.
    /// An object that does not fit `K` comes as an error, and the stream continues. If its previous version did fit, a
    /// `Delete` retracts it, so that the stream's consumer does not take it for the current one. The stream ends when the
    /// factory is shut down.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn kube_watcher(
        &self,
    ) -> Result<impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>, Closed> {
        let (sender, events) = mpsc::channel(EVENTS_CAPACITY);
        let handler = move |event: Event<K>| {
            let sender = sender.clone();
            async move {
                // The receiver is gone: the handler is being removed.
                let _ = sender.send(event).await;
            }
        };
        let handler = self.add_handler(handler, HandlerOptions::named("kube-watcher"))?;
        let watch = WatcherStream {
            events,
            handler: RemoveOnDrop(handler),
            phase: StreamPhase::Begin,
            ready: VecDeque::new(),
            retracted: Vec::new(),
        };
        Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
    }

    /// Returns a kube-runtime store of a type that is known at compile time. An object whose newest version does not fit
    /// `K` is not in the store; the log says so.
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

    /// Returns a kube-runtime store of a dynamic type; otherwise like [`Informer::kube_store`].
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
        let context = &self.shared.context;
        let stop = context.stop.child_token();
        let until = stop.clone();
        context.tasks.spawn(async move {
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

/// The state of the stream.
struct WatcherStream<K> {
    events: mpsc::Receiver<Event<K>>,
    handler: RemoveOnDrop,
    phase: StreamPhase,
    ready: VecDeque<watcher::Result<watcher::Event<K>>>,
    /// Objects that were passed on and retracted before the first list was complete: kube-runtime has no event for that.
    retracted: Vec<(ObjectKey, K)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamPhase {
    Begin,
    Listing,
    Watching,
}

impl<K: DeserializeOwned + 'static> WatcherStream<K> {
    async fn next(&mut self) -> Option<watcher::Result<watcher::Event<K>>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            match self.phase {
                StreamPhase::Begin => {
                    self.phase = StreamPhase::Listing;
                    return Some(Ok(watcher::Event::Init));
                }
                StreamPhase::Listing => tokio::select! {
                    biased;
                    event = self.events.recv() => self.take(&event?),
                    synced = self.handler.0.synced() => {
                        synced.ok()?;
                        self.end_listing();
                    }
                },
                StreamPhase::Watching => {
                    let event = self.events.recv().await?;
                    self.take(&event);
                }
            }
        }
    }

    /// Ends the initial list, once the handler has passed on all of it. Drains the channel first: the handler runs on
    /// another thread, and its last events may have arrived after this task looked there.
    fn end_listing(&mut self) {
        for _ in 0..self.events.len() {
            let Ok(event) = self.events.try_recv() else { break };
            self.take(&event);
        }
        self.phase = StreamPhase::Watching;
        self.ready.push_back(Ok(watcher::Event::InitDone));
        let retracted = self.retracted.drain(..);
        self.ready.extend(retracted.map(|(_, object)| Ok(watcher::Event::Delete(object))));
    }

    /// Queues the watcher events of one change. The stream gives a key's newest version or none: a version that does not
    /// fit retracts the previous one.
    fn take(&mut self, event: &Event<K>) {
        let (newest, passed) = match event {
            Event::Added { object, .. } => (Some(object.decode()), None),
            Event::Updated { old, new, .. } => (Some(new.decode()), Some(old)),
            Event::Deleted { old, .. } => (None, Some(old)),
        };
        let error = match newest {
            Some(Ok(object)) => {
                self.retracted.retain(|(key, _)| key != event.key());
                return self.ready.push_back(Ok(match self.phase {
                    StreamPhase::Watching => watcher::Event::Apply(object),
                    _ => watcher::Event::InitApply(object),
                }));
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        // It was passed on if it fits; a deletion carries the final version, if that fits.
        if let Some(Ok(given)) = passed.map(Object::decode) {
            let last = match event {
                Event::Deleted { object, .. } => object.decode().unwrap_or(given),
                _ => given,
            };
            match self.phase {
                StreamPhase::Watching => self.ready.push_back(Ok(watcher::Event::Delete(last))),
                _ => self.retracted.push((event.key().clone(), last)),
            }
        }
        let error = error.map(|error| watcher::Error::WatchFailed(kube::Error::Service(Box::new(error))));
        self.ready.extend(error.map(Err));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::handler::{EventFlags, add, sync_handler};
    use crate::testing::{object, store};

    fn name_of(event: watcher::Result<watcher::Event<ConfigMap>>) -> String {
        match event.unwrap() {
            watcher::Event::InitApply(map) => format!("init {}", map.metadata.name.unwrap()),
            watcher::Event::InitDone => "done".to_owned(),
            _ => "another".to_owned(),
        }
    }

    #[tokio::test]
    async fn last_queued_event_belongs_to_first_list() {
        let (core, _writer) = store();
        let handler = sync_handler(|_: Event<ConfigMap>| {});
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let handle = add(&core, handler, HandlerOptions::default(), &tasks, &stop).unwrap();
        let (sender, events) = mpsc::channel(1);
        let one = Object::new(object("ns", "one", "u", 1));
        sender.try_send(Event::Added { object: one, initial: true, flags: EventFlags::default() }).unwrap();
        let (phase, ready, retracted) = (StreamPhase::Listing, VecDeque::new(), Vec::new());
        let mut watch = WatcherStream { events, handler: RemoveOnDrop(handle), phase, ready, retracted };
        watch.end_listing();
        assert_eq!(watch.ready.drain(..).map(name_of).collect::<Vec<_>>(), ["init one", "done"]);
    }
}
