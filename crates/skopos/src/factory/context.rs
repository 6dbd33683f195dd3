//! The context of one factory: connections, clock, tasks, and knowledge about the cluster.

use std::sync::Arc;

use skopos_reflect::Clock;
use skopos_transport::Transport;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::freshness::FreshnessContext;
use crate::freshness::sleep::SleepLog;
use crate::informer::encodings::Encodings;
use crate::informer::options::FactoryOptions;
use crate::informer::watch_list_support::WatchListSupport;
use crate::read::live::LiveClient;
use crate::sync::Mutex;

/// The context shared by the factory's clones and its informers: when the last of them is dropped, everything ends.
pub(crate) struct FactoryContext {
    pub(crate) transport: Transport,
    pub(crate) live: LiveClient,
    pub(crate) options: FactoryOptions,
    pub(crate) freshness: Arc<FreshnessContext>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Knowledge about the server that list/watches gained, for later ones.
    pub(crate) watch_list_support: Arc<WatchListSupport>,
    pub(crate) encodings: Arc<Encodings>,
    /// The cluster's name, once it is known.
    cluster: Mutex<Option<Arc<str>>>,
    random: Mutex<fastrand::Rng>,
}

impl FactoryContext {
    pub(crate) fn new(transport: Transport, options: FactoryOptions) -> Self {
        let freshness = Arc::new(FreshnessContext {
            clock: Clock::new(),
            stale_after: options.stale_after,
            sleep: SleepLog::new(options.sleep_clock.clone()),
        });
        let random = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let encodings = Arc::new(Encodings::new(options.encoding));
        Self {
            live: LiveClient::new(
                transport.clone(),
                options.limits.clone(),
                &options.machine,
                encodings.clone(),
            ),
            encodings,
            transport,
            freshness,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            watch_list_support: Arc::new(WatchListSupport::new()),
            cluster: Mutex::new(options.cluster.as_deref().map(Into::into)),
            random: Mutex::new(random),
            options,
        }
    }

    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.cluster.lock().clone()
    }

    /// Sets the cluster's name and returns it; the first one counts.
    pub(crate) fn set_cluster(&self, cluster: Arc<str>) -> Arc<str> {
        self.cluster.lock().get_or_insert(cluster).clone()
    }

    /// Returns a random factor from 0.8 to 1.0.
    pub(crate) fn jitter(&self) -> f64 {
        0.8 + self.random.lock().f64() / 5.0
    }

    pub(crate) fn seed(&self) -> u64 {
        self.random.lock().u64(..)
    }

    /// Returns a separate generator, for code that draws often.
    pub(crate) fn random(&self) -> fastrand::Rng {
        self.random.lock().fork()
    }
}

impl Drop for FactoryContext {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
