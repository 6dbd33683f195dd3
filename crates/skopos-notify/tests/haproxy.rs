//! The HAProxy sink against Debian's HAProxy.

mod support;

use skopos_notify::sink::Sink;
use support::servers::Haproxy;
use support::{Cluster, endpoints, quick, secs};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const READY: &str = "ready";
const WEB: &str = "default_web_http";

fn source() -> skopos_notify::desired::ClaimSource {
    endpoints("{namespace}_{service}_{port}", true)
}

async fn servers(haproxy: &Haproxy, backend: &str) -> Vec<String> {
    let observed = haproxy.sink().observe().await.expect("a dump");
    let members = observed.entries.get(backend).map(|entry| entry.members.clone()).unwrap_or_default();
    members
        .into_iter()
        .map(|(value, member)| format!("{value}{}", if member.draining { " draining" } else { "" }))
        .collect()
}

/// Waits until a backend has exactly these servers.
async fn becomes(haproxy: &Haproxy, wanted: &[&str]) {
    let waiting = async {
        while servers(haproxy, WEB).await != wanted {
            sleep(secs(1) / 50).await;
        }
    };
    let waited = timeout(secs(60), waiting).await;
    assert!(waited.is_ok(), "{:?} in place of {wanted:?}", servers(haproxy, WEB).await);
}

#[tokio::test]
async fn servers_follow_endpoints_and_foreign_ones_stay() {
    let Some(haproxy) = Haproxy::start(&[WEB]).await else { return };
    haproxy.command(&format!("add server {WEB}/byhand 192.0.2.1:80")).await;
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("127.0.0.1", READY), ("127.0.0.2", READY)]);
    let running = cluster.run(vec![quick("edge", haproxy.sink(), source())]);
    becomes(&haproxy, &["127.0.0.1:8080", "127.0.0.2:8080"]).await;
    cluster.put("web", &[("127.0.0.2", READY), ("127.0.0.3", READY)]);
    becomes(&haproxy, &["127.0.0.2:8080", "127.0.0.3:8080"]).await;
    cluster.delete("web");
    becomes(&haproxy, &[]).await;
    assert!(haproxy.command("show servers state").await.contains(" byhand "));
    running.stop().await;
    cluster.end().await;
}

// Case 37.
#[tokio::test]
async fn missing_backend_or_socket_error_names_fix() {
    let Some(haproxy) = Haproxy::start(&[WEB]).await else { return };
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("127.0.0.1", READY)]);
    cluster.put("other", &[("127.0.0.1", READY)]);
    let running = cluster.run(vec![quick("edge", haproxy.sink(), source())]);
    let report = running.until(0, |report| !report.problems.is_empty() && report.outside == 1).await;
    assert_eq!(report.problems[0].about, "default_other_http");
    assert!(report.problems[0].message.contains("add `backend default_other_http`"), "{report:?}");
    running.stop().await;
    let nowhere = skopos_notify::sink::haproxy::HaproxyOptions::at("/nonexistent/haproxy.sock");
    let nowhere = skopos_notify::sink::haproxy::HaproxySink::new(nowhere);
    assert!(nowhere.observe().await.unwrap_err().to_string().contains("/nonexistent/haproxy.sock"));
    cluster.end().await;
}

// Case 36: a reload forgets dynamic servers.
#[tokio::test]
async fn restores_servers_lost_by_reload() {
    let Some(haproxy) = Haproxy::start(&[WEB]).await else { return };
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("127.0.0.1", READY), ("127.0.0.2", READY)]);
    let mut options = quick("edge", haproxy.sink(), source());
    options.observe_every = secs(1);
    let running = cluster.run(vec![options]);
    becomes(&haproxy, &["127.0.0.1:8080", "127.0.0.2:8080"]).await;
    haproxy.reload();
    let forgotten = async {
        while !servers(&haproxy, WEB).await.is_empty() {
            sleep(secs(1) / 100).await;
        }
    };
    timeout(secs(30), forgotten).await.expect("a reload forgets them");
    running.until(0, |report| report.drift > 0).await;
    becomes(&haproxy, &["127.0.0.1:8080", "127.0.0.2:8080"]).await;
    running.stop().await;
    cluster.end().await;
}

// Cases 33 to 35, with a persistent connection.
#[tokio::test]
async fn terminating_server_drains_until_connections_end() {
    let Some(haproxy) = Haproxy::start(&[WEB]).await else { return };
    let mut endings = tokio::task::JoinSet::new();
    let backend = TcpListener::bind("127.0.0.9:8080").await;
    let Ok(backend) = backend else {
        eprintln!("SKIPPED: 127.0.0.9:8080 is taken");
        return;
    };
    endings.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = backend.accept().await {
            connections.spawn(async move {
                let _ = stream.write_all(b"hello").await;
                // Reads until the other side ends it.
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("127.0.0.9", READY)]);
    let mut options = quick("edge", haproxy.sink(), source());
    options.observe_every = secs(1) / 5;
    let running = cluster.run(vec![options]);
    becomes(&haproxy, &["127.0.0.9:8080"]).await;
    let connect = async || {
        let mut stream = TcpStream::connect(("127.0.0.1", haproxy.port)).await.unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        stream
    };
    let stream = connect().await;
    cluster.put("web", &[("127.0.0.9", "terminating"), ("127.0.0.8", READY)]);
    becomes(&haproxy, &["127.0.0.8:8080", "127.0.0.9:8080 draining"]).await;
    // It returns, and drains again.
    cluster.put("web", &[("127.0.0.9", READY), ("127.0.0.8", READY)]);
    becomes(&haproxy, &["127.0.0.8:8080", "127.0.0.9:8080"]).await;
    cluster.put("web", &[("127.0.0.8", READY)]);
    becomes(&haproxy, &["127.0.0.8:8080", "127.0.0.9:8080 draining"]).await;
    drop(stream);
    // It goes with its last connection.
    becomes(&haproxy, &["127.0.0.8:8080"]).await;
    running.stop().await;
    cluster.end().await;
}
