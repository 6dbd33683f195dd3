//! Queues that an informer feeds.

use std::hash::Hash;
use std::time::Duration;

use super::core::AddError;
use super::lines::Priority;
use super::queue::WorkQueue;
use crate::handler::{Event, EventHandler, HandlerHandle, HandlerOptions};
use crate::informer::Informer;
use crate::store::Closed;

/// The time after which a handler that waits for room logs it, and waits again.
const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl<Q: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<Q> {
    /// Adds the keys that `keys` returns for each existing object and every later change. The handler has the name of the queue.
    /// Like every handler it runs until the returned handle removes it, or the factory is shut down; keys for a queue that was
    /// shut down are dropped.
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
        let normal = move |event: &Event<K>| keys(event).into_iter().map(|key| (key, Priority::Normal));
        self.fed_with_priorities(informer, HandlerOptions::named(self.name()), normal)
    }

    /// Adds keys like [`WorkQueue::fed_by`], each in one of the two lines, by a handler with these options.
    ///
    /// # Errors
    /// If the factory was shut down.
    pub fn fed_with_priorities<K, I>(
        &self,
        informer: &Informer<K>,
        options: HandlerOptions,
        keys: impl Fn(&Event<K>) -> I + Send + Sync + 'static,
    ) -> Result<HandlerHandle, Closed>
    where
        K: 'static,
        I: IntoIterator<Item = (Q, Priority)>,
    {
        informer.add_handler(Feed { queue: self.clone(), keys }, options)
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
    I: IntoIterator<Item = (Q, Priority)>,
{
    async fn handle(&self, event: Event<K>) {
        let keys: Vec<_> = (self.keys)(&event).into_iter().collect();
        for (key, priority) in keys {
            add(&self.queue, key, priority).await;
        }
    }
}

/// Adds a key, and waits for room. The wait ends with the queue, or with the handler.
async fn add<Q: Clone + Eq + Hash>(queue: &WorkQueue<Q>, key: Q, priority: Priority) {
    while let Err(full @ AddError::Full { .. }) =
        queue.add_with_priority_within(key.clone(), priority, FULL_WARNING_INTERVAL).await
    {
        tracing::warn!(queue = queue.name(), "keys wait: {full}");
    }
}
