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
use crate::own_writes::OwnWrite;
use crate::view::View;

/// The waiting keys of one term. Those that still wait when it ends are retried in the next one.
pub(crate) struct WaitingKeys<'a> {
    shared: &'a Shared,
    /// The views. With several of one type, the first, which is also the one in the context.
    views: Vec<WaitingForView>,
    ready: Mutex<VecDeque<Item<ObjectKey>>>,
    became_ready: Notify,
}

/// The keys that wait for one view, by the version that it must reach.
struct WaitingForView {
    view: Arc<dyn View>,
    keys: Mutex<BTreeMap<(ResourceVersion, ObjectKey), Waiting>>,
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
            if let Some(waiting) = view.filter(|waiting| !waiting.view.look().shows(write)) {
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
            let Some(lowest) = waiting.lowest() else {
                added.await;
                continue;
            };
            let reached = tokio::select! {
                () = added => continue,
                reached = waiting.view.wait_for(&lowest, self.shared.options.own_write_limit) => reached,
            };
            let items = match reached {
                Ok(()) => waiting.take_reached(),
                Err(WaitError::NotReached { .. } | WaitError::NotMet { .. }) => continue,
                Err(WaitError::Closed(_)) => return pending().await,
                // The history of these writes is over.
                Err(_) => waiting.take_all(),
            };
            self.ready.lock().extend(items);
            self.count();
            self.became_ready.notify_waiters();
        }
    }

    /// Reports keys that wait too long, each once.
    async fn report_long_waits(&self) {
        let limit = self.shared.options.own_write_limit;
        let mut ticks = interval(limit.max(MIN_REPORT_INTERVAL));
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
        self.keys.lock().insert((write.version.clone(), key), waiting);
        self.added.notify_one();
    }

    fn lowest(&self) -> Option<ResourceVersion> {
        self.keys.lock().first_key_value().map(|((version, _), _)| version.clone())
    }

    fn take_reached(&self) -> Vec<Item<ObjectKey>> {
        let reached = self.view.look().version;
        let mut keys = self.keys.lock();
        let mut taken = Vec::new();
        while let Some(first) = keys.first_entry()
            && first.key().0 <= reached
        {
            taken.push(first.remove().item);
        }
        taken
    }

    fn take_all(&self) -> Vec<Item<ObjectKey>> {
        std::mem::take(&mut *self.keys.lock()).into_values().map(|waiting| waiting.item).collect()
    }

    /// Returns the number of keys that have waited longer than the limit, without those that were reported before.
    fn report(&self, limit: Duration) -> u64 {
        let mut keys = self.keys.lock();
        let long = keys.values_mut().filter(|waiting| !waiting.reported && waiting.since.elapsed() >= limit);
        long.map(|waiting| waiting.reported = true).count() as u64
    }
}

/// The minimum interval of reports, even if the limit is zero.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(1);
