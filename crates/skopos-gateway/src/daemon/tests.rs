use std::time::Duration;

use serde_json::{Value, json};
use skopos_bucket::testing::{Mood, S3};
use skopos_fleet::{Condition, Endpoint, FleetChange};
use skopos_testserver::{TestServer, VirtualClusters};
use skopos_vcluster::{Host, HostOptions, PauseOptions, ResumeOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config;

/// Bounds the waits of a test; no time is measured by it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the configuration of `skopos serve --kubeconfig FILE --allow-writes`.
fn quick(kubeconfig: std::path::PathBuf) -> Config {
    let kubeconfigs = vec![kubeconfig];
    Config::from(config::QuickStart { kubeconfigs, writes: true, ..config::QuickStart::default() })
}

struct Running {
    address: SocketAddr,
    fleet: Fleet,
    stop: CancellationToken,
    tasks: JoinSet<Drained>,
    member: TestServer,
    _folder: tempfile::TempDir,
}

impl Running {
    async fn start() -> Self {
        let member = TestServer::builder().start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
        let mut config = quick(kubeconfig);
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        let daemon = Daemon::from_config(config).await.unwrap();
        let mut changes = daemon.fleet().changes();
        let running = Self::from_daemon(daemon, member, folder);
        tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
        running
    }

    /// Starts a gateway with kubeconfigs of these contexts. Each context leads to a server with one ConfigMap of the same
    /// name.
    async fn with_contexts(files: &[&[&str]]) -> (Self, Vec<TestServer>) {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        config.authorization.loopback = config::LoopbackTrust::Trusted;
        let mut servers = Vec::new();
        for (n, names) in files.iter().enumerate() {
            let (mut clusters, mut contexts) = (Vec::new(), Vec::new());
            for (m, name) in names.iter().enumerate() {
                let server = TestServer::builder().start().await.unwrap();
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("which-{n}-{m}"), "namespace": "default"}});
                server.create(map).unwrap();
                clusters.push(json!({"name": m.to_string(), "cluster": {"server": server.url()}}));
                contexts.push(json!({"name": name, "context": {"cluster": m.to_string()}}));
                servers.push(server);
            }
            let path = folder.path().join(n.to_string());
            std::fs::write(&path, json!({"clusters": clusters, "contexts": contexts}).to_string()).unwrap();
            config.clusters.kubeconfigs.push(config::KubeconfigSource {
                path,
                contexts: None,
                labels: std::collections::BTreeMap::new(),
            });
        }
        let daemon = Daemon::from_config(config).await.unwrap();
        let running = Self::from_daemon(daemon, servers[0].clone(), folder);
        running.fleet.unread_sources(TIMEOUT).await;
        (running, servers)
    }

    /// Returns the ConfigMaps in a list, without those that every cluster has.
    async fn shown(&self, path: &str) -> Vec<String> {
        let (code, list) = self.ask("GET", path, "application/json", &Value::Null).await;
        assert_eq!(code, 200, "{path}: {list}");
        let names = list["items"].as_array().unwrap().iter();
        let names = names.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("which")).collect()
    }

    /// Starts a gateway with a host and its virtual clusters.
    async fn in_front_of(virtuals: &VirtualClusters) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = Some(folder.path().join("kubeconfig"));
        std::fs::write(kubeconfig.as_ref().unwrap(), virtuals.host().kubeconfig()).unwrap();
        let host = config::HostCluster { kubeconfig, ..config::HostCluster::default() };
        let mut config = Config::default();
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        config.authorization.loopback = config::LoopbackTrust::Trusted;
        config.clusters.vclusters =
            vec![config::VclusterSource { host, ..config::VclusterSource::default() }];
        config.clusters.addresses.allow = vec!["127.0.0.0/8".into()];
        let known = virtuals.clone();
        let dial = move |name: &str, namespace: &str| {
            let service = format!("{name}.{namespace}");
            let url = format!("https://{}", known.address(&service)?).parse().ok()?;
            Some(Endpoint { url, tls_server_name: Some(service) })
        };
        let embedding =
            Embedding { dial: VclusterDial::Custom(Arc::new(dial)), ..Embedding::from_config(&config) };
        let daemon = Daemon::embedded(config, embedding).await.unwrap();
        Self::from_daemon(daemon, virtuals.host().clone(), folder)
    }

    fn from_daemon(daemon: Daemon, member: TestServer, folder: tempfile::TempDir) -> Self {
        let (address, fleet, stop) = (daemon.address(), daemon.fleet().clone(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(daemon.run(stop.clone()));
        Self { address, fleet, stop, tasks, member, _folder: folder }
    }

    /// Returns how many requests were refused with 508.
    async fn refused_loops(&self) -> f64 {
        let text = self.get("/metrics").await;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("skopos_requests_total") && line.contains("code=\"508\""));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Sends bytes, and reads until the other end closes.
    async fn exchange(&self, sent: &[u8]) -> String {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // The other end may close before all is sent.
            let _ = stream.write_all(sent).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await
    }

    /// Sends a request with a body, and reads the code and the JSON of the answer.
    async fn ask(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = self.exchange((head + &body).as_bytes()).await;
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        // Leaves out the lengths of a chunked answer.
        let json = answer.find('{').zip(answer.rfind('}')).map(|(first, last)| &answer[first..=last]);
        (code, json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default())
    }

    /// Waits until a cluster is in this condition, and checks its report.
    async fn shows(&self, name: &str, wanted: Condition, reason: Option<&str>) {
        let mut changes = self.fleet.changes();
        let reached = async {
            loop {
                if self.fleet.get(name).is_some_and(|cluster| {
                    let state = cluster.state();
                    state.condition == wanted && (reason.is_none() || state.reason.as_deref() == reason)
                }) {
                    return;
                }
                changes.next().await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, reached).await;
        assert!(
            found.is_ok(),
            "{name}: not {wanted} {reason:?}: {:?}",
            self.fleet.get(name).map(|c| c.state())
        );
        let (code, report) = self.ask("GET", "/api/v1/status", "application/json", &Value::Null).await;
        let clusters = report["clusters"].as_array().cloned().unwrap_or_default();
        let shown = clusters.iter().find(|cluster| cluster["name"] == name).cloned().unwrap_or_default();
        assert_eq!((code, &shown["state"]), (200, &wanted.as_str().into()), "{report}");
        assert!(reason.is_none() || shown["reason"].as_str() == reason, "{shown}");
    }

    async fn end(mut self) -> Drained {
        self.stop.cancel();
        let ended = tokio::time::timeout(TIMEOUT, self.tasks.join_next()).await;
        self.member.stop().await;
        ended.unwrap().unwrap().unwrap()
    }
}

#[tokio::test]
async fn quick_start_refuses_writes_by_default() {
    for writes in [false, true] {
        let member = TestServer::builder().start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let quick = config::QuickStart { kubeconfigs: vec![kubeconfig], listen, writes };
        let daemon = Daemon::from_config(quick.into()).await.unwrap();
        let running = Running::from_daemon(daemon, member, folder);
        assert_eq!(running.fleet.unread_sources(TIMEOUT).await, 0);
        let base = "/clusters/skopos-test/api/v1/namespaces/default/configmaps";
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let refused = if writes { None } else { Some(403) };
        let (code, answer) = running.ask("POST", base, "application/json", &map).await;
        assert_eq!(code, refused.unwrap_or(201), "{answer}");
        if !writes {
            assert!(answer["message"].as_str().unwrap().contains("read-only"), "{answer}");
        }
        let one = format!("{base}/a");
        let patch = json!({"data": {"x": "y"}});
        let patched = running.ask("PATCH", &one, "application/merge-patch+json", &patch).await;
        assert_eq!(patched.0, refused.unwrap_or(200));
        assert_eq!(
            running.ask("DELETE", &one, "application/json", &json!({})).await.0,
            refused.unwrap_or(200)
        );
        // Reads go through, and so do reviews of the caller's own rights.
        assert_eq!(running.ask("GET", base, "application/json", &Value::Null).await.0, 200);
        let group = "/clusters/skopos-test/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
        assert_eq!(running.ask("POST", group, "application/json", &review).await.0, 201);
        // Virtual clusters are neither created nor paused.
        let pause = running.ask("POST", "/virtualclusters/a/b/pause", "application/json", &json!({})).await;
        assert_eq!(pause.0 == 403, !writes, "{pause:?}");
        running.end().await;
    }
}

#[tokio::test]
async fn each_context_is_reached_by_unique_name() {
    let (running, servers) = Running::with_contexts(&[
        &["team/prod", "team-prod", "生产", "测试", "kubernetes-admin@kubernetes"],
        &["team-prod"],
    ])
    .await;
    let (_, status) = running.ask("GET", "/api/v1/status", "application/json", &Value::Null).await;
    let clusters = status["clusters"].as_array().unwrap().clone();
    assert_eq!(clusters.len(), 6, "{status}");
    assert!(status.get("problems").is_none(), "{status}");
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(running.shown(&format!("/clusters/team-prod{maps}")).await, ["which-0-1"]);
    let mut seen = Vec::new();
    for cluster in &clusters {
        let name = cluster["name"].as_str().unwrap();
        let shown = running.shown(&format!("/clusters/{name}{maps}")).await;
        assert_eq!(shown.len(), 1, "{name}");
        // The merged view finds it by its name and by its label value.
        assert_eq!(running.shown(&format!("/fleet{maps}?clusters={name}")).await, shown);
        let value = cluster["labelValue"].as_str().unwrap_or(name);
        let labelled = format!("/fleet{maps}?labelSelector=skopos.dev%2Fcluster%3D{value}");
        assert_eq!(running.shown(&labelled).await, shown, "{cluster}");
        let context = cluster["context"].as_str().unwrap_or(name).to_owned();
        seen.push((shown[0].clone(), context));
    }
    seen.sort();
    let expected = ["team/prod", "team-prod", "生产", "测试", "kubernetes-admin@kubernetes", "team-prod"];
    assert_eq!(seen.iter().map(|(_, context)| context.as_str()).collect::<Vec<_>>(), expected);
    // Selects by a context that is not the name of a cluster. One that is means the cluster of that name.
    let by_context = |name: &str| format!("/fleet{maps}?clusters={name}");
    assert_eq!(running.shown(&by_context("team%2Fprod")).await, ["which-0-0"]);
    assert_eq!(running.shown(&by_context("team-prod")).await, ["which-0-1"]);
    running.end().await;
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test]
async fn serves_kubeconfig_contexts_and_stops_cleanly() {
    let running = Running::start().await;
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"));
    let status = running.get("/api/v1/status").await;
    let report: crate::state::status::Report =
        serde_json::from_str(status.split("\r\n\r\n").nth(1).unwrap().trim()).unwrap();
    let name = &report.clusters[0].name;
    let list = running.get(&format!("/clusters/{name}/api/v1/namespaces")).await;
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("skopos-source: memory"), "{list}");
    assert!(list.contains("NamespaceList"), "{list}");
    let inside = running.get("/virtualclusters").await;
    assert!(
        inside.starts_with("HTTP/1.1 200") && inside.contains(&format!("\"host\":\"{name}\"")),
        "{inside}"
    );
    assert!(running.get("/virtualclusters?host=other").await.starts_with("HTTP/1.1 404"));
    let merged = running.get("/fleet/api/v1/namespaces").await;
    assert!(merged.starts_with("HTTP/1.1 200"), "{merged}");
    let address = running.address;
    assert_eq!(running.end().await.cut, 0);
    assert!(TcpStream::connect(address).await.is_err());
}

/// A load balancer must see that the gateway is not ready before new connections are refused.
#[tokio::test]
async fn answers_during_shutdown_delay() {
    let member = TestServer::builder().start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
    let mut config = quick(kubeconfig);
    config.listen.address = "127.0.0.1:0".parse().unwrap();
    assert_eq!(config.listen.shutdown_delay(), Duration::ZERO, "nobody balances the load of loopback");
    config.listen.shutdown_delay = Some(config::Span::seconds(3));
    let daemon = Daemon::from_config(config).await.unwrap();
    let mut changes = daemon.fleet().changes();
    let running = Running::from_daemon(daemon, member, folder);
    tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"));
    let told = tokio::time::Instant::now();
    running.stop.cancel();
    let path = format!("/clusters/{}/api/v1/namespaces", running.fleet.members().keys().next().unwrap());
    let unready = async {
        while !running.get("/readyz").await.starts_with("HTTP/1.1 503") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, unready).await.unwrap();
    assert!(running.get(&path).await.starts_with("HTTP/1.1 200"), "new connections are answered");
    let address = running.address;
    assert_eq!(running.end().await.cut, 0);
    assert!(told.elapsed() >= Duration::from_secs(3) && TcpStream::connect(address).await.is_err());
}

/// A kubeconfig can have the gateway itself among its contexts.
#[tokio::test]
async fn own_member_loop_is_reported_and_not_repeated() {
    let member = TestServer::builder().start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
    let own = folder.path().join("own");
    // The file is written when the port is known. Until then, the missing file is a problem of the fleet.
    let mut config = quick(kubeconfig);
    config.listen.address = "127.0.0.1:0".parse().unwrap();
    let file = |path: &std::path::Path| config::KubeconfigSource {
        path: path.to_owned(),
        ..config.clusters.kubeconfigs[0].clone()
    };
    let files = [file(&own.join("all")), file(&own.join("again"))];
    config.clusters.kubeconfigs.extend(files);
    let daemon = Daemon::from_config(config).await.unwrap();
    let port = daemon.address().port();
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("all"), plain_kubeconfig("all", port, "/fleet")).unwrap();
    std::fs::write(own.join("again"), plain_kubeconfig("again", port, "/clusters/again")).unwrap();
    let running = Running::from_daemon(daemon, member, folder);
    let mut changes = running.fleet.changes();
    let joined = async {
        while ["all", "again", "skopos-test"].iter().any(|name| running.fleet.get(name).is_none()) {
            changes.next().await;
        }
    };
    tokio::time::timeout(TIMEOUT, joined).await.unwrap();
    let (code, again) = running.ask("GET", "/clusters/again/api/v1/secrets", "", &Value::Null).await;
    assert_eq!((code, &again["reason"]), (508, &"LoopDetected".into()), "{again}");
    assert!(again["message"].as_str().unwrap().contains("is this gateway itself"), "{again}");
    let list = running.get("/fleet/api/v1/namespaces").await;
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("kube-system"), "{list}");
    // Requests of the gateway to itself are refused, and not repeated.
    let asked = async || running.refused_loops().await;
    tokio::time::timeout(TIMEOUT, async {
        while asked().await < 3.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    let before = asked().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(asked().await - before < 40.0, "{before} {}", asked().await);
    running.end().await;
}

/// Returns a kubeconfig of one context for a plain HTTP server on this machine.
fn plain_kubeconfig(context: &str, port: u16, path: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}{path}'}}}}]\n\
         contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    )
}

#[tokio::test]
async fn mutual_member_gateways_stop_repeating_requests() {
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let member = TestServer::builder().start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (kubeconfig, other) = (folder.path().join("kubeconfig"), folder.path().join("later/other"));
        std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
        let mut config = quick(kubeconfig);
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        let later =
            config::KubeconfigSource { path: other.clone(), ..config.clusters.kubeconfigs[0].clone() };
        config.clusters.kubeconfigs.push(later);
        gateways
            .push((Running::from_daemon(Daemon::from_config(config).await.unwrap(), member, folder), other));
    }
    let ports = [gateways[1].0.address.port(), gateways[0].0.address.port()];
    for ((running, other), port) in gateways.iter().zip(ports) {
        let mut changes = running.fleet.changes();
        std::fs::create_dir(other.parent().unwrap()).unwrap();
        std::fs::write(other, plain_kubeconfig("other", port, "/fleet")).unwrap();
        let joined = async {
            while running.fleet.get("other").is_none() {
                changes.next().await;
            }
        };
        tokio::time::timeout(TIMEOUT, joined).await.unwrap();
    }
    for (running, _) in &gateways {
        let list = running.get("/fleet/api/v1/namespaces").await;
        assert!(list.starts_with("HTTP/1.1 200") && list.contains("kube-system"), "{list}");
    }
    for (running, _) in &gateways {
        let refused = async {
            while running.refused_loops().await < 1.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, refused).await.expect("the other gateway is refused");
        // Each shows only its own member's objects: no changes go round.
        let list = running.get("/fleet/api/v1/namespaces").await;
        assert!(!list.contains(r#""skopos.dev/cluster":"other""#), "{list}");
        let (code, single) = running.ask("GET", "/clusters/other/api/v1/secrets", "", &Value::Null).await;
        assert!(code == 508 && single.to_string().contains("/clusters/NAME"), "{code} {single}");
    }
    for (running, _) in gateways {
        running.end().await;
    }
}

#[tokio::test]
async fn restart_from_bucket_serves_cluster_that_is_down() {
    let (s3, folder) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let member = TestServer::builder().start().await.unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
    let mut config = Config::from(config::QuickStart {
        kubeconfigs: vec![kubeconfig],
        writes: true,
        ..config::QuickStart::default()
    });
    config.listen.address = "127.0.0.1:0".parse().unwrap();
    config.cache.member_deadline = config::Span::seconds(1);
    let bucket = serde_json::to_value(s3.config(folder.path()).unwrap()).unwrap();
    config.checkpoints = serde_json::from_value(json!({"bucket": bucket, "every": "1s"})).unwrap();
    let start = || async {
        let daemon = Daemon::from_config(config.clone()).await.unwrap();
        let mut changes = daemon.fleet().changes();
        let running = Running::from_daemon(daemon, member.clone(), tempfile::tempdir().unwrap());
        let Some(FleetChange::Added(cluster)) = tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap()
        else {
            panic!("no cluster")
        };
        let path = format!("/clusters/{}/api/v1/namespaces", cluster.id());
        (running, cluster, path)
    };
    let halt = |mut running: Running| async move {
        running.stop.cancel();
        let ended = tokio::time::timeout(TIMEOUT, running.tasks.join_next()).await;
        ended.unwrap().unwrap().unwrap();
    };
    let (running, cluster, path) = start().await;
    assert!(running.get(&path).await.contains("skopos-source: memory"));
    let (_, merged) = running.ask("GET", "/fleet/api/v1/namespaces", "", &Value::Null).await;
    let seen = merged["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let written = async {
        while !s3.names().iter().any(|name| name.ends_with("core.v1.namespaces.skopos")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, written).await.unwrap();
    drop(cluster);
    halt(running).await;
    let names = s3.names();
    assert!(names.contains(&"some/prefix/views/merged/core.v1.namespaces".into()), "{names:?}");

    member.pause().await;
    let (running, _, path) = start().await;
    let list = running.get(&path).await;
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("kube-system"), "{list}");
    assert!(list.contains("skopos-source: memory") && list.contains("warning: 299"), "{list}");
    let watch = format!("/fleet/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersion={seen}");
    let watched = running.get(&watch).await;
    assert!(watched.starts_with("HTTP/1.1 200") && !watched.contains("ERROR"), "{watched}");
    halt(running).await;

    // A bucket that hangs causes only a short delay, and is reported.
    member.resume().await.unwrap();
    s3.feels(Mood::Hang);
    let (running, cluster, path) = start().await;
    assert!(running.get(&path).await.starts_with("HTTP/1.1 200"));
    assert!(running.get("/fleet/api/v1/namespaces").await.starts_with("HTTP/1.1 200"));
    let (_, report) = running.ask("GET", "/api/v1/status", "", &Value::Null).await;
    let kept = &report["clusters"][0]["checkpoints"];
    assert!(kept["problem"].as_str().is_some_and(|problem| problem.contains("in time")), "{report}");
    assert!(!report.to_string().contains("hunter"));
    drop(cluster);
    halt(running).await;
    member.stop().await;
}

#[tokio::test]
async fn bad_input_does_not_stop_gateway() {
    let running = Running::start().await;
    let huge = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(200 * 1024));
    assert!(running.exchange(huge.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(5_000));
    assert!(running.exchange(many.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let large = b"POST /clusters/x/api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\nconnection: close\r\n\r\n";
    let answer = running.exchange(large).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("\"kind\":\"Status\""), "{answer}");
    for nonsense in [
        &b"\x00\x01\x02\x03\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        let answer = running.exchange(nonsense).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || !answer.contains("200 OK"),
            "{answer:?}"
        );
    }
    for path in ["/clusters/x%2fy/api", "/clusters/../metrics", "/%2e%2e/metrics", "//metrics"] {
        assert!(running.get(path).await.starts_with("HTTP/1.1 400"), "{path}");
    }
    // A page that made its own name resolve to this machine.
    let page = b"GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert!(running.exchange(page).await.starts_with("HTTP/1.1 401"));
    assert!(running.get("/healthz").await.starts_with("HTTP/1.1 200"));
    running.end().await;
}

#[tokio::test]
async fn valid_config_change_applies_and_invalid_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let text = "listen: {address: '127.0.0.1:0', limits: {bodyBytes: 3Mi}}\n";
    std::fs::write(&path, text).unwrap();
    let daemon = Daemon::from_file(path.clone()).await.unwrap();
    let before = daemon.gateway.load_full();
    let (gateway, stop) = (daemon.gateway.clone(), CancellationToken::new());
    let mut changes = daemon.follower.as_ref().unwrap().subscribe();
    let mut tasks = JoinSet::new();
    tasks.spawn(daemon.run(stop.clone()));
    std::fs::write(&path, "listen: [\n").unwrap();
    tokio::time::timeout(TIMEOUT, changes.wait_for(|state| state.refused.is_some())).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&before, &gateway.load_full()));
    std::fs::write(&path, format!("{text}cache: {{maxAge: 5s}}\n")).unwrap();
    tokio::time::timeout(TIMEOUT, changes.wait_for(|state| state.generation == 2)).await.unwrap().unwrap();
    let taken = async {
        while Arc::ptr_eq(&before, &gateway.load_full()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, taken).await.unwrap();
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn config_change_applies_whole_or_is_refused() {
    let member = TestServer::builder().start().await.unwrap();
    member.auth().answer_reviews(|_| true);
    let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let object = |kind: &str| {
        json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"namespace": "default", "name": "it", "annotations": applied}})
    };
    member.create(object("ConfigMap")).unwrap();
    member.create(object("Secret")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, member.kubeconfig()).unwrap();
    let path = folder.path().join("gateway.yaml");
    let write = |more: &str| {
        let clusters = format!("clusters: {{kubeconfigs: [{{path: {kubeconfig:?}}}]}}");
        std::fs::write(&path, format!("listen: {{address: '127.0.0.1:0'}}\n{clusters}\n{more}\n")).unwrap();
    };
    write("cache: {secrets: true}");
    let daemon = Daemon::from_file(path.clone()).await.unwrap();
    let (gateway, mut state) = (daemon.gateway.clone(), daemon.follower.as_ref().unwrap().subscribe());
    let mut changes = daemon.fleet().changes();
    let running = Running::from_daemon(daemon, member, folder);
    tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
    let cluster = running.fleet.members().values().next().unwrap().clone();
    let get = async |plural: &str| {
        let path = format!("/clusters/{}/api/v1/namespaces/default/{plural}/it", cluster.id());
        running.get(&path).await
    };
    for plural in ["configmaps", "secrets"] {
        let kept = get(plural).await;
        assert!(kept.contains("skopos-source: memory") && !kept.contains("last-applied"), "{kept}");
    }
    let in_memory = || cluster.kinds().iter().map(|kind| kind.resource().plural.clone()).collect::<Vec<_>>();
    assert_eq!(in_memory(), ["configmaps", "secrets"]);

    // Writes go through from now on, and Secrets are not kept.
    write("outbound: {impersonate: true}");
    tokio::time::timeout(TIMEOUT, state.wait_for(|state| state.generation == 2)).await.unwrap().unwrap();
    for plural in ["configmaps", "secrets"] {
        let asked = get(plural).await;
        assert!(asked.contains("skopos-source: member") && asked.contains("last-applied"), "{asked}");
    }
    let gone = async {
        while in_memory() != ["configmaps"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone).await.unwrap();

    // An unusable configuration is refused completely, and reported.
    let before = gateway.load_full();
    write("authentication: {oidc: {issuer: 'https://issuer.example', audiences: [x]}}");
    let refused = state.wait_for(|state| state.refused.is_some());
    let refused = tokio::time::timeout(TIMEOUT, refused).await.unwrap().unwrap().clone();
    assert!(refused.refused.unwrap().reason.contains("needs listen.tls"));
    assert!(refused.generation == 2 && refused.config.outbound.impersonate);
    assert!(Arc::ptr_eq(&before, &gateway.load_full()));
    assert_eq!(
        needs_restart(&Config::default(), &refused.config).last().unwrap().split(':').next(),
        Some("outbound.impersonate, outbound.readOnly, authorization.loopback, cache.managedFields")
    );
    running.end().await;
}

#[tokio::test]
async fn pause_state_is_right_for_every_pause_method() {
    const SHOP: &str = "shop.vcluster-shop";
    const NS: &str = "vcluster-shop";
    let virtuals = VirtualClusters::sample(["shop"]).await.unwrap();
    let running = Running::in_front_of(&virtuals).await;
    let host = "skopos-test";
    running.shows(SHOP, Condition::Live, None).await;

    // By REST.
    let rest = |verb: &'static str| {
        let running = &running;
        async move {
            let path = format!("/virtualclusters/{NS}/shop/{verb}");
            let (code, begun) = running.ask("POST", &path, "application/json", &Value::Null).await;
            assert_eq!((code, &begun["host"]), (202, &host.into()), "{begun}");
            let path = format!("/virtualclusters/-/operations/{}?wait=60", begun["id"].as_str().unwrap());
            let (_, ended) = running.ask("GET", &path, "application/json", &Value::Null).await;
            assert_eq!(ended["state"], "Succeeded", "{ended}");
        }
    };
    rest("pause").await;
    running.shows(SHOP, Condition::Paused, Some("by the vcluster CLI's annotation")).await;
    virtuals.wait_down(NS, "shop").await.unwrap();
    rest("resume").await;
    running.shows(SHOP, Condition::Live, None).await;

    // As `skopos vc` does, here with the gateway as its host.
    let url = format!("http://{}/clusters/{host}", running.address).parse().unwrap();
    let way =
        skopos::Transport::from_config(kube::Config::new(url), skopos::TransportOptions::default()).unwrap();
    let by_hand = Host::new(way.client("default"), HostOptions::default());
    by_hand.pause("shop", None, PauseOptions::default(), &|_| {}).await.unwrap();
    running.shows(SHOP, Condition::Paused, Some("by the vcluster CLI's annotation")).await;
    by_hand
        .resume("shop", None, ResumeOptions { wait: true, ..ResumeOptions::default() }, &|_| {})
        .await
        .unwrap();
    running.shows(SHOP, Condition::Live, None).await;

    // As the vcluster CLI writes it, by hand.
    let set = format!("/clusters/{host}/apis/apps/v1/namespaces/{NS}/statefulsets/shop");
    let patch = |patch: Value| {
        let (running, set) = (&running, &set);
        async move {
            let (code, set) = running.ask("PATCH", set, "application/merge-patch+json", &patch).await;
            assert_eq!(code, 200, "{set}");
        }
    };
    let annotations = json!({"loft.sh/paused": "true", "loft.sh/paused-replicas": "1"});
    patch(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 0}})).await;
    running.shows(SHOP, Condition::Paused, Some("by the vcluster CLI's annotation")).await;
    let annotations = json!({"loft.sh/paused": null, "loft.sh/paused-replicas": null});
    patch(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 1}})).await;
    running.shows(SHOP, Condition::Live, None).await;

    // By a plain scale to zero.
    patch(json!({"spec": {"replicas": 0}})).await;
    running.shows(SHOP, Condition::Paused, Some("scaled to zero")).await;
    patch(json!({"spec": {"replicas": 1}})).await;
    running.shows(SHOP, Condition::Live, None).await;
    way.shutdown(TIMEOUT).await;
    running.end().await;
    virtuals.stop().await;
}

#[tokio::test]
async fn unusable_continue_keys_stop_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let with = |path: &std::path::Path| {
        let mut config = Config::default();
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        config.replicas.continue_keys = Some(path.to_owned());
        config
    };
    std::fs::write(&path, "c4n4ry\n").unwrap();
    let error = Daemon::from_config(with(&path)).await.unwrap_err();
    let told = error.to_string();
    assert!(
        matches!(error, DaemonError::ContinueKeys(_)) && told.contains("openssl rand -base64 32"),
        "{told}"
    );
    assert!(told.contains(&path.display().to_string()) && !told.contains("c4n4ry"), "{told}");
    std::fs::write(&path, "b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb28=\n").unwrap();
    let daemon = Daemon::from_config(with(&path)).await.unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    tokio::time::timeout(TIMEOUT, daemon.run(stop)).await.unwrap();
    let other = folder.path().join("other");
    assert_eq!(needs_restart(&with(&path), &with(&other)), ["replicas"]);
}
