//! One controller over many clusters, under virtual time.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{FactoryOptions, InformerOptions, Transport, TransportOptions};
use skopos_controller::{
    Context, Controller, ControllerOptions, ControllerStatus, FleetController, Member, Outcome,
    ReconcileError,
};
use skopos_fleet::{ClusterId, ClusterOptions, ClusterSpec, Connector, Fleet, FleetOptions};
use skopos_testserver::TestServer;
use support::{Diary, Task, config_map, secs, until};
use tokio_util::sync::CancellationToken;

/// Servers by the host of their URL.
#[derive(Clone, Default)]
struct Servers(Arc<Mutex<BTreeMap<String, TestServer>>>);

impl Servers {
    fn add(&self, name: &str) -> TestServer {
        let server = TestServer::builder().start_in_memory().expect("the server starts");
        server.create(config_map("default", name, "1")).expect("a config map");
        self.0.lock().insert(name.to_owned(), server.clone());
        server
    }

    fn connector(&self) -> Connector {
        let servers = self.clone();
        Connector::new(move |_, spec, options| {
            let (servers, host) = (servers.clone(), spec.server().host().unwrap_or_default().to_owned());
            let dialer = dialer_fn(move |_| {
                let server = servers.0.lock().get(&host).cloned();
                let refused = |reason: String| TransportErrorKind::Refused {
                    to: "memory".into(),
                    reason: reason.into(),
                };
                let stream = server
                    .ok_or_else(|| refused("no such server".to_owned()))
                    .and_then(|server| server.connect().map_err(|error| refused(error.to_string())));
                async move { stream.map(|stream| Dialed::new(stream, Protocol::Http2)) }
            });
            Transport::with_dialer(spec.config(), options, dialer)
        })
    }
}

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).expect("a name")
}

fn spec(host: &str) -> ClusterSpec {
    ClusterSpec::from_config(kube::Config::new(format!("http://{host}").parse().expect("a URL")))
}

#[tokio::test(start_paused = true)]
async fn controller_runs_per_cluster_until_removed() {
    let servers = Servers::default();
    let (one, two) = (servers.add("one"), servers.add("two"));
    let cluster = ClusterOptions {
        transport: TransportOptions { seed: Some(7), ..TransportOptions::default() },
        factory: FactoryOptions { audit_interval: None, seed: Some(7), ..FactoryOptions::default() },
        ..ClusterOptions::default()
    };
    let fleet =
        Fleet::new(FleetOptions { cluster, connector: servers.connector(), ..FleetOptions::default() });
    fleet.join(id("one"), spec("one")).unwrap();
    let diary = Diary::default();
    let everywhere = {
        let diary = diary.clone();
        FleetController::new(fleet.clone(), move |cluster, informers| {
            let maps = informers.informer::<ConfigMap>(InformerOptions::all())?;
            let (name, diary) = (cluster.id().to_string(), diary.clone());
            Ok(Controller::new(maps, ControllerOptions::named("maps")).reconcile(
                move |context: Context<ConfigMap>| {
                    diary.add(format!("{name}: {}", context.key()));
                    futures::future::ok::<_, ReconcileError>(Outcome::Done)
                },
            ))
        })
    };
    let (handle, stop) = (everywhere.handle(), CancellationToken::new());
    let running = Task::start(everywhere.run(stop.clone()));
    diary.has(&["one: default/one"]).await;
    fleet.join(id("two"), spec("two")).unwrap();
    diary.has(&["two: default/two"]).await;
    assert_eq!(diary.count("two: default/one"), 0);

    // An unreachable cluster delays no other, and reports its state.
    two.pause().await;
    let stale = |name: &str| matches!(handle.statuses().get(&id(name)), Some(ControllerStatus::Stale { .. }));
    until(|| stale("two")).await;
    one.create(config_map("default", "new", "1")).unwrap();
    diary.has(&["one: default/new"]).await;
    assert!(!stale("one"));
    two.resume().await.unwrap();
    two.create(config_map("default", "new", "1")).unwrap();
    diary.has(&["two: default/new"]).await;

    // A cluster that leaves is not written to any more.
    fleet.leave(&id("two"), "it goes");
    until(|| !handle.members().contains_key(&id("two"))).await;
    let before = diary.count("two: default/late");
    two.create(config_map("default", "late", "1")).unwrap();
    tokio::time::sleep(secs(120)).await;
    assert_eq!(diary.count("two: default/late"), before);
    // Another cluster under its name is a new one.
    servers.add("three");
    fleet.join(id("two"), spec("three")).unwrap();
    diary.has(&["two: default/three"]).await;
    assert!(matches!(handle.members().get(&id("two")), Some(Member::Runs(_))));

    stop.cancel();
    running.end().await;
    assert!(handle.members().is_empty());
    assert!(fleet.shutdown(secs(10)).await);
}
