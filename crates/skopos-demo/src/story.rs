//! `skopos demo --once`: everything that the demo shows, done and checked.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skopos::transport::TransportBody;
use skopos_console::error::CliError;
use skopos_console::gateway::{Answer, Gateway};
use skopos_console::human;
use skopos_fleet::{Cluster, Condition, Fleet};
use skopos_testserver::{CloseMode, VirtualClusters};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::stage::{HOST, Stage, id, namespace};

/// The story, and the handles that it needs.
pub(crate) struct Story {
    gateway: Gateway,
    fleet: Fleet,
    virtuals: VirtualClusters,
    /// Name of the virtual cluster that is paused
    paused: String,
    /// Name of another cluster, which keeps running meanwhile
    other: String,
    begun: Instant,
    limit: Duration,
}

/// Maximum time from a resumed server's readiness until its cluster is live.
const LIVE_WITHIN: Duration = Duration::from_secs(2);

/// Poll interval for states without a notification.
const LOOK: Duration = Duration::from_millis(20);

impl Story {
    pub(crate) fn new(stage: &Stage, begun: Instant, limit: Duration) -> Self {
        let name = |number: usize| stage.scene.names.get(number).cloned().unwrap_or_default();
        Self {
            gateway: stage.gateway.clone(),
            fleet: stage.fleet.clone(),
            virtuals: stage.virtuals.clone(),
            paused: name(0),
            other: name(1),
            begun,
            limit,
        }
    }

    /// Tells the story from the first list to the last cluster's return. Everything is in memory when it begins.
    ///
    /// # Errors
    /// Describes what is not as it should be.
    pub(crate) async fn tell(self) -> Result<(), CliError> {
        let (pods, version) = self.one_list().await?;
        let mut watch = Watched::open(&self.gateway, &version).await?;
        self.a_pause(&pods, &mut watch).await?;
        self.a_resumption(&mut watch).await?;
        self.by_hand().await?;
        self.by_scale().await?;
        self.a_fault().await?;
        watch.check_undisturbed(&self.paused_id(), &pods)?;
        self.ok("all the while: one watch over all clusters, never closed, no false DELETED, nothing twice")
    }

    /// Returns the names of the pods, by cluster, and the list's version.
    async fn one_list(&self) -> Result<(Pods, String), CliError> {
        let answer = self.get("/fleet/api/v1/pods").await?;
        let (pods, version) = pods(&answer)?;
        let clusters: BTreeSet<String> = self.fleet.members().keys().map(ToString::to_string).collect();
        let named: BTreeSet<String> = pods.keys().cloned().collect();
        require(clusters == named, || format!("the merged list has {named:?} of {clusters:?}"))?;
        let count: usize = pods.values().map(BTreeSet::len).sum();
        self.ok(format!("one list: {count} pods of {} clusters, {}", pods.len(), age(&answer)?))?;
        Ok((pods, version))
    }

    async fn a_pause(&self, before: &Pods, watch: &mut Watched) -> Result<(), CliError> {
        let (id, address) = (self.paused_id(), self.address()?);
        reachable(address, true).await?;
        self.lifecycle("pause").await?;
        self.until(Condition::Paused, Some("by the vcluster CLI's annotation")).await?;
        self.wait("the API server to go", self.virtuals.wait_down(&self.namespace(), &self.paused)).await?;
        reachable(address, false).await?;
        self.ok(format!("{id} is paused, and its address {address} is closed"))?;

        let answer = self.get(&format!("/clusters/{id}/api/v1/pods")).await?;
        let count = answer.json()?["items"].as_array().map_or(0, Vec::len);
        let known = before.get(&id).map_or(0, BTreeSet::len);
        require(count == known, || {
            format!("{count} pods of the paused cluster are listed instead of {known}")
        })?;
        require(answer.header("skopos-source") == Some("memory"), || "its list is not from memory".into())?;
        let warning = answer.header("warning").unwrap_or_default().to_owned();
        require(!warning.is_empty(), || "the list of the paused cluster carries no Warning".into())?;
        self.ok(format!("its {count} pods are listed from memory, {}, with", age(&answer)?))?;
        self.line(format!("    Warning: {warning}"))?;

        let merged = self.get("/fleet/api/v1/pods").await?;
        let warned = merged.header("warning").is_some_and(|text| text.contains(&id));
        require(warned, || "the merged list does not warn of the paused cluster".into())?;
        require(pods(&merged)?.0.contains_key(&id), || "the merged list lost the paused cluster".into())?;
        let elsewhere = self.other_id();
        self.scale_up(&elsewhere).await?;
        watch.until(&elsewhere, before, self.limit).await?;
        self.ok(format!(
            "the merged list still has them, and the merged watch continues: a new pod in {elsewhere}"
        ))
    }

    async fn a_resumption(&self, watch: &mut Watched) -> Result<(), CliError> {
        let id = self.paused_id();
        let began = self.operation("resume").await?;
        let took = self.live_again().await?;
        self.finished(&began).await?;
        self.ok(format!(
            "{id} is resumed: live again {} after its API server was ready",
            human::seconds(took)
        ))?;
        let now = pods(&self.get("/fleet/api/v1/pods").await?)?.0;
        self.scale_up(&id).await?;
        watch.until(&id, &now, self.limit).await?;
        self.ok("the merged watch has its new pod, and saw none of its old ones go")
    }

    /// Pauses and resumes with kubectl and the vcluster CLI's annotations, as a user would.
    async fn by_hand(&self) -> Result<(), CliError> {
        let annotations = json!({"loft.sh/paused": "true", "loft.sh/paused-replicas": "1"});
        self.patch_set(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 0}})).await?;
        self.until(Condition::Paused, Some("by the vcluster CLI's annotation")).await?;
        let annotations = json!({"loft.sh/paused": null, "loft.sh/paused-replicas": null});
        self.patch_set(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 1}})).await?;
        let took = self.live_again().await?;
        self.ok(format!(
            "annotated by hand, it is shown as paused; live again {} after",
            human::seconds(took)
        ))
    }

    async fn by_scale(&self) -> Result<(), CliError> {
        self.patch_set(json!({"spec": {"replicas": 0}})).await?;
        self.until(Condition::Paused, Some("scaled to zero")).await?;
        self.patch_set(json!({"spec": {"replicas": 1}})).await?;
        let took = self.live_again().await?;
        self.ok(format!("scaled to zero, it is shown as such; live again {} after", human::seconds(took)))
    }

    async fn a_fault(&self) -> Result<(), CliError> {
        let id = self.other_id();
        let server = self.virtuals.server(&namespace(&self.other), &self.other);
        let server = server.ok_or_else(|| CliError::new(format!("{id} has no API server")))?;
        let struck = Instant::now();
        server.faults().kill_connections(CloseMode::Rst);
        let cluster = self.cluster(&id)?;
        let healed = self
            .look("every connection that was reset to be replaced", || {
                let troubles = cluster.stats().kinds.into_iter().map(|kind| kind.informer.last_trouble);
                let troubles: Option<Vec<_>> = troubles.collect();
                let over = troubles?
                    .into_iter()
                    .map(|trouble| trouble.healed.map(|(at, _)| at).filter(|_| trouble.began >= struck));
                over.collect::<Option<Vec<Instant>>>()?.into_iter().max()
            })
            .await?;
        let took = human::seconds(healed.duration_since(struck));
        self.ok(format!("all connections to {id} are reset: found, and every watch resumed, after {took}"))
    }

    /// Pauses or resumes by the gateway's REST API, and waits until that is done.
    async fn lifecycle(&self, verb: &str) -> Result<(), CliError> {
        let operation = self.operation(verb).await?;
        self.finished(&operation).await
    }

    /// Begins an operation and returns its path.
    async fn operation(&self, verb: &str) -> Result<String, CliError> {
        let path = format!("/virtualclusters/{}/{}/{verb}", self.namespace(), self.paused);
        let answer = self.gateway.ask(Method::POST, &path, None).await?.good()?;
        let missing = || CliError::new("the gateway names no operation");
        answer.header("location").map(str::to_owned).ok_or_else(missing)
    }

    async fn finished(&self, operation: &str) -> Result<(), CliError> {
        let ended = async {
            loop {
                let now = self.get(&format!("{operation}?wait=5s")).await?.json()?;
                if now["state"] != "Running" {
                    return Ok::<_, CliError>(now);
                }
            }
        };
        let ended = timeout(self.limit, ended).await.map_err(|_| self.late("an operation to end"))??;
        require(ended["state"] == "Succeeded", || {
            format!("{} failed: {}", ended["operation"], ended["error"])
        })
    }

    async fn patch_set(&self, patch: Value) -> Result<(), CliError> {
        let (namespace, name) = (self.namespace(), &self.paused);
        let set = format!("/clusters/{HOST}/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}");
        self.gateway.ask(Method::PATCH, &set, Some(patch)).await?.good().map(drop)
    }

    /// Adds one pod.
    async fn scale_up(&self, id: &str) -> Result<(), CliError> {
        let path = format!("/clusters/{id}/apis/apps/v1/namespaces/shop/deployments/checkout/scale");
        let replicas = self.get(&path).await?.json()?["spec"]["replicas"].as_u64().unwrap_or(0);
        let more = json!({"spec": {"replicas": replicas + 1}});
        self.gateway.ask(Method::PATCH, &path, Some(more)).await?.good().map(drop)
    }

    /// Waits until the server is ready, and then until all that is cached of it is live. Returns the duration of the latter.
    async fn live_again(&self) -> Result<Duration, CliError> {
        self.wait("the API server to be back", self.virtuals.wait_up(&self.namespace(), &self.paused))
            .await?;
        let ready = Instant::now();
        self.until(Condition::Live, None).await?;
        let cluster = self.cluster(&self.paused_id())?;
        self.look("what is in memory to be live", || {
            let kinds = cluster.stats().kinds;
            kinds.iter().all(|kind| kind.informer.freshness.is_live()).then_some(())
        })
        .await?;
        let took = ready.elapsed();
        require(took <= LIVE_WITHIN, || {
            format!("{} was live only {} after its API server was ready", cluster.id(), human::seconds(took))
        })?;
        Ok(took)
    }

    /// Waits until the paused cluster has this condition, and checks that the gateway shows it.
    async fn until(&self, wanted: Condition, why: Option<&str>) -> Result<(), CliError> {
        let id = self.paused_id();
        let cluster = self.cluster(&id)?;
        let mut states = cluster.states();
        let is_so = |condition: Condition, reason: Option<&str>| {
            condition == wanted && why.is_none_or(|why| reason == Some(why))
        };
        let reached = states.wait_for(|state| is_so(state.condition, state.reason.as_deref()));
        if timeout(self.limit, reached).await.is_err() {
            return Err(CliError::new(format!("{id} did not become {wanted}: {}", cluster.state())));
        }
        let report = self.gateway.report().await?;
        let shown = report.clusters.iter().find(|shown| shown.name == id);
        let right = shown.is_some_and(|shown| {
            shown.state == wanted.as_str() && why.is_none_or(|why| shown.reason.as_deref() == Some(why))
        });
        require(right, || format!("{id} is {wanted}, and shown as {shown:?}"))
    }

    async fn wait<E: Display>(
        &self,
        what: &str,
        waiting: impl Future<Output = Result<(), E>>,
    ) -> Result<(), CliError> {
        match timeout(self.limit, waiting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CliError::new(format!("waited for {what}: {error}"))),
            Err(_) => Err(self.late(what)),
        }
    }

    /// Polls for a state without a notification.
    async fn look<T>(&self, what: &str, mut there: impl FnMut() -> Option<T>) -> Result<T, CliError> {
        let looking = async {
            let mut looks = interval(LOOK);
            loop {
                looks.tick().await;
                if let Some(found) = there() {
                    return found;
                }
            }
        };
        timeout(self.limit, looking).await.map_err(|_| self.late(what))
    }

    fn late(&self, what: &str) -> CliError {
        CliError::new(format!("timed out after {} waiting for {what}", human::seconds(self.limit)))
    }

    async fn get(&self, path: &str) -> Result<Answer, CliError> {
        self.gateway.ask(Method::GET, path, None).await?.good()
    }

    fn cluster(&self, id: &str) -> Result<Cluster, CliError> {
        self.fleet.cluster(id).map_err(CliError::new)
    }

    fn address(&self) -> Result<SocketAddr, CliError> {
        let missing = || CliError::new(format!("{} has no address", self.paused_id()));
        self.virtuals.address(&self.paused_id()).ok_or_else(missing)
    }

    fn namespace(&self) -> String {
        namespace(&self.paused)
    }

    fn paused_id(&self) -> String {
        id(&self.paused)
    }

    fn other_id(&self) -> String {
        id(&self.other)
    }

    fn ok(&self, text: impl Display) -> Result<(), CliError> {
        self.line(format!("ok  {text}"))
    }

    fn line(&self, text: impl Display) -> Result<(), CliError> {
        let mut out = io::stdout();
        writeln!(out, "{:>7.1}s  {text}", self.begun.elapsed().as_secs_f64())?;
        Ok(out.flush()?)
    }
}

/// Names of pods by cluster.
type Pods = BTreeMap<String, BTreeSet<String>>;

fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), CliError> {
    if holds { Ok(()) } else { Err(CliError::new(otherwise())) }
}

/// Returns the text about the answer's age.
fn age(answer: &Answer) -> Result<String, CliError> {
    let missing = || CliError::new("an answer does not say how old it is");
    let seconds: f64 = answer.header("skopos-age").and_then(|text| text.parse().ok()).ok_or_else(missing)?;
    Ok(format!("at most {} old", human::seconds(Duration::from_secs_f64(seconds.max(0.0)))))
}

/// Returns the pods of a merged list, and its version.
fn pods(answer: &Answer) -> Result<(Pods, String), CliError> {
    let list = answer.json()?;
    let mut pods = Pods::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        let (cluster, name) = whose(pod);
        pods.entry(cluster).or_default().insert(name);
    }
    Ok((pods, list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()))
}

fn whose(pod: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    (text(&metadata["annotations"]["skopos.dev/cluster"]), name)
}

/// Checks whether an API server listens at the address.
async fn reachable(address: SocketAddr, wanted: bool) -> Result<(), CliError> {
    let connected = timeout(Duration::from_secs(5), TcpStream::connect(address)).await;
    let found = matches!(connected, Ok(Ok(_)));
    let wrong = if found { "still listens" } else { "does not listen" };
    require(found == wanted, || format!("the API server at {address} {wrong}"))
}

/// A merged watch, read continuously.
struct Watched {
    seen: watch::Receiver<Seen>,
    _reading: JoinSet<()>,
}

/// Events of a watch so far.
#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    ended: bool,
}

#[derive(Debug, Clone)]
struct Event {
    kind: String,
    cluster: String,
    name: String,
}

impl Watched {
    async fn open(gateway: &Gateway, version: &str) -> Result<Self, CliError> {
        let body = gateway.watch(&format!("/fleet/api/v1/pods?watch=true&resourceVersion={version}")).await?;
        let (sender, seen) = watch::channel(Seen::default());
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            read(body, &sender).await;
            sender.send_modify(|seen| seen.ended = true);
        });
        Ok(Self { seen, _reading: reading })
    }

    /// Waits until a pod that is not known is added to a cluster.
    async fn until(&mut self, cluster: &str, known: &Pods, limit: Duration) -> Result<(), CliError> {
        let is_known = |name: &str| known.get(cluster).is_some_and(|names| names.contains(name));
        let is_new =
            |event: &Event| event.kind == "ADDED" && event.cluster == cluster && !is_known(&event.name);
        let reached = self.seen.wait_for(|seen| seen.ended || seen.events.iter().any(is_new));
        match timeout(limit, reached).await {
            Ok(Ok(seen)) if !seen.ended => Ok(()),
            Ok(_) => Err(CliError::new("the merged watch ended")),
            Err(_) => Err(CliError::new(format!("the merged watch did not bring the new pod in {cluster}"))),
        }
    }

    /// Checks that no pod which the cluster had from the beginning was added again or deleted, and that there was no error. (In
    /// the host the pod of its API server is deleted indeed.)
    fn check_undisturbed(&self, cluster: &str, known: &Pods) -> Result<(), CliError> {
        let seen = self.seen.borrow();
        require(!seen.ended, || "the merged watch ended".into())?;
        let was_there = |name: &str| known.get(cluster).is_some_and(|names| names.contains(name));
        let wrong = seen.events.iter().find(|event| match event.kind.as_str() {
            "ERROR" => true,
            "DELETED" => event.cluster != HOST,
            "ADDED" => event.cluster == cluster && was_there(&event.name),
            _ => false,
        });
        require(wrong.is_none(), || format!("the merged watch brought {wrong:?}"))
    }
}

/// Reads the events of a watch until it ends.
async fn read(mut body: TransportBody, seen: &watch::Sender<Seen>) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { return };
            let (cluster, name) = whose(&event["object"]);
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            seen.send_modify(|seen| seen.events.push(Event { kind, cluster, name }));
        }
    }
}
