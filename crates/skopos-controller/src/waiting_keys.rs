//! Keys that wait until a view shows the controller's own writes for them. They hold no worker: after a restart of the API
//! server a view does not move until its list has come, and all other keys continue.

use std::any::TypeId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, pending};
use parking_lot::Mutex;
use skopos::workqueue::Item;
use skopos::{ObjectKey, ResourceVersion, WaitError};
use tokio::sync::Notify;
use tokio::time::{Instant, interval};

use crate::handle::Shared;
use crate::own_writes::{Moment, OwnWrite};
use crate::view::View;

/// The waiting keys of one term. Those that still wait when it ends are retried in the next one.
pub(crate) struct WaitingKeys<'a> {
    shared: &'a Shared,
    /// The views. With several of one type, the first, which is also the one in the context.
    views: Vec<WaitingForView>,
    ready: Mutex<VecDeque<Item<ObjectKey>>>,
    became_ready: Notify,
}

/// The keys that wait for one view, by the moment that it must reach.
struct WaitingForView {
    view: Arc<dyn View>,
    keys: Mutex<BTreeMap<(Moment, ObjectKey), Waiting>>,
    added: Notify,
}

struct Waiting {
    item: Item<ObjectKey>,
    since: Instant,
    reported: bool,
}

impl<'a> WaitingKeys<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        let mut views: Vec<WaitingForView> = Vec::new();
        for view in shared.views() {
            if !views.iter().any(|known| known.object_type() == view.object_type()) {
                views.push(WaitingForView { view, keys: Mutex::default(), added: Notify::new() });
            }
        }
        Self { shared, views, ready: Mutex::default(), became_ready: Notify::new() }
    }

    /// Returns the key if the views show all writes; otherwise the key waits, and comes from [`next`](Self::next).
    pub(crate) fn admit(&self, item: Item<ObjectKey>) -> Option<Item<ObjectKey>> {
        let writes = self.shared.own_writes.awaited_by(&item);
        for write in &writes {
            let view = self.views.iter().find(|waiting| waiting.object_type() == write.object_type);
            if let Some(waiting) = view.filter(|waiting| waiting.view.look().moment < write.moment) {
                waiting.add(item, write);
                self.count();
                return None;
            }
        }
        self.shared.own_writes.seen(&item, &writes);
        Some(item)
    }

    /// Returns a key that has waited, and must be admitted again.
    pub(crate) async fn next(&self) -> Item<ObjectKey> {
        loop {
            let became_ready = self.became_ready.notified();
            if let Some(item) = self.ready.lock().pop_front() {
                return item;
            }
            became_ready.await;
        }
    }

    /// Follows the views. Never ends.
    pub(crate) async fn follow_views(&self) {
        let follow = join_all(self.views.iter().map(|waiting| self.follow(waiting)));
        tokio::join!(follow, self.report_long_waits());
    }

    async fn follow(&self, waiting: &WaitingForView) {
        loop {
            let added = waiting.added.notified();
            let (reached, lowest) = waiting.take_reached();
            if !reached.is_empty() {
                self.ready.lock().extend(reached);
                self.count();
                self.became_ready.notify_waiters();
            }
            let Some(lowest) = lowest else {
                added.await;
                continue;
            };
            // This wait does not notice a break of history that came before it. The next look does.
            let reached = tokio::select! {
                () = added => continue,
                reached = waiting.view.wait_for(&lowest, LOOK_INTERVAL) => reached,
            };
            if let Err(WaitError::Closed(_)) = reached {
                return pending().await;
            }
        }
    }

    /// Reports keys that wait too long, each once.
    async fn report_long_waits(&self) {
        let limit = self.shared.options.own_write_limit;
        let mut ticks = interval(limit.max(LOOK_INTERVAL));
        loop {
            ticks.tick().await;
            for waiting in &self.views {
                let keys = waiting.report(limit);
                if keys > 0 {
                    let (controller, resource) = (&self.shared.options.name, waiting.view.resource());
                    tracing::warn!(controller, keys, %resource, ?limit, "put off: the view has not shown the controller's own writes for longer than the limit");
                    self.shared.count(|stats| stats.put_off_own_write += keys);
                }
            }
        }
    }

    fn count(&self) {
        let waiting = self.views.iter().map(|waiting| waiting.keys.lock().len()).sum();
        self.shared.count(|stats| stats.waiting_for_own_writes = waiting);
    }
}

impl Drop for WaitingKeys<'_> {
    fn drop(&mut self) {
        self.shared.count(|stats| stats.waiting_for_own_writes = 0);
    }
}

impl WaitingForView {
    fn object_type(&self) -> TypeId {
        self.view.object_type()
    }

    fn add(&self, item: Item<ObjectKey>, write: &OwnWrite) {
        let waiting = Waiting { since: Instant::now(), reported: false, item };
        let key = waiting.item.key().clone();
        self.keys.lock().insert((write.moment.clone(), key), waiting);
        self.added.notify_one();
    }

    /// Takes the keys whose moment the view has reached; also returns the version that the next one waits for.
    fn take_reached(&self) -> (Vec<Item<ObjectKey>>, Option<ResourceVersion>) {
        let reached = self.view.look().moment;
        let mut keys = self.keys.lock();
        let mut taken = Vec::new();
        while let Some(first) = keys.first_entry() {
            let moment = &first.key().0;
            if *moment > reached {
                return (taken, Some(moment.1.clone()));
            }
            taken.push(first.remove().item);
        }
        (taken, None)
    }

    /// Returns the number of keys that have waited longer than the limit, without those that were reported before.
    fn report(&self, limit: Duration) -> u64 {
        let mut keys = self.keys.lock();
        let mut reported = 0;
        for waiting in
            keys.values_mut().filter(|waiting| !waiting.reported && waiting.since.elapsed() >= limit)
        {
            waiting.reported = true;
            reported += 1;
        }
        reported
    }
}

/// The maximum interval of looks at a view that keys wait for, and the minimum one of reports.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use skopos::Freshness;
    use skopos::workqueue::{WorkQueue, WorkQueueOptions};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::options::ControllerOptions;
    use crate::view::Seen;

    /// A view at an epoch and a version. Its waits begin in the epoch of today, so they do not see an earlier break.
    struct FixedView(Mutex<(u64, u64)>);

    impl View for FixedView {
        fn resource(&self) -> String {
            "configmaps".to_owned()
        }

        fn object_type(&self) -> TypeId {
            TypeId::of::<Self>()
        }

        fn look(&self) -> Seen {
            let (epoch, version) = *self.0.lock();
            Seen::new(self.object_type(), self.freshness(), (epoch, version.into()), ())
        }

        fn freshness(&self) -> Freshness {
            Freshness::Live { age: Duration::ZERO }
        }

        fn wait_for<'a>(
            &'a self,
            version: &'a ResourceVersion,
            limit: Duration,
        ) -> BoxFuture<'a, Result<(), WaitError>> {
            Box::pin(async move {
                sleep(limit).await;
                let (wanted, freshness) = (version.clone(), self.freshness());
                Err(WaitError::NotReached { wanted, reached: None, waited: limit, freshness })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn history_break_before_wait_releases_key() {
        let view = Arc::new(FixedView(Mutex::new((1, 5))));
        let (options, queue) =
            (ControllerOptions::named("test"), WorkQueue::new(WorkQueueOptions::default()));
        let shared = Shared::new(options, queue, vec![view.clone()]);
        let key = ObjectKey::namespaced("a", "one");
        let write = OwnWrite { object_type: view.object_type(), moment: (1, 10.into()) };
        shared.own_writes.record(&key, write);
        shared.queue.add(key.clone()).unwrap();
        let waiting = WaitingKeys::new(&shared);
        assert!(waiting.admit(shared.queue.get().await.unwrap()).is_none(), "its write is not seen");
        *view.0.lock() = (2, 3);
        let released = async {
            tokio::select! {
                item = waiting.next() => item,
                () = waiting.follow_views() => unreachable!("it never ends"),
            }
        };
        let item = timeout(Duration::from_secs(60), released).await.expect("the key comes back");
        assert_eq!(waiting.admit(item).map(|item| item.key().clone()), Some(key));
    }
}
