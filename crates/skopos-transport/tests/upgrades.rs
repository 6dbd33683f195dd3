//! Upgrades to another protocol on a dedicated connection, in memory and in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use skopos_transport::{
    BackoffOptions, Dialed, Fault, Protocol, Transport, TransportError, TransportErrorKind, TransportOptions,
    Upgrade, dialer_fn,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, timeout};

const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nx: y\r\n\r\nfirst";

/// A server that the test plays itself on each connection.
#[derive(Clone, Default)]
struct Server {
    connections: Arc<Mutex<VecDeque<(bool, DuplexStream)>>>,
    down: Arc<Mutex<bool>>,
    speaks_http2: bool,
}

impl Server {
    fn transport(&self) -> Transport {
        let server = self.clone();
        let dialer = dialer_fn(move |attempt| {
            let (near, far) = tokio::io::duplex(4096);
            server.connections.lock().push_back((attempt.http1_only(), far));
            let protocol = if server.speaks_http2 { Protocol::Http2 } else { Protocol::Http1 };
            let refused = TransportErrorKind::Refused { to: "server".into(), reason: "down".into() };
            std::future::ready(if *server.down.lock() {
                Err(refused)
            } else {
                Ok(Dialed::new(near, protocol))
            })
        });
        let options = TransportOptions { seed: Some(1), wall_clock: None, ..Default::default() };
        let mut config = kube::Config::new("http://cluster.test:8080/prefix".parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        Transport::with_dialer(config, options, dialer).unwrap()
    }

    /// Returns the request of the next connection, and the connection.
    async fn accept(&self) -> (String, DuplexStream) {
        loop {
            let next = self.connections.lock().pop_front();
            let Some((http1_only, mut stream)) = next else {
                sleep(Duration::from_millis(1)).await;
                continue;
            };
            assert!(http1_only, "something else than HTTP/1.1 could be offered");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            return (String::from_utf8(head).unwrap(), stream);
        }
    }

    fn dialed(&self) -> usize {
        std::mem::take(&mut *self.connections.lock()).len()
    }
}

fn exec() -> Request<Body> {
    let request = Request::get("/api/v1/namespaces/a/pods/b/exec?command=sh");
    request.header("upgrade", "websocket").body(Body::empty()).unwrap()
}

/// Sends the request, and plays the server's part.
async fn played(
    server: &Server,
    transport: &Transport,
    answer: &[u8],
) -> (Result<Upgrade, TransportError>, DuplexStream) {
    let playing = async {
        let (_, mut stream) = server.accept().await;
        let _ = stream.write_all(answer).await;
        stream
    };
    tokio::join!(transport.upgrade(exec()), playing)
}

async fn is_closed(stream: &mut DuplexStream) {
    let mut more = Vec::new();
    timeout(Duration::from_secs(1), stream.read_to_end(&mut more)).await.expect("closed").unwrap();
    assert!(more.is_empty(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn upgrade_sends_credentials_and_yields_stream() {
    let server = Server::default();
    let transport = server.transport();
    let playing = async {
        let (asked, mut stream) = server.accept().await;
        let mut lines: Vec<&str> = asked.trim_end().split("\r\n").collect();
        assert_eq!(lines.remove(0), "GET /prefix/api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1");
        lines.retain(|line| !line.starts_with("user-agent: skopos/"));
        lines.sort_unstable();
        let wanted = [
            "authorization: Bearer secret",
            "connection: Upgrade",
            "host: cluster.test:8080",
            "upgrade: websocket",
        ];
        assert_eq!(lines, wanted);
        stream.write_all(SWITCHED).await.unwrap();
        stream
    };
    let (upgrade, mut stream) = tokio::join!(transport.upgrade(exec()), playing);
    let Upgrade::Switched(answer) = upgrade.unwrap() else { panic!("no stream") };
    assert_eq!(answer.headers()["x"], "y");
    let mut tunnel = answer.into_body();
    let mut first = [0; 5];
    tunnel.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"first");
    tunnel.write_all(b"there").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "there");
    assert!(transport.stats().connections.is_empty(), "it is nobody else's");

    // It ends when the transport does, which waits for its owner.
    let withdrawn = tunnel.withdrawn();
    let ending = async {
        withdrawn.await;
        drop(tunnel);
    };
    let (ended, ()) = tokio::join!(transport.shutdown(Duration::from_secs(1)), ending);
    assert!(ended);
    let error = transport.upgrade(exec()).await.unwrap_err();
    assert_eq!(*error.kind(), TransportErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_open_upgraded_stream() {
    let server = Server::default();
    let transport = server.transport();
    let (upgrade, _stream) = played(&server, &transport, SWITCHED).await;
    assert!(!transport.shutdown(Duration::from_secs(1)).await);
    drop(upgrade);
    assert!(transport.shutdown(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn upgrade_answer_is_whole_and_closes_connection() {
    let server = Server::default();
    let transport = server.transport();
    let answer = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nx: y\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n";
    let (upgrade, mut stream) = played(&server, &transport, answer).await;
    let Upgrade::Answered(answer) = upgrade.unwrap() else { panic!("a stream") };
    assert_eq!((answer.status().as_u16(), &answer.body()[..]), (403, &b"{}"[..]));
    is_closed(&mut stream).await;
    assert!(transport.stats().connections.is_empty());
    // The next one goes to another connection.
    let playing = async {
        let (_, mut stream) = server.accept().await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it").await.unwrap();
    };
    let (upgrade, ()) = tokio::join!(transport.upgrade(exec()), playing);
    let Upgrade::Answered(answer) = upgrade.unwrap() else { panic!("a stream") };
    assert_eq!(&answer.body()[..], b"all of it");
    assert_eq!(transport.stats().dials, 2);

    let large = format!("HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n{}", "x".repeat(2_000_000));
    let (upgrade, mut stream) = played(&server, &transport, large.as_bytes()).await;
    assert!(matches!(upgrade.unwrap_err().kind(), TransportErrorKind::TooLarge(_)));
    is_closed(&mut stream).await;
}

#[tokio::test(start_paused = true)]
async fn rejects_unusable_upgrade_answer_and_closes() {
    let server = Server::default();
    let transport = server.transport();
    for (answer, kind) in [
        (
            &b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n"[..],
            "redirected",
        ),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n", "protocol"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "protocol"),
        (b"SSH-2.0-x\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n", "unasked_encoding"),
    ] {
        let (upgrade, mut stream) = played(&server, &transport, answer).await;
        let error = upgrade.unwrap_err();
        assert_eq!((error.kind().label(), error.fault()), (kind, Fault::Server), "{error}");
        is_closed(&mut stream).await;
    }
    // A request without an `Upgrade` header cannot switch.
    let asking = async {
        let request = Request::get("/").body(Body::empty()).unwrap();
        transport.upgrade(request).await.unwrap_err()
    };
    let playing = async {
        let (_, mut stream) = server.accept().await;
        stream.write_all(SWITCHED).await.unwrap();
    };
    assert_eq!(tokio::join!(asking, playing).0.kind().label(), "protocol");
}

#[tokio::test(start_paused = true)]
async fn upgrade_of_mute_server_meets_deadline() {
    let server = Server::default();
    let transport = server.transport();
    let begun = Instant::now();
    let (upgrade, mut stream) = played(&server, &transport, b"HTTP/1.1 101").await;
    let error = upgrade.unwrap_err();
    assert_eq!(error.kind().label(), "headers_deadline");
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
    is_closed(&mut stream).await;
    let begun = Instant::now();
    let (upgrade, mut stream) =
        played(&server, &transport, b"HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\nx").await;
    assert_eq!(upgrade.unwrap_err().kind().label(), "body_deadline");
    assert!(begun.elapsed() <= Duration::from_secs(61), "{:?}", begun.elapsed());
    is_closed(&mut stream).await;
}

#[tokio::test(start_paused = true)]
async fn upgrades_respect_dial_backoff() {
    let server = Server::default();
    let transport = server.transport();
    *server.down.lock() = true;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let error = transport.upgrade(exec()).await.unwrap_err();
        assert_eq!(error.kind().root().label(), "refused");
        sleep(Duration::from_millis(10)).await;
    }
    let dialed = server.dialed();
    let most = Duration::from_secs(10).as_secs_f64() / BackoffOptions::default().first.as_secs_f64();
    assert!(dialed >= 5 && dialed as f64 <= most + 1.0, "{dialed}");
    transport.park("switched off");
    assert_eq!(transport.upgrade(exec()).await.unwrap_err().kind().label(), "parked");
    assert_eq!(server.dialed(), 0);
    *server.down.lock() = false;
    transport.wake();
    let (upgrade, _stream) = played(&server, &transport, SWITCHED).await;
    let Upgrade::Switched(answer) = upgrade.unwrap() else { panic!("no stream") };
    let withdrawn = answer.body().withdrawn();
    transport.park("switched off");
    timeout(Duration::from_secs(1), withdrawn).await.expect("withdrawn");
}

#[tokio::test(start_paused = true)]
async fn failed_upgrade_leaves_http2_server_up() {
    let server = Server { speaks_http2: true, ..Server::default() };
    let transport = server.transport();
    for _ in 0..3 {
        assert_eq!(transport.upgrade(exec()).await.unwrap_err().kind().label(), "protocol");
    }
    assert!(transport.stats().down.is_none());
}
