//! Report R1 at scale: two hundred clusters, eighty of them faulty, without an effect on reads of the others. On virtual time,
//! over connections in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use skopos::Transport;
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos_fleet::{ClusterId, ClusterSpec, Connector, Fleet, FleetOptions, Paused, PausedBy};
use skopos_testserver::{Fault, FaultGuard, TestServer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::Authenticator;
use crate::clusters::Clusters;
use crate::config::{Config, LoopbackTrust};
use crate::gateway::Gateway;
use crate::gateway::services::{FleetAsk, Services};
use crate::listen::Peer;
use crate::merged::{KindsOptions, Merged};
use crate::request::body::LimitedBody;
use crate::testing::{Told, told};

const CLUSTERS: usize = 200;
const HEALTHY: usize = 120;
const EACH: usize = 20;

/// The condition of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Healthy,
    /// Packets to the cluster are lost.
    Hole,
    /// The cluster accepts connections and requests, and answers none.
    Mute,
    Refuses,
    /// Every answer takes 5 s.
    Slow,
    /// The cluster is switched off, and this is known.
    Paused,
}

struct Bed {
    gateway: Gateway,
    fleet: Fleet,
    clusters: Clusters,
    merged: Merged,
    servers: BTreeMap<String, TestServer>,
    dials: Arc<Mutex<BTreeMap<String, usize>>>,
    _faults: Vec<FaultGuard>,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn name(number: usize) -> String {
    format!("c{number:03}")
}

fn way(number: usize) -> Way {
    match number.checked_sub(HEALTHY).map(|ill| ill / EACH) {
        None => Way::Healthy,
        Some(0) if number.is_multiple_of(2) => Way::Mute,
        Some(0) => Way::Hole,
        Some(1) => Way::Refuses,
        Some(2) => Way::Slow,
        Some(_) => Way::Paused,
    }
}

fn all(wanted: impl Fn(Way) -> bool) -> Vec<String> {
    (0..CLUSTERS).filter(|number| wanted(way(*number))).map(name).collect()
}

impl Bed {
    /// Starts the fleet, with the faulty clusters or with all healthy.
    fn new(ill: bool) -> Self {
        let mut config = Config::default();
        config.authorization.loopback = LoopbackTrust::Trusted;
        let way_of = move |number| if ill { way(number) } else { Way::Healthy };
        let mut servers = BTreeMap::new();
        let mut faults = Vec::new();
        for number in 0..CLUSTERS {
            let server = TestServer::builder().clock_seed(number as u64).start_in_memory().unwrap();
            let metadata = json!({"namespace": "default", "name": name(number)});
            server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap();
            match way_of(number) {
                Way::Mute => faults.push(server.faults().inject(Fault::WithholdHeaders).everywhere()),
                Way::Slow => {
                    faults.push(server.faults().inject(Fault::DelayHeaders(secs(5))).everywhere());
                }
                _ => {}
            }
            servers.insert(name(number), server);
        }
        let dials = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let connector = connector(servers.clone(), dials.clone(), way_of);
        let fleet = Fleet::new(FleetOptions { connector, ..crate::config::fleet::options(&config) });
        for number in 0..CLUSTERS {
            let spec = ClusterSpec::from_config(kube::Config::new("http://member".parse().unwrap()));
            let cluster = fleet.join(ClusterId::new(name(number)).unwrap(), spec).unwrap();
            if way_of(number) == Way::Paused {
                cluster.pause(Paused { by: PausedBy::ScaledDown, since: None });
            }
        }
        let authenticator =
            Authenticator::new(&config, Arc::new(FleetAsk::trusted_only(fleet.clone()))).unwrap();
        let services = Services::new(fleet.clone(), Arc::new(config));
        let clusters = Clusters::new(services.clone());
        let merged = Merged::new(services.clone(), KindsOptions::default());
        let gateway = Gateway::builder(authenticator, 1 << 20)
            .route("clusters", Arc::new(clusters.clone()))
            .route("fleet", Arc::new(merged.clone()))
            .build();
        Self { gateway, fleet, clusters, merged, servers, dials, _faults: faults }
    }

    /// Returns an answer, and how long it took.
    async fn get(&self, path: &str) -> (Told, Duration) {
        let begun = Instant::now();
        let request = http::Request::builder().method(Method::GET).uri(path).header("host", "localhost");
        let request = request.body(LimitedBody::whole("")).unwrap();
        let peer = Peer::new("127.0.0.1:999".parse().unwrap(), false, CancellationToken::new());
        let answer = self.gateway.answer(Arc::new(peer), request).await;
        (told(answer).await, begun.elapsed())
    }

    async fn get_of(&self, cluster: &str) -> (Told, Duration) {
        self.get(&format!("/clusters/{cluster}/api/v1/configmaps")).await
    }

    /// Reads all clusters at the same time and returns each duration. All must answer.
    async fn read_all(&self, names: &[String]) -> Vec<Duration> {
        let reads = join_all(names.iter().map(|name| self.get_of(name))).await;
        let took = reads.into_iter().map(|(told, took)| {
            assert_eq!(told.code, 200, "{told:?}");
            assert_eq!(told.header("skopos-source"), "memory");
            took
        });
        took.collect()
    }

    fn dials_of(&self, name: &str) -> usize {
        self.dials.lock().get(name).copied().unwrap_or(0)
    }

    async fn end(self) {
        self.clusters.shutdown(secs(5)).await;
        assert!(self.fleet.shutdown(secs(20)).await);
        self.merged.shutdown(secs(5)).await;
    }
}

fn connector(
    servers: BTreeMap<String, TestServer>,
    dials: Arc<Mutex<BTreeMap<String, usize>>>,
    way_of: impl Fn(usize) -> Way + Send + Sync + 'static,
) -> Connector {
    Connector::new(move |id, spec, options| {
        let (server, dials) = (servers[id.as_str()].clone(), dials.clone());
        let id = id.as_str().to_owned();
        let way = way_of(id[1..].parse().unwrap());
        let dialer = dialer_fn(move |_| {
            *dials.lock().entry(id.clone()).or_default() += 1;
            let server = server.clone();
            async move {
                let refused = |reason: String| TransportErrorKind::Refused {
                    to: "memory".into(),
                    reason: reason.into(),
                };
                match way {
                    Way::Hole => std::future::pending().await,
                    Way::Refuses => Err(refused("nobody listens".into())),
                    _ => {
                        let io = server.connect().map_err(|error| refused(error.to_string()))?;
                        Ok(Dialed::new(io, Protocol::Http2))
                    }
                }
            }
        });
        Transport::with_dialer(spec.config(), options, dialer)
    })
}

/// Returns the clusters that an annotation of a list over the fleet names.
fn named(told: &Told, annotation: &str) -> Vec<String> {
    let json = told.json();
    let text = json["metadata"]["annotations"][annotation].as_str().unwrap_or_default();
    let names = text.split("; ").filter_map(|one| one.split(' ').next()).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn count(told: &Told) -> usize {
    told.json()["items"].as_array().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn unhealthy_clusters_do_not_slow_healthy_reads() {
    let healthy = all(|way| way == Way::Healthy);
    for ill in [true, false] {
        let whole = Bed::new(ill);
        // Requests to the other clusters are under way all the time.
        let (bed, others) = (&whole, all(|way| way != Way::Healthy));
        let beside = join_all(others.iter().map(|name| async move {
            for _ in 0..3 {
                let (told, took) = bed.get_of(name).await;
                // The first use of a slow cluster, and then its own answer.
                assert!(took <= secs(16), "{name} took {took:?}");
                assert!(told.code == 200 || told.code >= 500, "{name}: {told:?}");
                tokio::time::sleep(secs(1)).await;
            }
        }));
        let reads = async {
            let first = bed.read_all(&healthy).await.into_iter().max();
            // A first read always takes a connection, a list and a check that the cluster answers.
            assert!(first <= Some(Duration::from_millis(100)), "ill: {ill}, first reads: {first:?}");
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let later = bed.read_all(&healthy).await.into_iter().max();
                assert_eq!(later, Some(Duration::ZERO), "ill: {ill}");
            }
        };
        tokio::join!(beside, reads);
        whole.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_list_meets_deadline_and_names_missing() {
    let bed = Bed::new(true);
    let deadline = Config::default().cache.member_deadline.0;
    let (told, took) = bed.get("/fleet/api/v1/configmaps").await;
    assert!(took <= deadline + Duration::from_millis(100), "{took:?}");
    assert_eq!(told.code, 200, "{told:?}");
    assert_eq!(count(&told), HEALTHY);
    assert_eq!(named(&told, "skopos.dev/missing"), all(|way| way != Way::Healthy));
    assert!(told.header("warning").contains("70 more"), "{told:?}");

    // Slow clusters appear later, and delay no other answer until then.
    tokio::time::sleep(secs(40)).await;
    let (told, took) = bed.get("/fleet/api/v1/configmaps").await;
    assert!(took <= Duration::from_millis(100), "{took:?}");
    assert_eq!(count(&told), HEALTHY + EACH);
    let missing = all(|way| !matches!(way, Way::Healthy | Way::Slow));
    assert_eq!(named(&told, "skopos.dev/missing"), missing);
    bed.end().await;
}

#[tokio::test(start_paused = true)]
async fn dead_members_are_not_flooded_with_requests() {
    let bed = Bed::new(true);
    let dead = all(|way| matches!(way, Way::Hole | Way::Mute | Way::Refuses | Way::Paused));
    let silent = all(|way| way == Way::Mute);
    let ask_for_a_minute = async || {
        for _ in 0..60 {
            join_all(dead.iter().map(|name| bed.get_of(name))).await;
            bed.get("/fleet/api/v1/configmaps?limit=1").await;
            tokio::time::sleep(secs(1)).await;
        }
    };
    // Until dead clusters are known to be dead.
    ask_for_a_minute().await;
    for minute in 0..2 {
        silent.iter().for_each(|name| bed.servers[name].clear_requests());
        let dials: Vec<usize> = dead.iter().map(|name| bed.dials_of(name)).collect();
        let begun = Instant::now();
        ask_for_a_minute().await;
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        for name in &silent {
            let asked = bed.servers[name].requests().len() as f64;
            assert!(asked <= 6.0 * minutes, "{name} was asked {asked} times in {minutes} minutes ({minute})");
        }
        for (name, before) in dead.iter().zip(dials) {
            let dialed = (bed.dials_of(name) - before) as f64;
            assert!(dialed <= 70.0 * minutes, "{name} was dialed {dialed} times in {minutes} minutes");
            if way(name[1..].parse().unwrap()) == Way::Paused {
                assert_eq!(dialed, 0.0, "{name} is known to be off");
            }
        }
    }
    bed.end().await;
}
