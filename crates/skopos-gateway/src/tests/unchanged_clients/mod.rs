//! Unmodified clients: on the gateway and on the member itself they see the same history, whatever faults happen on either
//! link.

mod client_go;
mod clients;
mod history;
mod link;
mod over_tcp;

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::json;
use skopos_testserver::{CloseMode, Connections, Direction, Fault, FaultGuard, Match};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::clients::Way;
use self::history::{History, Seen};
use self::link::{Link, Mood};
use crate::listen::{Handler as _, Peer};
use crate::testing::Lab;

/// A member, a gateway, and clients of each kind on both.
struct World {
    lab: Lab,
    truth: History,
    random: fastrand::Rng,
    /// The link of the gateway's clients, and of the member's.
    links: [Link; 2],
    clients: Vec<(&'static str, Way, Seen)>,
    tasks: JoinSet<()>,
    /// True if the member may forget the history that clients need to resume without a list.
    forgets: bool,
}

/// The maximum duration of a fault between gateway and member, in seconds.
const MAX_FAULT_SECONDS: u64 = 20;

/// Longer than any recovery takes.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(300);

impl World {
    async fn new(seed: u64, forgets: bool) -> Self {
        let lab = Lab::trusting(&["a"]);
        let mut truth = History::default();
        for namespace in ["red", "blue"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            lab.member("a").create(object).unwrap();
            truth.put_object(&lab.member("a").create(map(namespace, "early", 0)).unwrap());
        }
        let gateway = serving(&lab);
        let member = lab.member("a").clone();
        let links = [Link::new(gateway), Link::new(move || member.connect())];
        let mut tasks = JoinSet::new();
        let mut clients = Vec::new();
        for (link, path) in links.iter().zip(["/clusters/a", ""]) {
            for way in Way::ALL {
                let seen = Seen::default();
                tasks.spawn(clients::follow(way, link.clone(), path, seen.clone()));
                clients.push((if path.is_empty() { "member" } else { "gateway" }, way, seen));
            }
        }
        let random = fastrand::Rng::with_seed(seed);
        let world = Self { lab, truth, random, links, clients, tasks, forgets };
        world.settled().await;
        world
    }

    /// Waits until all clients have the current state.
    async fn settled(&self) {
        let began = Instant::now();
        while let Some((server, way, seen)) = self.clients.iter().find(|(.., seen)| !seen.is_at(&self.truth))
        {
            let (ours, theirs) = (seen.history(), &self.truth);
            assert!(
                began.elapsed() < RECOVERY_TIMEOUT,
                "{way:?} on the {server} does not get there: {:?} instead of {:?}",
                ours.state(),
                theirs.state()
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn step(&mut self) {
        match self.random.u8(..10) {
            0 => self.fail().await,
            1..4 => sleep(Duration::from_millis(self.random.u64(..4000))).await,
            _ => self.write(),
        }
    }

    fn write(&mut self) {
        let member = self.lab.member("a");
        let namespace = ["red", "blue"][self.random.usize(..2)];
        let name = ["early", "x", "y", "z"][self.random.usize(..4)];
        if self.random.u8(..3) == 0 {
            if member.delete("configmaps", Some(namespace), name).is_ok() {
                self.truth.delete(&format!("{namespace}/{name}"));
            }
        } else {
            let object = member.apply(map(namespace, name, self.random.u32(..))).unwrap();
            self.truth.put_object(&object);
        }
    }

    /// Injects a fault between member and gateway, or between the clients and their servers.
    async fn fail(&mut self) {
        let member = self.lab.member("a").clone();
        let faults = member.faults().clone();
        let for_a_while = Duration::from_millis(self.random.u64(..MAX_FAULT_SECONDS * 1000));
        let how = [CloseMode::Fin, CloseMode::Rst][self.random.usize(..2)];
        let both = self.links.clone();
        let link = move |mood| both.iter().for_each(|link| link.set(mood));
        let mut healing: Option<FaultGuard> = None;
        match self.random.u8(..10) {
            0 => drop(faults.kill_connections(how)),
            1 => member.close_watches(),
            2 => drop(faults.go_away()),
            3 => healing = Some(faults.black_hole(Connections::Existing, Direction::Both)),
            4 => {
                let code = [429, 500, 503, 504][self.random.usize(..4)];
                healing = Some(faults.inject(Fault::status(code, 1)).on(Match::any().resource("configmaps")));
            }
            5 => {
                healing =
                    Some(faults.inject(Fault::HalfFrame).on(Match::watch().resource("configmaps")).times(3))
            }
            6 => self.links.iter().for_each(Link::cut),
            7 => {
                self.links.iter().for_each(Link::cut);
                link(Mood::Refusing);
            }
            8 => link(Mood::Silent),
            _ if self.forgets => {
                member.pause_with(how).await;
                (0..5).for_each(|_| self.write());
                member.compact();
                member.forget_events();
                sleep(for_a_while / 4).await;
                member.resume().await.unwrap();
            }
            _ => member.restart(how).await.unwrap(),
        }
        if self.random.bool() {
            (0..3).for_each(|_| self.write());
        }
        sleep(for_a_while).await;
        drop(healing);
        // kube-rs does not notice silence within minutes, so its connections end with the fault.
        if self.random.bool() {
            self.links.iter().for_each(Link::cut);
        }
        self.links.iter().for_each(|link| link.set(Mood::Well));
    }

    async fn end(mut self) {
        self.tasks.shutdown().await;
        assert!(self.lab.services.fleet.shutdown(RECOVERY_TIMEOUT).await);
    }
}

/// Returns a function that opens connections to the gateway.
fn serving(lab: &Lab) -> impl Fn() -> std::io::Result<tokio::io::DuplexStream> + Send + Sync + 'static {
    let gateway = lab.gateway.clone();
    let link = tokio_util::task::TaskTracker::new();
    move || {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let gateway = gateway.clone();
        link.spawn(async move {
            let address = "127.0.0.1:999".parse().unwrap();
            let draining = CancellationToken::new();
            let peer = Arc::new(Peer::new(address, true, draining));
            let answer = service_fn(move |request| {
                let (gateway, peer) = (gateway.clone(), peer.clone());
                async move { Ok::<_, std::convert::Infallible>(gateway.handle(peer, request).await) }
            });
            let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new());
            builder.http2().timer(TokioTimer::new());
            let _ = builder.serve_connection(TokioIo::new(far), answer).await;
        });
        Ok(near)
    }
}

fn map(namespace: &str, name: &str, value: u32) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"value": value.to_string()}})
}

async fn run(forgets: bool) {
    let cases: u64 = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(6);
    for seed in 0..cases {
        let mut world = World::new(seed, forgets).await;
        for _ in 0..120 {
            world.step().await;
        }
        world.settled().await;
        assert!(world.truth.len() > 30, "too little happened");
        for (server, way, seen) in &world.clients {
            let history = seen.history();
            if let Some(problem) = history.invents(&world.truth) {
                panic!("seed {seed}: {way:?} on the {server}: {problem}");
            }
            if let Some(problem) = history.differs(&world.truth).filter(|_| !forgets) {
                panic!("seed {seed}: {way:?} on the {server}: {problem}");
            }
        }
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_once_in_order_despite_faults() {
    run(false).await;
}

#[tokio::test(start_paused = true)]
async fn clients_converge_when_history_is_compacted() {
    run(true).await;
}
