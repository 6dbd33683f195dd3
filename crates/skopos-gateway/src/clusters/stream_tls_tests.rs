//! Streams into pods over sockets, with TLS on both sides, beside HTTP/2 for all other requests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use skopos_testserver::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client, server};
use tokio_util::sync::CancellationToken;

use crate::config::{self, ConnectPolicy, Tls};
use crate::daemon::Daemon;
use crate::testing::{Certificate, head};

/// Timeout of the test's waits; it measures nothing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More than all buffers on the way hold.
const LARGE_BYTES: usize = 8 << 20;

const EXEC: &str = "GET /clusters/a/api/v1/namespaces/shop/pods/web/exec?command=cat&stdin=true HTTP/1.1\r\n\
     host: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: key\r\n\
     sec-websocket-version: 13\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n";

const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
      sec-websocket-accept: accept\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n";

#[tokio::test]
async fn stream_over_tls_delivers_every_byte_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (member, front) = (Member::start().await, Certificate::new());
    std::fs::write(path("kubeconfig"), member.kubeconfig()).unwrap();
    let mut config = config::Config::from(config::QuickStart {
        kubeconfigs: vec![path("kubeconfig")],
        writes: true,
        ..config::QuickStart::default()
    });
    config.listen.address = "127.0.0.1:0".parse().unwrap();
    let tls = Tls { certificate: path("front.crt"), key: path("front.key") };
    std::fs::write(&tls.certificate, front.pem()).unwrap();
    std::fs::write(&tls.key, front.key_pem()).unwrap();
    config.listen.tls = Some(tls);
    config.outbound.connect = ConnectPolicy::Streams;
    let daemon = Daemon::from_config(config).await.unwrap();
    let (address, stop, mut tasks) = (daemon.address(), CancellationToken::new(), JoinSet::new());
    tasks.spawn(daemon.run(stop.clone()));

    let mut client = connect(address.port(), &front).await;
    client.write_all(EXEC.as_bytes()).await.unwrap();
    let answer = timeout(TIMEOUT, head(&mut client)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let said: Vec<u8> = (0..LARGE_BYTES).map(|n| (n % 251) as u8).collect();
    let (mut from, mut to) = split(client);
    let mut heard = Vec::new();
    let talk = async {
        let says = async {
            to.write_all(&said).await.unwrap();
            // `cat` ends with its input.
            to.shutdown().await.unwrap();
        };
        tokio::join!(says, from.read_to_end(&mut heard)).1.unwrap();
    };
    timeout(TIMEOUT, talk).await.expect("an end on both sides");
    assert!(heard == said, "{} of {LARGE_BYTES} bytes came back, or others", heard.len());

    stop.cancel();
    timeout(TIMEOUT, tasks.join_next()).await.unwrap().unwrap().unwrap();
    member.server.stop().await;
}

/// A member with TLS: over HTTP/2 it is a test server, and over HTTP/1.1 each connection becomes a `cat`.
struct Member {
    server: TestServer,
    port: u16,
    certificate: Certificate,
    _tasks: JoinSet<()>,
}

impl Member {
    async fn start() -> Self {
        let (server, certificate) = (TestServer::builder().start().await.unwrap(), Certificate::new());
        // Like API servers, with HTTP/2 first.
        let acceptor = certificate.acceptor(&[b"h2", b"http/1.1"]);
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, behind) = (socket.local_addr().unwrap().port(), server.port());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    match stream.get_ref().1.alpn_protocol() {
                        Some(b"h2") => pass_on(stream, behind).await,
                        _ => switch_to_cat(stream).await,
                    }
                });
            }
        });
        Self { server, port, certificate, _tasks: tasks }
    }

    fn kubeconfig(&self) -> String {
        let ca = base64::engine::general_purpose::STANDARD.encode(self.certificate.pem());
        let port = self.port;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             users: [{{name: a, user: {{}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority-data: {ca}}}}}]\n"
        )
    }
}

async fn pass_on(mut stream: server::TlsStream<TcpStream>, port: u16) {
    let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut to).await;
}

async fn switch_to_cat(mut stream: server::TlsStream<TcpStream>) {
    let asked = head(&mut stream).await;
    assert!(asked.starts_with("GET /api/v1/namespaces/shop/pods/web/exec?"), "{asked}");
    stream.write_all(SWITCHED).await.unwrap();
    let (mut from, mut to) = split(stream);
    copy(&mut from, &mut to).await.unwrap();
    to.shutdown().await.unwrap();
}

/// Connects like kubectl for streams, by HTTP/1.1.
async fn connect(port: u16, trusted: &Certificate) -> client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}
