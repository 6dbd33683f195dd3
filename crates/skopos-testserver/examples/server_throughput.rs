//! Measures how fast the test server loads, lists and streams on this machine: `cargo run --release -p skopos-testserver
//! --example server_throughput -- 100000`.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use skopos_testserver::TestServer;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WATCHERS: usize = 10;
const EVENTS: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let pods = std::env::args().nth(1).map_or(Ok(100_000), |n| n.parse())?;
    // No watcher is evicted for being slow, because this measures the speed.
    let server = TestServer::builder().slow_watchers(u64::MAX, Duration::MAX).start().await?;

    let begin = Instant::now();
    server.load_pods(pods);
    report("pods loaded", server.count("pods"), begin);

    let begin = Instant::now();
    let size = read_all(get(&server, "/api/v1/pods").await?, usize::MAX).await?;
    report(&format!("pods listed, {} MB,", size >> 20), pods, begin);

    let from = server.resource_version();
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let body = get(&server, &format!("/api/v1/configmaps?watch=1&resourceVersion={from}")).await?;
        watchers.spawn(count_events(body, EVENTS));
    }
    let begin = Instant::now();
    for i in 0..EVENTS {
        let name = format!("m{}", i % 1000);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": {"n": i.to_string()}});
        if i < 1000 {
            server.create(object)?
        } else {
            server.update(object)?
        };
        if i % 256 == 0 {
            tokio::task::yield_now().await;
        }
    }
    report("writes", EVENTS, begin);
    while let Some(read) = watchers.join_next().await {
        read??;
    }
    report(&format!("events at {WATCHERS} watchers"), EVENTS * WATCHERS, begin);
    server.stop().await;
    Ok(())
}

async fn get(server: &TestServer, path: &str) -> Result<Incoming, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    #[expect(clippy::disallowed_methods, reason = "it ends with the program")]
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "test").body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?.into_body())
}

async fn read_all(mut body: Incoming, most: usize) -> Result<usize, Failure> {
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        size += frame?.data_ref().map_or(0, Bytes::len);
        if size >= most {
            break;
        }
    }
    Ok(size)
}

async fn count_events(mut body: Incoming, events: usize) -> Result<(), Failure> {
    let mut seen = 0;
    while seen < events {
        let frame = body.frame().await.ok_or("the watch ended early")??;
        seen += frame.data_ref().map_or(0, |data| data.iter().filter(|b| **b == b'\n').count());
    }
    Ok(())
}

fn report(what: &str, count: usize, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{count} {what} in {seconds:.2} s: {:.0} a second", count as f64 / seconds);
}
