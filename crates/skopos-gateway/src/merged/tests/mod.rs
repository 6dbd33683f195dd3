//! The merged view over test servers in memory, under virtual time: failures are lines of a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Method, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skopos::journal::JournalOptions;
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{FactoryOptions, InformerOptions, Transform, Transport};
use skopos_fleet::{ClusterId, ClusterOptions, ClusterSpec, Connector, Fleet, FleetOptions, InformerConfig};
use skopos_testserver::{CloseMode, Fault, Match, TestServer};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{KindsOptions, Merged, ResumeStorage};
use crate::auth::Identity;
use crate::config::{Config, LoopbackTrust};
use crate::gateway::route::{Call, Route as _};
use crate::gateway::services::Services;
use crate::request::body::LimitedBody;
use crate::request::path::Path;
use crate::request::query::Query;
use crate::response::{Response, ResponseBody};
use crate::testing::QuietSource;

mod custom;
mod follows;
mod memory;
mod replicas;

/// Some clusters and the merged view of them.
struct Bed {
    servers: BTreeMap<&'static str, TestServer>,
    services: Services,
    merged: Merged,
    who: Arc<Identity>,
    draining: CancellationToken,
}

/// A complete answer.
struct Told {
    code: u16,
    headers: HeaderMap,
    json: Value,
}

/// A watch, read event by event.
struct Watch {
    body: ResponseBody,
    buffer: Vec<u8>,
}

const PODS: &str = "/api/v1/pods";

/// A time longer than any wait of the gateway.
const LONG_TIMEOUT: Duration = Duration::from_secs(120);

impl Bed {
    fn new(names: &[&'static str]) -> Self {
        Self::with(names, KindsOptions::default(), |config| {
            config.authorization.loopback = LoopbackTrust::Trusted;
        })
    }

    fn with(names: &[&'static str], options: KindsOptions, change: impl FnOnce(&mut Config)) -> Self {
        Self::keeping(names, options, change, |_| {})
    }

    /// Makes clusters with other options for the merged view.
    fn keeping(
        names: &[&'static str],
        options: KindsOptions,
        change: impl FnOnce(&mut Config),
        keep: impl FnOnce(&mut ClusterOptions),
    ) -> Self {
        let servers: BTreeMap<_, _> =
            names.iter().map(|name| (*name, TestServer::builder().start_in_memory().unwrap())).collect();
        Self::made_of(servers, "uid 1", options, change, keep)
    }

    /// Makes clusters over servers that all report this identity.
    fn over(
        servers: BTreeMap<&'static str, TestServer>,
        identity: &str,
        options: KindsOptions,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        Self::made_of(servers, identity, options, change, |_| {})
    }

    fn made_of(
        servers: BTreeMap<&'static str, TestServer>,
        identity: &str,
        options: KindsOptions,
        change: impl FnOnce(&mut Config),
        keep: impl FnOnce(&mut ClusterOptions),
    ) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let mut cluster = ClusterOptions {
            factory: FactoryOptions { cluster: Some(identity.into()), ..FactoryOptions::default() },
            informer: InformerConfig::new(|_, _| {
                let options = InformerOptions::all().transform(Transform::DropManagedFields);
                options.journal(JournalOptions::default())
            }),
            ..ClusterOptions::default()
        };
        keep(&mut cluster);
        let fleet = Fleet::new(FleetOptions {
            connector: in_memory(servers.clone()),
            cluster,
            retain_removed: Duration::from_secs(600),
            ..FleetOptions::default()
        });
        for name in servers.keys() {
            fleet.join(id(name), spec()).unwrap();
        }
        let services = Services::new(fleet, Arc::new(config));
        let merged = Merged::new(services.clone(), options);
        let who = Arc::new(Identity::loopback());
        Self { servers, services, merged, who, draining: CancellationToken::new() }
    }

    fn server(&self, name: &str) -> &TestServer {
        &self.servers[name]
    }

    fn pod(&self, cluster: &str, namespace: &str, name: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name,
            "labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        self.server(cluster).apply(pod).unwrap();
    }

    fn relabel(&self, cluster: &str, namespace: &str, name: &str, value: &str) {
        let mut pod = self.server(cluster).get("pods", Some(namespace), name).unwrap();
        pod["metadata"]["labels"]["step"] = json!(value);
        self.server(cluster).update(pod).unwrap();
    }

    fn relabel_cluster(&self, cluster: &str, env: &str) {
        self.services.fleet.join(id(cluster), spec().with_labels([("env", env)])).unwrap();
    }

    async fn answer(&self, path_and_query: &str, accept: &str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        self.answer_with(path_and_query, headers).await
    }

    async fn answer_with(&self, path_and_query: &str, headers: HeaderMap) -> Response {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        self.merged
            .answer(Call {
                method: Method::GET,
                path: Path::parse(path).unwrap(),
                query: Query::parse(query).unwrap(),
                headers,
                body: LimitedBody::whole(Bytes::new()),
                upgrade: None,
                identity: self.who.clone(),
                draining: self.draining.clone(),
            })
            .await
    }

    async fn get(&self, path: &str) -> Told {
        self.told(path, "application/json").await
    }

    async fn table(&self, path: &str) -> Told {
        self.told(path, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await
    }

    async fn told(&self, path: &str, accept: &str) -> Told {
        let answer = timeout(LONG_TIMEOUT, self.answer(path, accept)).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = timeout(LONG_TIMEOUT, body.collect()).await.unwrap().unwrap().to_bytes();
        let json = serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{e}: {body:?}"));
        Told { code: parts.status.as_u16(), headers: parts.headers, json }
    }

    async fn watch(&self, query: &str) -> Watch {
        self.watch_of(PODS, query).await
    }

    async fn watch_of(&self, path: &str, query: &str) -> Watch {
        let answer = self.answer(&format!("{path}?watch=1&{query}"), "application/json").await;
        assert_eq!(answer.status(), 200);
        Watch { body: answer.into_body(), buffer: Vec::new() }
    }

    /// Waits until the list is as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Told) -> bool) -> Told {
        for _ in 0..600 {
            let told = self.get(path).await;
            if wanted(&told) {
                return told;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("it never was: {}", self.get(path).await.json);
    }
}

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

fn spec() -> ClusterSpec {
    ClusterSpec::from_config(kube::Config::new("http://member".parse().unwrap()))
}

fn in_memory(servers: BTreeMap<&'static str, TestServer>) -> Connector {
    Connector::new(move |id, spec, options| {
        let server = servers.get(id.as_str()).cloned();
        let dialer = dialer_fn(move |attempt| {
            let dialed = match &server {
                Some(server) => server.connect().map(|io| Dialed::new(io, Protocol::Http2)),
                None => Err(std::io::Error::other("no such member")),
            };
            let to = attempt.uri().to_string().into();
            let refused = move |error: std::io::Error| TransportErrorKind::Refused {
                to,
                reason: error.to_string().into(),
            };
            std::future::ready(dialed.map_err(refused))
        });
        Transport::with_dialer(spec.config(), options, dialer)
    })
}

impl Told {
    fn version(&self) -> u64 {
        self.json["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    /// Returns `CLUSTER/NAMESPACE/NAME` of all items, in order.
    fn items(&self) -> Vec<String> {
        self.json["items"].as_array().unwrap().iter().map(name_of).collect()
    }

    fn warnings(&self) -> String {
        let all = self.headers.get_all(header::WARNING).iter();
        all.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    fn message(&self) -> &str {
        self.json["message"].as_str().unwrap()
    }
}

fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}/{}",
        text(&metadata["annotations"]["skopos.dev/cluster"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

impl Watch {
    /// Returns the next event, or `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(LONG_TIMEOUT, self.body.frame()).await.expect("an event in time")?;
            self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// Returns type, object and version of the next event.
    async fn event(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("the stream goes on");
        let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap();
        (event["type"].as_str().unwrap().to_owned(), name_of(&event["object"]), version)
    }

    /// Checks that no event arrives for this time, while the watch is read.
    async fn silent_for(&mut self, time: Duration) {
        let said = timeout(time, self.body.frame()).await;
        assert!(said.is_err() && self.buffer.is_empty(), "nothing was to be said: {said:?}");
    }

    /// Checks that no event arrives for a while.
    async fn silent(&mut self) {
        sleep(Duration::from_secs(10)).await;
        assert!(
            self.body.frame().now_or_never().is_none() && self.buffer.is_empty(),
            "nothing was to be said"
        );
    }
}

fn says(event: &(String, String, u64), kind: &str, name: &str) {
    assert_eq!((event.0.as_str(), event.1.as_str()), (kind, name));
}

#[tokio::test(start_paused = true)]
async fn compressed_list_equals_plain_list() {
    let bed = Bed::new(&["a", "b"]);
    for (cluster, server) in &bed.servers {
        let data = json!({"text": "x".repeat(100_000), "of": cluster});
        server
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"namespace": "default", "name": "large"}}))
            .unwrap();
    }
    let path = "/api/v1/configmaps";
    let plain = bed.until(path, |told| told.items().len() == 2).await;
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    for _ in 0..2 {
        let answer = bed.answer_with(path, headers.clone()).await;
        assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() < 10_000, "{}", packed.len());
        let unpacked: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&*packed)).unwrap();
        assert_eq!(unpacked["items"], plain.json["items"]);
    }
}

#[tokio::test(start_paused = true)]
async fn list_of_all_clusters_labels_each_object() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("south", "shop", "web");
    bed.pod("north", "shop", "web");
    bed.pod("north", "data", "db");
    let list = bed.get(PODS).await;
    assert_eq!((list.code, list.warnings().as_str()), (200, ""));
    assert_eq!(list.items(), ["north/data/db", "north/shop/web", "south/shop/web"]);
    assert_eq!(list.headers["skopos-source"], "merged");
    assert!(list.headers.contains_key("skopos-age"));
    for item in list.json["items"].as_array().unwrap() {
        let version: u64 = item["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version <= list.version(), "no object is newer than the list");
        assert_eq!(
            item["metadata"]["labels"]["skopos.dev/cluster"],
            item["metadata"]["annotations"]["skopos.dev/cluster"]
        );
    }
    assert!(list.json["metadata"].get("remainingItemCount").is_none());
    let table = bed.table(PODS).await;
    assert_eq!(table.json["columnDefinitions"][0]["name"], "Cluster");
    assert_eq!(table.json["columnDefinitions"][1]["name"], "Name");
    assert_eq!(table.json["rows"][0]["cells"][0], "north");
    // Selections of clusters.
    assert_eq!(bed.get(&format!("{PODS}?clusters=south")).await.items(), ["south/shop/web"]);
    let labelled = format!("{PODS}?labelSelector=skopos.dev%2Fcluster%3Dsouth");
    assert_eq!(bed.get(&labelled).await.items(), ["south/shop/web"]);
    let namespace = bed.get("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb").await;
    assert_eq!(namespace.items(), ["north/shop/web", "south/shop/web"]);
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_of_one_moment() {
    let bed = Bed::new(&["north", "south"]);
    for name in ["a", "b", "c"] {
        bed.pod("north", "shop", name);
        bed.pod("south", "shop", name);
    }
    let first = bed.get(&format!("{PODS}?limit=2")).await;
    assert_eq!(first.items(), ["north/shop/a", "north/shop/b"]);
    assert!(first.json["metadata"].get("remainingItemCount").is_none(), "it would count what others have");
    // Pages do not show later changes.
    bed.server("south").delete("pods", Some("shop"), "a").unwrap();
    bed.pod("north", "shop", "aa");
    bed.until(PODS, |list| list.items().len() == 6 && list.items().contains(&"north/shop/aa".to_owned()))
        .await;
    let mut page = first;
    let mut names = page.items();
    let version = page.version();
    while let Some(token) = page.json["metadata"]["continue"].as_str() {
        assert!(!token.is_empty());
        page = bed.get(&format!("{PODS}?limit=2&continue={token}")).await;
        assert_eq!(page.version(), version);
        names.extend(page.items());
    }
    let all =
        ["north/shop/a", "north/shop/b", "north/shop/c", "south/shop/a", "south/shop/b", "south/shop/c"];
    assert_eq!(names, all);
    // Each page is requested within the token's lifetime, all pages together are not.
    let mut page = bed.get(&format!("{PODS}?limit=2")).await;
    let version = page.version();
    for _ in 0..2 {
        sleep(Duration::from_secs(200)).await;
        bed.get(&format!("{PODS}?limit=2")).await;
        let token = page.json["metadata"]["continue"].as_str().unwrap();
        page = bed.get(&format!("{PODS}?limit=2&continue={token}")).await;
        assert_eq!((page.code, page.version()), (200, version));
    }
    // A token is valid for its list only.
    let first = bed.get(&format!("{PODS}?limit=2")).await;
    let token = first.json["metadata"]["continue"].as_str().unwrap();
    let other = bed.get(&format!("{PODS}?limit=2&clusters=south&continue={token}")).await;
    assert_eq!(other.code, 410);
    assert_eq!(bed.get(&format!("{PODS}?limit=2&continue=nonsense")).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn watch_survives_outage_and_receives_differences() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("south", "shop", "stays");
    bed.pod("south", "shop", "goes");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    bed.pod("north", "shop", "web");
    let first = watch.event().await;
    says(&first, "ADDED", "north/shop/web");
    assert!(first.2 > list.version());
    // One cluster fails and loses its watch history.
    bed.server("south").pause_with(CloseMode::Rst).await;
    bed.server("south").delete("pods", Some("shop"), "goes").unwrap();
    bed.pod("south", "shop", "new");
    bed.server("south").compact();
    bed.server("south").forget_events();
    watch.silent().await;
    bed.relabel("north", "shop", "web", "1");
    let second = watch.event().await;
    says(&second, "MODIFIED", "north/shop/web");
    let down = bed.get(PODS).await;
    assert_eq!(down.items().len(), 3, "its objects are kept");
    assert!(down.warnings().contains("south"), "{}", down.warnings());
    assert!(down.json["metadata"]["annotations"]["skopos.dev/stale"].as_str().unwrap().contains("south"));
    bed.server("south").resume().await.unwrap();
    let mut after = [watch.event().await, watch.event().await];
    assert!(second.2 < after[0].2 && after[0].2 < after[1].2, "versions grow");
    after.sort();
    says(&after[0], "ADDED", "south/shop/new");
    says(&after[1], "DELETED", "south/shop/goes");
    watch.silent().await;
    // A watch from any version continues without a gap.
    let mut again = bed.watch(&format!("resourceVersion={}", first.2)).await;
    says(&again.event().await, "MODIFIED", "north/shop/web");
    again.event().await;
    again.event().await;
    again.silent().await;
}

#[tokio::test(start_paused = true)]
async fn silent_cluster_is_named_and_delays_no_answer() {
    let bed = Bed::new(&["north", "south"]);
    bed.server("south").pause_with(CloseMode::Rst).await;
    bed.pod("north", "shop", "web");
    let began = tokio::time::Instant::now();
    let list = bed.get(PODS).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(list.items(), ["north/shop/web"]);
    assert!(list.warnings().contains("nothing is shown of south"), "{}", list.warnings());
    assert!(list.json["metadata"]["annotations"]["skopos.dev/missing"].as_str().unwrap().contains("south"));
    // When the cluster is back, open watches get its objects.
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    bed.pod("south", "shop", "late");
    bed.server("south").resume().await.unwrap();
    says(&watch.event().await, "ADDED", "south/shop/late");
}

#[tokio::test(start_paused = true)]
async fn watch_list_sends_state_then_resumable_bookmark() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    bed.until(PODS, |list| list.items().len() == 2).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = bed.watch(query).await;
    says(&watch.event().await, "ADDED", "north/shop/a");
    says(&watch.event().await, "ADDED", "south/shop/b");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let version = bookmark["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    drop(watch);
    bed.pod("south", "shop", "c");
    let mut watch = bed.watch(&format!("resourceVersion={version}")).await;
    says(&watch.event().await, "ADDED", "south/shop/c");
    // Versions that were never given out.
    for version in ["1", "9999999999999999"] {
        let mut watch = bed.watch(&format!("resourceVersion={version}")).await;
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert!(watch.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn removed_cluster_forces_relist_after_grace_period() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    let mut other = bed.watch(&format!("clusters=north&resourceVersion={}", list.version())).await;
    bed.services.fleet.leave(&id("south"), "sold");
    watch.silent().await;
    let kept = bed.get(PODS).await;
    assert_eq!(kept.items().len(), 2);
    assert!(kept.warnings().contains("south") && kept.warnings().contains("removed"), "{}", kept.warnings());
    sleep(Duration::from_secs(590)).await;
    let gone = bed.until(PODS, |list| list.items().len() == 1).await;
    assert!(!gone.warnings().contains("south"));
    // The watch was opened within its maximum lifetime, which may have ended it.
    let mut last = None;
    while let Some(event) = watch.next().await {
        assert_ne!(event["type"], "DELETED", "nothing was deleted");
        last = Some(event);
    }
    drop(last);
    let mut again = bed.watch(&format!("resourceVersion={}", list.version())).await;
    assert_eq!(
        again.next().await.unwrap()["object"]["code"],
        410,
        "what it has of south it would keep for ever"
    );
    while let Some(event) = other.next().await {
        assert_ne!(event["type"], "ERROR", "who does not watch it is not concerned");
    }
}

#[tokio::test(start_paused = true)]
async fn get_of_ambiguous_name_conflicts_unless_table() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("north", "shop", "web");
    bed.pod("south", "shop", "web");
    bed.pod("south", "shop", "only");
    bed.until(PODS, |list| list.items().len() == 3).await;
    let only = bed.get("/api/v1/namespaces/shop/pods/only").await;
    assert_eq!((only.code, name_of(&only.json).as_str()), (200, "south/shop/only"));
    let both = bed.get("/api/v1/namespaces/shop/pods/web").await;
    assert_eq!(both.code, 409);
    assert!(both.message().contains("north, south"), "{}", both.message());
    let one = bed.get("/api/v1/namespaces/shop/pods/web?clusters=north").await;
    assert_eq!(name_of(&one.json), "north/shop/web");
    let table = bed.table("/api/v1/namespaces/shop/pods/web").await;
    assert_eq!(table.json["rows"].as_array().unwrap().len(), 2);
    assert_eq!(bed.get("/api/v1/namespaces/shop/pods/none").await.code, 404);
    assert_eq!(bed.get("/api/v1/secrets").await.code, 403, "not in memory unless asked for");
    assert_eq!(bed.get("/api/v1/nonsense").await.code, 404);
    assert_eq!(bed.get("/api").await.json["versions"], json!(["v1"]));
}

#[tokio::test(start_paused = true)]
async fn names_denied_clusters_without_showing_objects() {
    let mut bed = Bed::with(&["north", "south"], KindsOptions::default(), |_| {});
    bed.who = Arc::new(Identity::authenticated("jane", []));
    for (name, server) in &bed.servers {
        let north = *name == "north";
        server.auth().answer_reviews(move |question| north || question.user != "jane");
    }
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "secret");
    let list = bed.until(PODS, |list| list.code == 200 && list.items().len() == 1).await;
    assert_eq!(list.items(), ["north/shop/a"]);
    assert!(list.warnings().contains("may not read") && list.warnings().contains("south"));
    assert_eq!(list.json["metadata"]["annotations"]["skopos.dev/denied"], "south");
    assert_eq!(bed.get(&format!("{PODS}?clusters=south")).await.code, 403);
    // A cluster without an answer has not denied: it may be shown once it answers.
    bed.server("south").pause_with(CloseMode::Rst).await;
    sleep(LONG_TIMEOUT).await;
    let list = bed.get(PODS).await;
    let missing = "south (it does not say whether you may read it)";
    assert_eq!(list.json["metadata"]["annotations"], json!({"skopos.dev/missing": missing}));
    assert_eq!(bed.get(&format!("{PODS}?clusters=south")).await.code, 503);
    assert!(list.headers["skopos-age"].to_str().unwrap().parse::<f64>().unwrap() < 60.0);
    bed.server("south").resume().await.unwrap();
    // An unknown cluster looks like a denied one.
    let none = bed.get(&format!("{PODS}?clusters=north,none")).await;
    assert_eq!(none.json["metadata"]["annotations"]["skopos.dev/denied"], "none");
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    bed.pod("south", "shop", "hidden");
    bed.pod("north", "shop", "b");
    says(&watch.event().await, "ADDED", "north/shop/b");
    // A revoked permission ends the watch.
    bed.server("north").auth().answer_reviews(|_| false);
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(watch.next().await.is_none());
}

/// Makes clusters with a caller whose permissions each cluster must review.
fn reviewed(names: &[&'static str]) -> Bed {
    let mut bed = Bed::with(names, KindsOptions::default(), |_| {});
    bed.who = Arc::new(Identity::authenticated("jane", []));
    bed.servers.values().for_each(|server| server.auth().answer_reviews(|_| true));
    bed
}

/// Checks that the caller is refused; otherwise the client would list again in an endless loop.
#[tokio::test(start_paused = true)]
async fn rejects_watch_when_member_allows_only_list() {
    let bed = reviewed(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    bed.server("south").auth().answer_reviews(|question| question.verb != "watch");
    let list = bed.until(PODS, |list| list.code == 200 && list.items().len() == 2).await;
    let from = format!("resourceVersion={}", list.version());
    let told = bed.get(&format!("{PODS}?watch=1&{from}")).await;
    assert_eq!(told.code, 403, "{:?}", told.json);
    assert!(
        told.message().contains("cluster south") && told.message().contains("?clusters="),
        "{}",
        told.message()
    );
    let list = bed.get(&format!("{PODS}?clusters=north")).await;
    let mut watch = bed.watch(&format!("clusters=north&resourceVersion={}", list.version())).await;
    bed.pod("north", "shop", "c");
    says(&watch.event().await, "ADDED", "north/shop/c");
    // A revoked permission is another case: the client lists again, and gets what it may still list.
    let both = bed.get(PODS).await;
    bed.server("south").auth().answer_reviews(|_| false);
    sleep(Duration::from_secs(11)).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", both.version())).await;
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn watch_survives_unanswered_access_review() {
    let bed = reviewed(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    bed.server("south").pause_with(CloseMode::Rst).await;
    watch.silent_for(LONG_TIMEOUT).await;
    bed.relabel("north", "shop", "a", "1");
    says(&watch.event().await, "MODIFIED", "north/shop/a");
    // The cluster is back and unchanged: the watch continues with it.
    bed.server("south").resume().await.unwrap();
    watch.silent_for(LONG_TIMEOUT).await;
    bed.relabel("south", "shop", "b", "1");
    says(&watch.event().await, "MODIFIED", "south/shop/b");
    // The permission was revoked while the cluster could not be asked: nothing later is shown.
    bed.server("south").pause_with(CloseMode::Rst).await;
    watch.silent_for(LONG_TIMEOUT).await;
    bed.server("south").auth().answer_reviews(|_| false);
    bed.relabel("south", "shop", "b", "2");
    bed.server("south").resume().await.unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["code"], 410, "{event}");
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn relists_after_changes_during_unanswered_review() {
    let bed = reviewed(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    let mut open = bed.watch(&format!("resourceVersion={}", list.version())).await;
    bed.server("south").pause_with(CloseMode::Rst).await;
    open.silent_for(LONG_TIMEOUT).await;
    // A list omits the cluster now; a watch gets its objects once the cluster can be asked.
    let list = bed.get(PODS).await;
    assert_eq!(list.items(), ["north/shop/a"]);
    assert!(list.warnings().contains("south"));
    let mut late = bed.watch(&format!("resourceVersion={}", list.version())).await;
    late.silent_for(LONG_TIMEOUT).await;
    bed.pod("south", "shop", "c");
    bed.server("south").resume().await.unwrap();
    for watch in [&mut open, &mut late] {
        let told = timeout(Duration::from_secs(30), watch.next()).await.unwrap();
        assert_eq!(told.unwrap()["object"]["code"], 410);
    }
    assert_eq!(bed.get(PODS).await.items(), ["north/shop/a", "south/shop/b", "south/shop/c"]);
}

#[tokio::test(start_paused = true)]
async fn slow_access_review_delays_only_first_list() {
    let bed = reviewed(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    bed.until(PODS, |list| list.items().len() == 2).await;
    sleep(LONG_TIMEOUT).await;
    let reviews = Match::any().path_prefix("/apis/authorization.k8s.io/");
    let _slow = bed.server("south").faults().inject(Fault::DelayHeaders(Duration::from_secs(5))).on(reviews);
    let took = async || {
        let begun = Instant::now();
        assert_eq!(bed.get(PODS).await.items(), ["north/shop/a"]);
        begun.elapsed()
    };
    assert!(took().await <= Duration::from_millis(3_100));
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        assert!(took().await < Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn list_warns_of_unread_cluster_sources() {
    let bed = Bed::new(&["north"]);
    bed.pod("north", "shop", "a");
    let source = QuietSource::default();
    bed.services.fleet.follow(source.clone());
    let list = bed.get(PODS).await;
    assert_eq!(list.items(), ["north/shop/a"]);
    let warnings = |told: &Told| told.headers.get_all(header::WARNING).iter().count();
    assert!(list.headers[header::WARNING].to_str().unwrap().contains("clusters may be missing"));
    assert_eq!(list.json["metadata"]["annotations"]["skopos.dev/unread-sources"], "1");
    assert_eq!(warnings(&bed.get("/apis").await), 1, "so may kinds");
    source.speaks();
    let list = bed.get(PODS).await;
    assert_eq!((list.items(), warnings(&list)), (vec!["north/shop/a".to_owned()], 0));
    assert_eq!(list.json["metadata"]["annotations"]["skopos.dev/unread-sources"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn selector_reveals_no_labels_of_denied_clusters() {
    let mut bed = Bed::with(&["north", "south", "west"], KindsOptions::default(), |_| {});
    bed.who = Arc::new(Identity::authenticated("jane", []));
    for (name, server) in &bed.servers {
        let denied = *name == "south";
        server.auth().answer_reviews(move |_| !denied);
    }
    bed.pod("north", "shop", "a");
    bed.pod("west", "shop", "b");
    bed.relabel_cluster("north", "prod");
    let path = format!("{PODS}?clusterSelector=env%3Dprod");
    let list = bed.until(&path, |list| list.items() == ["north/shop/a"]).await;
    let mut watch =
        bed.watch(&format!("clusterSelector=env%3Dprod&resourceVersion={}", list.version())).await;
    for env in ["prod", "test"] {
        bed.relabel_cluster("south", env);
        watch.silent().await;
        let chosen = bed.get(&path).await;
        assert_eq!(chosen.items(), ["north/shop/a"]);
        assert_eq!(chosen.json["metadata"]["annotations"], json!({"skopos.dev/denied": "south"}));
        assert!(chosen.warnings().contains("south"), "whether it would be chosen is not told");
        // The selector matches no readable cluster; all named clusters are denied.
        let none = bed.get(&format!("{PODS}?clusterSelector=env%3Dnone")).await;
        assert_eq!((none.code, none.items().len()), (200, 0));
        for value in ["prod", "test", "none"] {
            let alone = bed.get(&format!("{PODS}?clusters=south&clusterSelector=env%3D{value}")).await;
            assert_eq!(alone.code, 403, "{env} {value}");
        }
    }
    // Labels of a readable cluster do select, also later: its earlier objects were skipped, so the watch ends.
    bed.relabel_cluster("west", "prod");
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(bed.get(&path).await.items(), ["north/shop/a", "west/shop/b"]);
}

#[tokio::test(start_paused = true)]
async fn watch_omits_changes_of_deselected_cluster() {
    let bed = Bed::new(&["north", "south"]);
    bed.pod("north", "shop", "a");
    bed.server("south").pause_with(CloseMode::Rst).await;
    for cluster in ["north", "south"] {
        bed.relabel_cluster(cluster, "prod");
    }
    let path = format!("{PODS}?clusterSelector=env%3Dprod");
    let list = bed.until(&path, |list| list.items() == ["north/shop/a"]).await;
    let from = format!("clusterSelector=env%3Dprod&resourceVersion={}", list.version());
    let mut watch = bed.watch(&from).await;
    watch.silent().await;
    bed.relabel_cluster("south", "test");
    watch.silent().await;
    bed.pod("south", "shop", "b");
    bed.server("south").resume().await.unwrap();
    bed.until(PODS, |list| list.items().len() == 2).await;
    watch.silent().await;
    bed.pod("north", "shop", "c");
    says(&watch.event().await, "ADDED", "north/shop/c");
    // A cluster that is selected again does not join an open watch.
    bed.relabel_cluster("south", "prod");
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn only_caught_up_watches_resume_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = KindsOptions {
        resume_storage: ResumeStorage::Folder(folder.path().to_owned()),
        ..KindsOptions::default()
    };
    let mut bed = Bed::with(&["north", "south"], options.clone(), |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
    });
    bed.pod("north", "shop", "a");
    let early = bed.until(PODS, |list| list.items().len() == 1).await.version();
    bed.pod("south", "shop", "b");
    let seen = bed.until(PODS, |list| list.items().len() == 2).await.version();
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
    // The running store replaces a restored one here: the content as saved.
    bed.merged = Merged::new(bed.services.clone(), options);
    let mut watch = bed.watch(&format!("resourceVersion={seen}")).await;
    let mut missed = bed.watch(&format!("resourceVersion={early}")).await;
    assert_eq!(missed.next().await.unwrap()["object"]["code"], 410);
    let mut north = bed.watch(&format!("clusters=north&resourceVersion={early}")).await;
    bed.pod("north", "shop", "c");
    for watch in [&mut watch, &mut north] {
        let event = watch.event().await;
        says(&event, "ADDED", "north/shop/c");
        assert!(event.2 > seen);
        watch.silent().await;
    }
    assert!(bed.get(PODS).await.version() > seen);
}

/// Checks a resume after a restart: the members are restored and continue at once, and the merged kind starts with the
/// first request.
#[tokio::test(start_paused = true)]
async fn resumed_watch_gets_changes_made_during_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = KindsOptions {
        resume_storage: ResumeStorage::Folder(folder.path().to_owned()),
        ..KindsOptions::default()
    };
    let mut bed = Bed::with(&["north", "south"], options.clone(), |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
    });
    for name in ["a", "b"] {
        bed.pod("north", "shop", name);
    }
    let seen = bed.until(PODS, |list| list.items().len() == 2).await.version();
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
    // Before the first request.
    bed.pod("north", "shop", "c");
    bed.servers["north"].delete("pods", Some("shop"), "a").unwrap();
    bed.servers["north"].delete("pods", Some("shop"), "c").unwrap();
    bed.pod("north", "shop", "d");
    let version = bed.servers["north"].resource_version();
    let pods = skopos::ResourceId {
        group: String::new(),
        version: "v1".into(),
        plural: "pods".into(),
        kind: "Pod".into(),
    };
    let north = bed.services.fleet.get("north").unwrap();
    let kind = north.kind(&pods, LONG_TIMEOUT).await.unwrap();
    kind.informer().wait_for(&version.into(), LONG_TIMEOUT).await.unwrap();
    bed.merged = Merged::new(bed.services.clone(), options);
    let mut watch = bed.watch(&format!("resourceVersion={seen}")).await;
    for (what, name) in [("ADDED", "c"), ("DELETED", "a"), ("DELETED", "c"), ("ADDED", "d")] {
        says(&watch.event().await, what, &format!("north/shop/{name}"));
    }
    watch.silent().await;
    assert_eq!(bed.get(PODS).await.items(), ["north/shop/b", "north/shop/d"]);
}

/// Checks the case of a process that has given out merged versions and has not saved their ceiling.
#[tokio::test(start_paused = true)]
async fn killed_process_reissues_no_merged_version() {
    let folder = tempfile::tempdir().unwrap();
    let options = KindsOptions {
        resume_storage: ResumeStorage::Folder(folder.path().to_owned()),
        ..KindsOptions::default()
    };
    let mut bed = Bed::with(&["north"], options.clone(), |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
    });
    bed.pod("north", "shop", "a");
    bed.until(PODS, |list| list.items().len() == 1).await;
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
    bed.merged = Merged::new(bed.services.clone(), options.clone());
    let first = bed.until(PODS, |list| list.items().len() == 1).await.version();
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let left = std::fs::read(&file).unwrap();
    bed.pod("north", "shop", "b");
    let seen = bed.until(PODS, |list| list.items().len() == 2).await.version();
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
    std::fs::write(&file, left).unwrap();
    for name in ["c", "d", "e"] {
        bed.pod("north", "shop", name);
    }
    bed.merged = Merged::new(bed.services.clone(), options);
    bed.until(PODS, |list| list.items().len() == 5).await;
    for merged_version in [first, seen] {
        let mut watch = bed.watch(&format!("resourceVersion={merged_version}")).await;
        assert_eq!(watch.next().await.unwrap()["object"]["code"], 410, "{merged_version}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_resume_after_cluster_identity_changes() {
    let folder = tempfile::tempdir().unwrap();
    let options = KindsOptions {
        resume_storage: ResumeStorage::Folder(folder.path().to_owned()),
        ..KindsOptions::default()
    };
    let trusted = |config: &mut Config| config.authorization.loopback = LoopbackTrust::Trusted;
    let bed = Bed::with(&["north"], options.clone(), trusted);
    bed.pod("north", "shop", "a");
    let seen = bed.until(PODS, |list| list.items().len() == 1).await.version();
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
    let servers = bed.servers.clone();
    // The same objects at the same versions, with another identity.
    for (identity, goes_on) in [("uid 1", true), ("uid 2", false)] {
        let again = Bed::over(servers.clone(), identity, options.clone(), trusted);
        again.until(PODS, |list| list.items().len() == 1).await;
        let mut watch = again.watch(&format!("resourceVersion={seen}")).await;
        match goes_on {
            true => watch.silent().await,
            false => assert_eq!(watch.next().await.unwrap()["object"]["code"], 410),
        }
        assert!(again.merged.shutdown(LONG_TIMEOUT).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_comes_into_open_watches() {
    let bed = Bed::new(&["north", "south"]);
    bed.services.fleet.leave(&id("south"), "not yet");
    sleep(Duration::from_secs(601)).await;
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 1).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    watch.silent().await;
    bed.services.fleet.join(id("south"), spec()).unwrap();
    let event = watch.next().await.unwrap();
    match event["type"].as_str().unwrap() {
        "ADDED" => assert_eq!(name_of(&event["object"]), "south/shop/b"),
        // The content arrived before the decision on the cluster.
        other => assert_eq!((other, &event["object"]["code"]), ("ERROR", &json!(410))),
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_endpoint_is_read_only() {
    let bed = Bed::new(&["north"]);
    let call = Call {
        method: Method::DELETE,
        path: Path::parse("/api/v1/namespaces/shop/pods/web").unwrap(),
        query: Query::default(),
        headers: HeaderMap::new(),
        body: LimitedBody::whole(Bytes::new()),
        upgrade: None,
        identity: bed.who.clone(),
        draining: bed.draining.clone(),
    };
    assert_eq!(bed.merged.answer(call).await.status(), 405);
}

/// Runs kubectl, where it is installed: a list, one object, and a watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_just_works() {
    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::process::Command;

    let bed = Bed::new(&["north", "south"]);
    bed.pod("north", "shop", "web");
    bed.pod("south", "shop", "web");
    bed.until(PODS, |list| list.items().len() == 2).await;
    let ask = Arc::new(crate::FleetAsk::new(bed.services.fleet.clone()));
    let authenticator = crate::auth::Authenticator::new(&bed.services.config, ask).unwrap();
    let gateway = crate::Gateway::builder(authenticator, 1 << 20);
    let gateway = gateway.route("fleet", Arc::new(bed.merged.clone())).build();
    let mut config = bed.services.config.listen.clone();
    config.address.set_port(0);
    let options = crate::listen::ListenOptions {
        address: config.address,
        tls: None,
        authenticated: false,
        limits: config.limits,
    };
    let listener = crate::listen::Listener::bind(&options).unwrap();
    let server = format!("--server=http://{}/fleet", listener.address());
    let stop = CancellationToken::new();
    let running = stop.child_token();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { listener.run(gateway, running).await });

    let home = tempfile::tempdir().unwrap();
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new("kubectl");
        let cache = home.path().join("cache");
        command.env("HOME", home.path()).env("KUBECONFIG", "").arg(&server).arg("--cache-dir").arg(cache);
        command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
        command
    };
    let output = kubectl(&["get", "pods", "-A"]).output().await;
    let Ok(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["NAMESPACE", "CLUSTER", "NAME"], "{output:?}");
    assert_eq!(
        (&lines[1][..3], &lines[2][..3]),
        (&["shop", "north", "web"][..], &["shop", "south", "web"][..])
    );
    let output = kubectl(&["get", "pods", "-n", "shop", "web"]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3, "{output:?}");
    let output =
        kubectl(&["get", "pods", "-A", "-l", "skopos.dev/cluster=south", "-o", "name"]).output().await;
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "pod/web\n");

    let mut watch = kubectl(&["get", "pods", "-A", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    while let Some(line) = timeout(LONG_TIMEOUT, lines.next_line()).await.unwrap().unwrap() {
        seen.push(line);
        match seen.len() {
            3 => bed.server("south").pause_with(CloseMode::Rst).await,
            _ if seen.len() > 3 => break,
            _ => continue,
        }
        bed.pod("north", "shop", "late");
    }
    assert!(seen.last().unwrap().contains("north") && seen.last().unwrap().contains("late"), "{seen:?}");
    watch.kill().await.unwrap();
    stop.cancel();
    timeout(LONG_TIMEOUT, tasks.join_next()).await.unwrap();
}
