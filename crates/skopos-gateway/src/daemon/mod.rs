//! Daemon: the whole gateway, from a configuration to a serving listener.
//!
//! ```text
//!  Config ─▶ Fleet ◀─ sources           the same for the whole life
//!    │         ▲
//!    │      Services ─▶ routes ─▶ Gateway ◀─ Listener
//!    └─ when it changes: new services and routes, over the same fleet
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::body::Incoming;
use skopos_fleet::source::VclusterDial;
use skopos_fleet::{ClusterOptions, Fleet, FleetOptions, KindFilter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Authenticator, OidcError};
use crate::clusters::Clusters;
use crate::config::fleet::{self, CachePolicy, KeptParts, SourceError};
use crate::config::{Config, ConfigError, ConfigFollower};
use crate::gateway::Gateway;
use crate::gateway::services::{FleetAsk, Services};
use crate::lifecycle::{FleetHosts, Lifecycle};
use crate::listen::{Drained, Handler, ListenError, ListenOptions, Listener, Peer, TlsFiles, descriptors};
use crate::merged::{ContinueKeys, ContinueKeysError, KindsOptions, Merged};
use crate::request::via::{InstanceId, VIA};
use crate::response::Response;
use crate::state::State;

/// A gateway that listens, and answers once it runs.
pub struct Daemon {
    listener: Listener,
    fleet: Fleet,
    current: Current,
    gateway: Arc<ArcSwap<Gateway>>,
    cache_policy: CachePolicy,
    follower: Option<ConfigFollower>,
}

/// The reason why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gateway cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A source of clusters cannot be followed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The folder or the bucket of the checkpoints cannot be used.
    #[error("checkpoints.{place}: {error}")]
    Checkpoints {
        /// The folder or the bucket.
        place: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The keys of continue tokens cannot be used.
    #[error(transparent)]
    ContinueKeys(#[from] ContinueKeysError),
    /// The OpenID provider cannot be used.
    #[error(transparent)]
    Oidc(#[from] OidcError),
}

/// The parts that are rebuilt when the configuration changes.
#[derive(Clone)]
struct Current {
    clusters: Clusters,
    merged: Merged,
    lifecycle: Lifecycle,
    state: State,
    services: Services,
    instance: InstanceId,
}

/// Options of a process that embeds a gateway, beyond its configuration.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// The options of the fleet: connections to clusters and storage of their content.
    pub fleet: FleetOptions,
    /// The addresses of virtual clusters.
    pub dial: VclusterDial,
}

/// The time given to operations, to the watches and to the merged views to end, each.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The time given to the fleet to freeze and to the merged views to settle, each.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time given to the fleet to end. It writes its checkpoints last.
const FLEET_END_TIMEOUT: Duration = Duration::from_secs(15);

impl Daemon {
    /// Creates a daemon from a configuration file, whose changes it follows.
    ///
    /// # Errors
    /// If anything in the file is invalid or unavailable. Clusters that do not answer are no error.
    pub async fn from_file(path: PathBuf) -> Result<Self, DaemonError> {
        let follower = ConfigFollower::open(path)?;
        let config = follower.subscribe().borrow().config.clone();
        let embedding = Embedding::from_config(&config);
        Self::start(config, embedding, Some(follower)).await
    }

    /// Creates a daemon from a fixed configuration.
    ///
    /// # Errors
    /// If the address or the certificates are not available.
    pub async fn from_config(config: Config) -> Result<Self, DaemonError> {
        let embedding = Embedding::from_config(&config);
        Self::embedded(config, embedding).await
    }

    /// Creates a daemon from a fixed configuration, with the options of an embedding process.
    ///
    /// # Errors
    /// If the address or the certificates are not available.
    pub async fn embedded(config: Config, embedding: Embedding) -> Result<Self, DaemonError> {
        Self::start(Arc::new(config), embedding, None).await
    }

    async fn start(
        config: Arc<Config>,
        embedding: Embedding,
        follower: Option<ConfigFollower>,
    ) -> Result<Self, DaemonError> {
        descriptors::raise_limit();
        let listener = Listener::bind(&listen_options(&config))?;
        let continue_keys = open_continue_keys(&config).await?;
        let cache_policy = CachePolicy::new(config.clone());
        let fleet::Storage { keeper, resume_storage } = open_storage(&config, &cache_policy).await?;
        let keeper = keeper.or_else(|| embedding.fleet.keeper.clone());
        let (own, admits) = (embedding.fleet.cluster.admits.clone(), cache_policy.admits());
        let admits = KindFilter::new(move |kind| own.admits(kind) && admits.admits(kind));
        let cluster = ClusterOptions { admits, ..embedding.fleet.cluster };
        let instance = InstanceId::random();
        let connector = embedding.fleet.connector.with_header(VIA, instance.header());
        let fleet = Fleet::new(FleetOptions { keeper, cluster, connector, ..embedding.fleet });
        let hosts = FleetHosts {
            named: fleet::follow(&fleet, &config, &embedding.dial).await?,
            fleet: fleet.clone(),
        };
        let services = Services::new(fleet.clone(), config);
        let (members, streams) = (fleet.clone(), services.streams.clone());
        let listener = listener.reserving(move || {
            let streams = usize::try_from(streams.open()).unwrap_or(usize::MAX);
            descriptors::reserve(members.members().len(), streams)
        });
        let changes = follower.as_ref().map(ConfigFollower::subscribe);
        let per_cluster = usize::try_from(services.config.cache.bytes_per_cluster.0).unwrap_or(usize::MAX);
        let current = Current {
            clusters: Clusters::new(services.clone()),
            merged: Merged::new(
                services.clone(),
                KindsOptions {
                    resume_storage,
                    continue_keys,
                    idle_stop: services.config.cache.idle_stop.0,
                    ..KindsOptions::beside(per_cluster)
                },
            ),
            lifecycle: Lifecycle::new(services.authorizer.clone(), Arc::new(hosts)),
            state: State::new(services.clone(), changes),
            services,
            instance,
        };
        let authenticator = authenticator(&fleet, &current.services.config)?;
        let gateway = Arc::new(ArcSwap::from_pointee(current.gateway(authenticator)));
        Ok(Self { listener, fleet, current, gateway, cache_policy, follower })
    }

    /// Returns the address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL for clients on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.current.services.config.listen.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// Returns the fleet of clusters.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Serves until cancelled, and for `listen.shutdownDelay` after that. Then answers in progress get their time, and
    /// everything else ends. It returns at the latest 32 seconds after these configured times. If dropped before, it cuts all
    /// connections without waiting.
    pub async fn run(self, stop: CancellationToken) -> Drained {
        let stop = stop.child_token();
        let _dropped = stop.clone().drop_guard();
        let Self { listener, fleet, current, gateway, cache_policy, follower } = self;
        current.state.listening(listener.stats());
        current.state.serving(current.clusters.clone(), current.merged.clone());
        let tasks = TaskTracker::new();
        let (merged, stopped) = (current.merged.clone(), stop.clone());
        tasks.spawn(async move { merged.follow_keys(stopped).await });
        if let Some(follower) = follower {
            let mut reload = Reload {
                started_with: current.services.config.clone(),
                gateway: gateway.clone(),
                current: current.clone(),
                cache_policy,
            };
            // No changes are applied while the gateway stops.
            tasks.spawn(follower.run(stop.clone(), move |config| reload.take(config)));
        }
        tasks.close();
        let closing = CancellationToken::new();
        let unready = async {
            stop.cancelled().await;
            current.state.stopping();
            tokio::time::sleep(current.services.config.listen.shutdown_delay()).await;
            if current.services.config.checkpoints.is_some() {
                // The checkpoints must match the last events that watches have sent, so that the watches can resume from them.
                fleet.freeze(FREEZE_TIMEOUT).await;
                current.merged.settle(FREEZE_TIMEOUT).await;
            }
            closing.cancel();
        };
        let (drained, ()) = tokio::join!(listener.run(Answering { gateway }, closing.clone()), unready);
        tasks.wait().await;
        let ended = [
            // Its operations reach hosts by way of the fleet.
            current.lifecycle.shutdown(END_TIMEOUT).await,
            current.clusters.shutdown(END_TIMEOUT).await,
            fleet.shutdown(FLEET_END_TIMEOUT).await,
            // Its checkpoint must not be older than that of the fleet.
            current.merged.shutdown(END_TIMEOUT).await,
        ];
        if ended.contains(&false) {
            tracing::warn!("the clusters did not end in time");
        }
        drained
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Reads the keys of continue tokens, if the configuration names a file of them.
async fn open_continue_keys(config: &Config) -> Result<Option<ContinueKeys>, DaemonError> {
    let Some(path) = config.replicas.continue_keys.clone() else { return Ok(None) };
    let opening = tokio::task::spawn_blocking(move || ContinueKeys::open(&path));
    match opening.await {
        Ok(keys) => Ok(Some(keys?)),
        // The runtime ends.
        Err(_) => Ok(None),
    }
}

/// Opens the storage of the state that outlives the process.
async fn open_storage(
    config: &Arc<Config>,
    cache_policy: &CachePolicy,
) -> Result<fleet::Storage, DaemonError> {
    let (owned, admits) = (config.clone(), cache_policy.admits());
    let storage = tokio::task::spawn_blocking(move || fleet::open_storage(&owned, admits)).await;
    storage.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| {
        let checkpoints = config.checkpoints.as_ref();
        let folder = checkpoints.and_then(|checkpoints| checkpoints.folder.as_ref());
        let bucket = checkpoints.and_then(|checkpoints| checkpoints.bucket.as_ref());
        let place = match (folder, bucket) {
            (Some(folder), _) => format!("folder {}", folder.display()),
            (None, bucket) => format!("bucket {}", bucket.map_or("", |bucket| &bucket.url)),
        };
        DaemonError::Checkpoints { place, error }
    })
}

impl Embedding {
    /// Makes the default options for this configuration.
    pub fn from_config(config: &Config) -> Self {
        Self { fleet: fleet::options(config), dial: VclusterDial::default() }
    }
}

fn listen_options(config: &Config) -> ListenOptions {
    let client_ca = config.authentication.client_certificates.as_ref().map(|ways| ways.ca.clone());
    ListenOptions {
        address: config.listen.address,
        tls: config.listen.tls.as_ref().map(|tls| TlsFiles {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_ca,
        }),
        authenticated: config.authentication.is_configured(),
        limits: config.listen.limits.clone(),
    }
}

fn authenticator(fleet: &Fleet, config: &Config) -> Result<Authenticator, OidcError> {
    Authenticator::new(config, Arc::new(FleetAsk::trusted_only(fleet.clone())))
}

impl Current {
    fn gateway(&self, authenticator: Authenticator) -> Gateway {
        let config = &self.services.config;
        let most = usize::try_from(config.listen.limits.body_bytes.0).unwrap_or(usize::MAX);
        let routes = Gateway::builder(authenticator, most)
            .instance(self.instance.clone())
            .route("clusters", Arc::new(self.clusters.clone()))
            .route("fleet", Arc::new(self.merged.clone()))
            .route("virtualclusters", Arc::new(self.lifecycle.clone()));
        self.state.plug_into(routes).build()
    }
}

/// A handler that uses the routes in force.
#[derive(Clone)]
struct Answering {
    gateway: Arc<ArcSwap<Gateway>>,
}

impl Handler for Answering {
    fn handle(
        &self,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = Response> + Send + 'static {
        let gateway = self.gateway.load_full();
        async move { gateway.handle(peer, request).await }
    }
}

/// A reloader of the configuration.
struct Reload {
    started_with: Arc<Config>,
    gateway: Arc<ArcSwap<Gateway>>,
    current: Current,
    cache_policy: CachePolicy,
}

impl Reload {
    /// Applies a configuration completely or not at all.
    fn take(&mut self, config: &Arc<Config>) -> Result<(), Arc<str>> {
        // Steps that can fail come first.
        let authenticator = authenticator(&self.current.services.fleet, config);
        let authenticator = authenticator.map_err(|error| Arc::<str>::from(error.to_string()))?;
        for field in needs_restart(&self.started_with, config) {
            tracing::warn!(field, "a change of this field takes effect when the gateway is started again");
        }
        self.cache_policy.replace(config.clone());
        let services = self.current.services.renewed(config.clone());
        self.current = Current {
            clusters: self.current.clusters.renewed(services.clone()),
            merged: self.current.merged.renewed(services.clone()),
            lifecycle: self.current.lifecycle.renewed(services.authorizer.clone()),
            state: self.current.state.renewed(services.clone()),
            services,
            instance: self.current.instance.clone(),
        };
        // Open requests are authorized again, so their rights come first.
        self.current.services.authorizer.take_over(config);
        self.gateway.store(Arc::new(self.current.gateway(authenticator)));
        Ok(())
    }
}

/// Returns the changed fields that take effect only after a restart.
fn needs_restart(before: &Config, after: &Config) -> Vec<&'static str> {
    let cache = |config: &Config| {
        let cache = &config.cache;
        let sizes = (cache.bytes_per_cluster, cache.compact_above, cache.compressed_bytes);
        (cache.kinds.clone(), cache.idle_stop, sizes, cache.encoding)
    };
    let ways = |config: &Config| {
        (config.authentication.client_certificates.clone(), config.authentication.is_configured())
    };
    let differs = [
        ("listen", before.listen != after.listen),
        ("authentication.clientCertificates", ways(before) != ways(after)),
        ("clusters", before.clusters != after.clusters),
        (
            "cache.kinds, cache.idleStop, cache.bytesPerCluster, cache.compactAbove, cache.encoding, cache.compressedBytes",
            cache(before) != cache(after),
        ),
        ("checkpoints", before.checkpoints != after.checkpoints),
        ("replicas", before.replicas != after.replicas),
        (
            "outbound.impersonate, outbound.readOnly, authorization.loopback, cache.managedFields: what is kept of objects in memory",
            KeptParts::from_config(before) != KeptParts::from_config(after),
        ),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests;
