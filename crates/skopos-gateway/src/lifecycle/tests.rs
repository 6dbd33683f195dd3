use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use serde_json::Value;
use skopos::{Transport, TransportOptions, test_server_dialer};
use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
use skopos_vcluster::{Helm, HostOptions};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::Config;
use crate::request::body::LimitedBody;
use crate::testing::Script;

const NS: &str = "vcluster-shop";

struct Gateway {
    lifecycle: Lifecycle,
    virtuals: VirtualClusters,
    script: Script,
}

fn host(server: &TestServer) -> Host {
    let config = kube::Config::new("http://host.test".parse().unwrap());
    let options = TransportOptions { wall_clock: None, ..TransportOptions::default() };
    let transport = Transport::with_dialer(config, options, test_server_dialer(server)).unwrap();
    let client = transport.client("default");
    let helm = Helm { program: "/nonexistent/helm".into(), ..Helm::default() };
    Host::new(client, HostOptions { helm, ..HostOptions::default() })
}

impl Hosts for BTreeMap<String, Host> {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, NoHost>> {
        Box::pin(async { Ok(self.keys().cloned().collect()) })
    }

    fn find<'a>(&'a self, name: &'a str, _: Duration) -> BoxFuture<'a, Result<Host, NoHost>> {
        Box::pin(async move { self.get(name).cloned().ok_or(NoHost::Unknown) })
    }
}

impl Gateway {
    async fn with(clusters: &[VirtualCluster], script: Script) -> Self {
        let server = TestServer::builder().workloads(true).start_in_memory().unwrap();
        let virtuals = VirtualClusters::on(server).in_memory().start();
        for cluster in clusters {
            virtuals.create(cluster).unwrap();
            virtuals.wait_up(cluster.namespace(), cluster.name()).await.unwrap();
        }
        let authorizer = Authorizer::new(&Config::default(), script.arc());
        let hosts = BTreeMap::from([("host".to_owned(), host(virtuals.host()))]);
        Self { lifecycle: Lifecycle::new(authorizer, Arc::new(hosts)), virtuals, script }
    }

    async fn shop() -> Self {
        Self::with(&[VirtualCluster::new("shop")], Script::reviewing(|_, _| json!({"allowed": true}))).await
    }

    async fn ask(&self, method: &str, path: &str, query: &[(&str, &str)], body: Value) -> (u16, Value) {
        let call = Call {
            method: method.parse().unwrap(),
            path: Path::parse(path).unwrap(),
            query: query.iter().fold(Query::default(), |query, (name, value)| query.with(*name, *value)),
            headers: [(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]
                .into_iter()
                .collect(),
            body: LimitedBody::whole(body.to_string()),
            upgrade: None,
            identity: Arc::new(Identity::authenticated("jane", [])),
            draining: CancellationToken::new(),
        };
        let response = self.lifecycle.answer(call).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &[], Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, &[], body).await
    }

    /// Waits for an accepted operation and returns its final state.
    async fn ended(&self, (code, operation): (u16, Value)) -> Value {
        assert_eq!(code, 202, "{operation}");
        let path = format!("/-/operations/{}", operation["id"].as_str().unwrap());
        loop {
            let (_, now) = self.ask("GET", &path, &[("wait", "30s")], Value::Null).await;
            if now["state"] != "Running" {
                return now;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_life_by_rest() {
    let gateway = Gateway::with(&[], Script::reviewing(|_, _| json!({"allowed": true}))).await;
    let manifests = VirtualCluster::new("shop").manifests();
    let made = gateway.post("/", json!({"name": "shop", "manifests": manifests})).await;
    let made = gateway.ended(made).await;
    assert_eq!(
        (&made["state"], &made["result"]["status"]),
        (&"Succeeded".into(), &"Running".into()),
        "{made}"
    );
    assert!(made["steps"].as_array().unwrap().iter().any(|step| step["text"] == "it is up"), "{made}");

    let paused = gateway.ended(gateway.post("/vcluster-shop/shop/pause", Value::Null).await).await;
    assert_eq!(paused["result"]["status"], "Paused");
    assert_eq!(paused["steps"][1]["step"], "scaledDown");
    gateway.virtuals.wait_down(NS, "shop").await.unwrap();
    let (code, list) = gateway.get("/").await;
    assert_eq!((code, &list["items"][0]["status"]), (200, &"Paused".into()), "{list}");

    let resumed = gateway.ended(gateway.post("/vcluster-shop/shop/resume", Value::Null).await).await;
    assert_eq!(resumed["result"]["status"], "Running");
    assert_eq!(gateway.get("/vcluster-shop/shop").await.1["readyReplicas"], 1);

    let deleted = gateway.ended(gateway.ask("DELETE", "/vcluster-shop/shop", &[], Value::Null).await).await;
    assert_eq!(deleted["state"], "Succeeded", "{deleted}");
    assert_eq!(gateway.get("/vcluster-shop/shop").await.0, 404);
    assert!(gateway.virtuals.host().get("namespaces", None, NS).is_err());
}

#[tokio::test(start_paused = true)]
async fn repeated_request_returns_running_operation() {
    let gateway = Gateway::shop().await;
    let (_, first) = gateway.post("/vcluster-shop/shop/pause", Value::Null).await;
    let (code, second) = gateway.post("/vcluster-shop/shop/pause", Value::Null).await;
    assert_eq!((code, &second["id"]), (202, &first["id"]));
    let (code, other) = gateway.post("/vcluster-shop/shop/resume", Value::Null).await;
    assert_eq!(code, 409, "{other}");
    assert!(other["message"].as_str().unwrap().contains("pause is under way"), "{other}");
    gateway.ended((202, first)).await;
    let resumed = gateway.post("/vcluster-shop/shop/resume", Value::Null).await;
    assert_eq!(gateway.ended(resumed).await["state"], "Succeeded");
    let again = gateway.post("/vcluster-shop/shop/resume", Value::Null).await;
    assert_eq!(gateway.ended(again).await["state"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn request_with_other_options_conflicts() {
    let gateway = Gateway::shop().await;
    let delete =
        async |wish: &[(&str, &str)]| gateway.ask("DELETE", "/vcluster-shop/shop", wish, Value::Null).await;
    let (_, first) = delete(&[]).await;
    let (code, refused) = delete(&[("keepClaims", "true")]).await;
    assert!(code == 409 && refused["message"].as_str().unwrap().contains("otherwise"), "{refused}");
    let (code, same) = delete(&[("keepClaims", "false")]).await;
    assert_eq!((code, &same["id"]), (202, &first["id"]));
    gateway.ended((202, first)).await;

    let manifests = VirtualCluster::new("shop").manifests();
    let wish = |upgrade: bool| json!({"name": "shop", "manifests": manifests, "upgrade": upgrade});
    let (_, first) = gateway.post("/", wish(false)).await;
    assert_eq!(gateway.post("/", wish(true)).await.0, 409);
    let (code, same) = gateway.post("/", wish(false)).await;
    assert_eq!((code, &same["id"]), (202, &first["id"]));
    assert_eq!(gateway.ended((202, first)).await["state"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn every_operation_requires_rights_on_host() {
    // Each required right is refused in turn.
    let wishes: [(&str, &str); 6] = [
        ("GET", "/"),
        ("GET", "/vcluster-shop/shop"),
        ("POST", "/vcluster-shop/shop/pause"),
        ("POST", "/vcluster-shop/shop/resume"),
        ("POST", "/"),
        ("DELETE", "/vcluster-shop/shop"),
    ];
    for (method, path) in wishes {
        let mut refused = 0;
        loop {
            let asked = AtomicUsize::new(0);
            let script = Script::reviewing(
                move |_, _| json!({"allowed": asked.fetch_add(1, Ordering::SeqCst) != refused}),
            );
            let gateway = Gateway::with(&[VirtualCluster::new("shop")], script).await;
            let (code, _) = gateway.ask(method, path, &[], json!({"name": "new"})).await;
            if code != 403 {
                break;
            }
            assert!(gateway.virtuals.host().requests().is_empty(), "{method} {path}");
            refused += 1;
        }
        assert!(refused > 0, "{method} {path} is authorized");
    }
}

/// Its release may have created objects anywhere on the host, or create more on deletion. Synced objects are known by a name
/// that another virtual cluster may have too.
#[tokio::test(start_paused = true)]
async fn namespace_rights_do_not_suffice_for_deletion() {
    let script =
        Script::reviewing(|_, spec| json!({"allowed": spec["resourceAttributes"]["namespace"] == NS}));
    let gateway = Gateway::with(&[VirtualCluster::new("shop")], script).await;
    let (code, refused) = gateway.ask("DELETE", "/vcluster-shop/shop", &[], Value::Null).await;
    assert_eq!(code, 403, "{refused}");
    assert!(gateway.virtuals.host().requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn namespace_sync_pause_requires_global_pod_delete() {
    let everywhere = Arc::new(AtomicBool::new(false));
    let allowed = everywhere.clone();
    let script = Script::reviewing(move |_, spec| {
        let asked = &spec["resourceAttributes"];
        json!({"allowed": asked["namespace"] == "a" || asked["namespace"] == "" && allowed.load(Ordering::SeqCst)})
    });
    let gateway =
        Gateway::with(&[VirtualCluster::new("b-x-c").in_namespace("a").namespace_sync()], script).await;
    // This namespace belongs to vcluster c in namespace a-x-b, but by its label it could also belong to b-x-c in a.
    let host = gateway.virtuals.host();
    let labels = json!({"vcluster.loft.sh/managed-by": "a-x-b-x-c"});
    host.create(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others", "labels": labels}}),
    )
    .unwrap();
    host.create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "others"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}}),
    )
    .unwrap();
    let (code, refused) = gateway.post("/a/b-x-c/pause", Value::Null).await;
    assert_eq!(code, 403, "{refused}");
    assert!(!refused["message"].as_str().unwrap().contains("others"), "{refused}");
    assert!(host.get("pods", Some("others"), "web").is_ok());
    assert_eq!(host.get("statefulsets", Some("a"), "b-x-c").unwrap()["spec"]["replicas"], 1);

    everywhere.store(true, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(10)).await;
    let paused = gateway.ended(gateway.post("/a/b-x-c/pause", Value::Null).await).await;
    assert_eq!(paused["result"]["status"], "Paused", "{paused}");
    assert!(host.get("pods", Some("others"), "web").is_err());
}

#[tokio::test(start_paused = true)]
async fn namespace_stays_without_right_to_delete_it() {
    let script = Script::reviewing(
        |_, spec| json!({"allowed": spec["resourceAttributes"]["resource"] != "namespaces"}),
    );
    let gateway = Gateway::with(&[VirtualCluster::new("shop")], script).await;
    let deleted = gateway.ended(gateway.ask("DELETE", "/vcluster-shop/shop", &[], Value::Null).await).await;
    assert_eq!(deleted["state"], "Succeeded", "{deleted}");
    assert!(gateway.virtuals.host().get("namespaces", None, NS).is_ok());
    assert!(gateway.virtuals.host().get("statefulsets", Some(NS), "shop").is_err());
    let (cluster, question) = gateway.script.asked().remove(0);
    assert_eq!((cluster.as_str(), &question["spec"]["user"]), ("host", &"jane".into()));
}

#[tokio::test(start_paused = true)]
async fn errors_are_kubernetes_statuses() {
    let gateway = Gateway::shop().await;
    for (method, path, query, code) in [
        ("GET", "/vcluster-shop/nobody", None, 404),
        ("POST", "/vcluster-shop/nobody/pause", None, 404),
        ("GET", "/vcluster-shop/No.Name", None, 400),
        ("GET", "/-/operations/0", None, 404),
        ("GET", "/a/b/c/d", None, 404),
        ("PUT", "/", None, 405),
        ("DELETE", "/vcluster-shop/shop", Some(("keepClaims", "perhaps")), 400),
        ("GET", "/", Some(("host", "other")), 404),
        ("POST", "/", None, 400),
    ] {
        let query: Vec<(&str, &str)> = query.into_iter().collect();
        let (found, body) = gateway.ask(method, path, &query, json!({"names": 1})).await;
        assert_eq!((found, &body["kind"]), (code, &"Status".into()), "{method} {path}: {body}");
    }
    gateway.virtuals.scale(NS, "shop", 0).unwrap();
    gateway.virtuals.wait_down(NS, "shop").await.unwrap();
    let resumed = gateway.post("/vcluster-shop/shop/resume", Value::Null).await;
    let failed = gateway.ended(resumed).await;
    assert_eq!((&failed["state"], &failed["error"]["code"]), (&"Failed".into(), &409.into()), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_operation_and_next_gateway_resumes() {
    let gateway = Gateway::shop().await;
    let (_, begun) = gateway.post("/vcluster-shop/shop/pause", Value::Null).await;
    assert!(gateway.lifecycle.shutdown(Duration::from_secs(5)).await);
    let path = format!("/-/operations/{}", begun["id"].as_str().unwrap());
    assert_eq!(gateway.get(&path).await.1["state"], "Failed");
    assert_eq!(gateway.post("/vcluster-shop/shop/pause", Value::Null).await.0, 429);
    let authorizer = Authorizer::new(&Config::default(), gateway.script.arc());
    let hosts = BTreeMap::from([("host".to_owned(), host(gateway.virtuals.host()))]);
    let next = Gateway { lifecycle: Lifecycle::new(authorizer, Arc::new(hosts)), ..gateway };
    assert_eq!(
        next.ended(next.post("/vcluster-shop/shop/pause", Value::Null).await).await["state"],
        "Succeeded"
    );
}
