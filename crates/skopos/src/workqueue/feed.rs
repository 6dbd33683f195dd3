//! Queues that an informer feeds.

use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use super::core::AddError;
use super::queue::WorkQueue;
use crate::handler::{Event, EventHandler, HandlerHandle, HandlerOptions};
use crate::informer::Informer;
use crate::store::Closed;

/// The time after which a handler that waits for room says so in the log, and waits again.
const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl<Q: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<Q> {
    /// Adds the keys that `keys` returns for each change of the informer's objects, from now on. The handler has the name of the
    /// queue. It ends when the queue is shut down, the informer's factory is, or the returned handle removes it.
    ///
    /// If the queue is full, the handler waits, and its own queue coalesces: no key is lost.
    ///
    /// # Errors
    /// If the factory was shut down.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example(factory: skopos::InformerFactory) -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use skopos::InformerOptions;
    /// use skopos::workqueue::{WorkQueue, WorkQueueOptions};
    ///
    /// let deployments = factory.informer::<Deployment>(InformerOptions::all())?;
    /// let queue = WorkQueue::new(WorkQueueOptions::named("deployments"));
    /// queue.fed_by(&deployments, |event| [event.key().clone()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fed_by<K, I>(
        &self,
        informer: &Informer<K>,
        keys: impl Fn(&Event<K>) -> I + Send + Sync + 'static,
    ) -> Result<HandlerHandle, Closed>
    where
        K: 'static,
        I: IntoIterator<Item = Q>,
    {
        let feed = Feed { queue: self.clone(), keys };
        informer.add_handler(feed, HandlerOptions::named(self.stats().name))
    }
}

/// A handler that adds keys to a queue.
struct Feed<Q, F> {
    queue: WorkQueue<Q>,
    keys: F,
}

impl<K, Q, F, I> EventHandler<K> for Feed<Q, F>
where
    K: 'static,
    Q: Clone + Eq + Hash + Send + Sync + 'static,
    F: Fn(&Event<K>) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = Q>,
{
    fn handle(&self, event: Event<K>) -> impl Future<Output = ()> + Send {
        let keys: Vec<_> = (self.keys)(&event).into_iter().collect();
        async move {
            for key in keys {
                add(&self.queue, key).await;
            }
        }
    }
}

/// Adds a key, and waits for room without a bound: the handler's own queue has one, and the wait ends with the queue.
async fn add<Q: Clone + Eq + Hash>(queue: &WorkQueue<Q>, key: Q) {
    while let Err(full @ AddError::Full { .. }) = queue.add_within(key.clone(), FULL_WARNING_INTERVAL).await {
        tracing::warn!(queue = queue.stats().name, "keys wait: {full}");
    }
}
