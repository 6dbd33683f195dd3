use std::future::Future;

use super::event::Event;
use crate::store::object::Object;

/// Code that is called for each change, one call at a time, in order.
///
/// Every closure that takes an [`Event`] and returns a future is one. It may be slow: no other task waits for it, and when
/// it falls behind, its changes are coalesced per key. It must not block the thread; blocking work belongs into
/// `tokio::task::spawn_blocking` or a thread of its own.
///
/// If it panics, the same event is delivered again, a few times; so an event may be seen in part more than once.
pub trait EventHandler<K>: Send + Sync + 'static {
    /// Handles one event.
    fn handle(&self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K, F, Fut> EventHandler<K> for F
where
    F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    fn handle(&self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self(event)
    }
}

/// Makes a handler from a closure that needs no `async`.
pub fn sync_handler<K, F>(function: F) -> SyncHandler<F>
where
    F: Fn(Event<K>) + Send + Sync + 'static,
{
    SyncHandler(function)
}

/// A handler without `async`, made by [`sync_handler`].
pub struct SyncHandler<F>(F);

impl<K, F> EventHandler<K> for SyncHandler<F>
where
    K: 'static,
    F: Fn(Event<K>) + Send + Sync + 'static,
{
    async fn handle(&self, event: Event<K>) {
        (self.0)(event);
    }
}

/// A handler with three callbacks, as in client-go. Wrap it in [`Callbacks`] to add it.
pub trait EventCallbacks<K>: Send + Sync + 'static {
    /// Handles a new object, or, if `initial`, one that existed when the handler started.
    fn on_add(&self, _object: Object<K>, _initial: bool) {}
    /// Handles a new version of an object.
    fn on_update(&self, _old: Object<K>, _new: Object<K>) {}
    /// Handles the deletion of an object. Without `final_state_known`, the object may have changed once more before.
    fn on_delete(&self, _object: Object<K>, _final_state_known: bool) {}
}

/// An [`EventHandler`] made from [`EventCallbacks`].
pub struct Callbacks<C>(pub C);

impl<K: 'static, C: EventCallbacks<K>> EventHandler<K> for Callbacks<C> {
    async fn handle(&self, event: Event<K>) {
        match event {
            Event::Added { object, initial, .. } => self.0.on_add(object, initial),
            Event::Updated { old, new, .. } => self.0.on_update(old, new),
            Event::Deleted { object, final_state_known, .. } => self.0.on_delete(object, final_state_known),
        }
    }
}
