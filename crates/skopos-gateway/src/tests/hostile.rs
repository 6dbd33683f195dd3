//! Malicious and faulty clients over real connections. They get the API server's error shapes and time limits, and other
//! clients are still served.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::config::{
    Authentication, AuthorizationMode, ClientCertificates, Limits, LoopbackTrust, PolicyRule, Span,
};
use crate::gateway::Gateway;
use crate::listen::{Drained, InMemory, ListenOptions, ListenStats, Listener, TlsFiles};
use crate::testing::Lab;

/// Bounds the waits of a test; no time is measured by it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A gateway on a socket.
struct Served {
    address: SocketAddr,
    stats: ListenStats,
    stop: CancellationToken,
    tasks: JoinSet<Drained>,
    lab: Lab,
}

impl Served {
    fn new(lab: Lab, limits: Limits, tls: Option<TlsFiles>) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&ListenOptions { address, tls, authenticated: true, limits }).unwrap();
        let (address, stats, stop) = (listener.address(), listener.stats(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.run(lab.gateway.clone(), stop.clone()));
        Self { address, stats, stop, tasks, lab }
    }

    /// Starts a gateway with these limits, short and low enough to be reached.
    fn strict(limits: Limits) -> Self {
        Self::new(Lab::trusting(&["a"]), limits, None)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn exchange(&self, sent: &[u8]) -> String {
        exchange(self.connect().await, sent).await
    }

    /// Returns the status code, and the body if it is JSON.
    async fn ask(&self, head: &str) -> (u16, Value) {
        let said =
            self.exchange(format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await;
        let code = said.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        // The body may come in chunks.
        let json = body.find('{').zip(body.rfind('}')).map_or("", |(from, to)| &body[from..=to]);
        (code.unwrap_or_else(|| panic!("{head}: {said:?}")), serde_json::from_str(json).unwrap_or_default())
    }

    /// Checks that other clients are still served, and that nothing is left in the end.
    async fn end_well(mut self) {
        assert_eq!(self.ask("GET /clusters/a/api/v1/namespaces HTTP/1.1").await.0, 200);
        self.stop.cancel();
        timeout(TIMEOUT, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!((self.stats.connections(), self.stats.half_open()), (0, 0));
        assert!(self.lab.services.fleet.shutdown(TIMEOUT).await);
    }

    fn closed_for(&self, reason: &str) -> u64 {
        self.stats.closed().find(|(name, _)| *name == reason).unwrap().1
    }
}

/// Sends bytes, and reads until the other end closes.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> String {
    let exchange = async {
        // The other end may close before all is sent.
        let _ = stream.write_all(sent).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    timeout(TIMEOUT, exchange).await.expect("an end")
}

/// Waits until the other end closes; returns the number of bytes received.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) -> usize {
    let mut all = 0;
    let mut buffer = vec![0; 64 * 1024];
    let reading = async {
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            all += read;
        }
    };
    timeout(TIMEOUT, reading).await.expect("an end");
    all
}

fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

/// For callers that serve for a limited time and then drop the listener.
#[tokio::test]
async fn a_listener_that_is_dropped_leaves_no_connection() {
    let mut served = Served::strict(Limits::default());
    let mut watch = served.connect().await;
    let asked = "GET /clusters/a/api/v1/namespaces?watch=1&sendInitialEvents=true\
        &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true HTTP/1.1\r\nhost: localhost\r\n\r\n";
    watch.write_all(asked.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    timeout(TIMEOUT, watch.read_exact(&mut begun)).await.unwrap().unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    served.tasks.abort_all();
    closed(&mut watch).await;
    assert!(served.lab.services.fleet.shutdown(TIMEOUT).await);
}

#[tokio::test]
async fn reports_errors_as_api_server_does() {
    let served = Served::strict(Limits::default());
    let pods = "/clusters/a/api/v1/pods";
    for (head, code, reason) in [
        (format!("GET {pods}?labelSelector=a%3D%3D%3Db"), 400, "BadRequest"),
        (format!("GET {pods}?labelSelector=%28"), 400, "BadRequest"),
        (format!("GET {pods}?fieldSelector=spec.made.up%3D1"), 400, "BadRequest"),
        (format!("GET {pods}?fieldSelector=a%3D1%3D2%3D3,"), 400, "BadRequest"),
        (format!("GET {pods}?resourceVersion=abc"), 400, "BadRequest"),
        (format!("GET {pods}?continue=%25"), 400, "BadRequest"),
        (format!("GET {pods}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"), 400, "BadRequest"),
        (format!("GET {pods}?resourceVersionMatch=Exact"), 422, "Invalid"),
        (format!("GET {pods}?watch=1&resourceVersionMatch=Exact"), 422, "Invalid"),
        (format!("GET {pods}?watch=1&sendInitialEvents=true"), 422, "Invalid"),
        (format!("GET {pods}?watch=0&watch=1"), 400, "BadRequest"),
        (format!("GET {pods}?x={}", "y".repeat(40_000)), 400, "BadRequest"),
        (format!("GET {pods}\r\naccept: application/xml"), 406, "NotAcceptable"),
        (format!("GET {pods}\r\nimpersonate-group: admin"), 400, "BadRequest"),
        (format!("GET {pods}\r\nImpersonate_Group: admin"), 403, "Forbidden"),
        (format!("GET {pods}\r\nupgrade: websocket"), 403, "Forbidden"),
        ("GET /clusters/a/api/v1/namespaces/x%2Fy/pods".into(), 400, "BadRequest"),
        ("GET /clusters/a/api/v1/namespaces/%2e%2e/pods".into(), 400, "BadRequest"),
        ("GET /clusters/a/api/v1/namespaces/x%252Fy/pods".into(), 400, "BadRequest"),
        ("GET /clusters/a/api/v1/namespaces/x/pods/%00".into(), 400, "BadRequest"),
        (format!("GET {}", "/a".repeat(100)), 400, "BadRequest"),
        ("GET /clusters/none/api/v1/pods".into(), 404, "NotFound"),
        ("GET /clusters/a/api/v1/namespaces/default/pods/none".into(), 404, "NotFound"),
        ("TRACE /clusters/a/api/v1/pods".into(), 405, "MethodNotAllowed"),
        ("DELETE /fleet/api/v1/pods".into(), 405, "MethodNotAllowed"),
        ("GET /fleet/api/v1/pods?clusterSelector=%28".into(), 400, "BadRequest"),
        ("GET /fleet/api/v1/pods?continue=%25".into(), 400, "BadRequest"),
        ("GET /fleet/api/v1/pods?resourceVersion=abc".into(), 400, "BadRequest"),
    ] {
        let (method_and_path, rest) = head.split_once("\r\n").unwrap_or((&head, ""));
        let rest = if rest.is_empty() { String::new() } else { format!("\r\n{rest}") };
        let (answered, status) = served.ask(&format!("{method_and_path} HTTP/1.1{rest}")).await;
        let short: String = head.chars().take(100).collect();
        assert_eq!(
            (answered, &status["kind"], &status["reason"]),
            (code, &json!("Status"), &json!(reason)),
            "{short}: {status}"
        );
        assert_eq!(
            (&status["code"], &status["status"]),
            (&json!(code), &json!("Failure")),
            "{short}: {status}"
        );
    }
    served.end_well().await;
}

#[tokio::test]
async fn rejects_request_smuggling() {
    let served = Served::strict(Limits::default());
    for head in [
        "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6",
        "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\ntransfer-encoding: chunked, identity",
        "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\ncontent-length: +5",
        "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
        "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
        "GET /clusters/a/api/v1/namespaces HTTP/1.1\r\nx : y",
        "GET /clusters/a/api/v1/namespaces HTTP/1.1\r\nx: a\r\n folded: b",
        "GET /clusters/a/api/v1/names paces HTTP/1.1",
    ] {
        let smuggled = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let sent = format!("{head}\r\nhost: localhost\r\n\r\nhello{smuggled}");
        let said = served.exchange(sent.as_bytes()).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400"), "{head}: {said}");
        assert_eq!(said.matches("HTTP/1.1").count(), usize::from(!said.is_empty()), "{head}: {said}");
    }
    served.end_well().await;
}

#[tokio::test]
async fn a_request_with_two_lengths_is_refused() {
    let served = Served::strict(Limits::default());
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made"}}).to_string();
    let chunked = format!("{:x}\r\n{object}\r\n0\r\n\r\n", object.len());
    let lengths = [format!("content-length: {}", chunked.len()), "transfer-encoding: chunked".into()];
    for lengths in [[&lengths[0], &lengths[1]], [&lengths[1], &lengths[0]]] {
        let [one, other] = lengths;
        let head = "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let said = served.exchange(format!("{head}\r\n{one}\r\n{other}\r\n\r\n{chunked}").as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 400") && said.contains("\"kind\":\"Status\""), "{said}");
    }
    assert!(served.lab.member("a").get("namespaces", None, "made").is_err());
    served.end_well().await;
}

/// A page can make its own name resolve to this machine, so every place where a request names its host counts.
#[tokio::test]
async fn foreign_hosts_are_refused() {
    let served = Served::strict(Limits::default());
    let path = "/clusters/a/api/v1/namespaces";
    for (head, code) in [
        (format!("GET {path} HTTP/1.1\r\nhost: evil.example"), "401"),
        (format!("GET http://evil.example{path} HTTP/1.1\r\nhost: evil.example"), "401"),
        (format!("GET http://evil.example{path} HTTP/1.1\r\nhost: localhost"), "400"),
        (format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nhost: localhost"), "400"),
        (format!("GET {path} HTTP/1.1"), "401"),
        (format!("GET {path} HTTP/1.0"), "401"),
        (format!("GET http://localhost{path} HTTP/1.1\r\nhost: LOCALHOST"), "200"),
    ] {
        let said = served.exchange(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(said.split(' ').nth(1), Some(code), "{head}: {said}");
    }
    let mut tasks = JoinSet::new();
    let (mut client, connection) = h2::client::handshake(served.connect().await).await.unwrap();
    tasks.spawn(connection);
    for (authority, host, code) in [
        ("evil.example", None, 401),
        ("localhost", Some("evil.example"), 400),
        ("evil.example", Some("localhost"), 400),
        ("localhost:1", None, 200),
    ] {
        let mut request = http::Request::get(format!("http://{authority}{path}"));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let (answer, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), code, "{authority} {host:?}");
    }
    drop(client);
    served.end_well().await;
}

#[tokio::test]
async fn half_open_connections_do_not_starve_others() {
    let served = Served::strict(Limits::default());
    let mut open = Vec::new();
    for n in 0..1000 {
        let mut stream = served.connect().await;
        // Some send nothing, some stop in the middle.
        if n % 2 == 0 {
            let _ = stream.write_all(b"GET /clusters/a/api/v1/pods HTTP/1.1\r\nhost: loc").await;
        }
        open.push(stream);
        if n % 100 == 0 {
            assert_eq!(served.ask("GET /clusters/a/api/v1/namespaces HTTP/1.1").await.0, 200);
        }
    }
    let accepted = async {
        while served.stats.accepted() < 1000 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, accepted).await.unwrap();
    assert!(served.stats.half_open() <= Limits::default().half_open as usize, "{}", served.stats.half_open());
    assert!(served.closed_for("half_open") >= 400);
    // The oldest was closed.
    assert_eq!(closed(&mut open[0]).await, 0);
    drop(open);
    served.end_well().await;
}

/// For connections that ask for health, which needs no identity, and stay open.
#[tokio::test]
async fn evicts_idle_unauthenticated_connections() {
    let served = Served::strict(Limits { connections: 50, ..Limits::default() });
    let mut known = served.connect().await;
    let list = "GET /clusters/a/api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\n\r\n";
    known.write_all(list.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    timeout(TIMEOUT, known.read_exact(&mut begun)).await.unwrap().unwrap();
    let mut idle = Vec::new();
    for n in 0..200 {
        let mut stream = served.connect().await;
        if n % 2 == 0 {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        }
        idle.push(stream);
        if n % 40 == 39 {
            assert_eq!(served.ask("GET /clusters/a/api/v1/namespaces HTTP/1.1").await.0, 200);
        }
    }
    assert!(served.stats.connections() <= 50 && served.closed_for("connections") >= 100);
    assert_eq!(served.stats.permitted(), 50);
    // The authenticated caller keeps its connection.
    known.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(closed(&mut known).await > 100);
    drop(idle);
    served.end_well().await;
}

#[tokio::test]
async fn closes_connection_with_trickled_request() {
    let served = Served::strict(Limits { handshake: seconds(1), ..Limits::default() });
    let mut stream = served.connect().await;
    let (mut from, mut to) = stream.split();
    let trickle = async {
        for byte in b"GET /clusters/a/api/v1/pods HTTP/1.1\r\nx: y".iter().cycle() {
            if to.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = trickle => {}
        _ = closed(&mut from) => {}
    }
    assert_eq!(served.closed_for("no_request"), 1);
    served.end_well().await;
}

#[tokio::test]
async fn times_out_incomplete_request_body() {
    let lab = Lab::with(&["a"], |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
        config.outbound.deadline = seconds(1);
    });
    let served = Served::new(lab, Limits::default(), None);
    served.lab.member("a").clear_requests();
    let head = "POST /clusters/a/api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nconnection: close";
    let said = served.exchange(format!("{head}\r\n\r\n{{}}").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 504") && said.contains("\"kind\":\"Status\""), "{said}");
    assert!(served.lab.member("a").requests().iter().all(|asked| asked.verb != "create"));
    served.end_well().await;
}

#[tokio::test]
async fn closes_connection_of_stalled_reader() {
    let served = Served::strict(Limits { stalled: seconds(1), ..Limits::default() });
    for n in 0..40 {
        let data = json!({"text": "x".repeat(500_000)});
        let metadata = json!({"name": format!("large-{n}"), "namespace": "default"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        served.lab.member("a").create(object).unwrap();
    }
    let mut stream = served.connect().await;
    let head = "GET /clusters/a/api/v1/configmaps HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let given_up = async {
        while served.closed_for("stalled") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, given_up).await.expect("the connection is given up");
    assert!(closed(&mut stream).await < 20_000_000, "the rest is not sent");
    served.end_well().await;
}

/// Encodes an HTTP/2 frame of this type, with flags, on a stream.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// `GET / http localhost` in HPACK.
const REQUEST: &[u8] = b"\x82\x86\x84\x01\x09localhost";

async fn http2(served: &Served) -> TcpStream {
    let mut stream = served.connect().await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// Sends until the server stops reading, and waits for the end.
async fn flood(mut stream: TcpStream, frames: impl Iterator<Item = Vec<u8>>) -> usize {
    let (mut from, mut to) = stream.split();
    let sending = async {
        let mut sent = 0;
        for frame in frames {
            if to.write_all(&frame).await.is_err() {
                break;
            }
            sent += frame.len();
        }
        sent
    };
    let (sent, _) = tokio::join!(sending, closed(&mut from));
    sent
}

#[tokio::test]
async fn floods_of_http2_frames_end_their_connection() {
    let served = Served::strict(Limits { handshake: seconds(2), idle: seconds(6), ..Limits::default() });
    // Requests abandoned right after they are sent.
    let resets = (0..100_000).flat_map(|n| {
        let stream = 2 * n + 1;
        [frame(HEADERS, 5, stream, REQUEST), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())]
    });
    let sent = flood(http2(&served).await, resets).await;
    assert!(sent < 40 * 50_000, "{sent} bytes of abandoned requests were taken");
    // Headers that never end.
    let piece: Vec<u8> = b"\x00\x01x\x40".iter().copied().chain([b'y'; 64]).collect();
    let block = piece.repeat(100);
    let endless = std::iter::once(frame(HEADERS, 0, 1, REQUEST))
        .chain(std::iter::repeat_with(|| frame(CONTINUATION, 0, 1, &block)).take(100_000));
    let sent = flood(http2(&served).await, endless).await;
    assert!(sent < 30_000_000, "{sent} bytes of headers were taken");
    // SETTINGS and PING frames at full speed: they are answered within a bounded buffer.
    let settings = std::iter::repeat_with(|| frame(SETTINGS, 0, 0, &[])).take(20_000);
    let mut stream = http2(&served).await;
    for frame in settings {
        if stream.write_all(&frame).await.is_err() {
            break;
        }
    }
    closed(&mut stream).await;
    assert_eq!(served.closed_for("frames"), 1);
    let pings = std::iter::repeat_with(|| frame(PING, 0, 0, &[0; 8])).take(1_000_000);
    let sent = flood(http2(&served).await, pings).await;
    assert!(sent < 17 * 1_000_000 && served.closed_for("frames") == 2, "{sent} bytes of pings were taken");
    served.end_well().await;
}

/// A CA and its certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Signs a certificate; returns it with its key.
    fn sign(&self, names: &[&str], user: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn client_config(ca: &str, shown: Option<(String, String)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    match shown {
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => config.with_no_client_auth(),
    }
}

async fn over_tls(
    served: &Served,
    ca: &str,
    shown: Option<(String, String)>,
    head: &str,
) -> io::Result<String> {
    let config = client_config(ca, shown);
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, served.connect().await).await?;
    Ok(exchange(stream, format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await)
}

#[tokio::test]
async fn identifies_caller_only_by_client_certificate() {
    let (clients, others, own) = (Authority::new(), Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = own.sign(&["localhost"], "gateway");
    let ca = write("clients.crt", &clients.pem);
    let tls = TlsFiles {
        certificate: write("tls.crt", &certificate),
        key: write("tls.key", &key),
        client_ca: Some(ca.clone()),
    };
    let lab = Lab::with(&["a"], |config| {
        config.authentication = Authentication {
            client_certificates: Some(ClientCertificates::new(&ca)),
            ..Authentication::default()
        };
        config.authorization.mode = AuthorizationMode::Policy;
        config.authorization.policy = vec![PolicyRule {
            users: vec!["jane".into()],
            verbs: vec!["list".into()],
            resources: vec!["namespaces".into()],
            ..PolicyRule::default()
        }];
    });
    let served = Served::new(lab, Limits::default(), Some(tls));
    let list = "GET /clusters/a/api/v1/namespaces HTTP/1.1";
    let known = over_tls(&served, &own.pem, Some(clients.sign(&[], "jane")), list).await.unwrap();
    assert!(known.starts_with("HTTP/1.1 200"), "{known}");
    let joe = over_tls(&served, &own.pem, Some(clients.sign(&[], "joe")), list).await.unwrap();
    assert!(joe.starts_with("HTTP/1.1 403") && joe.contains("User \\\"joe\\\""), "{joe}");
    for forged in ["x-remote-user: jane", "x-remote-group: system:masters"] {
        let said = over_tls(&served, &own.pem, None, &format!("{list}\r\n{forged}")).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 401"), "{said}");
        let head = format!("{list}\r\n{forged}");
        let said = over_tls(&served, &own.pem, Some(clients.sign(&[], "joe")), &head).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("User \\\"joe\\\""), "{said}");
    }
    // A certificate of another CA is refused in the handshake.
    let said = over_tls(&served, &own.pem, Some(others.sign(&[], "jane")), list).await;
    assert!(said.as_ref().is_err() || said.as_ref().is_ok_and(String::is_empty), "{said:?}");
    // A client without TLS gets no answer.
    let said = served.exchange(format!("{list}\r\nhost: localhost\r\n\r\n").as_bytes()).await;
    assert!(!said.contains("HTTP/1.1 200"), "{said}");
    served.stop.cancel();
    let mut tasks = served.tasks;
    timeout(TIMEOUT, tasks.join_next()).await.unwrap();
}

/// Connects with a client certificate, over HTTP/1.1.
async fn connected(
    front: &InMemory<Gateway>,
    ca: &str,
    shown: Option<(String, String)>,
) -> tokio_rustls::client::TlsStream<tokio::io::DuplexStream> {
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(client_config(ca, shown))).connect(name, front.connect()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn replaced_client_ca_closes_old_connections() {
    let (old, new, own) = (Authority::new(), Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = own.sign(&["localhost"], "gateway");
    let ca = write("clients.crt", &old.pem);
    let files = TlsFiles {
        certificate: write("tls.crt", &certificate),
        key: write("tls.key", &key),
        client_ca: Some(ca.clone()),
    };
    let lab = Lab::with(&["a"], |config| {
        config.authentication.client_certificates = Some(ClientCertificates::new(&ca));
        config.authorization.mode = AuthorizationMode::Policy;
        config.authorization.policy = vec![PolicyRule { users: vec!["*".into()], ..PolicyRule::default() }];
    });
    let front = InMemory::with_tls(lab.gateway.clone(), Limits::default(), files);
    let ask = async |stream: &mut tokio_rustls::client::TlsStream<_>, rest: &str| {
        let head = format!("GET /clusters/a/api/v1/namespaces{rest} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.map(|_| String::from_utf8_lossy(&begun).into_owned())
    };
    let (jane, joe) = (old.sign(&[], "jane"), old.sign(&[], "joe"));
    let mut idle = connected(&front, &own.pem, Some(jane.clone())).await;
    assert_eq!(ask(&mut idle, "?limit=1").await.unwrap(), "HTTP/1.1 200");
    let mut watching = connected(&front, &own.pem, Some(joe)).await;
    assert_eq!(ask(&mut watching, "?watch=1&timeoutSeconds=500").await.unwrap(), "HTTP/1.1 200");
    let mut nobody = connected(&front, &own.pem, None).await;
    assert_eq!(ask(&mut nobody, "").await.unwrap(), "HTTP/1.1 401");

    // An additional CA closes no connection.
    write("clients.crt", &format!("{}{}", new.pem, old.pem));
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(front.connections(), 3);
    write("clients.crt", &new.pem);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!((front.connections(), front.closed()), (1, 2), "only the one without a certificate is left");
    closed(&mut idle).await;
    closed(&mut watching).await;
    let mut again = connected(&front, &own.pem, Some(jane)).await;
    assert!(ask(&mut again, "").await.is_err());
    let mut known = connected(&front, &own.pem, Some(new.sign(&[], "jane"))).await;
    assert_eq!(ask(&mut known, "").await.unwrap(), "HTTP/1.1 200");
}
