//! The real gateway over the simulated clusters, in virtual time, and its users.
//!
//! ```text
//!  visitors ── requests ──▶ Gateway ──▶ Fleet ── dial ──▶ Network ══▶ servers
//!     │                     (called in the process)       (its faults)   │
//!     └── Asked, Answered ──▶ history ◀── Forwarded, Committed ──────────┘
//! ```

mod answers;
mod contexts;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use skopos::{FactoryOptions, Transport, TransportOptions};
use skopos_fleet::{ClusterOptions, Connector, Fleet, FleetOptions};
use skopos_gateway::config::{Config, LoopbackTrust};
use skopos_gateway::{
    Authenticator, Clusters, FleetAsk, Gateway, InstanceId, KindsOptions, Merged, Services,
};
use skopos_transport::WallClock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::visitors::Visiting;
use crate::cluster::{Cluster, GATEWAY};
use crate::history::MemberId;
use crate::plan::GatewayPlan;
use crate::users::{Scene, limits, times};

/// A running gateway.
pub struct Visited {
    gateway: Gateway,
    fleet: Fleet,
    clusters: Clusters,
    merged: Merged,
    draining: CancellationToken,
    members: Arc<[Named]>,
}

/// A member as its visitors know it.
#[derive(Clone, Debug)]
struct Named {
    id: MemberId,
    /// The gateway's name for it.
    name: String,
    context: String,
}

/// Time limit of each part of the shutdown.
const END: Duration = Duration::from_secs(10);

impl Visited {
    /// Starts the gateway, which gets the plan's clusters from kubeconfigs in memory.
    ///
    /// # Errors
    /// When the configuration or the names are invalid; then so is the plan.
    pub async fn start(
        scene: &Scene,
        clusters: &[Arc<Cluster>],
        plan: &GatewayPlan,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut config = Config::default();
        config.authorization.loopback = LoopbackTrust::Trusted;
        let instance = InstanceId::from_seed(seed);
        let fleet = Fleet::new(fleet_options(scene, clusters, &config, seed, &instance));
        let members = contexts::follow(&fleet, scene, clusters, plan).await?;
        let authenticator = Authenticator::new(&config, Arc::new(FleetAsk::trusted_only(fleet.clone())))?;
        let most = usize::try_from(config.listen.limits.body_bytes.0).context("a limit of bodies")?;
        let services = Services::new(fleet.clone(), Arc::new(config));
        let mut kinds = KindsOptions::default();
        let times = times(scene);
        (kinds.clock, kinds.seed) = (WallClock::from_fn(move || times().wall()), Some(seed));
        let routed = Clusters::new(services.clone());
        let merged = Merged::new(services, kinds);
        let gateway = Gateway::builder(authenticator, most)
            .instance(instance)
            .route("clusters", Arc::new(routed.clone()))
            .route("fleet", Arc::new(merged.clone()))
            .build();
        let draining = CancellationToken::new();
        Ok(Self { gateway, fleet, clusters: routed, merged, draining, members })
    }

    /// Starts the visitors, which run until `until`.
    pub fn admit(
        &self,
        scene: &Scene,
        plan: &GatewayPlan,
        until: Duration,
        seed: u64,
        visits: &mut JoinSet<()>,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        for (number, visitor) in plan.visitors.iter().enumerate() {
            let visiting = Visiting::new(self, scene, number, visitor, until, random.fork());
            visits.spawn(visiting.run());
        }
    }

    /// Shuts the gateway down.
    pub async fn stop(self) {
        self.draining.cancel();
        self.clusters.shutdown(END).await;
        self.fleet.shutdown(END).await;
        self.merged.shutdown(END).await;
    }
}

/// Returns the gateway's own options, but for connections, clocks and randomness.
fn fleet_options(
    scene: &Scene,
    clusters: &[Arc<Cluster>],
    config: &Config,
    seed: u64,
    instance: &InstanceId,
) -> FleetOptions {
    let of_gateway = skopos_gateway::config::fleet_options(config);
    let (wall, lead) = (times(scene), scene.lead.clone());
    let transport = TransportOptions {
        seed: Some(seed),
        wall_clock: Some(WallClock::from_fn(move || wall().wall())),
        // Longer than any run takes.
        reset_memory: Duration::from_secs(24 * 3600),
        ..of_gateway.cluster.transport.clone()
    };
    let factory = FactoryOptions {
        limits: limits(),
        seed: Some(seed),
        sleep_clock: skopos::SleepClock::from_fn(move || {
            lead.load(std::sync::atomic::Ordering::SeqCst).into()
        }),
        restart_clock: skopos::checkpoint::RestartClock::from_fn(times(scene)),
        ..of_gateway.cluster.factory.clone()
    };
    let networks: Vec<_> = clusters.iter().map(|cluster| cluster.network.clone()).collect();
    let connector = Connector::new(move |_, spec, options| {
        // The kubeconfig determines the server's address, whatever the cluster's name.
        let dialer = contexts::cluster_at(spec.server()).and_then(|at| networks.get(at));
        let dialer = dialer.unwrap_or(&networks[0]).dialer(GATEWAY);
        Transport::with_dialer(spec.config(), options, dialer)
    });
    let connector = connector.in_place().with_header(skopos_gateway::VIA, instance.header());
    let cluster = ClusterOptions { transport, factory, ..of_gateway.cluster };
    FleetOptions { connector, cluster, ..of_gateway }
}
