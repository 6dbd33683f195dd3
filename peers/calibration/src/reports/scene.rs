//! What a scene is, and what all of them need.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use skopos::{Transport, TransportOptions};
use tokio::time::{Instant, sleep};

use crate::gate::Gate;
use crate::kit::client;
use crate::real::RealServer;

/// One thing that happens to a client of a server.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Flags that its server is started with.
    pub(crate) flags: &'static [&'static str],
    /// Plays it on a server that nobody else has; tells what was measured.
    pub(crate) play: Play,
}

type Play = for<'a> fn(&'a RealServer) -> BoxFuture<'a, anyhow::Result<String>>;

/// What a machine with much to do may take beyond a bound.
pub(crate) const SLACK: Duration = Duration::from_millis(500);

/// Where the config maps of the scenes are.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl Scene {
    pub(crate) const fn new(name: &'static str, play: Play) -> Self {
        Self { name, flags: &[], play }
    }

    pub(crate) const fn with(self, flags: &'static [&'static str]) -> Self {
        Self { flags, ..self }
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A transport that leads through the gate.
pub(crate) fn transport(server: &RealServer, gate: &Gate) -> anyhow::Result<Transport> {
    Ok(Transport::from_config(config(server, gate)?, TransportOptions::default())?)
}

pub(crate) fn config(server: &RealServer, gate: &Gate) -> anyhow::Result<kube::Config> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{}", gate.port()).parse()?);
    config.root_cert = Some(server.certificates()?.iter().map(|der| der.to_vec()).collect());
    Ok(config)
}

/// Creates a config map past the gate; gives its version.
pub(crate) async fn create(server: &RealServer, name: &str) -> anyhow::Result<u64> {
    let object = json!({"metadata": {"name": name}});
    let created = request(server, Method::POST, CONFIG_MAPS, Some(&object)).await?;
    Ok(created["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?)
}

/// Asks past the gate.
pub(crate) async fn request(
    server: &RealServer,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let headers = [("content-type", "application/json")];
    let headers = if body.is_empty() { &headers[..0] } else { &headers[..] };
    let answer = client::send(server, method, path, headers, body).await?;
    let code = answer.code;
    let body = answer.whole().await?;
    ensure!((200..300).contains(&code), "{code}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}

pub(crate) fn within(what: &str, begin: Instant, bound: Duration) -> anyhow::Result<()> {
    ensure!(begin.elapsed() <= bound + SLACK, "{what} took {:?}, more than {bound:?}", begin.elapsed());
    Ok(())
}

pub(crate) async fn eventually(limit: Duration, mut reached: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !reached() {
        ensure!(begin.elapsed() < limit, "not within {limit:?}");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
