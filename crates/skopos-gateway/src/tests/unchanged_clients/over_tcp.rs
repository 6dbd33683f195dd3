//! kube-rs as users have it: with its own configuration, connections and clock, on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube_runtime::watcher;
use parking_lot::Mutex;
use skopos_testserver::{CloseMode, TestServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::clients::kube_watch;
use super::history::{History, Seen};
use super::map;
use crate::config;
use crate::daemon::Daemon;

/// Bounds the waits of a test; no time is measured by it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(90);

/// A member, a gateway, and a proxy between the gateway and its clients that can cut.
pub(super) struct World {
    pub(super) member: TestServer,
    gateway: SocketAddr,
    through: SocketAddr,
    name: String,
    cut: Arc<Mutex<CancellationToken>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    folder: tempfile::TempDir,
}

impl World {
    pub(super) async fn new() -> Self {
        let member = TestServer::builder().start().await.unwrap();
        let object =
            serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red"}});
        member.create(object).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
        let mut config = config::Config::from(config::QuickStart {
            kubeconfigs: vec![kubeconfig],
            writes: true,
            ..config::QuickStart::default()
        });
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        let daemon = Daemon::from_config(config).await.unwrap();
        let mut changes = daemon.fleet().changes();
        let (gateway, stop) = (daemon.address(), CancellationToken::new());
        let fleet = daemon.fleet().clone();
        let mut tasks = JoinSet::new();
        let stopped = stop.clone();
        tasks.spawn(async move { _ = daemon.run(stopped).await });
        timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
        let name = fleet.members().keys().next().unwrap().to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = listener.local_addr().unwrap();
        let cut = Arc::<Mutex<CancellationToken>>::default();
        let passing = stop.clone().run_until_cancelled_owned(pass(listener, gateway, cut.clone()));
        tasks.spawn(async move { _ = passing.await });
        Self { member, gateway, through, name, cut, stop, tasks, folder }
    }

    pub(super) fn url_through_the_gateway(&self) -> String {
        format!("http://{}/clusters/{}", self.through, self.name)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a task until the end of the test.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let running = self.stop.clone().run_until_cancelled_owned(task);
        self.tasks.spawn(async move { _ = running.await });
    }

    /// Makes a client with kube-rs' defaults.
    fn client(&self, address: SocketAddr) -> kube::Client {
        let url = format!("http://{address}/clusters/{}", self.name);
        kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap()
    }

    pub(super) fn cut(&self) {
        std::mem::take(&mut *self.cut.lock()).cancel();
    }

    pub(super) async fn end(mut self) {
        self.stop.cancel();
        while timeout(TIMEOUT, self.tasks.join_next()).await.unwrap().is_some() {}
        self.member.stop().await;
    }
}

/// Forwards connections until they are cut.
async fn pass(listener: TcpListener, to: SocketAddr, cut: Arc<Mutex<CancellationToken>>) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let cut = cut.lock().clone();
        connections.spawn(cut.run_until_cancelled_owned(async move {
            if let Ok(mut far) = TcpStream::connect(to).await {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_gets_lists_and_watches() {
    use futures::StreamExt as _;

    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.member.create(map("red", name, 1)).unwrap();
    }
    let client = world.client(world.gateway);
    assert!(!client.apiserver_version().await.unwrap().git_version.is_empty());
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "red");
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["value"], "1");
    assert!(maps.get_opt("none").await.unwrap().is_none());
    let names = |list: &kube::api::ObjectList<ConfigMap>| {
        list.iter().map(|map| map.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    let all = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&all), ["a", "b", "c"]);
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let second = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!((names(&first), names(&second)), (vec!["a".into(), "b".into()], vec!["c".into()]));
    let chosen = maps.list_metadata(&ListParams::default().fields("metadata.name=b")).await.unwrap();
    assert_eq!(chosen.items[0].metadata.name.as_deref(), Some("b"));
    assert_eq!(Api::<Namespace>::all(client).get("red").await.unwrap().metadata.name.as_deref(), Some("red"));
    let unknown = maps.list(&ListParams::default().labels("a=b=c")).await.unwrap_err();
    assert!(matches!(&unknown, kube::Error::Api(status) if status.code == 400), "{unknown}");

    let version = all.metadata.resource_version.unwrap();
    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    world.member.delete("configmaps", Some("red"), "b").unwrap();
    let event = timeout(TIMEOUT, events.next()).await.unwrap().unwrap().unwrap();
    assert!(
        matches!(&event, WatchEvent::Deleted(map) if map.metadata.name.as_deref() == Some("b")),
        "{event:?}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_watchers_converge_despite_cut_connections() {
    let mut world = World::new().await;
    let mut truth = History::default();
    truth.put_object(&world.member.create(map("red", "early", 0)).unwrap());
    let configs = [watcher::Config::default(), watcher::Config::default().streaming_lists()];
    let all: Vec<Seen> = configs
        .into_iter()
        .map(|config| {
            let seen = Seen::default();
            let following = kube_watch(world.client(world.through), config, seen.clone());
            world.spawn(following);
            seen
        })
        .collect();
    for round in 0..6_u32 {
        let settled = async {
            while !all.iter().all(|seen| seen.is_at(&truth)) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TIMEOUT, settled).await.expect("both see what there is");
        match round {
            0 => world.cut(),
            1 => drop(world.member.faults().kill_connections(CloseMode::Rst)),
            2 => world.member.close_watches(),
            3 => world.member.restart(CloseMode::Rst).await.unwrap(),
            _ => {}
        }
        truth.put_object(&world.member.apply(map("red", "early", round + 1)).unwrap());
        truth.put_object(&world.member.apply(map("red", "x", round)).unwrap());
        if round % 2 == 1 {
            world.member.delete("configmaps", Some("red"), "x").unwrap();
            truth.delete("red/x");
        }
    }
    let settled = async {
        while !all.iter().all(|seen| seen.is_at(&truth)) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TIMEOUT, settled).await.expect("both see what there is");
    for seen in &all {
        assert_eq!((seen.history().differs(&truth), seen.lists()), (None, 1));
    }
    world.end().await;
}
