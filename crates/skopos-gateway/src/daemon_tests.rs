use std::time::Duration;

use skopos_testserver::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;

/// Bounds what a test waits for; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
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
        let mut config = config::of_kubeconfig(kubeconfig);
        config.listen.address = "127.0.0.1:0".parse().unwrap();
        let daemon = Daemon::of_config(config).await.unwrap();
        let mut changes = daemon.fleet().changes();
        let address = daemon.address();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(daemon.run(stop.clone()));
        tokio::time::timeout(PATIENCE, changes.next()).await.unwrap().unwrap();
        Self { address, stop, tasks, member, _folder: folder }
    }

    /// Sends bytes, and reads until the other end closes.
    async fn exchange(&self, sent: &[u8]) -> String {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // It may be closed before all is sent.
            let _ = stream.write_all(sent).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await
    }

    async fn end(mut self) -> Drained {
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.tasks.join_next()).await;
        self.member.stop().await;
        ended.unwrap().unwrap().unwrap()
    }
}

#[tokio::test]
async fn it_serves_the_contexts_of_a_kubeconfig_and_ends_when_told() {
    let running = Running::start().await;
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"));
    let status = running.get("/api/v1/status").await;
    let report: crate::state::status::Report =
        serde_json::from_str(status.split("\r\n\r\n").nth(1).unwrap().trim()).unwrap();
    let name = &report.clusters[0].name;
    let list = running.get(&format!("/clusters/{name}/api/v1/namespaces")).await;
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("skopos-source: memory"), "{list}");
    assert!(list.contains("NamespaceList"), "{list}");
    let merged = running.get("/fleet/api/v1/namespaces").await;
    assert!(merged.starts_with("HTTP/1.1 200"), "{merged}");
    let address = running.address;
    assert_eq!(running.end().await.cut, 0);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn bad_input_gets_an_answer_or_an_end_and_the_gateway_goes_on() {
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
async fn a_changed_configuration_takes_effect_and_a_wrong_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let text = "listen: {address: '127.0.0.1:0', limits: {bodyBytes: 3Mi}}\n";
    std::fs::write(&path, text).unwrap();
    let daemon = Daemon::of_file(path.clone()).await.unwrap();
    let before = daemon.gateway.load_full();
    let (gateway, stop) = (daemon.gateway.clone(), CancellationToken::new());
    let mut changes = daemon.follower.as_ref().unwrap().subscribe();
    let mut tasks = JoinSet::new();
    tasks.spawn(daemon.run(stop.clone()));
    std::fs::write(&path, "listen: [\n").unwrap();
    tokio::time::timeout(PATIENCE, changes.wait_for(|state| state.refused.is_some())).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&before, &gateway.load_full()));
    std::fs::write(&path, format!("{text}cache: {{maxAge: 5s}}\n")).unwrap();
    tokio::time::timeout(PATIENCE, changes.wait_for(|state| state.generation == 2)).await.unwrap().unwrap();
    let taken = async {
        while Arc::ptr_eq(&before, &gateway.load_full()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}
