//! A leader that is frozen while another one takes over, with real DNS servers: the servers refuse its delayed update.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use skopos_notify::sink::Sink as _;
use skopos_notify::sink::dns::DnsSink;
use skopos_testserver::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::servers::{DnsServer, Kind, ZONE};
use super::support::{Running, TIMEOUT, skopos, text, utf8};

#[path = "../../../skopos-notify/tests/support/servers.rs"]
mod servers;

/// Proxy between one process and the server. It can hold back the next update.
struct Proxy {
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The next update is held back.
    Holding,
    Held,
    /// The update is forwarded.
    Released,
    /// The server has answered it with this code.
    Answered(u8),
}

const UPDATE: u8 = 5;
const NXRRSET: u8 = 8;

impl Proxy {
    async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let phase = watch::Sender::new(Phase::Open);
        let (seen, mut tasks) = (phase.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let phase = seen.clone();
                // A connection ends when either side ends it.
                connections.spawn(async move { drop(carry(stream, to, &phase).await) });
            }
        });
        Self { address, phase, _tasks: tasks }
    }

    async fn until(&self, what: impl Fn(Phase) -> bool) -> Phase {
        let mut phase = self.phase.subscribe();
        let reached = timeout(TIMEOUT, phase.wait_for(|phase| what(*phase))).await;
        *reached.unwrap_or_else(|_| panic!("{:?}", self.phase.borrow())).expect("it lives")
    }
}

/// Carries a connection, whose first message may be held back. An update has its connection to itself.
async fn carry(mut from: TcpStream, to: SocketAddr, phase: &watch::Sender<Phase>) -> std::io::Result<()> {
    let message = receive(&mut from).await?;
    let is_update = (message[2] >> 3) & 0x0f == UPDATE;
    let hold = |phase: &mut Phase| {
        let takes = is_update && *phase == Phase::Holding;
        if takes {
            *phase = Phase::Held;
        }
        takes
    };
    let is_held = phase.send_if_modified(hold);
    if is_held {
        // The sender lives as long as the proxy.
        let _ = phase.subscribe().wait_for(|phase| *phase == Phase::Released).await;
    }
    let mut to = TcpStream::connect(to).await?;
    send(&mut to, &message).await?;
    if is_held {
        let answer = receive(&mut to).await?;
        phase.send_replace(Phase::Answered(answer[3] & 0x0f));
        send(&mut from, &answer).await?;
    }
    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
}

async fn receive(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn send(stream: &mut (impl tokio::io::AsyncWrite + Unpin), message: &[u8]) -> std::io::Result<()> {
    stream.write_u16(message.len().try_into().expect("a message")).await?;
    stream.write_all(message).await
}

fn slice(address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false}}],
    })
}

/// One of two notifiers, with its own folder.
struct Notifier {
    process: Running,
    config: PathBuf,
}

impl Notifier {
    fn start(folder: &Path, name: &str, server: SocketAddr, secret: &str) -> Self {
        let config = folder.join(format!("{name}.yaml"));
        let (kubeconfig, state) = (folder.join("kubeconfig"), folder.join(name));
        std::fs::write(folder.join("tsig"), secret).expect("written");
        let configuration = json!({
            "cluster": {"kubeconfig": kubeconfig},
            "state": {"folder": state},
            "election": {"lease": "default/notify", "duration": "3s"},
            "guard": {"confirm": "1s"},
            "sinks": [{
                "name": "zone",
                "dns": {"zone": ZONE, "server": server, "owner": "tests", "key": {"name": "skopos", "secret": folder.join("tsig")}},
                "observe": "1s",
                "from": [{"endpoints": {"name": "{service}"}}],
            }],
        });
        std::fs::write(&config, configuration.to_string()).expect("written");
        let process = Running::start(skopos().args(["notify", "--config", utf8(&config)]));
        Self { process, config }
    }

    /// Polls its status until it contains this text.
    async fn until(&self, part: &str) {
        let begun = Instant::now();
        loop {
            let mut command = skopos();
            command.args(["notify", "status", "-o", "json", "--config", utf8(&self.config)]);
            let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends");
            let out = text(&output.expect("it runs").stdout);
            if out.contains(part) {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "{part} is not in {out}");
        }
    }
}

/// Waits until the zone has this address, and no other.
async fn until_zone(sink: &DnsSink, address: &str) {
    let begun = Instant::now();
    while values(sink).await != [address] {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", values(sink).await);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn values(sink: &DnsSink) -> Vec<String> {
    let observed = sink.observe().await.expect("a transfer");
    let entry = observed.entries.get(format!("web.{ZONE}").as_str()).cloned();
    entry.into_iter().flat_map(|entry| entry.members).map(|(value, _)| value.to_string()).collect()
}

// Case 26.
#[tokio::test]
async fn fence_refuses_frozen_leader_after_takeover() {
    for kind in [Kind::Bind, Kind::Knot] {
        let Some(dns) = DnsServer::start(kind, "").await else { continue };
        let (cluster, sink) = (TestServer::builder().start().await.unwrap(), dns.sink());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), cluster.kubeconfig()).unwrap();
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "web"}, "spec": {"ports": [{"port": 80}]}}),
            slice("10.0.0.1"),
        ] {
            // A namespace may exist already.
            let _ = cluster.create(object);
        }
        let proxy = Proxy::start(dns.address).await;
        let first = Notifier::start(folder.path(), "first", proxy.address, &dns.secret());
        until_zone(&sink, "10.0.0.1").await;
        let second = Notifier::start(folder.path(), "second", dns.address, &dns.secret());
        second.until("\"phase\": \"standby\"").await;

        // A write of the first leader is under way when it is frozen.
        proxy.phase.send_replace(Phase::Holding);
        cluster.update(slice("10.0.0.2")).unwrap();
        proxy.until(|phase| phase == Phase::Held).await;
        first.process.signal("STOP");
        cluster.update(slice("10.0.0.3")).unwrap();
        until_zone(&sink, "10.0.0.3").await;
        second.until("\"phase\": \"working\"").await;

        // The write arrives late.
        proxy.phase.send_replace(Phase::Released);
        let answer = proxy.until(|phase| matches!(phase, Phase::Answered(_))).await;
        assert_eq!(answer, Phase::Answered(NXRRSET), "{kind:?}");
        first.process.signal("CONT");
        let line = first.process.error_line(|line| line.contains("on standby again"));
        assert!(line.contains("term"), "{line}");
        first.until("\"phase\": \"standby\"").await;
        cluster.update(slice("10.0.0.4")).unwrap();
        until_zone(&sink, "10.0.0.4").await;
        let fence = dns.text(&format!("tests._skopos-fence.{ZONE}")).await.unwrap();
        let uid = cluster.get("leases", Some("default"), "notify").unwrap()["metadata"]["uid"].clone();
        assert!(fence.contains(&format!("lease={},term=", uid.as_str().unwrap())), "{fence}");
        second.until("\"phase\": \"working\"").await;
    }
}
