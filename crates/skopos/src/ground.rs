//! What everything of one factory stands on: connections, clock, tasks, and what is known of the cluster.

use std::sync::Arc;

use skopos_reflect::Clock;
use skopos_transport::Transport;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::freshness::Common;
use crate::live::Live;
use crate::options::FactoryOptions;
use crate::sleep::SleepLog;
use crate::sync::Mutex;
use crate::unstreamed::Unstreamed;

/// Held by the factory's clones and by its informers: when the last of them goes, everything ends.
pub(crate) struct Ground {
    pub(crate) transport: Transport,
    pub(crate) live: Live,
    pub(crate) options: FactoryOptions,
    pub(crate) common: Arc<Common>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// What list/watches have learned of the server, for those that come after them.
    pub(crate) unstreamed: Arc<Unstreamed>,
    /// What the cluster is, once that is known.
    cluster: Mutex<Option<Arc<str>>>,
    random: Mutex<fastrand::Rng>,
}

impl Ground {
    pub(crate) fn new(transport: Transport, options: FactoryOptions) -> Self {
        let common = Arc::new(Common {
            clock: Clock::new(),
            stale_after: options.stale_after,
            sleep: SleepLog::new(options.sleep_clock.clone()),
        });
        let random = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self {
            live: Live::new(transport.clone(), options.limits.clone(), &options.machine),
            transport,
            common,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            unstreamed: Arc::new(Unstreamed::new()),
            cluster: Mutex::new(options.cluster.as_deref().map(Into::into)),
            random: Mutex::new(random),
            options,
        }
    }

    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.cluster.lock().clone()
    }

    /// What was said first counts.
    pub(crate) fn identify(&self, cluster: Arc<str>) -> Arc<str> {
        self.cluster.lock().get_or_insert(cluster).clone()
    }

    /// A random factor from 0.8 to 1.0.
    pub(crate) fn jitter(&self) -> f64 {
        0.8 + self.random.lock().f64() / 5.0
    }

    pub(crate) fn seed(&self) -> u64 {
        self.random.lock().u64(..)
    }

    /// A generator of its own, for what draws often.
    pub(crate) fn random(&self) -> fastrand::Rng {
        self.random.lock().fork()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
